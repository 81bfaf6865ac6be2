"""Runs ``perf`` on a living cluster: one row per size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from agents.collectives.data import DTYPES
from agents.collectives.flows import WORD
from agents.collectives.group import ARENA, CollectiveError
from agents.collectives.registry import find
from mrcbed.perf import tables
from mrcbed.perf.measure import Failed, Steps, Stopped, collective_times, flow_times
from testbed.errors import UserError
from testbed.reconvergence import Reconvergence, usual
from testbed.world import World
from topologies.clos import Fabric
from topologies.structs import there_are
from topologies.theory import bus_factor, place_ranks
from topologies.units import US, S

COLLECTIVES = {
    "all_reduce": "ring-allreduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "send_recv": "send-recv",
}
OPERATIONS = (*COLLECTIVES, "write_bw", "write_lat")
SLICES = 4
DEPTH = 16
"""Perftest's default is 128 on a NIC, here so many fill the largest BDP [ours]."""
STEP = 1 << 20  # nccl-tests' default of -i, bytes, where -f is 1
VECTOR = 16
"""nccl-tests rounds each rank's part down to so many bytes, except in all_reduce and sendrecv
(src/*.cu, GetCollByteCount)."""
SLACK = 0.02  # How far a figure may exceed what the line carries: emulated timers [ours].
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMG]?)(?:i?B)?", re.IGNORECASE)
_TIMES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
TYPES = {"float": "float32", "int": "int32"}


def size_of(text: str) -> int:
    """Read ``8``, ``32K``, ``1.5M``, ``1MB`` as nccl-tests' parsesize(): powers of 1,024. Raises
    :class:`UserError`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UserError(f"size {text!r}: write it like 8, 32K or 1M")
    return int(float(match[1]) * _TIMES[match[2].upper()])


def shown_size(size: int) -> str:
    unit = next((unit for unit in "GMK" if size and size % _TIMES[unit] == 0), "")
    return f"{size // _TIMES[unit]}{unit}"


def operation_of(name: str) -> str:
    """``name``: ours, nccl-tests' (``alltoall_perf``) or perftest's (``ib_write_bw``). Raises
    :class:`UserError`."""
    bare = re.sub(r"^(ib|raw_ethernet)_|_perf$", "", PurePath(name).name.lower().replace("-", "_"))
    found = {known.replace("_", ""): known for known in OPERATIONS}.get(bare.replace("_", ""))
    if found is None:
        raise UserError(f"no operation {name!r}: {there_are(bare, OPERATIONS)}")
    return found


@dataclass(frozen=True)
class Request:
    """Sizes in bytes; ``None``: the operation's default."""

    operation: str
    least: int | None = None
    most: int | None = None
    factor: int | None = None
    increment: int | None = None
    iterations: int | None = None
    warmup: int = 1
    cycles: int = 1
    check: bool = True
    dtype: str = "float32"
    algorithm: str = "ring"
    placement: str = "packed"
    pair: tuple[int, int] | None = None
    qps: int = 1
    depth: int = DEPTH
    gbits: bool = False
    seed: int = 0

    @property
    def collective(self) -> str:
        """Empty for a flow's bandwidth or latency."""
        return (
            f"{self.algorithm}-allreduce"
            if self.operation == "all_reduce"
            else COLLECTIVES.get(self.operation, "")
        )

    @property
    def ends(self) -> tuple[int, int]:
        default = {"write_bw": (1 << 12, 1 << 20), "write_lat": (8, 1 << 16)}.get(
            self.operation, (1 << 13, 1 << 20)
        )
        least = default[0] if self.least is None else self.least
        return least, (
            max(default[1], least) if self.least is None else least
        ) if self.most is None else self.most

    @property
    def step(self) -> tuple[int, bool]:
        """From a size to the next: (factor, True) or (bytes, False). As in nccl-tests, a factor
        above 1 goes before an increment."""
        factor = self.factor if self.factor is not None else 4 if self.increment is None else 1
        return (
            (factor, True)
            if factor > 1
            else (STEP if self.increment is None else self.increment, False)
        )

    def sizes(self) -> list[int]:
        """Raises :class:`UserError`."""
        least, most = self.ends
        step, is_factor = self.step
        if not 1 <= least <= most:
            raise UserError(f"sizes from {least} to {most}: from at least 1 byte, upwards (-b, -e)")
        if step < 1:
            raise UserError(
                "the next size is a factor of at least 2 (-f) or an increment of at least 1 byte "
                "(-i) larger"
            )
        sizes = [least]
        while (size := sizes[-1] * step if is_factor else sizes[-1] + step) <= most:
            sizes.append(size)
            if len(sizes) > 1000:
                raise UserError("more than 1000 sizes: take a larger factor (-f) or increment (-i)")
        return sizes

    def count(self) -> int:
        return (
            self.iterations
            if self.iterations is not None
            else {"write_bw": 100, "write_lat": 50}.get(self.operation, 5)
        )

    def row(self, size: int, ranks: int) -> tuple[int, int, int]:
        """Return bytes and elements of a row, rounded as nccl-tests does, and the slices of each
        part."""
        item = DTYPES[self.dtype].itemsize
        count, parts = size // item, find(self.collective).parts(ranks)
        if self.operation not in ("all_reduce", "send_recv"):
            count = count // ranks // (VECTOR // item) * (VECTOR // item)
        shown = count * item * (1 if self.operation in ("all_reduce", "send_recv") else ranks)
        return shown, count, next((k for k in (SLICES, 2) if shown >= parts * k * item), 1)

    def carried(self, size: int, ranks: int) -> int:
        """Return bytes that travel: whole words, and equal slices of equal parts."""
        if not self.collective:
            return max(1, -(-size // WORD)) * WORD
        shown, _, slices = self.row(size, ranks)
        unit = find(self.collective).parts(ranks) * slices * DTYPES[self.dtype].itemsize
        return -(-shown // unit) * unit

    def largest(self, ranks: int) -> int:
        if not self.collective:
            return (
                ARENA // 2 // self.depth // WORD * WORD
                if self.operation == "write_bw"
                else ARENA // 4
            )
        unit = find(self.collective).parts(ranks) * SLICES * DTYPES[self.dtype].itemsize
        return ARENA // 4 // unit * unit


def check_request(request: Request, fabric: Fabric) -> list[int]:
    """Return the hosts in rank order. Raises :class:`UserError` for what this fabric cannot
    measure, before anything is built."""
    if request.operation not in OPERATIONS:
        raise UserError(
            f"no operation {request.operation!r}: {there_are(request.operation, OPERATIONS)}"
        )
    if request.dtype not in DTYPES:
        raise UserError(f"type {request.dtype!r}: {there_are(request.dtype, ('float', *DTYPES))}")
    if request.count() < 1 or request.warmup < 0:
        raise UserError("at least one iteration (-n), no negative warm-up (-w)")
    if request.collective:
        if request.algorithm not in ("ring", "tree") or (
            request.algorithm == "tree" and request.operation != "all_reduce"
        ):
            raise UserError(
                f"algorithm {request.algorithm!r} of {request.operation}: all_reduce has ring "
                "and tree, the others only theirs"
            )
        hosts = place_ranks(fabric, request.placement)
        try:
            find(request.collective).check_ranks(len(hosts))
        except CollectiveError as error:
            raise UserError(str(error)) from None
    else:
        a, b = request.pair or (0, fabric.host_count - 1)
        if a == b or not (0 <= a < fabric.host_count and 0 <= b < fabric.host_count):
            raise UserError(
                f"pair h{a}:h{b}: two different hosts of h0 to h{fabric.host_count - 1}"
            )
        hosts = [a, b]
    most, largest = request.sizes()[-1], request.largest(len(hosts))
    if request.carried(most, len(hosts)) > largest:
        fewer = (
            ", or fewer messages at once (--tx-depth)"
            if request.operation == "write_bw" and request.depth > 1
            else ""
        )
        bound = shown_size(largest)
        raise UserError(
            f"{request.operation} of {shown_size(most)}: the memory of a host holds {bound}: "
            f"give at most -e {bound}{fewer}"
        )
    return hosts


def perf(
    world: World,
    request: Request,
    transport: str,
    line: Callable[[str], None],
    say: Callable[[str], None],
    on_row: Callable[[], None] = lambda: None,
) -> dict[str, object]:
    """Measure and print line by line; return the figures, ``wrong`` among them. The table ends with
    its footer in any case.

    ``say``: news for people. ``on_row``: called after each row. Raises :class:`UserError`, and
    :class:`mrcbed.perf.measure.Failed` with the figures of the rows before.
    """
    fabric = world.fabric
    hosts = check_request(request, fabric)
    network = usual(world, transport)
    made: dict[str, object] = {
        "operation": request.operation,
        "fabric": fabric.name,
        "transport": transport,
        "world": world.name,
    }
    made["ranks" if request.collective else "pair"] = hosts
    head, shown = _table(request, fabric, hosts, transport, world.name)
    rows: list[tables.Row | tables.Bandwidth | tables.Latency] = []
    wrong = 0

    def figures() -> dict[str, object]:
        rates = [
            {"messages_per_s": row.rate} if isinstance(row, tables.Bandwidth) else {}
            for row in rows
        ]
        return {
            **made,
            "rows": [asdict(row) | rate for row, rate in zip(rows, rates, strict=True)],
            "wrong": wrong,
        }

    for text in head:
        line(text)
    try:
        for _ in range(request.cycles):
            for size in request.sizes():
                row, bad = _measured(world, request, hosts, network, size, say)
                rows.append(row)
                wrong += bad
                line(shown(row))
                on_row()
    except KeyboardInterrupt:
        raise Stopped("stopped", True, figures()) from None
    except Failed as error:
        error.figures = figures()
        raise
    finally:
        for text in (
            tables.nccl_foot([row for row in rows if isinstance(row, tables.Row)])
            if request.collective
            else [tables.RULE]
        ):
            line(text)
    return figures()


def _table(
    request: Request, fabric: Fabric, hosts: list[int], transport: str, world: str
) -> tuple[list[str], Callable[[Any], str]]:  # fmt: skip
    if request.collective:
        (least, most), (step, is_factor) = request.ends, request.step
        flags = {
            "min": least,
            "max": most,
            "step": f"{step}({'factor' if is_factor else 'bytes'})",
            "warmup": request.warmup,
            "iters": request.count(),
            "check": int(request.check),
        }
        return tables.nccl_head(
            fabric, hosts, request.operation, flags, transport, world
        ), tables.nccl_row
    bandwidth = request.operation == "write_bw"
    title, depth = ("Write BW", request.depth) if bandwidth else ("Write Latency", 1)
    head = tables.perftest_head(
        title, fabric, hosts, request.qps, depth, transport, world, request.gbits
    )
    return head, (
        lambda row: tables.bandwidth_row(row, request.gbits)
    ) if bandwidth else tables.latency_row


def _measured(
    world: World,
    request: Request,
    hosts: list[int],
    network: Reconvergence | None,
    size: int,
    say: Callable[[str], None],
) -> tuple[tables.Row | tables.Bandwidth | tables.Latency, int]:
    if request.operation == "write_bw":
        return _bandwidth(world, request, hosts, network, size)
    if request.operation == "write_lat":
        return _latency(world, request, hosts, network, size, say)
    kind, n = request.collective, len(hosts)
    shown, count, slices = request.row(size, n)
    halves, bad = [], 0
    for turn in range(2):
        time_us, wrong = 0.0, 0  # nothing travels where nccl-tests rounds down to nothing
        if shown:
            carried = request.carried(size, n)
            work = Steps(
                kind,
                carried,
                request.dtype,
                request.count(),
                request.warmup,
                request.seed + turn,
                request.qps,
                slices,
            )
            measured = collective_times(world, hosts, work, network, say=say)
            spans = [span for by_rank in measured.spans.values() for span in by_rank.values()]
            time_us, wrong = sum(spans) / len(spans) / US, measured.wrong if request.check else 0
        halves.append(
            tables.block(shown, time_us, bus_factor(kind, n), wrong if request.check else None)
        )
        _possible("bus bandwidth in GB/s", halves[-1].busbw, _line(world.fabric) / 1e9)
        bad += wrong
    name = {"float32": "float", "int32": "int32"}[request.dtype]
    redop = "none" if request.operation in ("all_gather", "all_to_all") else "sum"
    return tables.Row(shown, count, name, redop, -1, halves[0], halves[1]), bad


def _bandwidth(
    world: World, request: Request, hosts: Sequence[int], network: Reconvergence | None, size: int
) -> tuple[tables.Bandwidth, int]:
    carried = request.carried(size, 2)
    measured = flow_times(
        world, hosts, carried, request.count(), request.depth, request.seed, network, request.qps
    )
    [flow] = measured.flows
    scale = S * size / carried
    average = flow["bytes"] / (flow["end_ps"] - flow["start_ps"]) * scale
    assert flow["peak_ps"] is not None
    peak = flow["peak_bytes"] / flow["peak_ps"] * scale
    _possible("peak bandwidth in GB/s", peak / 1e9, _line(world.fabric) / 1e9)
    _possible("average bandwidth in bytes/s", average, peak)
    return tables.Bandwidth(size, request.count(), peak, average), measured.wrong


def _latency(
    world: World,
    request: Request,
    hosts: Sequence[int],
    network: Reconvergence | None,
    size: int,
    say: Callable[[str], None],
) -> tuple[tables.Latency, int]:
    work = Steps(
        "ping-pong",
        request.carried(size, 2),
        "int32",
        request.count(),
        request.warmup,
        request.seed,
        slices=1,
    )
    measured = collective_times(world, hosts, work, network, say=say)
    trips = [spans[0] / US for spans in measured.spans.values()]
    row = tables.latency(size, trips)
    _possible(
        "what the cables take in us",
        world.fabric.delay_ps / US + size / _line(world.fabric) * 1e6,
        row.t_min,
    )
    return row, measured.wrong


def _line(fabric: Fabric) -> float:
    """Payload of a host's ports, bytes/s."""
    return fabric.host_rate * fabric.payload_share / 8


def _possible(what: str, value: float, most: float) -> None:
    """Raise RuntimeError, an internal error, for a figure that cannot be."""
    if value > most * (1 + SLACK):
        raise RuntimeError(f"{what} is {value:g}, more than {most:g}, which is impossible")
