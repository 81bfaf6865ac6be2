"""Writes the tables of nccl-tests and perftest.

Formats: NVIDIA/nccl-tests src/common.cu and util.cu (columns, widths, footer), linux-rdma/perftest
src/perftest_parameters.h. Times and rates are the network's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.clos import Fabric

RULE = "-" * 87
MIB = 1 << 20


# --- nccl-tests -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Half of a row: time in us, rates in GB/s (10^9 bytes), wrong elements (None: not
    compared)."""

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Block
    in_place: Block


def block(size: int, time_us: float, factor: float, wrong: int | None) -> Block:
    """``factor``: busbw / algbw."""
    rate = size / time_us / 1e3 if time_us > 0 else 0.0
    return Block(time_us, rate, rate * factor, wrong)


def nccl_head(
    fabric: Fabric,
    hosts: Sequence[int],
    name: str,
    flags: dict[str, object],
    transport: str,
    world: str,
) -> list[str]:
    lines = [
        f"# mrcbed {name}: {len(hosts)} hosts of {fabric.name}, {transport}, {world} world",
        (
            "# times and rates are the network's; buffers of a NIC are the same in place and out "
            "of place: both columns are one operation"
        ),
        f"# nThread 1 nGpus 1 minBytes {flags['min']} maxBytes {flags['max']} step: "
        f"{flags['step']} warmup iters: {flags['warmup']} iters: {flags['iters']} agg iters: 1 "
        f"validation: {flags['check']} graph: 0",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {1 + host:6d} on {f'h{host}':>10s} device  0 [0x00] "
        f"{transport}"
        for rank, host in enumerate(hosts)
    ]
    heads = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    first = f"# {'size':>10s}  {'count':>12s}  {'type':>8s}  {'redop':>6s}  {'root':>6s}"
    second = f"# {'(B)':>10s}  {'(elements)':>12s}  {'':>8s}  {'':>6s}  {'':>6s}"
    for _ in range(2):
        first += "  {:>7s}  {:>6s}  {:>6s}  {:>6s}".format(*heads)
        second += "  {:>7s}  {:>6s}  {:>6s}  {:>6s}".format(*units)
    places = (
        f"# {'':>10s}  {'':>12s}  {'':>8s}  {'':>6s}  {'':>6s}           out-of-place            "
        "           in-place          "
    )
    return [*lines, "#", places, first, second]


def _time(us: float) -> str:
    """Write seven characters, as nccl-tests does."""
    if us >= 10_000:
        return f"{us:7.0f}"
    return f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"


def nccl_row(row: Row) -> str:
    line = f"{row.size:12d}  {row.count:12d}  {row.type:>8s}  {row.redop:>6s}  {row.root:6d}"
    for half in (row.out_of_place, row.in_place):
        wrong = f"{'N/A':>6s}" if half.wrong is None else f"{float(half.wrong):6g}"
        line += f"  {_time(half.time_us):>7s}  {half.algbw:6.2f}  {half.busbw:6.2f}  {wrong}"
    return line


def nccl_foot(rows: Sequence[Row]) -> list[str]:
    wrong = sum(half.wrong or 0 for row in rows for half in (row.out_of_place, row.in_place))
    mean = (
        statistics.fmean(half.busbw for row in rows for half in (row.out_of_place, row.in_place))
        if rows
        else 0.0
    )
    return [
        f"# {'Out of bounds values':<20s} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<20s} : {mean:g} ",
        "#",
    ]


# --- perftest -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bandwidth:
    """Payload bytes and messages per second."""

    size: int
    iterations: int
    peak: float
    average: float

    @property
    def rate(self) -> float:
        return self.average / self.size


@dataclass(frozen=True)
class Latency:
    """One way, us: half of each round trip."""

    size: int
    iterations: int
    t_min: float
    t_max: float
    typical: float
    average: float
    stdev: float
    p99: float
    p999: float


def latency(size: int, round_trips_us: Sequence[float]) -> Latency:
    """Return the median as typical; percentiles are the value that so many are not above."""
    half = sorted(value / 2 for value in round_trips_us)

    def at(share: float) -> float:
        return half[min(len(half) - 1, math.ceil(share * len(half)) - 1)]

    return Latency(
        size,
        len(half),
        half[0],
        half[-1],
        statistics.median(half),
        statistics.fmean(half),
        statistics.pstdev(half),
        at(0.99),
        at(0.999),
    )


def perftest_head(
    title: str,
    fabric: Fabric,
    pair: Sequence[int],
    qps: int,
    depth: int,
    transport: str,
    world: str,
    gbits: bool,
) -> list[str]:
    """``title``: "Write BW" or "Write Latency"."""
    unit = "Gb/sec" if gbits else "MiB/sec"
    if "Latency" in title:
        heads = (
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]   "
            " t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
        )
    else:
        heads = f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    return [
        RULE,
        f"                    RDMA_{title} Test",
        f" Dual-port       : OFF\t\tDevice         : h{pair[0]} to h{pair[1]} of {fabric.name}",
        f" Number of qps   : {qps}\t\tTransport type : {transport}",
        f" World           : {world}",
        f" TX depth        : {depth}",
        f" Mtu             : {fabric.mtu}[B]",
        " Times and rates : of the network",
        RULE,
        heads,
    ]


def bandwidth_row(row: Bandwidth, gbits: bool) -> str:
    unit = 1e9 / 8 if gbits else MIB
    peak, average = row.peak / unit, row.average / unit
    return (
        f" {row.size:<7d}    {row.iterations:<10d}       {peak:<7.2f}            "
        f"{average:<7.2f}\t\t   {row.rate / 1e6:<7.6f}"
    )


def latency_row(row: Latency) -> str:
    return (
        f" {row.size:<7d} {row.iterations:<10d}     {row.t_min:<7.2f}        {row.t_max:<7.2f}   "
        f"   {row.typical:<7.2f}  \t       {row.average:<7.2f}     "
        f"\t{row.stdev:<7.2f}\t\t{row.p99:<7.2f} \t\t{row.p999:<7.2f}"
    )
