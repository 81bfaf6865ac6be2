"""Scenario files are written in the real network's time: 240 us of outage on ports of 100 Gb/s. Machines run it ``dilation`` times slower.

Here the times and rates of a file's tables become those of this machine's clock, before anything else reads them; all that follows counts
in the clock's ns, until results are told (scenarios.figures.network_time). Pure; docs/time.md explains dilation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.faults.keys import Period
from testbed.faults.kinds import KINDS
from testbed.units import MAX_NS, Duration, parse_duration
from topologies.fabrics import parse_rate
from topologies.structs import Refused, join

TIME, RATE, NS, BPS = "time", "rate", "ns", "bit/s"
"""Ways to write a time or a rate: with a unit, or as a number of ns or bit/s."""
OPTIONS = {"rto_ns": NS, "rnr_ns": NS, "rate_limit": BPS}
"""Options of transports that are times or rates and reach the agents as numbers."""
Change = Callable[[Any, float, str], Any]
"""(value as written, dilation, dotted key) -> the value to read instead."""


def on_the_clock(data: dict[str, Any], dilation: float) -> dict[str, Any]:
    """A copy of a scenario file's tables in the machine's time; what is no time or rate stays, to be refused. Raises :class:`Refused`."""
    return changed(data, dilation, {TIME: _slower_time, RATE: _slower_rate, NS: _slower_ns, BPS: _slower_bps})


def changed(data: dict[str, Any], dilation: float, changes: Mapping[str, Change]) -> dict[str, Any]:
    """A copy of a scenario file's tables with every time and rate changed as ``changes`` says for its way of writing."""
    made = copy.deepcopy(data)
    for table, key, way, where in _measured(made):
        if key in table:
            table[key] = changes[way](table[key], dilation, join(where, key))
    return made


def _measured(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str, str]]:
    """(table, key, how it is written, the table's dotted name) of every key that may hold a time or a rate."""

    def tables(parent: Any, key: str) -> Iterator[tuple[dict[str, Any], str]]:
        found = parent.get(key) if isinstance(parent, dict) else None
        for i, table in enumerate(found if isinstance(found, list) else [found]):
            if isinstance(table, dict):
                yield table, f"{key}[{i}]" if isinstance(found, list) else key

    yield data, "nic_rate", RATE, ""
    for work, where in tables(data, "workload"):
        yield from ((work, key, TIME, where) for key in ("duration", "victim_alone", "settle"))
        for flow, inner in tables(work, "flow"):
            yield from ((flow, key, TIME, f"{where}.{inner}") for key in ("start", "for"))
        yield from ((job, "compute", TIME, f"{where}.{inner}") for job, inner in tables(work, "job"))
    for transport, where in tables(data, "transport"):
        for options, inner in tables(transport, "options"):
            yield from ((options, key, way, f"{where}.{inner}") for key, way in {"reconvergence": TIME, **OPTIONS}.items())
        yield from ((options, "delay", TIME, f"{where}.{inner}") for options, inner in tables(transport, "fabric_options"))
    for fault, where in tables(data, "fault"):
        own = KINDS[fault["kind"]].keys if isinstance(fault.get("kind"), str) and fault["kind"] in KINDS else ()
        yield from ((fault, key, TIME, where) for key in ("at", "for", *(k.name for k in own if k.kind in (Duration, Period))))
    for flow, where in tables(data, "background"):
        yield flow, "rate", RATE, where
        yield from ((flow, key, TIME, where) for key in ("start", "for"))


def _slower_time(value: Any, dilation: float, where: str) -> Any:
    try:
        ns = round(parse_duration(value) * dilation)
    except ValueError:
        return value
    if ns >= MAX_NS:
        raise Refused(where, f"= {value!r} takes more than a day of this machine's time, which is {dilation:,.0f} times slower: shorten it")
    return f"{ns}ns" if ns else value  # 0 is refused, or not, as written


def _slower_rate(value: Any, dilation: float, where: str) -> Any:
    try:
        return round(parse_rate(value) / dilation)
    except ValueError:
        return value


def _slower_ns(value: Any, dilation: float, where: str) -> Any:
    return round(value * dilation) if is_amount(value) else value


def _slower_bps(value: Any, dilation: float, where: str) -> Any:
    return round(value / dilation) if is_amount(value) else value


def is_amount(value: Any) -> bool:
    """Whether an option is a number above 0: others stand for its default."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
