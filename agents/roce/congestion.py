"""The interface of every congestion control: how much a queue pair may have in the network, and how fast it may send.

The requester uses this interface only. A congestion control never sees a packet: it hears of bytes, CNPs and the time. Another one is a
subclass in a file of its own and a name in ``agents.roce.options``.
"""

from __future__ import annotations

from agents.transport import LONG_AGO, NEVER
from topologies.units import BYTE


class Congestion:
    """A constant window, and a rate that is constant unless a subclass changes it. ``window`` in bytes of frames; ``rate`` in bits/s, 0 for
    no limit but the port's; ``slack_ps`` is how much lateness of the host's own timers is made up for: a packet that left so much after its
    time does not delay the next [ours]."""

    def __init__(self, window: int, rate: int = 0, slack_ps: int = 0) -> None:
        self.window: int = window
        self.rate: int = rate
        self.slack_ps: int = slack_ps
        self.next_send_ps: int = LONG_AGO
        """The time before which no packet goes."""
        self.timer_at: int = NEVER
        """The time at which :meth:`on_timer` is due."""

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
    """A window and a rate that nothing changes (what NICs offer as a QP's packet pacing)."""


class NotificationPoint:
    """The receiver's side: turns congestion marks into CNPs, at most one per ``interval_ps`` and flow (RoCEv2 annex A17; Zhu et al.,
    SIGCOMM 2015, section 3.1). A flow is a queue pair here."""

    def __init__(self, interval_ps: int) -> None:
        self.interval_ps: int = interval_ps
        self._quiet_until: int = LONG_AGO

    def on_mark(self, now: int) -> bool:
        """Take that a data packet came marked; returns True if a CNP must go out for it."""
        if now < self._quiet_until:
            return False
        self._quiet_until = now + self.interval_ps
        return True
