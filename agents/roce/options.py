"""Options that a scenario may set on the baseline, with defaults that follow from the fabric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import Meta

from agents.roce.congestion import Congestion, FixedWindow
from agents.roce.dcqcn import Dcqcn, Parameters
from agents.roce.requester import RING
from agents.roce.wire import ICRC_BYTES, MAX_HEADERS
from topologies.clos import Fabric
from topologies.structs import Doc, given, one_of, options_of
from topologies.units import BYTE, NS, US

CONGESTION: Final = ("dcqcn", "fixed", "none")
RECOVERY: Final = ("go-back-n", "selective")
RTO: Final = ("fixed", "adaptive")
DEPLOYED_RTO: Final = 67_108_864 * NS
"""The local ACK timeout that adapters ship with: 4.096 us x 2^14 (InfiniBand specification volume
1, section 9.7.6.1.3, exponent 14)."""


@dataclass(frozen=True)
class Knobs:
    """A default of -1 follows from the fabric. DCQCN's rates are shares of the port's rate, or of
    ``rate_limit``. "Paper" is Zhu et al., SIGCOMM 2015, with ports of 40 Gb/s; "NVIDIA" is
    :data:`PROFILES`, "ns-3" the public model that HPCC's authors extended."""

    congestion: str = "dcqcn"
    recovery: str = "go-back-n"
    reorder_rtts: float = 0.0
    window_bdp: float = -1.0
    window: int = -1
    rto: str = "fixed"
    rto_ns: int = -1
    rto_most_ns: int = -1
    retry_count: int = -1
    ack_every: int = -1
    rnr_ns: int = -1
    rate_limit: int = 0
    # DCQCN
    profile: str = "zhu"
    cnp_interval_us: float = 50.0
    cut_interval_us: float = 4.0
    alpha_timer_us: float = 55.0
    increase_timer_us: float = 55.0
    byte_counter: int = 10_000_000
    g: float = 1.0 / 256.0
    initial_alpha: float = 1.0
    fast_recovery: int = 5
    rate_ai: float = 0.001
    rate_hai: float = 0.01
    min_rate: float = 0.001
    clamp_target: bool = True


PROFILES: Final = {
    "zhu": Knobs(),
    "nvidia": Knobs(
        profile="nvidia",
        cnp_interval_us=4.0,
        alpha_timer_us=1.0,
        increase_timer_us=300.0,
        byte_counter=32_767,
        g=5.0 / 1024.0,
        initial_alpha=1023.0 / 1024.0,
        fast_recovery=1,
        clamp_target=False,
    ),
}
"""NVIDIA's options are what its adapters ship with: its page on DCQCN parameters, else the defaults
that ``mlxconfig`` shows."""
NVIDIA_RATES: Final = {"rate_ai": 5e6, "rate_hai": 50e6, "min_rate": 1e6}
"""bit/s, whatever the port's rate (as above)."""

_TIME_NS: Final = Meta(ge=0, le=1 << 50)
_TIME_US: Final = Meta(ge=0.001, le=1e6)
_SHARE: Final = Meta(ge=1e-6, le=1.0)
_US: Final = "us of the network"
_OF_RATE: Final = "share of the port's rate, or of rate_limit"
KEYS: Final = {
    "congestion": (
        one_of(CONGESTION),
        Doc("DCQCN, a fixed window and no rate, or neither (line rate)", example='"fixed"'),
    ),
    "recovery": (
        one_of(RECOVERY),
        Doc(
            "go back to the first lost packet, or repeat lost ones alone (IRN)",
            example='"selective"',
        ),
    ),
    "reorder_rtts": (
        Meta(ge=0.0, le=1000.0),
        # Under adaptive routing as long as its paths may differ; for IRN 0, where only losses
        # overtake.
        Doc(
            'with "selective", how much earlier than one that arrived a packet must have left to '
            "be lost",
            "base RTTs",
        ),
    ),
    "window_bdp": (
        Meta(ge=0.0, le=1000.0),
        Doc(
            "window; 0: none but the 1024 packets that can be outstanding",
            "BDP of a path",
            "0; 1.5 for fixed; 1 for selective but none",
            "1.0",
        ),
    ),
    "window": (
        Meta(ge=1, le=1 << 40),
        Doc("window, of frames; one packet always goes", "bytes", "from window_bdp", "65536"),
    ),
    # NVIDIA, "Adaptive Retransmission: Parameters Control": a timeout is doubled within its range,
    # never above the QP's own, and goes back to the range's least with progress (one of three
    # modes). One try for each value, and one range, are [ours].
    "rto": (
        one_of(RTO),
        Doc(
            "the timeout stays, or doubles with each in a row until something arrives (NVIDIA)",
            example='"adaptive"',
        ),
    ),
    "rto_ns": (
        Meta(ge=1, le=1 << 50),
        # Above what one full buffer on the way delays [ours]; PFC's pauses have no bound.
        Doc(
            "timeout, the first one",
            "ns of the network",
            "the larger of 4 and buffer_bdp + 2 base RTTs; 67 ms with PFC if fixed",
            "100000",
        ),
    ),
    "rto_most_ns": (
        Meta(ge=1, le=1 << 50),
        Doc('with "adaptive", the longest timeout', "ns of the network", "67 ms", "1000000"),
    ),
    "retry_count": (
        Meta(ge=-1, le=1 << 20),
        Doc("timeouts in a row before ERROR; -1: for ever, to wait for re-convergence"),
    ),
    "ack_every": (
        Meta(ge=1, le=RING),
        # A message's last packet always has the bit, and one is asked for every quarter of rto_ns,
        # however slow the queue pair.
        Doc(
            "packets between AckReq bits",
            "packets",
            "half a BDP, or a third of a smaller window",
            "16",
        ),
    ),
    "rnr_ns": (
        _TIME_NS,
        Doc(
            "wait of a peer that found no receive request posted",
            "ns of the network",
            "one base RTT",
            "10000",
        ),
    ),
    "rate_limit": (
        Meta(ge=0, le=1 << 50),
        Doc("most that a queue pair sends; 0: the port's rate", "bit/s", example="50000000000"),
    ),
    "profile": (
        one_of(PROFILES),
        Doc("DCQCN: whose values its other keys have unless they are set", example='"nvidia"'),
    ),
    "cnp_interval_us": (
        _TIME_US,
        Doc("DCQCN: least time between a queue pair's CNPs (paper; NVIDIA: 4)", _US),
    ),
    "cut_interval_us": (_TIME_US, Doc("DCQCN: least time between cuts (NVIDIA)", _US)),
    "alpha_timer_us": (
        _TIME_US,
        Doc("DCQCN: without a CNP for so long alpha shrinks (paper; NVIDIA: 1)", _US),
    ),
    "increase_timer_us": (_TIME_US, Doc("DCQCN: a stage of the timer (paper; NVIDIA: 300)", _US)),
    "byte_counter": (
        Meta(ge=1, le=1 << 50),
        Doc("DCQCN: a stage of the byte counter (paper; NVIDIA: 32767)", "bytes"),
    ),
    "g": (Meta(ge=0.0, le=1.0), Doc("DCQCN: gain of alpha (paper; NVIDIA: 5/1024)")),
    "initial_alpha": (Meta(ge=0.0, le=1.0), Doc("DCQCN: alpha at the first CNP (paper, NVIDIA)")),
    "fast_recovery": (
        Meta(ge=0, le=1000),
        Doc("DCQCN: F, stages until the target rate grows, too (paper; NVIDIA: 1)"),
    ),
    "rate_ai": (_SHARE, Doc("DCQCN: R_AI (paper: 40 Mb/s of 40G; NVIDIA: 5 Mb/s)", _OF_RATE)),
    "rate_hai": (
        _SHARE,
        Doc("DCQCN: R_HAI (ns-3: 10 x R_AI; the paper has none; NVIDIA: 50 Mb/s)", _OF_RATE),
    ),
    "min_rate": (
        _SHARE,
        Doc("DCQCN: nothing cuts below it (ns-3: 100 Mb/s; NVIDIA: 1 Mb/s)", _OF_RATE),
    ),
    "clamp_target": (
        Doc(
            "DCQCN: a cut sets the target (paper), or only after a stage of the timer (false: "
            "NVIDIA)"
        ),
    ),
}
OPTIONS: Final = options_of(Knobs, KEYS)


class Options:
    """Times in ps, sizes in bytes, rates in bits/s. Raises :class:`topologies.structs.Refused`.
    ``far``: for queue pairs between sites."""

    def __init__(self, fabric: Fabric, options: Mapping[str, object], far: bool = False) -> None:
        stated = given(options, OPTIONS)
        self.rate_limit: int = stated.get("rate_limit", 0)
        line = min(fabric.nic_rate, self.rate_limit) if self.rate_limit else fabric.nic_rate
        usual_knobs = PROFILES[stated.get("profile", "zhu")]
        rates = {
            key: rate / line
            for key, rate in NVIDIA_RATES.items()
            if usual_knobs.profile == "nvidia"
        }
        knobs = replace(usual_knobs, **{**rates, **stated})
        rtt = fabric.haul_rtt_ps if far else fabric.base_rtt_ps
        path_bdp = fabric.nic_rate * rtt // BYTE
        self.algorithm: str = knobs.congestion
        self.selective: bool = knobs.recovery == "selective"
        self.reorder_ps: int = int(knobs.reorder_rtts * rtt)
        usual = (
            0.0
            if self.algorithm == "none"
            else 1.0
            if self.selective
            else 1.5
            if self.algorithm == "fixed"
            else 0.0
        )
        bdp = knobs.window_bdp if knobs.window_bdp >= 0.0 else usual
        frame = fabric.mtu + MAX_HEADERS + ICRC_BYTES
        most = RING * frame
        self.window: int = (
            knobs.window if knobs.window > 0 else max(1, int(bdp * path_bdp)) if bdp else most
        )
        # in RTTs of these paths; buffers are as large as in one site
        queues = fabric.buffer_rtts * (fabric.base_rtt_ps / rtt)
        fixed = knobs.rto == "fixed"
        usual_rto = DEPLOYED_RTO if fabric.pfc and fixed else int(max(4.0, queues + 2.0) * rtt)
        self.rto_ps: int = knobs.rto_ns * NS if knobs.rto_ns > 0 else usual_rto
        bound = knobs.rto_most_ns * NS if knobs.rto_most_ns > 0 else DEPLOYED_RTO
        self.rto_most_ps: int = self.rto_ps if fixed else max(self.rto_ps, bound)
        self.retry_count: int = knobs.retry_count
        every = min(self.window, int(1.5 * path_bdp), most) // frame // 3
        self.ack_every: int = knobs.ack_every if knobs.ack_every > 0 else max(1, every)
        self.rnr_ps: int = knobs.rnr_ns * NS if knobs.rnr_ns >= 0 else rtt
        self.slack_ps: int = frame * BYTE // fabric.nic_rate
        self.cnp_interval_ps: int = _time(knobs.cnp_interval_us)
        self.dcqcn: Parameters = Parameters(
            line=line,
            min_rate=max(1, int(line * knobs.min_rate)),
            rate_ai=line * knobs.rate_ai,
            rate_hai=line * knobs.rate_hai,
            g=knobs.g,
            initial_alpha=knobs.initial_alpha,
            fast_recovery=knobs.fast_recovery,
            byte_counter=knobs.byte_counter,
            timer_ps=_time(knobs.increase_timer_us),
            alpha_ps=_time(knobs.alpha_timer_us),
            cut_ps=_time(knobs.cut_interval_us),
            clamp=knobs.clamp_target,
        )

    def congestion(self) -> Congestion:
        if self.algorithm == "dcqcn":
            return Dcqcn(self.dcqcn, self.window, self.slack_ps, self.rate_limit > 0)
        return FixedWindow(self.window, self.rate_limit, self.slack_ps)


def _time(microseconds: float) -> int:
    return max(1, int(microseconds * US))
