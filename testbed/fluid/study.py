"""Computes steps of a collective over cluster sizes and dead links, and the cost of each failure:
``mrcbed fabric fluid``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from testbed.fluid.live_links import Cluster, State
from testbed.fluid.losses import ev_sets_fit, losses_at_start, touched_by_t1
from testbed.fluid.rates import flow_rates, ring_step
from topologies.sizing import Size

SAMPLE = 20_000


@dataclass(frozen=True)
class Job:
    """Every host is in one ring of ``ranks``; all rings reduce ``message_bytes`` per rank at once,
    and a step ends with the slowest."""

    ranks: int
    message_bytes: int


@dataclass(frozen=True)
class Steps:
    """Times in ns: healthy, and the median and the longest over draws of dead links."""

    nics: int
    planes: int
    tiers: int
    equal_planes: bool
    dead_links: int
    healthy_ns: float
    median_ns: float
    longest_ns: float

    @property
    def design(self) -> str:
        return (
            "1 plane"
            if self.planes == 1
            else f"{self.planes} planes, {'equal' if self.equal_planes else 'weighted'}"
        )


def steps(size: Size, job: Job, dead_share: float, draws: int, seed: int) -> list[Steps]:
    """Equal planes, and weighted ones where there are several, have the same dead links:
    ``dead_share`` of the T0-T1 links. Raises
    :class:`testbed.errors.UserError` if the rings or the NICs do not fit the T0s."""
    cluster = Cluster.of_size(size)
    dead = round(dead_share * cluster.fabric_links)
    rules = (True, False) if size.planes > 1 else (True,)
    healthy = {
        rule: ring_step(State.healthy(cluster), job.ranks, job.message_bytes, rule)
        for rule in rules
    }
    degraded: dict[bool, list[float]] = {rule: [] for rule in rules}
    for draw in range(draws):
        state = State.healthy(cluster)
        state.cut_random(dead, np.random.default_rng((seed, draw)))
        for rule in rules:
            degraded[rule].append(ring_step(state, job.ranks, job.message_bytes, rule))
    return [
        Steps(
            size.nics,
            size.planes,
            size.tiers,
            rule,
            dead,
            healthy[rule],
            median(degraded[rule]),
            max(degraded[rule]),
        )
        for rule in rules
    ]


@dataclass(frozen=True)
class Failures:
    """Shares that one failure takes of the slowest flow's rate, queue pairs that a silent T1
    touches, and what dead paths cost at the start. ``None`` where the model has no answer: with
    more than two tiers, or more EVs of a queue pair than paths."""

    planes: int
    lost_link: float
    lost_link_weighted: float
    lost_port: float
    dead_t1: float | None
    touched_one_way: float | None
    touched_either: float | None
    dead_paths: float | None
    losses_per_qp: float | None
    packets_per_second: float


def failures(size: Size, job: Job, dead_share: float, seed: int) -> Failures:
    """Each failure is alone in a healthy cluster; ``dead_share`` of the T0-T1 links are dead when
    queue pairs start without a denylist."""
    cluster = Cluster.of_size(size)
    edges = cluster.interleaved_rings(job.ranks)

    def taken(state: State, equal_planes: bool = True) -> float:
        return 1 - float(flow_rates(state, *edges, equal_planes).min()) / cluster.links.host_rate

    link, port, t1 = (State.healthy(cluster) for _ in range(3))
    link.set_link(0, 0, 0)
    port.set_port(0, 0)
    t1.set_t1(0, 0)
    generator = np.random.default_rng(seed)
    one_way = either = dead_paths = losses = None
    if size.tiers == 2 and ev_sets_fit(cluster):
        one_way, either = touched_by_t1(cluster, SAMPLE, generator)
        start = State.healthy(cluster)
        start.cut_random(round(dead_share * cluster.fabric_links), generator)
        lost, dead_paths = losses_at_start(start, SAMPLE // 10, generator)
        losses = float(lost.mean())
    return Failures(
        size.planes,
        taken(link),
        taken(link, False),
        taken(port),
        taken(t1) if size.tiers == 2 else None,
        one_way,
        either,
        dead_paths,
        losses,
        cluster.packets_per_second,
    )
