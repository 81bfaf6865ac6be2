"""Computes how many queue pairs a failure touches, and how many packets it costs them, with EV sets
drawn as MRC draws them.

A queue pair has as many EVs in each plane, on random paths (MRC paper, section 2). A lost packet
takes its EV out of use at once, and another takes its place. With more EVs than packets in a base
RTT, an EV carries one packet before its loss is known: a dead EV costs one packet.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from testbed.errors import UserError
from testbed.fluid.live_links import Cluster, Numbers, State

EVS = 256
"""EVs of a queue pair over all planes (MRC paper, section 2: 128 to 256)."""


def ev_sets_fit(cluster: Cluster, evs: int = EVS) -> bool:
    return evs % cluster.planes == 0 and 1 <= evs // cluster.planes <= cluster.uplinks


def evs_per_plane(cluster: Cluster, evs: int = EVS) -> int:
    """Raises :class:`UserError` unless :func:`ev_sets_fit`."""
    if not ev_sets_fit(cluster, evs):
        raise UserError(
            f"{evs} EVs: use a multiple of {cluster.planes} planes, up to "
            f"{cluster.planes * cluster.uplinks}"
        )
    return evs // cluster.planes


def _path_orders(cluster: Cluster, pairs: int, generator: np.random.Generator) -> Numbers:
    return np.argsort(generator.random((pairs, cluster.uplinks), dtype=np.float32), axis=1)


def touched_by_t1(
    cluster: Cluster, queue_pairs: int, generator: np.random.Generator, evs: int = EVS
) -> tuple[float, float]:
    """Return shares of queue pairs, between T0s, with an EV through one given T1: in their data's
    direction, and in either direction, each of which has its own EV set."""
    each = evs_per_plane(cluster, evs)
    there, back = (
        (_path_orders(cluster, queue_pairs, generator)[:, :each] == 0).any(axis=1) for _ in range(2)
    )
    return float(there.mean()), float((there | back).mean())


def packets_per_ev(cluster: Cluster, evs: int = EVS) -> int:
    """Return what one EV carries in a base RTT, until its first loss can be known, from one queue
    pair that has the NIC alone."""
    return ceil(cluster.links.plane_bdp * cluster.planes / cluster.links.mtu / evs)


def losses_at_start(
    state: State, queue_pairs: int, generator: np.random.Generator, evs: int = EVS
) -> tuple[NDArray[np.int64], float]:
    """Draw (packets that each queue pair loses until all its EVs are on live paths, share of the
    paths that are dead). Queue pairs start between random T0s and believe every path to be good. A
    plane without enough live paths costs one try of each dead one."""
    cluster = state.cluster
    each = evs_per_plane(cluster, evs)
    a = generator.integers(0, cluster.t0s, queue_pairs)
    b = (a + generator.integers(1, cluster.t0s, queue_pairs)) % cluster.t0s
    lost = np.zeros(queue_pairs, dtype=np.int64)
    dead = 0
    for plane in state.up:
        live = plane[a] & plane[b]
        dead += int(np.count_nonzero(~live))
        tried = np.take_along_axis(live, _path_orders(cluster, queue_pairs, generator), axis=1)
        # the set is not yet full when this path has been tried
        missing = np.cumsum(tried, axis=1) < each
        lost += np.count_nonzero(~tried & missing, axis=1)
    return lost * packets_per_ev(cluster, evs), dead / (
        queue_pairs * cluster.planes * cluster.uplinks
    )
