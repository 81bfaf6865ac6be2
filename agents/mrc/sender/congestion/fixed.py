"""Keeps a constant window."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from agents.mrc.config import Config
from agents.mrc.sender.congestion.base import Congestion


@mypyc_attr(allow_interpreted_subclasses=True)
class FixedWindow(Congestion):
    def __init__(self, config: Config, path_rtt: int) -> None:
        super().__init__(config, path_rtt)
        self.planes_changed(1)

    def planes_changed(self, live: int) -> None:
        self.live = live
        self.cwnd = max(int(self.config.window_bdp * self.config.plane_bdp * live), 2 * self.mtu)
