"""A fabric as probes see it, without packets: each link loses a probe's way up or down with a
chance of its own, and all else is the real schedule and the real localiser. Fast enough to break
every link of a fabric in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from agents.clustermapper import probes
from agents.clustermapper.localise import Localiser, Verdict
from agents.clustermapper.mapper import BUCKET_ROUNDS
from agents.clustermapper.options import Options
from topologies import Fabric


class Model:
    """``rate``: link -> (loss away from the hosts, loss towards them). Time goes by buckets."""

    def __init__(
        self, fabric: Fabric, options: Options, seed: int, hosts: Iterable[int] | None = None
    ) -> None:
        self.fabric, self.options, self.seed = fabric, options, seed
        self.hosts = list(range(fabric.host_count) if hosts is None else hosts)
        self.rng = np.random.default_rng(seed)
        self.localiser = Localiser(fabric, options, self.hosts)
        self.rate: dict[str, tuple[float, float]] = {}
        self.sent = {h: np.zeros(probes.cells(fabric), np.int64) for h in self.hosts}
        self.lost = {h: np.zeros(probes.cells(fabric), np.int64) for h in self.hosts}
        self.carrier = {h: [True] * fabric.planes for h in self.hosts}
        self.bucket = 0
        self._links = {h: list(self._crossed(h)) for h in self.hosts}  # by cell
        # All T1s have had their turn, by every host, after so many rounds, and it begins anew.
        self._period = (
            probes.TURNS * max(1, probes.share_size(fabric, options)) * fabric.t1_per_plane
        )
        self._rounds: dict[tuple[int, int], list[int]] = {}
        self._chances: dict[int, np.ndarray] = {}
        self._chances_of: dict[str, tuple[float, float]] | None = None

    def _crossed(self, host: int) -> Iterator[list[str]]:
        """Of each cell, the links that its probes cross."""
        for plane in range(self.fabric.planes):
            own = probes.nic_link(self.fabric, plane, host)
            yield [own]
            for t1 in range(self.fabric.t1_per_plane):
                yield [own, probes.upper_link(plane, self.fabric.t0_of(host), t1)]

    def _chance(self, links: list[str]) -> float:
        """That a probe over these links does not come back."""
        back = 1.0
        for link in links:
            up, down = self.rate.get(link, (0.0, 0.0))
            back *= (1 - up) * (1 - down)
        return 1 - back

    def _probed(self, host: int) -> Iterator[int]:
        for number in range(self.bucket * BUCKET_ROUNDS, (self.bucket + 1) * BUCKET_ROUNDS):
            k = host, number % self._period
            if k not in self._rounds:
                self._rounds[k] = [
                    *chain(
                        *probes.cells_of_round(self.fabric, self.options, self.seed, host, number)
                    )
                ]
            yield from self._rounds[k]

    def step(self) -> list[Verdict]:
        """One bucket; what changed."""
        if self.rate != self._chances_of:
            self._chances = {
                h: np.array([self._chance(links) for links in self._links[h]]) for h in self.hosts
            }
            self._chances_of = dict(self.rate)
        size = len(self._links[self.hosts[0]])
        for h in self.hosts:
            cells = np.array(
                [
                    cell
                    for cell in self._probed(h)
                    if self.carrier[h][cell // (self.fabric.t1_per_plane + 1)]
                ],
                np.int64,
            )
            gone = cells[self.rng.random(len(cells)) < self._chances[h][cells]]
            self.sent[h] += np.bincount(cells, minlength=size)
            self.lost[h] += np.bincount(gone, minlength=size)
            self.localiser.add(h, self.bucket, self.sent[h], self.lost[h], self.carrier[h])
        self.bucket += 1
        return self.localiser.judge(self.bucket)

    def run(
        self, buckets: int, until: Callable[[list[Verdict]], bool] = lambda changed: False
    ) -> list[Verdict]:
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
        return (
            buckets
            * BUCKET_ROUNDS
            * probes.interval_ps(self.fabric, self.options)
            / self.fabric.base_rtt_ps
        )
