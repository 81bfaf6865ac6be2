"""A multi-plane two-tier Clos fabric as one frozen value.

Every plane is a full two-tier Clos of its own. A host has one NIC port per plane and sits under the
T0 of the same number in every plane (MRC paper, section 2). Planes never meet outside the hosts.
Ports and links are enumerated once, in a fixed order, so that every process derives the same
numbers from the same :class:`Fabric`.

Names [ours] are in docs/why/addressing.md. Port names fit Linux' 15 characters.

With two sites [ours] T1 number j of site 0 has one long-haul cable to T1 number j of site 1,
counted as t1_per_plane + j (docs/how/long-haul.md).
"""

from __future__ import annotations

import difflib
import math
from functools import cached_property
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict, force_setattr

from topologies.cables import Link as Link
from topologies.cables import Port as Port
from topologies.cables import cables
from topologies.cables import t0_name as t0_name
from topologies.cables import t1_name as t1_name
from topologies.ecmp import HASHES, RESILIENT
from topologies.structs import Doc, Refused, convert, one_of, text
from topologies.units import BYTE, MS, NS, US

MAX_PLANES = 16
"""The uSID has four bits for the plane [ours]."""
MAX_INDEX = 1 << 10
"""The uSID has ten bits for a switch's number in its tier, or a downlink's under its T0 [ours]."""
MAX_NAME = 15
"""The longest name of a Linux interface (IFNAMSIZ - 1)."""

ETHERNET = 14
IPV6 = 40
UDP = 8
UDP_PORT = 4791
"""RoCE's destination port, and MRC's where a fabric names none. The specification prints 4971 in
one place."""
BTH = 12
ICRC = 4
DATA_HEADERS = ETHERNET + IPV6 + IPV6 + UDP + BTH + 4 + 4 + 16
"""Bytes before an MRC data packet's payload; METH, TSETH and RETH come last."""
ROCE_HEADERS = ETHERNET + IPV6 + IPV6 + UDP + BTH + ICRC
"""Bytes beside the payload of RoCE's packets in the middle of a message."""
SACK_BYTES = ETHERNET + IPV6 + IPV6 + UDP + BTH + 28 + 8 + ICRC

MAX_FABRIC_NAME = 120
"""A fabric's name is part of files' names, which have at most 255 bytes (NAME_MAX) [ours]."""
BASE_RTT = 10 * US
"""Base RTT across T1s where the fabric file sets no delay [ours]: at 400 Gb/s a host's BDP is then
118 full packets, near the MRC paper's 400G NICs."""
HOP_DELAY = 725 * NS
"""Delay of a switch and a cable [MRC paper, section 5.2.1: 6.54 us across T1s, 5.09 us under one
T0; the two switches between them]."""
MAX_DELAY = 100 * MS
MAX_HAUL = 10 * MAX_DELAY
MIN_RATE, MAX_RATE = 10**6, 10**13
MAX_LINKS = 1 << 16
"""Eight times the cables of pod512 [ours]: each is an object here, and more in a world."""


class FabricError(ValueError):
    """The message is one line: what is wrong, where, and the fix."""

    exit_status = 2  # of a command that ends with it: bad input


Queue = Annotated[float, Meta(ge=0.1, le=1000.0)]
Alpha = Annotated[float, Meta(ge=2.0**-7, le=2.0**6)]
_BDP = "BDP of the plane"
SOURCE, ECMP, ADAPTIVE = "source", "ecmp", "adaptive"
ROUTING = (SOURCE, ECMP, ADAPTIVE)
"""Who chooses a packet's T1: its source, by SRv6 uSIDs; the switches, which hash its EV; or its T0,
which takes the uplink with the least backlog, packet by packet."""
PFC_GAP = 4
"""Full packets between a port's XOFF and its XON (SONiC's profiles)."""


class Fabric(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A multi-plane Clos: rates in bits/s, times in ps, sizes in bytes. :meth:`from_dict` and
    :meth:`with_` raise :class:`FabricError` on a shape that cannot be addressed or emulated."""

    name: Annotated[
        str,
        text(
            rf"[\w-]{{1,{MAX_FABRIC_NAME}}}",
            f"letters, digits, '-' or '_', {MAX_FABRIC_NAME} at most",
        ),
        Doc("its name in results", default="the file's", example='"my-fabric"'),
    ]
    planes: Annotated[
        int, Meta(ge=1, le=MAX_PLANES), Doc("planes, and NIC ports of a host", example="4")
    ]
    t0_per_plane: Annotated[
        int, Meta(ge=1, le=MAX_INDEX), Doc("T0 switches of a plane", example="2")
    ]
    t1_per_plane: Annotated[
        int,
        Meta(ge=0, le=MAX_INDEX),
        Doc("T1 switches of a plane, at each site, with a cable to every T0 there", example="4"),
    ]
    hosts_per_t0: Annotated[int, Meta(ge=1, le=MAX_INDEX), Doc("hosts under a T0", example="4")]
    # MRC paper: 8 x 100G
    nic_rate: Annotated[
        int, Meta(ge=MIN_RATE, le=MAX_RATE), Doc("rate of a NIC port", default="100Gbit")
    ] = 10**11
    # 0: nic_rate
    fabric_rate: Annotated[
        int, Meta(ge=0, le=MAX_RATE), Doc("rate of a T0-T1 link", default="nic_rate")
    ] = 0
    mtu: Annotated[
        int,
        Meta(ge=256, le=8192, multiple_of=4),
        Doc("largest payload of a data packet", "bytes", example="4096"),
    ] = 4096
    delay_ps: Annotated[
        int,
        Meta(ge=-1, le=MAX_DELAY),
        Doc(
            "one-way delay of a path across T1s: cables, switches and NICs",
            default="as much as makes the base RTT 10 us",
        ),
    ] = -1  # -1: BASE_RTT, whatever the rate of the links
    hop_delay_ps: Annotated[
        int,
        Meta(ge=-1, le=MAX_DELAY),
        Doc(
            "what a switch and a cable take of delay: paths under one T0 have two fewer",
            default="725 ns, at most a quarter of delay",
        ),
    ] = -1  # -1: HOP_DELAY
    cut_through: Annotated[
        bool,
        Doc(
            "switches pass a frame on while it still comes in, where it comes in no slower than "
            "it leaves; false: when all is there"
        ),
    ] = True
    buffer_bdp: Annotated[
        float, Meta(ge=2.0, le=1000.0), Doc("size of an egress buffer", _BDP, example="16.0")
    ] = 8.0
    ecn: Annotated[bool, Doc("switches mark packets")] = True
    ecn_low_bdp: Annotated[
        float, Meta(ge=0.0, le=1000.0), Doc("queue at which marking begins (UET)", _BDP)
    ] = 0.2
    ecn_high_bdp: Annotated[
        float,
        Meta(ge=0.01, le=1000.0),
        Doc("queue from which on every packet is marked (UET)", _BDP),
    ] = 0.8
    ecn_pmax: Annotated[
        float,
        Meta(gt=0.0, le=1.0),
        Doc("chance of a mark just below ecn_high_bdp (DCQCN's ramps: 0.01 to 0.2)"),
    ] = 1.0
    last_hop_ecn: Annotated[bool, Doc("switches also mark on the last hop (MRC paper: off)")] = (
        False
    )
    trimming: Annotated[
        bool, Doc("switches trim packets that ask for it by their DSCP, instead of dropping them")
    ] = True
    trim_bdp: Annotated[Queue, Doc("queue above which packets are trimmed (UET)", _BDP)] = 1.0
    trim_last_hop_bdp: Annotated[Queue, Doc("the same on the last hop (UET)", _BDP)] = 1.5
    pfc: Annotated[
        bool, Doc("switches pause who sends RoCE's data instead of dropping it (802.1Qbb)")
    ] = False
    pfc_xoff_bdp: Annotated[
        Queue,
        Doc(
            "data from one port that waits in its switch, above which that port's other end is "
            "paused",
            _BDP,
        ),
    ] = 1.0
    pool_mb_per_tbps: Annotated[
        float,
        Meta(ge=0.0, le=1000.0),
        Doc(
            "memory that a switch's ports share, in place of egress buffers of their own; 0: none",
            "MB per Tb/s of the switch",
            example="2.5",
        ),
    ] = 0.0
    pool_alpha: Annotated[
        Alpha, Doc("what a queue of lossy data may hold, a power of two", "free bytes of the pool")
    ] = 8.0
    pool_alpha_lossless: Annotated[
        Alpha,
        Doc(
            "data from one port that waits in its switch, above which that port's other end is "
            "paused",
            "free bytes of the pool",
        ),
    ] = 1.0
    routing: Annotated[
        str,
        one_of(ROUTING),
        Doc(
            "who chooses a packet's T1: its source by SRv6, switches by a hash, or its T0 by "
            "backlog",
            example='"ecmp"',
        ),
    ] = SOURCE
    ecmp_hash: Annotated[
        str,
        one_of(HASHES),
        Doc(
            "what moves when hashing switches re-route: what the failure hit, or most",
            example='"modulo"',
        ),
    ] = RESILIENT
    udp_port: Annotated[
        int,
        Meta(ge=1024, le=65534),
        Doc(
            "UDP destination port of MRC and RoCE; Clustermapper's probes have the next one",
            example="4971",
        ),
    ] = UDP_PORT
    sites: Annotated[
        int,
        Meta(ge=1, le=2),
        Doc("places that long-haul cables join; T0s are divided between them", example="2"),
    ] = 1
    long_haul_rate: Annotated[
        int,
        Meta(ge=0, le=MAX_RATE),
        Doc("rate of a long-haul cable; there is one per T1 of a site", default="fabric_rate"),
    ] = 0  # 0: fabric_rate
    long_haul_delay_ps: Annotated[
        int,
        Meta(ge=0, le=MAX_HAUL),
        Doc("what a path between sites takes more than delay, one way", example='"500us"'),
    ] = 0

    def __post_init__(self) -> None:
        if self.fabric_rate == 0:
            force_setattr(self, "fabric_rate", self.nic_rate)
        if self.fabric_rate < MIN_RATE:
            raise Refused(
                "fabric_rate",
                f"= {self.fabric_rate} must be a whole number in {MIN_RATE}..{MAX_RATE}",
            )
        if self.sites > 1 and self.long_haul_rate == 0:
            force_setattr(self, "long_haul_rate", self.fabric_rate)
        check_sites(self)
        if self.t0_per_plane > 1 and self.t1_per_plane == 0:
            raise Refused(
                "t1_per_plane",
                f"= 0: {self.t0_per_plane} T0 per plane need at least one T1 to reach each other",
            )
        if self.ecn_low_bdp >= self.ecn_high_bdp:
            raise Refused(
                "ecn_low_bdp",
                f"= {self.ecn_low_bdp} must be below ecn_high_bdp = {self.ecn_high_bdp}",
            )
        for key in ("pool_alpha", "pool_alpha_lossless"):
            if math.frexp(getattr(self, key))[0] != 0.5:
                raise Refused(
                    key,
                    f"= {getattr(self, key)} must be a power of two: 1/128, 1/64, ... 1, 2, ... 64",
                )
        if (
            self.pool_mb_per_tbps
            and self._share(min(filter(None, self.pool_bytes), default=0), min(self.pool_alphas))
            < self.frame_bytes
        ):
            raise Refused(
                "pool_mb_per_tbps",
                f"= {self.pool_mb_per_tbps} is too little for a queue of one packet: raise it, "
                "or the alphas",
            )
        if (
            self.trimming
            and not self.pool_mb_per_tbps
            and max(self.trim_bdp, self.trim_last_hop_bdp) > self.buffer_bdp
        ):
            raise Refused(
                "",
                f"a trimming threshold above buffer_bdp = {self.buffer_bdp} would never be reached",
            )
        if self.host_count < 2:
            raise Refused("", "one host has nobody to talk to: raise hosts_per_t0 or t0_per_plane")
        if self.cable_count > MAX_LINKS:
            raise Refused(
                "",
                f"{self.cable_count:,} cables are more than {MAX_LINKS:,}: use fewer planes, "
                "switches or hosts",
            )
        longest = max((port.name for port in self.ports), key=len)
        if len(longest) > MAX_NAME:
            raise Refused(
                "",
                f"port name {longest!r} is longer than Linux' {MAX_NAME} characters: use fewer "
                "planes, switches or hosts",
            )
        if self.delay_ps == -1:
            missing = BASE_RTT - self._serialisation_ps(True)
            force_setattr(self, "delay_ps", max(0, -(-missing // 2)))
        if self.hop_delay_ps == -1:
            force_setattr(self, "hop_delay_ps", min(HOP_DELAY, self.delay_ps // 4))
        if self.t0_per_plane == 1:  # no path has more than one switch
            force_setattr(self, "hop_delay_ps", 0)
        if 2 * self.hop_delay_ps > self.delay_ps:
            raise Refused(
                "hop_delay",
                f"= {self.hop_delay_ps} ps is more than half of delay = {self.delay_ps} ps, "
                "which has two of it",
            )

    # --- sizes ------------------------------------------------------------------------------------

    @property
    def host_count(self) -> int:
        return self.t0_per_plane * self.hosts_per_t0

    @property
    def cable_count(self) -> int:
        return self.planes * (
            self.host_count + (self.t0_per_plane + self.sites - 1) * self.t1_per_plane
        )

    @property
    def host_rate(self) -> int:
        return self.nic_rate * self.planes

    @property
    def paths_per_pair(self) -> int:
        return self.planes * self.t1_per_plane

    @property
    def t1_count(self) -> int:
        return self.t1_per_plane * self.sites

    @cached_property
    def frame_bytes(self) -> int:
        """A full data packet with its Ethernet header, without preamble and FCS."""
        return DATA_HEADERS + self.mtu + ICRC

    @property
    def payload_share(self) -> float:
        return self.mtu / self.frame_bytes

    def payload_rate(self, kind: str) -> float:
        """The most payload of a host, bits/s: RoCE's packets but the first of a message have
        neither METH, TSETH nor RETH."""
        size = self.mtu + ROCE_HEADERS if kind == "roce" else self.frame_bytes
        return self.host_rate * self.mtu / size

    def turns(self, local: bool, far: bool = False, whole: bool = True) -> tuple[int, int, int]:
        """How often a frame on an idle path takes the time of a NIC's link, of one between
        switches, and of a long-haul cable; ``whole``: false, up to the last switch.

        A switch that waits for the whole frame makes each link count. One that cuts through begins
        when the frame does, where it comes in no slower than it leaves, and ends no sooner than its
        last bit is there.
        """
        links = [0, *(() if local else (1, 2, 1) if far else (1, 1)), 0]
        rates, counts = (self.nic_rate, self.fabric_rate, self.long_haul_rate), [0, 0, 0]
        for k, link in enumerate(links if whole else links[:-1]):
            counts[link] += 1
            if self.cut_through and k and rates[links[k - 1]] >= rates[link]:
                counts[links[k - 1]] -= 1
        return counts[0], counts[1], counts[2]

    def wire_ps(self, size: int, local: bool, far: bool = False) -> int:
        """Return the time to serialise ``size`` bytes on an idle path; ``local``: under one T0,
        ``far``: between sites."""
        rates = (self.nic_rate, self.fabric_rate, self.long_haul_rate)
        return sum(
            size * count * BYTE // rate
            for count, rate in zip(self.turns(local, far), rates, strict=True)
            if count
        )

    def _serialisation_ps(self, crossing: bool) -> int:
        return self.wire_ps(
            self.frame_bytes + SACK_BYTES, local=not crossing or self.t0_per_plane == 1
        )

    @property
    def local_delay_ps(self) -> int:
        return self.delay_ps - 2 * self.hop_delay_ps

    @cached_property
    def base_rtt_ps(self) -> int:
        """A cross-T1 path's links serialise a full data packet and its SACK, and the delay both
        ways [ours]."""
        return self._serialisation_ps(True) + 2 * self.delay_ps

    @cached_property
    def local_rtt_ps(self) -> int:
        return self._serialisation_ps(False) + 2 * self.local_delay_ps

    @cached_property
    def haul_rtt_ps(self) -> int:
        """A path between sites has a long-haul cable each way, and its delay; with one site it is
        that of a cross-T1 path."""
        if self.sites == 1:
            return self.base_rtt_ps
        return self.wire_ps(self.frame_bytes + SACK_BYTES, False, True) + 2 * (
            self.delay_ps + self.long_haul_delay_ps
        )

    def rtt_ps(self, a: int, b: int) -> int:
        return (
            self.local_rtt_ps
            if self.t0_of(a) == self.t0_of(b)
            else self.haul_rtt_ps
            if self.is_far(a, b)
            else self.base_rtt_ps
        )

    def data_ps(self, local: bool, far: bool = False) -> int:
        return self.wire_ps(self.frame_bytes, local, far)

    @cached_property
    def plane_bdp(self) -> int:
        return self.nic_rate * self.base_rtt_ps // BYTE

    # --- queues: what every egress port of a switch does with its data class, bytes waiting -------

    @cached_property
    def port_bytes(self) -> int:
        """The buffer of host ports, and of a switch's unless its ports share a pool."""
        return int(self.plane_bdp * self.buffer_bdp)

    @cached_property
    def buffer_bytes(self) -> int:
        """The backlog above which a switch's port drops at the tail; with a pool the most that a
        queue can reach."""
        return (
            self._share(max(self.pool_bytes), self.pool_alphas[0])
            if self.pool_mb_per_tbps
            else self.port_bytes
        )

    @cached_property
    def buffer_rtts(self) -> float:
        return self.buffer_bytes / self.plane_bdp if self.pool_mb_per_tbps else self.buffer_bdp

    @cached_property
    def pool_bytes(self) -> tuple[int, int]:
        t0 = self.hosts_per_t0 * self.nic_rate + self.t1_per_plane * self.fabric_rate
        t1 = (
            self.t0_per_plane // self.sites * self.fabric_rate
            + (self.sites - 1) * self.long_haul_rate
        )
        shared = tuple(
            int(rate * self.pool_mb_per_tbps / 10**6)
            for rate in (t0, t1 if self.t1_per_plane else 0)
        )
        return shared[0], shared[1]

    @cached_property
    def pool_alphas(self) -> tuple[int, int]:
        return int(128 * self.pool_alpha), int(128 * self.pool_alpha_lossless)

    @staticmethod
    def _share(pool: int, alpha: int) -> int:
        return pool * alpha // (128 + alpha)

    @cached_property
    def ecn_bytes(self) -> tuple[int, int]:
        """Marking rises linearly between these backlogs from nothing to every packet."""
        return int(self.plane_bdp * self.ecn_low_bdp), int(self.plane_bdp * self.ecn_high_bdp)

    def trim_bytes(self, last_hop: bool) -> int:
        return int(self.plane_bdp * (self.trim_last_hop_bdp if last_hop else self.trim_bdp))

    @cached_property
    def pfc_bytes(self) -> tuple[int, int]:
        """(XOFF, XON): what one ingress port's packets may hold in a switch before their sender is
        paused, and with what it goes on. With a pool the most that XOFF can be."""
        pool = self.pool_mb_per_tbps
        xoff = (
            self._share(max(self.pool_bytes), self.pool_alphas[1])
            if pool
            else int(self.plane_bdp * self.pfc_xoff_bdp)
        )
        return xoff, max(self.frame_bytes, xoff - PFC_GAP * self.frame_bytes)

    @property
    def simulated_only(self) -> str:
        pool = f"pool_mb_per_tbps = {self.pool_mb_per_tbps}" if self.pool_mb_per_tbps else ""
        return f'routing = "{ADAPTIVE}"' if self.routing == ADAPTIVE else pool

    @cached_property
    def pfc_ps(self) -> int:
        """Packets still arrive so long after a PAUSE, and after its end none: there and back on one
        of a path's four cables [ours]."""
        return self.delay_ps // 2

    def pfc_headroom(self, rate: int) -> int:
        """Bytes for what arrives meanwhile from a port of ``rate``: a packet that had begun at
        either end, too (802.1Qbb, annex)."""
        return rate * self.pfc_ps // BYTE + 2 * self.frame_bytes

    # --- names ------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"h{i}" for i in range(self.host_count))

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """T0s then T1s of plane 0, then of plane 1, ... A switch's place here is its number."""
        return tuple(
            name
            for p in range(self.planes)
            for name in (
                *(t0_name(p, i) for i in range(self.t0_per_plane)),
                *(t1_name(p, i) for i in range(self.t1_count)),
            )
        )

    def host_number(self, host: str) -> int:
        if host in self._host_numbers:
            return self._host_numbers[host]
        raise FabricError(
            f"fabric {self.name!r} has no host {host!r}: hosts are h0..h{self.host_count - 1}"
        )

    @cached_property
    def _host_numbers(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.hosts)}

    def t0_of(self, host: int) -> int:
        return host // self.hosts_per_t0

    def downlink_of(self, host: int) -> int:
        return host % self.hosts_per_t0

    def site_of_t0(self, t0: int) -> int:
        return t0 * self.sites // self.t0_per_plane

    def site_of(self, host: int) -> int:
        return self.site_of_t0(self.t0_of(host))

    def is_far(self, a: int, b: int) -> bool:
        return self.sites > 1 and self.site_of(a) != self.site_of(b)

    def t1s_of_t0(self, t0: int) -> range:
        first = self.site_of_t0(t0) * self.t1_per_plane
        return range(first, first + self.t1_per_plane)

    # --- cables -----------------------------------------------------------------------------------

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return cables(self)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for link in self.links for port in (link.a, link.b))

    @cached_property
    def links_by_name(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}

    def link(self, name: str) -> Link:
        """The two nodes may be in either order. Raises :class:`FabricError` with the nearest
        names."""
        found = self.links_by_name.get(name) or self.links_by_name.get(
            ":".join(reversed(name.split(":")))
        )
        if found is None:
            near = difflib.get_close_matches(name, self.links_by_name, n=3, cutoff=0.3) or [
                self.links[0].name,
                self.links[-1].name,
            ]
            raise FabricError(
                f"fabric {self.name!r} has no link {name!r}; near it: {', '.join(near)}"
            )
        return found

    # --- as data ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Fabric:
        try:
            return convert(data, cls)
        except Refused as error:
            raise FabricError(f"fabric {str(data.get('name', '?'))[:100]!r}: {error}") from error

    def with_(self, **changes: Any) -> Fabric:
        """The copy is validated again. Another delay has its own default of ``hop_delay_ps``."""
        own: dict[str, object] = {"hop_delay_ps": -1} if "delay_ps" in changes else {}
        return self.from_dict({**self.to_dict(), **own, **changes})


def check_sites(fabric: Fabric) -> None:
    if fabric.sites == 1:
        for key in ("long_haul_rate", "long_haul_delay_ps"):
            if getattr(fabric, key):
                raise Refused(
                    key.removesuffix("_ps"),
                    "is of cables between two sites: add sites = 2, or drop it",
                )
        return
    if fabric.t0_per_plane % 2:
        raise Refused(
            "t0_per_plane",
            f"= {fabric.t0_per_plane} must be even: with sites = 2 each site has half of them",
        )
    if fabric.long_haul_rate < MIN_RATE:
        raise Refused(
            "long_haul_rate",
            f"= {fabric.long_haul_rate} must be a whole number in {MIN_RATE}..{MAX_RATE}",
        )
    if fabric.t1_count > MAX_INDEX:
        raise Refused(
            "t1_per_plane",
            f"= {fabric.t1_per_plane} must be at most {MAX_INDEX // 2} with sites = 2",
        )
    if fabric.routing != SOURCE:
        raise Refused(
            "routing",
            f'= "{fabric.routing}" is not for two sites: drop it, sources name all switches of a '
            "path then",
        )
    if fabric.pfc:
        raise Refused(
            "pfc",
            "= true is not for two sites, whose switches have no headroom for a long cable: drop "
            "it",
        )
