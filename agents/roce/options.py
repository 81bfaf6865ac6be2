"""What a scenario may set on the baseline, with defaults that follow from the fabric.

Read once, when an endpoint is made. Unknown keys are refused with the nearest right name.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

from agents.roce.congestion import Congestion, FixedWindow
from agents.roce.dcqcn import Dcqcn, Parameters
from agents.roce.requester import RING
from agents.roce.wire import ICRC_BYTES, MAX_HEADERS
from topologies.clos import Fabric

CONGESTION: Final = ("dcqcn", "fixed")
_KEYS: Final = (
    "congestion", "window_bdp", "window", "rto_ns", "retry_count", "ack_every", "rnr_ns", "rate_limit",
    "cnp_interval_us", "cut_interval_us", "alpha_timer_us", "increase_timer_us", "g", "initial_alpha",
    "fast_recovery", "byte_counter", "rate_ai", "rate_hai", "min_rate",
)  # fmt: skip


class Options:
    """Raises ValueError, one line, on a key or value that cannot be.

    ================= ========================= ==========================================================================
    option            default                   meaning
    ================= ========================= ==========================================================================
    congestion        dcqcn                     ``dcqcn`` or ``fixed`` (a window, no rate)
    window_bdp        dcqcn 0, fixed 1.5        window in BDP of a path: a NIC port's rate times the base RTT; 0: none but
                                                the 1024 packets that can be outstanding [D]
    window            from window_bdp           window in bytes of frames; at least one packet always goes
    rto_ns            max(4, buffer_bdp + 2)    fixed timeout, ns. Above what one full buffer on the way delays (NICs
                      base RTTs                 ship thousands of RTTs: 4.096 us x 2^14 = 67 ms [D])
    retry_count       -1                        RTOs in a row before ERROR; -1: for ever, to wait for re-convergence
    ack_every         half a BDP, or a third    packets between AckReq bits [D]; a message's last one always has it, and one
                      of a smaller window       is asked for every quarter of rto_ns, however slow the queue pair
    rnr_ns            one base RTT              how long a peer waits that found no receive request posted
    rate_limit        0                         bits/s per queue pair; 0: the port's rate
    ================= ========================= ==========================================================================

    DCQCN. Times are microseconds on a 100 Gb/s port and are multiplied by the fabric's time scale; rates are shares of the port's rate, or
    of ``rate_limit``; bytes are bytes, as a BDP is the same number of bytes at every time scale. "Paper" is Zhu et al., SIGCOMM
    2015, whose ports have 40 Gb/s; "NVIDIA" is its page on DCQCN parameters, "ns-3" the public model that HPCC's authors extended.

    ================= ================== ====================== ===========================================================
    option            default            source                 meaning
    ================= ================== ====================== ===========================================================
    cnp_interval_us   50                 paper                  least time between a queue pair's CNPs
    cut_interval_us   4                  NVIDIA                 least time between cuts
    alpha_timer_us    55                 paper (NVIDIA: 1)      without a CNP for so long alpha shrinks
    increase_timer_us 55                 paper                  a stage of the timer
    byte_counter      10,000,000         paper                  bytes: a stage of the byte counter
    g                 1/256              paper (NVIDIA 5/1024)  gain of alpha
    initial_alpha     1                  paper, NVIDIA          alpha at the first CNP
    fast_recovery     5                  paper                  F: stages until the target rate grows, too
    rate_ai           0.001              paper: 40 Mb/s of 40G  R_AI, share of the rate
    rate_hai          0.01               ns-3: 10 x R_AI        R_HAI, share of the rate (the paper has none)
    min_rate          0.001              ns-3: 100 Mb/s         nothing cuts below it, share of the rate (NVIDIA: 1 Mb/s)
    ================= ================== ====================== ===========================================================
    """

    def __init__(self, fabric: Fabric, options: dict[str, Any]) -> None:
        for key in options:
            if key not in _KEYS:
                near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
                raise ValueError(f"roce: unknown option {key!r}: did you mean {near[0]!r}?")
        rtt = fabric.base_rtt_ns
        algorithm = options.get("congestion", CONGESTION[0])
        if algorithm not in CONGESTION:
            raise ValueError(f"roce: option congestion = {algorithm!r} must be one of {', '.join(CONGESTION)}")
        self.algorithm: str = algorithm
        bdp = _number(options, "window_bdp", 1.5 if self.algorithm == "fixed" else 0.0, 0.0, 1000.0)
        frame = fabric.mtu + MAX_HEADERS + ICRC_BYTES
        most = RING * frame
        self.window: int = _whole(options, "window", max(1, int(bdp * fabric.plane_bdp)) if bdp else most, 1, 1 << 40)
        self.rto_ns: int = _whole(options, "rto_ns", int(max(4.0, fabric.buffer_bdp + 2.0) * rtt), 1, 1 << 50)
        self.retry_count: int = _whole(options, "retry_count", -1, -1, 1 << 20)
        every = min(self.window, int(1.5 * fabric.plane_bdp), most) // frame // 3
        self.ack_every: int = _whole(options, "ack_every", max(1, every), 1, RING)
        self.rnr_ns: int = _whole(options, "rnr_ns", rtt, 0, 1 << 50)
        self.rate_limit: int = _whole(options, "rate_limit", 0, 0, 1 << 50)
        self.slack_ns: int = frame * 8_000_000_000 // fabric.nic_rate
        self.cnp_interval_ns: int = _scaled(fabric, options, "cnp_interval_us", 50.0)
        line = min(fabric.nic_rate, self.rate_limit) if self.rate_limit else fabric.nic_rate
        self.dcqcn: Parameters = Parameters(
            line=line,
            min_rate=max(1, int(line * _number(options, "min_rate", 0.001, 1e-6, 1.0))),
            rate_ai=line * _number(options, "rate_ai", 0.001, 1e-6, 1.0),
            rate_hai=line * _number(options, "rate_hai", 0.01, 1e-6, 1.0),
            g=_number(options, "g", 1.0 / 256.0, 0.0, 1.0),
            initial_alpha=_number(options, "initial_alpha", 1.0, 0.0, 1.0),
            fast_recovery=_whole(options, "fast_recovery", 5, 0, 1000),
            byte_counter=_whole(options, "byte_counter", 10_000_000, 1, 1 << 50),
            timer_ns=_scaled(fabric, options, "increase_timer_us", 55.0),
            alpha_ns=_scaled(fabric, options, "alpha_timer_us", 55.0),
            cut_ns=_scaled(fabric, options, "cut_interval_us", 4.0),
        )

    def congestion(self) -> Congestion:
        """A new queue pair's congestion control."""
        if self.algorithm == "fixed":
            return FixedWindow(self.window, self.rate_limit, self.slack_ns)
        return Dcqcn(self.dcqcn, self.window, self.slack_ns, self.rate_limit > 0)


def _number(options: dict[str, Any], key: str, default: float, low: float, high: float) -> float:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"roce: option {key} = {value!r} must be a number in {low:g}..{high:g}")
    return float(value)


def _scaled(fabric: Fabric, options: dict[str, Any], key: str, default: float) -> int:
    """A time in us on a 100 Gb/s port, as ns on this fabric."""
    return max(1, int(_number(options, key, default, 0.001, 1e6) * 1000.0 * fabric.time_scale))


def _whole(options: dict[str, Any], key: str, default: int, low: int, high: int) -> int:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"roce: option {key} = {value!r} must be a whole number in {low}..{high}")
    return value
