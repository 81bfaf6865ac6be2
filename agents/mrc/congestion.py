"""How much a QP may have in flight. One class per algorithm; the requester knows only these methods."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from agents.mrc.config import Config


@mypyc_attr(allow_interpreted_subclasses=True)
class FixedWindow:
    """A window that does not move: ``window_bdp`` x BDP summed over the live planes (standing where NSCC will go)."""

    def __init__(self, config: Config, frame_bytes: int) -> None:
        self.config = config
        self.frame_bytes = frame_bytes
        self.cwnd = 0
        self.planes_changed(1)

    def planes_changed(self, live: int) -> None:
        """``live`` planes carry data now; never under two packets, or a window smaller than one would stop the QP."""
        self.cwnd = max(int(self.config.window_bdp * self.config.plane_bdp * live), 2 * self.frame_bytes)
