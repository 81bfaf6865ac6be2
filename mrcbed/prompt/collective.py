"""The prompt's ``collective`` and ``allreduce``."""

from __future__ import annotations

import re
import time
from functools import partial

from rich.console import Console
from rich.progress import Progress

from agents.collectives.base import Collective
from agents.collectives.data import DTYPES
from agents.collectives.group import CollectiveError
from agents.collectives.registry import collectives
from mrcbed.perf.measure import Failed, Steps, collective_times
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.reconvergence import usual
from topologies.theory import COLLECTIVES, bus_bandwidth, bus_factor, place_ranks
from topologies.units import BYTE, US

DEFAULTS = {
    "steps": "10",
    "bytes": str(1 << 20),
    "placement": "packed",
    "dtype": "int32",
    "qps": "1",
    "slices": "4",
}
_NUMBERS = ("steps", "bytes", "qps", "slices")


def kind_of(name: str) -> type[Collective]:
    """Raises :class:`UserError` naming all collectives."""
    kinds = collectives()
    if name not in kinds:
        raise UserError(f"no collective {name!r}: there are {', '.join(kinds)}")
    return kinds[name]


def options_of(command: str, words: list[str]) -> tuple[dict[str, str], tuple[int, int, int, int]]:
    """Return options, and steps, bytes, qps and slices as numbers. Raises :class:`UserError`."""
    options = dict(DEFAULTS)
    for word in words:
        key, _, value = word.partition("=")
        if key not in options or not value:
            raise UserError(
                f"{command}: {word!r} is not one of {' '.join(f'{k}=' for k in options)}"
            )
        options[key] = value
    try:
        steps, size, qps, slices = (
            int(options[k]) if re.fullmatch("[0-9]{1,18}", options[k]) else 0 for k in _NUMBERS
        )
        if min(steps, size, qps, slices) < 1:
            raise ValueError
    except ValueError:
        raise UserError(
            f"{command}: steps, bytes, qps and slices are whole numbers above 0"
        ) from None
    return options, (steps, size, qps, slices)


def run(
    cluster: Cluster,
    console: Console,
    command: str,
    kind: type[Collective],
    words: list[str],
    transport: str = "mrc",
) -> None:
    """Raises :class:`UserError`, also on Ctrl-C."""
    options, (steps, size, qps, slices) = options_of(command, words)
    hosts = place_ranks(cluster.fabric, options["placement"])
    n = len(hosts)
    if options["dtype"] in DTYPES:
        unit = kind.parts(n) * slices * DTYPES[options["dtype"]].itemsize
        size = -(-size // unit) * unit
    try:
        kind.check(n, slices, size, options["dtype"], steps, 1)
    except CollectiveError as error:
        raise UserError(f"{command}: {error}") from None
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(kind.name, total=(steps + 1) * n)
        try:
            work = Steps(kind.name, size, options["dtype"], steps, 1, int(time.time()), qps, slices)
            say = partial(console.print, markup=False, highlight=False)
            measured = collective_times(
                cluster, hosts, work, usual(cluster, transport), lambda: bar.advance(task), say
            )
        except Failed as error:
            if error.lost:
                raise UserError(str(error)) from None
            raise UserError(
                f"{command}: {error}"
                + ("" if ":" in str(error) else ": `evs HOST` and `broken` may say why")
            ) from None
    times = sorted(max(spans.values()) for spans in measured.spans.values())
    middle, slowest = times[len(times) // 2], times[-1]
    rate = size * BYTE / middle
    summary = (
        f"{steps} steps of {size} B over {n} ranks: median {middle / US:.2f} µs, slowest "
        f"{slowest / US:.2f} µs, "
    )
    if kind.name in COLLECTIVES:
        bus = rate * bus_factor(kind.name, n)
        ideal = bus_bandwidth(
            cluster.fabric,
            kind.name,
            hosts,
            [k for k, up in cluster.link_states().items() if not up],
        )
        summary += (
            f"bus bandwidth {bus / 8e9:.2f} GB/s ({100 * bus / ideal if ideal else 0:.1f} % of "
            "what the links that are up allow), "
        )
    else:
        # a user's own collective: theory has no figure for it
        summary += f"{rate / 8e9:.2f} GB/s, "
    right = "every sum right" if kind.name.endswith("allreduce") else "every element right"
    console.print(f"{summary}{f'{measured.wrong} wrong elements' if measured.wrong else right}")
    if measured.wrong:
        raise UserError(f"{command}: {measured.wrong} wrong elements")
