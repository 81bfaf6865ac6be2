"""The configuration of an MRC endpoint, one frozen value: the fabric's figures and the knobs.

Times are nanoseconds of the clock, sizes bytes. Everything that is a time is derived from the fabric's base RTT, or is a time of the
network multiplied by the fabric's dilation (docs/time.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec import Meta

from topologies.clos import ECMP, Fabric
from topologies.structs import given, one_of, options_of

BACKUP_SHARE: Final = 0.125
"""Of the EVs where switches hash them: of 128, 112 are in use and 16 stand by (MRC paper: typically over 100 active, and a backup set).
Where each EV names a path of its own there is none: senders that each leave out another path of the few load the rest unevenly (16 hosts on
8 uplinks a plane at full load: 97 % of the line without backups, 88 % with one) [measured]."""

EQUAL: Final = "equal"
STRICT: Final = "strict"
WEIGHTED: Final = "weighted"
PLANE_LOADS: Final = (EQUAL, STRICT, WEIGHTED)
"""How a queue pair loads its open planes: all that have an EV left alike; all alike whatever they lose (MRC paper, section 4: it cannot
rebalance away from a lossy NIC link); or each by the EVs that it has left [ours]."""


@dataclass(frozen=True)
class Config:
    """Knobs of one endpoint; every default without a source is [ours]."""

    base_rtt: int  # ns, configured
    plane_bdp: int  # bytes
    port_rate: int  # bits/s
    mtu: int  # payload bytes
    dilation: float
    trimming: bool  # switches trim: data asks for it
    congestion: str = "nscc"  # or "fixed", or "module:Class" (agents/mrc/congestion)
    receiver_penalty: int = 16  # while the last hop trims, what a SACK takes off its sender's window, in 1/128 of the bytes received
    window_bdp: float = 1.5  # of "fixed", in BDP over all live planes
    mpr: int = 1024  # most PSNs in flight to us; a multiple of 128, at most 255 * 128
    active_evs: int = 128  # most EVs in use per QP, shared equally by the planes (MRC paper: 128-256); fewer than planes: on so many planes
    backup_share: float = 0.0  # of each plane's EVs, rounded down: out of use until one is given up or swapped; BACKUP_SHARE if hashed
    swap_marks: int = 4  # congestion reports in a row after which a backup of its plane takes an EV's place; 0: never
    plane_load: str = EQUAL  # one of PLANE_LOADS
    max_wimm: int = 1024  # most immediates in flight (specification: at most 32767)
    sack_bytes: int = 16384  # a SACK after so much data
    sack_jitter: float = 0.25  # spread of that threshold, or strict rotation shows it one plane only
    timeout: int = 7  # RTO = 1.024 us * 2^timeout of the network: 13 base RTTs, where 5 would be 3.3
    linear: int = 7  # firings at that interval; <= 7
    exponential: int = 5  # further firings, each doubled; 25 means for ever
    probe_cap_rtts: int = 4  # longest gap between Reliability Probes on a path that was given up, base RTTs
    probe_successes: int = 3  # clean answers in a row that bring it back; doubled with every flap
    forgive_rtts: int = 4096  # base RTTs of good conduct after which a path's or plane's flaps are forgotten
    ev_min_active: int = 0  # fewest EVs that verdicts of loss may leave in use; 0: a quarter of those wanted
    pace: float = 0.98  # of the port's rate, SACKs included: a network that is full, or nearly, hardly drains a queue that was once built
    lookahead: int = 2  # packets a port may be ahead of its line rate, against timer slack
    # To be turned off by those who want to see what a mechanism is worth.
    skip: bool = True  # an ECN mark or a trim passes a path over once
    path_order: bool = True  # what is overtaken on its own path is lost (rule 1 of loss.py)
    oblivious: bool = False  # spray over all paths of open planes, whatever becomes of it: none is skipped, held or given up

    reps: bool = False  # spray as a UET sender with REPS does (agents/mrc/paths/reps.py): EVs are recycled, and none is given up

    @property
    def blind(self) -> bool:
        """Whether no EV is skipped, held or given up, whatever becomes of it."""
        return self.oblivious or self.reps

    @property
    def rto(self) -> int:
        return int(1024 * (1 << self.timeout) * self.dilation)

    @property
    def probe_cap(self) -> int:
        """Longest gap between unanswered probes, ns."""
        return self.probe_cap_rtts * self.base_rtt

    @property
    def ts_shift(self) -> int:
        """Timestamps count units of 2^ts_shift ns so that 16 bits wrap no sooner than 4x the largest RTT.

        Largest RTT: every one of a path's egress buffers full both ways, far above what the window allows.
        """
        longest = 64 * self.base_rtt
        return max(7, (4 * longest >> 16).bit_length())

    @classmethod
    def from_fabric(cls, fabric: Fabric, options: dict[str, Any]) -> Config:
        """The configuration for a fabric, with some knobs set. Raises :class:`topologies.structs.Refused`."""
        knobs = given(options, _OPTIONS)
        if fabric.routing == ECMP:
            knobs = {"backup_share": BACKUP_SHARE, **knobs}
        return cls(fabric.base_rtt_ns, fabric.plane_bdp, fabric.nic_rate, fabric.mtu, fabric.dilation, fabric.trimming, **knobs)


_OPTIONS: Final = options_of(
    Config,
    {
        "receiver_penalty": Meta(ge=0, le=127),
        "window_bdp": Meta(ge=0.1, le=100.0),
        "mpr": Meta(ge=128, le=255 * 128, multiple_of=128),
        "active_evs": Meta(ge=1, le=1 << 16),
        "backup_share": Meta(ge=0.0, le=0.9),
        "swap_marks": Meta(ge=0, le=1000),
        "plane_load": one_of(PLANE_LOADS),
        "max_wimm": Meta(ge=1, le=32767),
        "sack_bytes": Meta(ge=256, le=1 << 24),
        "sack_jitter": Meta(ge=0.0, le=0.9),
        "timeout": Meta(ge=0, le=31),
        "linear": Meta(ge=0, le=7),
        "exponential": Meta(ge=0, le=25),
        "probe_cap_rtts": Meta(ge=1, le=100_000),
        "probe_successes": Meta(ge=1, le=32),
        "forgive_rtts": Meta(ge=1, le=1 << 30),
        "ev_min_active": Meta(ge=0, le=1 << 16),
        "pace": Meta(ge=0.5, le=1.0),
        "lookahead": Meta(ge=1, le=64),
    },
)
