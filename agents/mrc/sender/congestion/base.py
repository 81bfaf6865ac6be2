"""The interface of a congestion control algorithm of one QP: what it hears, and its one answer,
``cwnd``, read before every packet.

Times are ps. Sizes are bytes and count a packet as NSCC does (UET): UDP length plus 40, which is
:data:`agents.mrc.wire.COUNTED` more than the payload.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from agents.mrc import wire
from agents.mrc.config import Config
from agents.transport import Event


@mypyc_attr(allow_interpreted_subclasses=True)
class Congestion:
    """A window that stays constant unless a subclass changes it. ``path_rtt``: the configured RTT
    of an idle path."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        self.config = config
        self.path_rtt = path_rtt
        self.mtu = config.mtu + wire.COUNTED  # of a full packet
        self.live = 1
        self.cwnd = 2 * self.mtu
        self.log: list[Event] = []
        self.peer = self.qpn = -1

    def attach(self, peer: int, qpn: int, log: list[Event]) -> None:
        """The requester calls this once, before anything else."""
        self.peer, self.qpn, self.log = peer, qpn, log

    def event(self, now: int, kind: str, **figures: int) -> None:
        """Log what moved the window beyond the rules for every packet."""
        self.log.append((now, kind, {"peer": self.peer, "qpn": self.qpn, **figures}))

    def planes_changed(self, live: int) -> None:
        """Take that ``live`` planes carry data now (at least 1)."""
        self.live = live

    def on_sack(
        self, now: int, news: int, in_flight: int, ecn: bool, rtt: int, penalty: int, restore: bool
    ) -> None:
        """``news``: bytes received since the newest SACK before (0 for an older one).
        ``in_flight``: bytes after it. ``rtt``: a valid sample, or -1. ``ecn``: the packet that it
        answers came marked. ``penalty`` (0-127) and ``restore``: CC_STATE's receiver words. Readers
        of the specification know three formulas for a penalty."""

    def on_nack(self, now: int, size: int, in_flight: int, trimmed: bool) -> None:
        """Take a refusal of ``size`` bytes. ``trimmed``: a full queue on the way cut them;
        otherwise the peer had no room."""

    def on_loss(self, now: int, size: int) -> None:
        """Take that a packet vanished without a NACK: its path is blamed, or the retransmission
        timer fired."""

    def on_wrong_loss(self, now: int, size: int) -> None:
        """Undo what :meth:`on_loss` did for a packet that had arrived after all."""
