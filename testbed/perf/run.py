"""``perf`` on a living cluster: which operation, which sizes, one row after the other. For the command line and the prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agents.collectives.data import DTYPES
from testbed.errors import UserError
from testbed.perf import tables
from testbed.perf.measure import Steps, collective_times, flow_times
from testbed.reconvergence import Reconvergence, usual
from testbed.world import World
from topologies.clos import Fabric
from topologies.theory import bus_factor, place_ranks

COLLECTIVES = {
    "all_reduce": "ring-allreduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather", "all_to_all": "all-to-all",
    "send_recv": "send-recv",
}  # fmt: skip
"""nccl-tests' programs, and what they are here."""
OPERATIONS = (*COLLECTIVES, "write_bw", "write_lat")
SLICES = 4
DEPTH = 16
"""WRITEs under way at once; perftest's default is 128 on a NIC, here so many fill the largest BDP [ours]."""
_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.IGNORECASE)
_TIMES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text: str) -> int:
    """``8``, ``32K``, ``1M``. Raises :class:`UserError`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UserError(f"size {text!r}: write it like 8, 32K or 1M")
    return int(match[1]) * _TIMES[match[2].upper()]


@dataclass(frozen=True)
class Request:
    """What to measure. Sizes in bytes; ``None`` where the operation's default holds."""

    operation: str
    least: int | None = None
    most: int | None = None
    factor: int | None = None
    increment: int | None = None
    iterations: int | None = None
    warmup: int = 1
    check: bool = True
    dtype: str = "float32"
    algorithm: str = "ring"
    placement: str = "packed"
    pair: tuple[int, int] | None = None
    qps: int = 1
    gbits: bool = False
    seed: int = 0

    def sizes(self) -> list[int]:
        """From the least to the most. Raises :class:`UserError`."""
        default = {"write_bw": (1 << 12, 1 << 20), "write_lat": (8, 1 << 16)}.get(self.operation, (1 << 13, 1 << 20))
        least = default[0] if self.least is None else self.least
        most = (max(default[1], least) if self.least is None else least) if self.most is None else self.most
        factor = (4 if self.increment is None else 0) if self.factor is None else self.factor
        increment = self.increment or 0
        if not 1 <= least <= most:
            raise UserError(f"sizes from {least} to {most}: from at least 1 byte, upwards (-b, -e)")
        if factor < 2 and increment < 1:
            raise UserError("the next size is a factor of at least 2 (-f) or an increment of at least 1 byte (-i) larger")
        sizes = [least]
        while (size := sizes[-1] * factor if factor else sizes[-1] + increment) <= most:
            sizes.append(size)
            if len(sizes) > 1000:
                raise UserError("more than 1000 sizes: take a larger factor (-f) or increment (-i)")
        return sizes

    def count(self) -> int:
        """Iterations of a size."""
        return self.iterations if self.iterations is not None else {"write_bw": 100, "write_lat": 50}.get(self.operation, 5)


def check_request(request: Request, fabric: Fabric) -> list[int]:
    """Refuse what cannot be measured on this fabric, before anything is built; the hosts in rank order. Raises :class:`UserError`."""
    if request.operation not in OPERATIONS:
        raise UserError(f"no operation {request.operation!r}: there are {', '.join(OPERATIONS)}")
    if request.dtype not in DTYPES:
        raise UserError(f"type {request.dtype!r}: there are {', '.join(DTYPES)}")
    if request.count() < 1 or request.warmup < 0:
        raise UserError("at least one iteration (-n), no negative warm-up (-w)")
    request.sizes()
    if request.operation in COLLECTIVES:
        if request.algorithm not in ("ring", "tree") or (request.algorithm == "tree" and request.operation != "all_reduce"):
            raise UserError(f"algorithm {request.algorithm!r} of {request.operation}: all_reduce has ring and tree, the others only theirs")
        return place_ranks(fabric, request.placement)
    a, b = request.pair or (0, fabric.host_count - 1)
    if a == b or not (0 <= a < fabric.host_count and 0 <= b < fabric.host_count):
        raise UserError(f"pair h{a}:h{b}: two different hosts of h0 to h{fabric.host_count - 1}")
    return [a, b]


def perf(
    world: World, request: Request, transport: str, name: str, line: Callable[[str], None], say: Callable[[str], None]
) -> dict[str, Any]:  # fmt: skip
    """Measure and print line by line; returns the figures, ``wrong`` among them. ``name``: of the world. ``say``: news for people.
    Raises :class:`UserError`, :class:`testbed.perf.measure.Failed`."""
    fabric = world.fabric
    hosts = check_request(request, fabric)
    network = usual(world, transport)
    made = {"operation": request.operation, "fabric": fabric.name, "transport": transport, "world": name, "dilation": fabric.dilation}
    if request.operation in COLLECTIVES:
        flags = {
            "min": request.sizes()[0], "max": request.sizes()[-1], "factor": 0 if request.increment else request.factor or 4,
            "increment": request.increment, "warmup": request.warmup, "iters": request.count(), "check": int(request.check),
        }  # fmt: skip
        for text in tables.nccl_head(fabric, hosts, request.operation, flags, transport, name):
            line(text)
        rows: list[tables.Row] = []
        for row in _collective_rows(world, request, hosts, network, say):
            rows.append(row)
            line(tables.nccl_row(row))
        for text in tables.nccl_foot(rows):
            line(text)
        wrong = sum(half.wrong or 0 for row in rows for half in (row.out_of_place, row.in_place))
        return {**made, "ranks": hosts, "rows": [tables.as_data(row) for row in rows], "wrong": wrong}
    title = "Write BW" if request.operation == "write_bw" else "Write Latency"
    depth = DEPTH if request.operation == "write_bw" else 1
    for text in tables.perftest_head(title, fabric, hosts, request.qps, depth, transport, name, request.gbits):
        line(text)
    data, wrong = [], 0
    for size in _whole_words(request.sizes()):
        shown: tables.Bandwidth | tables.Latency
        if request.operation == "write_bw":
            shown, bad = _bandwidth(world, request, hosts, network, size)
            line(tables.bandwidth_row(shown, request.gbits))
        else:
            shown, bad = _latency(world, request, hosts, network, size, say)
            line(tables.latency_row(shown))
        wrong += bad
        data.append(tables.as_data(shown))
    line(tables.RULE)
    return {**made, "pair": hosts, "rows": data, "wrong": wrong}


def _whole_words(sizes: Sequence[int]) -> list[int]:
    """Messages here are whole words of 4 bytes."""
    return list(dict.fromkeys(max(4, size // 4 * 4) for size in sizes))


def _collective_rows(
    world: World, request: Request, hosts: list[int], network: Reconvergence | None, say: Callable[[str], None]
) -> Iterator[tables.Row]:
    kind = f"{request.algorithm}-allreduce" if request.operation == "all_reduce" else COLLECTIVES[request.operation]
    n, item = len(hosts), DTYPES[request.dtype].itemsize
    parts = 1 if kind == "send-recv" else n
    done: set[int] = set()
    for wanted in request.sizes():
        size = max(parts * item, wanted // (parts * item) * (parts * item))  # nccl-tests rounds down, too
        if size in done:
            continue
        done.add(size)
        slices = next(k for k in (SLICES, 2, 1) if size % (parts * k * item) == 0)
        halves = []
        for turn in range(2):
            work = Steps(kind, size, request.dtype, request.count(), request.warmup, request.seed + turn, request.qps, slices)
            measured = collective_times(world, hosts, work, network, say=say)
            spans = [span for by_rank in measured.spans.values() for span in by_rank.values()]
            time_us = sum(spans) / len(spans) / 1e3 / world.fabric.dilation
            halves.append(tables.block(size, time_us, bus_factor(kind, n), measured.wrong if request.check else None))
        each = size // item if kind in ("ring-allreduce", "tree-allreduce", "send-recv") else size // item // n
        name = {"float32": "float", "int32": "int32"}[request.dtype]
        redop = "sum" if kind.endswith("allreduce") or kind == "reduce-scatter" else "none"
        yield tables.Row(size, each, name, redop, -1, halves[0], halves[1])


def _bandwidth(
    world: World, request: Request, hosts: Sequence[int], network: Reconvergence | None, size: int
) -> tuple[tables.Bandwidth, int]:
    measured = flow_times(world, hosts, size, request.count(), DEPTH, request.seed, network, request.qps)
    [flow] = measured.flows
    scale = world.fabric.dilation * 1e9
    average = flow["bytes"] / (flow["end_ns"] - flow["start_ns"]) * scale
    peak = average if flow["peak_ns"] is None else max(average, flow["peak_bytes"] / flow["peak_ns"] * scale)
    return tables.Bandwidth(size, request.count(), peak, average), measured.wrong


def _latency(
    world: World, request: Request, hosts: Sequence[int], network: Reconvergence | None, size: int, say: Callable[[str], None]
) -> tuple[tables.Latency, int]:
    work = Steps("ping-pong", size, "int32", request.count(), request.warmup, request.seed, slices=1)
    measured = collective_times(world, hosts, work, network, say=say)
    trips = [spans[0] / 1e3 / world.fabric.dilation for spans in measured.spans.values()]
    return tables.latency(size, trips), measured.wrong
