"""Bytes go where flows go: in equal parts over live planes and live paths, and none are lost on the way."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fluid.cluster import Cluster, State
from testbed.fluid.tally import Tally
from topologies import Fabric

CLUSTER = Cluster.of_fabric(Fabric("f", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2))
SENDERS, RECEIVERS = np.array([0, 2, 1]), np.array([2, 0, 0])  # across, across, under one T0


def test_a_healthy_cluster_spreads_them_evenly() -> None:
    tally = Tally(CLUSTER)
    tally.add(State.healthy(CLUSTER), SENDERS, RECEIVERS, np.array([80.0, 40.0, 8.0]))
    assert tally.sent.tolist() == [[40, 4, 20, 0]] * 2 and tally.received.tolist() == [[24, 0, 40, 0]] * 2
    assert tally.up.tolist() == [[[20, 20], [10, 10]]] * 2 and tally.down.tolist() == [[[10, 10], [20, 20]]] * 2


def test_what_is_dead_carries_nothing() -> None:
    state, tally = State.healthy(CLUSTER), Tally(CLUSTER)
    state.set_link(0, 1, 0)
    state.set_port(1, 2)
    tally.add(state, SENDERS, RECEIVERS, np.array([80.0, 40.0, 8.0]))
    assert tally.sent[0].tolist() == [80, 4, 40, 0] and tally.sent[1].tolist() == [0, 4, 0, 0]
    assert tally.up[0].tolist() == [[0, 80], [0, 40]] and not tally.up[1].any()
    assert tally.sent.sum() == pytest.approx(tally.received.sum()) == 128
