"""The interface of every congestion control: how much a queue pair may have in the network, and how
fast it may send.

It hears of bytes, CNPs and the time only. Another one is a subclass and a name in
``agents.roce.options``.
"""

from __future__ import annotations

from agents.transport import LONG_AGO, NEVER
from topologies.units import BYTE


class Congestion:
    """A constant window and rate, unless a subclass changes them. ``window``: bytes of frames.
    ``rate``: bits/s, 0 for the port's. ``slack_ps``: a packet that is so late does not delay the
    next [ours]."""

    def __init__(self, window: int, rate: int = 0, slack_ps: int = 0) -> None:
        self.window: int = window
        self.rate: int = rate
        self.slack_ps: int = slack_ps
        self.next_send_ps: int = LONG_AGO
        self.timer_at: int = NEVER

    def on_sent(self, now: int, frame_bytes: int) -> None:
        """Take that a data frame of this many bytes left: first transmission or not."""
        if self.rate:
            start = self.next_send_ps
            if start < now - self.slack_ps:  # idle time, or time blocked by others, gives no credit
                start = now
            self.next_send_ps = start + frame_bytes * BYTE // self.rate

    def on_ack(self, now: int, frame_bytes: int) -> None:
        """Take that frames of this many bytes were acknowledged."""

    def on_loss(self, now: int) -> None:
        """Take that the requester goes back because of a NAK or its timer."""

    def on_cnp(self, now: int) -> None:
        """Take that the peer saw a packet of ours with a congestion mark."""

    def on_timer(self, now: int) -> None:
        """Act at :attr:`timer_at`. May change :attr:`next_send_ps`."""


class FixedWindow(Congestion):
    """A constant window and rate: what NICs offer as a QP's packet pacing."""


class NotificationPoint:
    """Turns congestion marks into CNPs, at most one per ``interval_ps`` and queue pair (RoCEv2
    annex A17; Zhu et al., section 3.1)."""

    def __init__(self, interval_ps: int) -> None:
        self.interval_ps: int = interval_ps
        self._quiet_until: int = LONG_AGO

    def on_mark(self, now: int) -> bool:
        """Returns True if a CNP must go out."""
        if now < self._quiet_until:
            return False
        self._quiet_until = now + self.interval_ps
        return True
