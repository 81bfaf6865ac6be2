"""The interface of a congestion control algorithm of one QP: what it hears, and the one thing it answers, ``cwnd``.

The requester calls; nothing here knows packets, PSNs or paths. Sizes are bytes and count a packet as NSCC does (UET): UDP length plus 40,
:data:`agents.mrc.wire.COUNTED` bytes more than the payload. Times are ps. ``cwnd`` is read before every packet.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from agents.mrc import wire
from agents.mrc.config import Config
from agents.transport import Event


@mypyc_attr(allow_interpreted_subclasses=True)
class Congestion:
    """A window that stays constant unless a subclass changes it. ``path_rtt`` is the RTT of an idle path between these two hosts, as
    configured."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        self.config = config
        self.path_rtt = path_rtt
        self.mtu = config.mtu + wire.COUNTED  # of a full packet
        self.live = 1
        self.cwnd = 2 * self.mtu
        self.log: list[Event] = []
        self.peer = self.qpn = -1

    def attach(self, peer: int, qpn: int, log: list[Event]) -> None:
        """Set the queue pair of this window and the log of its events, for :meth:`event`. The requester calls it once, before anything
        else."""
        self.peer, self.qpn, self.log = peer, qpn, log

    def event(self, now: int, kind: str, **figures: int) -> None:
        """Write a line of the host's event log: what moved the window beyond the rules for every packet."""
        self.log.append((now, kind, {"peer": self.peer, "qpn": self.qpn, **figures}))

    def planes_changed(self, live: int) -> None:
        """Take that ``live`` planes carry data now (at least 1)."""
        self.live = live

    def on_sack(self, now: int, news: int, in_flight: int, ecn: bool, rtt: int, penalty: int, restore: bool) -> None:
        """Take a SACK. ``news``: bytes received since the newest SACK before (0 for an older one). ``in_flight``: after it. ``rtt``: a
        valid sample, or -1. ``ecn``: its trigger came marked. ``penalty`` (0-127) and ``restore``: CC_STATE's receiver words. What a
        penalty does to the window is the algorithm's affair: readers of the specification know three formulas."""

    def on_nack(self, now: int, size: int, in_flight: int, trimmed: bool) -> None:
        """Take that a packet of ``size`` bytes was refused; ``trimmed``: by a full queue on the way, else the peer had no room."""

    def on_loss(self, now: int, size: int) -> None:
        """Take that a packet vanished without a NACK: its path is blamed, or the retransmission timer fired."""

    def on_wrong_loss(self, now: int, size: int) -> None:
        """Undo what :meth:`on_loss` did for a packet that had arrived after all."""
