"""What a scenario may set on the baseline, with defaults that follow from the fabric.

Read once, when an endpoint is made. Unknown keys are refused with the nearest right name.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

from agents.roce.congestion import FixedWindow
from agents.roce.requester import RING
from topologies.clos import Fabric

_KEYS: Final = ("window_bdp", "window", "rto_ns", "retry_count", "ack_every", "rnr_ns", "rate_limit")


class Options:
    """Raises ValueError, one line, on a key or value that cannot be.

    ======================= ========================= ====================================================================
    option                  default                   meaning
    ======================= ========================= ====================================================================
    window_bdp              1.5                       window in BDP of a path: a NIC port's rate times the base RTT [D]
    window                  from window_bdp           window in bytes of frames; at least one packet always goes
    rto_ns                  max(4, buffer_bdp + 2)    fixed timeout, ns. Above what one full buffer on the way delays (NICs
                            base RTTs                 ship thousands of RTTs: 4.096 us x 2^14 = 67 ms [D])
    retry_count             -1                        RTOs in a row before ERROR; -1: for ever, to wait for re-convergence
    ack_every               a third of the window     packets between AckReq bits; a message's last one always has it
    rnr_ns                  one base RTT              how long a peer waits that found no receive request posted
    rate_limit              0                         bits/s per queue pair; 0: the port's rate
    ======================= ========================= ====================================================================
    """

    def __init__(self, fabric: Fabric, options: dict[str, Any]) -> None:
        for key in options:
            if key not in _KEYS:
                near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
                raise ValueError(f"roce: unknown option {key!r}: did you mean {near[0]!r}?")
        rtt = fabric.base_rtt_ns
        bdp = _number(options, "window_bdp", 1.5, 0.0, 1000.0)
        frame = fabric.mtu + 118
        self.window: int = _whole(options, "window", int(bdp * fabric.plane_bdp), 1, 1 << 40)
        self.rto_ns: int = _whole(options, "rto_ns", int(max(4.0, fabric.buffer_bdp + 2.0) * rtt), 1, 1 << 50)
        self.retry_count: int = _whole(options, "retry_count", -1, -1, 1 << 20)
        self.ack_every: int = _whole(options, "ack_every", max(1, min(self.window // frame, RING) // 3), 1, RING)
        self.rnr_ns: int = _whole(options, "rnr_ns", rtt, 0, 1 << 50)
        self.rate_limit: int = _whole(options, "rate_limit", 0, 0, 1 << 50)

    def congestion(self) -> FixedWindow:
        """A new queue pair's window."""
        return FixedWindow(self.window, self.rate_limit)


def _number(options: dict[str, Any], key: str, default: float, low: float, high: float) -> float:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"roce: option {key} = {value!r} must be a number in {low:g}..{high:g}")
    return float(value)


def _whole(options: dict[str, Any], key: str, default: int, low: int, high: int) -> int:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"roce: option {key} = {value!r} must be a whole number in {low}..{high}")
    return value
