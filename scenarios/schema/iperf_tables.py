"""Reads the ``[[background]]`` entries of a scenario file: an ordinary program's traffic beside the
workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from testbed.emulated.bringup import spread
from testbed.emulated.iperf_flows import (
    CONGESTION,
    MAX_STREAMS,
    PROTOCOLS,
    datagram_bytes,
    wire_rate,
)
from testbed.world import Stream
from topologies import Fabric, FabricError
from topologies.addressing import ev, ev_fields, sid_list
from topologies.structs import Doc, Refused, Written, one_of, text
from topologies.units import Duration, Rate, Span, parse_rate

TOOLS = ("iperf3",)
MAX_FLOWS = 32  # each takes two processes for the length of a run [ours]


Host = Annotated[str, text(r"h[0-9]{1,9}", "a host, like 'h3'")]


class _Rate(int, metaclass=Written):
    words, schema, example = Rate.words, Rate.schema, '"25Gbit"'

    @staticmethod
    def read(value: Any) -> int:
        rate = parse_rate(value)
        if rate < 10**6:
            raise ValueError("is less than 1 Mbit/s: raise it")
        return rate


@dataclass(frozen=True)
class Background:
    tool: str
    name: str
    src: int  # host numbers
    dst: int
    protocol: str
    rate_bps: int | None  # of payload, all streams together; None: as much as TCP gets
    start_ps: int  # after the workload's begin
    for_ps: int | None  # None: until the run ends
    path: tuple[int, int] | None  # plane and uplink; None: the kernel's usual path between the two
    parallel: int
    congestion: str

    def ev_on(self, fabric: Fabric) -> int:
        """Return the EV that the flow is pinned to, in both directions. Raises
        :class:`FabricError`."""
        value = spread(fabric, self.src, self.dst) if self.path is None else ev(*self.path)
        sid_list(fabric, self.src, self.dst, value)
        return value

    def stream(self, fabric: Fabric, number: int, longest: int) -> Stream:
        """``longest``: the duration if nothing else ends it."""
        time = longest if self.for_ps is None else self.for_ps
        return Stream(
            number,
            self.src,
            self.dst,
            self.protocol,
            self.rate_bps,
            time,
            self.ev_on(fabric),
            self.parallel,
            self.congestion,
        )

    def path_on(self, fabric: Fabric) -> str:
        return "p{}/{}".format(*ev_fields(self.ev_on(fabric)))


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    tool: Annotated[str, one_of(TOOLS), Doc("the program that sends", example='"iperf3"')]
    src: Annotated[Host, Doc("host that sends", example='"h0"')]
    dst: Annotated[Host, Doc("host that receives", example='"h4"')]
    protocol: Annotated[
        str, one_of(PROTOCOLS), Doc("TCP gives way under congestion, UDP does not", example='"udp"')
    ]
    name: Annotated[
        str,
        text(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", "letters, digits, '-' or '_'"),
        Doc("its name in results", default="src-dst", example='"cross"'),
    ] = ""
    rate: Annotated[
        _Rate | None,
        Doc("payload, all streams together; UDP needs it", default="as much as TCP gets"),
    ] = None
    start: Annotated[
        Duration | None,
        Doc("network time after the workload's begin, its warm-up included", default="0"),
    ] = None
    for_: Annotated[
        Span | None,
        Doc(
            "network time for which it sends, in whole seconds of wall time",
            default="until the run ends",
        ),
    ] = field(name="for", default=None)
    path: Annotated[
        Annotated[str, text(r"p[0-9]{1,4}/[0-9]{1,4}", "plane and uplink, like 'p0/3'")] | None,
        Doc(
            "plane and uplink of its path, both ways; p0/0 under one T0",
            default="the pair's usual path",
            example='"p0/3"',
        ),
    ] = None
    parallel: Annotated[int, Meta(ge=1, le=MAX_STREAMS), Doc("streams of iperf3")] = 1
    congestion: Annotated[
        Annotated[str, one_of(CONGESTION)] | None,
        Doc("TCP's congestion control", default=CONGESTION[0], example='"bbr"'),
    ] = None

    def __post_init__(self) -> None:
        if self.congestion is not None and self.protocol != "tcp":
            raise Refused("congestion", 'is TCP\'s: drop it, or say protocol = "tcp"')
        if self.rate is None and self.protocol == "udp":
            raise Refused(
                "rate", "is missing: UDP sends at a rate, like '20Gbit'; TCP alone finds its own"
            )


Entries = Annotated[
    list[Entry],
    Meta(
        max_length=MAX_FLOWS,
        description=f"a list of {MAX_FLOWS} at most: one with parallel = N is N streams",
    ),
]


def read_backgrounds(entries: Sequence[Entry], fabrics: Sequence[Fabric]) -> tuple[Background, ...]:
    """Each flow must fit on all ``fabrics``. Raises :class:`topologies.structs.Refused`."""
    flows = tuple(_resolve(entry, f"background[{i}]", fabrics) for i, entry in enumerate(entries))
    if len({b.name for b in flows}) < len(flows):
        raise Refused(
            "background",
            f"names are not unique ({', '.join(b.name for b in flows)}): give each its own name",
        )
    return flows


def _resolve(entry: Entry, where: str, fabrics: Sequence[Fabric]) -> Background:
    src, dst = (
        _host_on_all(name, f"{where}.{key}", fabrics)
        for key, name in (("src", entry.src), ("dst", entry.dst))
    )
    if src == dst:
        raise Refused(where, f"goes from h{src} to itself: src and dst must differ")
    plane, _, uplink = (entry.path or "").removeprefix("p").partition("/")
    flow = Background(
        tool=entry.tool,
        name=entry.name or f"h{src}-h{dst}",
        src=src,
        dst=dst,
        protocol=entry.protocol,
        rate_bps=entry.rate,
        start_ps=entry.start or 0,
        for_ps=entry.for_,
        path=(int(plane), int(uplink)) if entry.path else None,
        parallel=entry.parallel,
        congestion=entry.congestion or CONGESTION[0],
    )
    for fabric in fabrics:
        _check_fits(flow, fabric, where)
    return flow


def _host_on_all(name: str, where: str, fabrics: Sequence[Fabric]) -> int:
    try:
        (number,) = {fabric.host_number(name) for fabric in fabrics}
    except FabricError as error:
        raise Refused(where, f": {error}") from None
    return number


def _check_fits(flow: Background, fabric: Fabric, where: str) -> None:
    """The fabric must have the flow's path, and a port carry its rate."""
    try:
        flow.ev_on(fabric)
    except FabricError as error:
        raise Refused(f"{where}.path", f": {error}") from None
    if datagram_bytes(fabric) < 16:
        raise Refused(where, f": fabric {fabric.name!r} has an MTU too small for iperf3")
    if flow.rate_bps is not None and (wire := wire_rate(fabric, flow.rate_bps)) > fabric.nic_rate:
        raise Refused(
            f"{where}.rate",
            f"= {flow.rate_bps / 1e9:g}Gbit is {wire / 1e9:.2f} Gb/s on the wire, more than a "
            f"port of fabric {fabric.name!r} carries ({fabric.nic_rate / 1e9:g} Gb/s): lower it",
        )
