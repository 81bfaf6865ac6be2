"""Bytes that flows have moved: per NIC port and per T0-T1 link, each direction."""

from __future__ import annotations

import numpy as np

from testbed.fluid.cluster import Cluster, Numbers, State
from testbed.fluid.rates import Floats, live_planes


class Tally:
    """Payload bytes so far. ``sent`` and ``received``: [plane, host]; ``up`` and ``down``: [plane, T0, uplink]."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent, self.received = (np.zeros((cluster.planes, cluster.hosts)) for _ in range(2))
        self.up, self.down = (np.zeros((cluster.planes, cluster.t0s, cluster.uplinks)) for _ in range(2))

    def add(self, state: State, senders: Numbers, receivers: Numbers, payload: Floats) -> None:
        """Each flow has moved so many bytes, in equal parts over its live planes, and there over its live paths."""
        t0s = self.cluster.t0s
        live, paths, pair_of = live_planes(state, senders, receivers)
        a, b = self.cluster.t0_of(senders), self.cluster.t0_of(receivers)
        pairs = np.unique(a * t0s + b)
        tails, heads = pairs // t0s, pairs % t0s
        parts = np.where(live, payload / np.maximum(live.sum(axis=0), 1), 0.0)
        for plane, part in enumerate(parts):
            np.add.at(self.sent[plane], senders, part)
            np.add.at(self.received[plane], receivers, part)
            between = np.bincount(pair_of, np.where(a != b, part, 0.0), len(pairs)) / np.maximum(paths[plane], 1)
            by_path = (state.up[plane, tails] & state.up[plane, heads]) * between[:, None]
            np.add.at(self.up[plane], tails, by_path)
            np.add.at(self.down[plane], heads, by_path)
