"""The ``[[background]]`` entries of a scenario file: traffic of an ordinary program that the workload has to share the fabric with.

Used by scenarios.schema.scenario. Pure; docs/scenarios.md is the manual. scenarios/run/background.py runs what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.schema.faults import FaultValues
from scenarios.schema.values import parse_duration
from testbed.emulated.background import CONGESTION, MAX_STREAMS, PROTOCOLS, datagram_bytes, wire_rate
from testbed.emulated.bringup import spread
from testbed.world import Stream
from topologies import Fabric, FabricError
from topologies.addressing import ev, ev_fields, sid_list
from topologies.fabrics import parse_rate

TOOLS = ("iperf3",)
MAX_FLOWS = 32
"""Each is two processes for the length of a run [ours]."""


@dataclass(frozen=True)
class Background:
    tool: str
    name: str
    src: int  # host numbers
    dst: int
    protocol: str
    rate_bps: int | None  # of payload, all streams together; None: as much as TCP gets
    start_ns: int  # after the workload's begin
    for_s: int | None  # None: until the run ends
    path: tuple[int, int] | None  # plane and uplink; None: the kernel's usual path between the two
    parallel: int
    congestion: str

    def ev_on(self, fabric: Fabric) -> int:
        """The EV that it is pinned to, in both directions. Raises :class:`FabricError` if the fabric has no such path."""
        value = spread(fabric, self.src, self.dst) if self.path is None else ev(*self.path)
        sid_list(fabric, self.src, self.dst, value)
        return value

    def stream(self, fabric: Fabric, number: int, longest_s: int) -> Stream:
        """What testbed.emulated.background is to do; ``longest_s``: how long if nothing else ends it."""
        seconds = longest_s if self.for_s is None else self.for_s
        return Stream(number, self.src, self.dst, self.protocol, self.rate_bps, seconds, self.ev_on(fabric), self.parallel, self.congestion)

    def path_on(self, fabric: Fabric) -> str:
        """Its path as scenarios write it."""
        return "p{}/{}".format(*ev_fields(self.ev_on(fabric)))


class BackgroundValues(FaultValues):
    """Reads them."""

    def backgrounds(self, entries: Sequence[Any], fabrics: Sequence[Fabric]) -> tuple[Background, ...]:
        """All of a scenario whose transports run on ``fabrics``: each must fit on every one. Raises :class:`ScenarioError`."""
        if len(entries) > MAX_FLOWS:
            raise self.fail("background", f"has {len(entries)} entries, more than {MAX_FLOWS}: one with parallel = N is N streams")
        made = tuple(self.background(entry, f"background[{i}]", fabrics) for i, entry in enumerate(entries))
        if len({b.name for b in made}) < len(made):
            raise self.fail("background", f"names are not unique ({', '.join(b.name for b in made)}): give each its own name")
        return made

    def background(self, data: Any, where: str, fabrics: Sequence[Fabric]) -> Background:
        keys = ("tool", "name", "src", "dst", "protocol", "rate", "start", "for", "path", "parallel", "congestion")
        self.table(data, where, keys, ("tool", "src", "dst", "protocol"))
        tool = self.one_of(data["tool"], TOOLS, f"{where}.tool")
        protocol = self.one_of(data["protocol"], PROTOCOLS, f"{where}.protocol")
        src, dst = (self.host_on_all(data[key], f"{where}.{key}", fabrics) for key in ("src", "dst"))
        if src == dst:
            raise self.fail(where, f"goes from h{src} to itself: src and dst must differ")
        name = data.get("name", f"h{src}-h{dst}")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", name):
            raise self.fail(f"{where}.name", f"= {name!r} must be letters, digits, '-' or '_'")
        if "congestion" in data and protocol != "tcp":
            raise self.fail(f"{where}.congestion", "is TCP's: leave it out, or say protocol = \"tcp\"")
        made = Background(
            tool=tool,
            name=name,
            src=src,
            dst=dst,
            protocol=protocol,
            rate_bps=self.rate(data, where, protocol),
            start_ns=self.parsed(parse_duration, data.get("start", 0), f"{where}.start"),
            for_s=self.whole_seconds(data["for"], f"{where}.for") if "for" in data else None,
            path=self.path(data["path"], f"{where}.path") if "path" in data else None,
            parallel=self.whole(data, "parallel", where, 1, 1, MAX_STREAMS),
            congestion=self.one_of(data.get("congestion", CONGESTION[0]), CONGESTION, f"{where}.congestion"),
        )
        for fabric in fabrics:
            self.fits(made, fabric, where)
        return made

    def host_on_all(self, value: Any, where: str, fabrics: Sequence[Fabric]) -> int:
        if not isinstance(value, str):
            raise self.fail(where, f"= {value!r} must be a host, like 'h3'")
        try:
            (number,) = {fabric.host_number(value) for fabric in fabrics}
        except FabricError as error:
            raise self.fail(where, f": {error}") from None
        return number

    def rate(self, data: dict[str, Any], where: str, protocol: str) -> int | None:
        if "rate" not in data:
            if protocol == "udp":
                raise self.fail(f"{where}.rate", "is missing: UDP sends at a rate, like '2Mbit'; TCP alone finds its own")
            return None
        try:
            rate = parse_rate(data["rate"], "")
        except FabricError:
            raise self.fail(f"{where}.rate", f"= {data['rate']!r} is not a rate: write it like '2Mbit'") from None
        if rate < 1000:
            raise self.fail(f"{where}.rate", f"= {data['rate']!r} must be 1kbit or more")
        return rate

    def whole_seconds(self, value: Any, where: str) -> int:
        ns = self.parsed(parse_duration, value, where)
        if ns % 10**9 or not ns:
            raise self.fail(where, f"= {value!r} must be whole seconds, one or more: iperf3 counts in them; without it, until the run ends")
        return ns // 10**9

    def path(self, value: Any, where: str) -> tuple[int, int]:
        found = re.fullmatch(r"p(\d{1,4})/(\d{1,4})", str(value))
        if not found:
            raise self.fail(where, f"= {value!r} must be plane and uplink, like 'p0/3'")
        return int(found[1]), int(found[2])

    def fits(self, made: Background, fabric: Fabric, where: str) -> None:
        """It has its path on this fabric, and its rate goes through a port."""
        try:
            made.ev_on(fabric)
        except FabricError as error:
            raise self.fail(f"{where}.path", f": {error}") from None
        if datagram_bytes(fabric) < 16:
            raise self.fail(where, f": fabric {fabric.name!r} has an MTU too small for iperf3")
        if made.rate_bps is not None and (wire := wire_rate(fabric, made.rate_bps)) > fabric.nic_rate:
            raise self.fail(
                f"{where}.rate",
                f"= {made.rate_bps / 1e6:g}Mbit is {wire / 1e6:.2f} Mbit/s on the wire, more than a port of fabric {fabric.name!r} carries "
                f"({fabric.nic_rate / 1e6:g} Mbit/s): lower it",
            )
