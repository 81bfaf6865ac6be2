"""A fabric as probes see it, without packets: each link loses a probe's way up or down with a chance of its own, and all else is the real
schedule and the real localiser. Fast enough to break every link of a fabric in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import numpy as np

from agents.clustermapper import probes
from agents.clustermapper.localise import Localiser, Verdict
from agents.clustermapper.mapper import BUCKET_ROUNDS
from agents.clustermapper.options import Options
from topologies import Fabric


class Model:
    """``rate``: link -> (loss away from the hosts, loss towards them). Time goes by buckets."""

    def __init__(self, fabric: Fabric, options: Options, seed: int, hosts: Iterable[int] | None = None) -> None:
        self.fabric, self.options, self.seed = fabric, options, seed
        self.hosts = list(range(fabric.host_count) if hosts is None else hosts)
        self.rng = np.random.default_rng(seed)
        self.localiser = Localiser(fabric, options, self.hosts)
        self.rate: dict[str, tuple[float, float]] = {}
        self.sent = {h: np.zeros(probes.cells(fabric), np.int64) for h in self.hosts}
        self.lost = {h: np.zeros(probes.cells(fabric), np.int64) for h in self.hosts}
        self.carrier = {h: [True] * fabric.planes for h in self.hosts}
        self.bucket = 0

    def _chance(self, host: int, cell: int) -> float:
        plane, t1 = divmod(cell, self.fabric.t1_per_plane + 1)
        links = [probes.nic_link(self.fabric, plane, host)]
        links += [probes.upper_link(plane, self.fabric.t0_of(host), t1 - 1)] if t1 else []
        back = 1.0
        for link in links:
            up, down = self.rate.get(link, (0.0, 0.0))
            back *= (1 - up) * (1 - down)
        return 1 - back

    def step(self) -> list[Verdict]:
        """One bucket; what changed."""
        for h in self.hosts:
            for number in range(self.bucket * BUCKET_ROUNDS, (self.bucket + 1) * BUCKET_ROUNDS):
                for cell in chain(*probes.cells_of_round(self.fabric, self.options, self.seed, h, number)):
                    if self.carrier[h][cell // (self.fabric.t1_per_plane + 1)]:
                        self.sent[h][cell] += 1
                        self.lost[h][cell] += self.rng.random() < self._chance(h, cell)
            self.localiser.add(h, self.bucket, list(self.sent[h]), list(self.lost[h]), self.carrier[h])
        self.bucket += 1
        return self.localiser.judge(self.bucket)

    def run(self, buckets: int, until: Callable[[list[Verdict]], bool] = lambda changed: False) -> list[Verdict]:
        """All changes of so many buckets, or until ``until`` says so."""
        made: list[Verdict] = []
        for _ in range(buckets):
            changed = self.step()
            made += changed
            if until(changed):
                break
        return made

    def rtts(self, buckets: int) -> float:
        """Buckets in base RTTs."""
        return buckets * BUCKET_ROUNDS * probes.interval_ns(self.fabric, self.options) / self.fabric.base_rtt_ns
