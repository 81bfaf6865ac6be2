"""The configuration of an MRC endpoint. Times are ps, sizes bytes; every time is derived from the
fabric's base RTT, or is a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import Meta

from topologies.clos import ECMP, Fabric
from topologies.structs import Doc, given, one_of, options_of, text
from topologies.units import BYTE, NS

BACKUP_SHARE: Final = 0.125
"""Share of EVs that stand by where switches hash them (MRC paper: typically over 100 active, and a
backup set). Where each EV names a path of its own there is none: 16 hosts on 8 uplinks a plane at
full load reach 97 % of the line without backups, 88 % with one [measured]."""

SACK_BYTES: Final = 16384
SACK_PART: Final = 7
"""The data between two SACKs is UET's 16 KiB, but at most this part of a host's BDP [ours]. With 16
senders to one, 131 packets were lost untrimmed with 16 KiB, none with this [measured]."""
FAR_WINDOW: Final = 1.5
"""BDPs over all planes that may be in flight to another site: NSCC's largest window."""
EQUAL: Final = "equal"
STRICT: Final = "strict"
WEIGHTED: Final = "weighted"
PLANE_LOADS: Final = (EQUAL, STRICT, WEIGHTED)
"""A queue pair loads its open planes alike if they have an EV left; alike whatever they lose (MRC
paper, section 4: it cannot rebalance away from a lossy NIC link); or by the EVs that they have left
[ours]."""
DATA: Final = "data"
HIGH: Final = "high"
RETRANSMIT_CLASSES: Final = (DATA, HIGH)
"""Queues for retransmissions: with other data, or before it (second MRC paper, section II-C, as
told by others)."""
NACKED: Final = "nack"
DROPPED: Final = "drop"
OUT_OF_WINDOW: Final = (NACKED, DROPPED)
"""Fates of a PSN beyond the window: readers of the specification have found both."""


@dataclass(frozen=True)
class Config:
    """Every default without a source is [ours]. :data:`KEYS` says what each means."""

    base_rtt: int  # configured; of the paths of a queue pair (:meth:`between_sites`)
    port_rate: int  # bits/s
    mtu: int  # payload bytes
    trimming: bool  # switches trim: data asks for it
    congestion: str = "nscc"
    receiver_penalty: int = 16
    window_bdp: float = 1.5
    mpr: int = 1024
    mpr_pool: int = 0
    out_of_window: str = NACKED
    retransmit_class: str = DATA
    active_evs: int = 128
    backup_share: float = 0.0  # BACKUP_SHARE where switches hash
    swap_marks: int = 4
    plane_load: str = EQUAL
    max_wimm: int = 1024
    sack_bytes: int = SACK_BYTES
    sack_jitter: float = 0.25
    timeout: int = 7
    linear: int = 7
    exponential: int = 5
    probe_cap_rtts: int = 4
    probe_successes: int = 3
    forgive_rtts: int = 4096
    ev_min_active: int = 0
    pace: float = 0.98
    lookahead: int = 2
    skip: bool = True
    path_order: bool = True
    reverse_probes: bool = True
    oblivious: bool = False
    reps: bool = False
    # No knobs, so without a plain default: what options_of() finds has one.
    longest_rtt: int = field(default_factory=int)  # for timestamps; 0: as follows from the base RTT
    site_rtt: int = field(default_factory=int)  # of a queue pair between sites: base RTT within one

    @property
    def plane_bdp(self) -> int:
        """Bandwidth times delay of a plane, bytes."""
        return self.port_rate * self.base_rtt // BYTE

    @property
    def blind(self) -> bool:
        """Whether no EV is skipped, held or given up, whatever becomes of it."""
        return self.oblivious or self.reps

    @property
    def urgent(self) -> bool:
        return self.retransmit_class == HIGH

    @property
    def queue_rtt(self) -> int:
        """The base RTT for the thresholds of queues, which are as large between sites as within
        one."""
        return self.site_rtt or self.base_rtt

    @property
    def rto(self) -> int:
        return 1024 * NS << self.timeout

    @property
    def probe_cap(self) -> int:
        return self.probe_cap_rtts * self.base_rtt

    @property
    def ts_shift(self) -> int:
        """Timestamps count units of 2^ts_shift ps, so that 16 bits wrap no sooner than 4x the
        largest RTT, with every egress buffer full both ways."""
        longest = self.longest_rtt or 64 * self.base_rtt
        return max(7, (4 * longest >> 16).bit_length())

    @classmethod
    def from_fabric(cls, fabric: Fabric, options: Mapping[str, object]) -> Config:
        """Raises :class:`topologies.structs.Refused`."""
        knobs = given(options, OPTIONS)
        knobs = {
            "sack_bytes": min(SACK_BYTES, max(256, fabric.planes * fabric.plane_bdp // SACK_PART)),
            **knobs,
        }
        if fabric.routing == ECMP:
            knobs = {"backup_share": BACKUP_SHARE, **knobs}
        if fabric.sites > 1:
            full = 2 * fabric.buffer_bytes * BYTE // fabric.long_haul_rate
            knobs = {**knobs, "longest_rtt": 63 * fabric.base_rtt_ps + fabric.haul_rtt_ps + full}
        return cls(fabric.base_rtt_ps, fabric.nic_rate, fabric.mtu, fabric.trimming, **knobs)

    def between_sites(self, fabric: Fabric) -> Config:
        """Make the configuration of a queue pair between sites [ours]. Windows and timers follow
        its own base RTT; the least patience with reordering stays that of a site, as queues do.
        ``mpr`` grows as far as its field allows."""
        rtt = fabric.haul_rtt_ps
        bdp = fabric.nic_rate * rtt // BYTE
        window = int(FAR_WINDOW * bdp * fabric.planes) // self.mtu + 1
        doublings = (rtt // self.base_rtt).bit_length()
        mpr = max(self.mpr, min(-(-window // 128), 255) * 128)
        return replace(
            self,
            base_rtt=rtt,
            site_rtt=self.base_rtt,
            timeout=min(self.timeout + doublings, 31),
            mpr=mpr,
        )


KEYS: Final = {
    "congestion": (
        text(r"[\w.:]{0,120}", "nscc, fixed, or module:Class, of 120 letters at most"),
        Doc("nscc, fixed, or module:Class of your own (docs/why/congestion.md)", example='"fixed"'),
    ),
    "receiver_penalty": (
        Meta(ge=0, le=127),
        Doc(
            "while the last hop trims, what a SACK takes off its sender's window",
            "1/128 of the bytes received",
        ),
    ),
    "window_bdp": (
        Meta(ge=0.1, le=100.0),
        Doc('window of congestion = "fixed"', "BDP over all live planes"),
    ),
    "mpr": (
        Meta(ge=128, le=255 * 128, multiple_of=128),
        Doc("most PSNs in flight to a receiver", "packets"),
    ),
    "mpr_pool": (
        Meta(ge=0, le=1 << 24),
        Doc(
            "PSNs that the queue pairs sending to a host share, told in SACKs, at most mpr each; "
            "0: each has mpr",
            "packets",
        ),
    ),
    "out_of_window": (
        one_of(OUT_OF_WINDOW),
        Doc(
            "what becomes of a packet beyond the receive window: it is refused by a NACK, or "
            "dropped in silence",
            example='"drop"',
        ),
    ),
    "retransmit_class": (
        one_of(RETRANSMIT_CLASSES),
        Doc(
            "where retransmissions queue: with other data, or in the high class, before it",
            example='"high"',
        ),
    ),
    "active_evs": (
        Meta(ge=1, le=1 << 16),
        Doc(
            "most EVs in use per queue pair, shared equally by the planes (MRC paper: 128-256); "
            "fewer than planes: on so many planes"
        ),
    ),
    "backup_share": (
        Meta(ge=0.0, le=0.9),
        Doc(
            "share of each plane's EVs that stands by until one is given up or swapped",
            default=f"0.0; {BACKUP_SHARE} if switches hash",
        ),
    ),
    "swap_marks": (
        Meta(ge=0, le=1000),
        Doc("congestion reports in a row after which a backup takes an EV's place; 0: never"),
    ),
    "plane_load": (
        one_of(PLANE_LOADS),
        Doc(
            "how planes share the load: all that have an EV left alike; all alike (MRC paper, "
            "section 4); each by its EVs",
            example='"strict"',
        ),
    ),
    "max_wimm": (
        Meta(ge=1, le=32767),
        Doc("most immediates in flight (specification: at most 32767)", "messages"),
    ),
    "sack_bytes": (
        Meta(ge=256, le=1 << 24),
        Doc(
            "data after which a receiver sends a SACK",
            "bytes",
            default=f"{SACK_BYTES}, at most a {SACK_PART}th of a host's BDP",
        ),
    ),
    "sack_jitter": (
        Meta(ge=0.0, le=0.9),
        Doc("spread of sack_bytes, so that SACKs do not all take one plane"),
    ),
    "timeout": (
        Meta(ge=0, le=31),
        Doc("RTO = 1.024 us * 2^timeout of the network; 7 is 13 base RTTs", "exponent"),
    ),
    "linear": (Meta(ge=0, le=7), Doc("timeouts at that interval")),
    "exponential": (Meta(ge=0, le=25), Doc("further timeouts, each twice as long; 25: for ever")),
    "probe_cap_rtts": (
        Meta(ge=1, le=100_000),
        Doc("longest gap between probes of a path that was given up", "base RTTs"),
    ),
    "probe_successes": (
        Meta(ge=1, le=32),
        Doc("clean answers in a row that bring a path back; doubled with every flap"),
    ),
    "forgive_rtts": (
        Meta(ge=1, le=1 << 30),
        Doc("good conduct after which a path's or plane's flaps are forgotten", "base RTTs"),
    ),
    "ev_min_active": (
        Meta(ge=0, le=1 << 16),
        Doc("fewest EVs that verdicts of loss may leave in use; 0: a quarter of those wanted"),
    ),
    # A network that is full, or nearly, hardly drains a queue that was once built.
    "pace": (Meta(ge=0.5, le=1.0), Doc("share of a port's rate that is used, SACKs included")),
    "lookahead": (
        Meta(ge=1, le=64),
        Doc("packets that a port may be ahead of its line rate, against timer slack"),
    ),
    "skip": (Doc("an ECN mark or a trim passes a path over once"),),
    "path_order": (
        Doc("what is overtaken on its own path is lost (rule 1 of agents/mrc/sender/loss.py)"),
    ),
    "reverse_probes": (
        Doc("who only receives probes an EV each base RTT (MRC paper, section 2.4)"),
    ),
    "oblivious": (
        Doc(
            "spray over all paths of open planes, whatever becomes of it: none is skipped, held "
            "or given up"
        ),
    ),
    "reps": (Doc("spray as a UET sender with REPS does: EVs are recycled, and none is given up"),),
}
"""The last five turn a mechanism off, to see what it is worth."""
OPTIONS: Final = options_of(Config, KEYS)
