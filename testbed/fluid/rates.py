"""Computes the rates of flows in one state of a cluster, and the time that a ring all-reduce then
takes (docs/why/fluid.md).

In each plane a flow is limited by cuts: its two ports, the uplinks of both T0s, and the uplink
numbers that are up at both. A cut's capacity goes in equal parts to its flows.

The cuts are exact where all hosts of a T0 send to the hosts of one T0, as in rings: then
:func:`topologies.theory.traffic_bandwidth` finds the same. Elsewhere (all-to-all under failures)
they are an upper bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.fluid.calibration import Shape, stored
from testbed.fluid.live_links import Bools, Numbers, State

Floats = NDArray[np.float64]
SLICES = 4


def _level(capacity: Floats, which: Numbers, weights: Floats) -> Floats:
    load = np.bincount(which, weights, len(capacity))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((capacity / load)[which], dtype=np.float64)


def port_rates(state: State, senders: Numbers, receivers: Numbers) -> Floats:
    planes = live_planes(state, senders, receivers)[0].sum(axis=0)
    return np.asarray(planes * float(state.cluster.links.nic_rate), dtype=np.float64)


def live_planes(
    state: State, senders: Numbers, receivers: Numbers
) -> tuple[Bools, Numbers, Numbers]:
    """Return [plane, flow]: whether the plane has a path for it; [plane, pair of T0s]: number of
    paths; each flow's pair. Pairs are in the order of sender's T0, then receiver's."""
    cluster = state.cluster
    a, b = cluster.t0_of(senders), cluster.t0_of(receivers)
    pairs, pair_of = np.unique(a * cluster.t0s + b, return_inverse=True)
    paths = state.paths(pairs // cluster.t0s, pairs % cluster.t0s)
    return (
        state.port[:, senders] & state.port[:, receivers] & ((a == b) | (paths[:, pair_of] > 0)),
        paths,
        pair_of,
    )


def flow_rates(
    state: State, senders: Numbers, receivers: Numbers, equal_planes: bool = True
) -> Floats:
    """Return bits/s on the wire; 0 for a flow that is cut off."""
    cluster, fabric = state.cluster, state.cluster.links
    a, b = cluster.t0_of(senders), cluster.t0_of(receivers)
    local = a == b
    live, paths, pair_of = live_planes(state, senders, receivers)
    count = live.sum(axis=0)
    ports = np.full(cluster.hosts, float(fabric.nic_rate))
    shares = np.full(live.shape, np.inf)
    for plane in range(cluster.planes):
        of = np.flatnonzero(live[plane])
        weights = 1.0 / count[of] if equal_planes else np.ones(len(of))
        share = np.minimum(
            _level(ports, senders[of], weights), _level(ports, receivers[of], weights)
        )
        across = ~local[of]
        far = of[across]
        uplinks = state.up[plane].sum(axis=1) * float(fabric.fabric_rate)
        both = paths[plane] * float(fabric.fabric_rate)
        for capacity, which in ((uplinks, a[far]), (uplinks, b[far]), (both, pair_of[far])):
            share[across] = np.minimum(share[across], _level(capacity, which, weights[across]))
        shares[plane, of] = share
    # With equal planes a share is of the flow's whole rate already: each plane carries 1/count of
    # it.
    rates = shares.min(axis=0) if equal_planes else np.where(live, shares, 0.0).sum(axis=0)
    return np.where(count > 0, rates, 0.0)


def step_ns(
    state: State, shape: Shape, senders: Numbers, receivers: Numbers, equal_planes: bool = True
) -> float:
    """The time is infinite if a flow is cut off."""
    rates = flow_rates(state, senders, receivers, equal_planes)
    return stored().step_ns(
        shape, float(rates.min()), float(port_rates(state, senders, receivers).min())
    )


def ring_step(
    state: State, ranks: int, message_bytes: int, equal_planes: bool = True, slices: int = SLICES
) -> float:
    edges = state.cluster.interleaved_rings(ranks)
    return step_ns(
        state, Shape(state.cluster.links, ranks, message_bytes, slices), *edges, equal_planes
    )
