"""A ring under MRC for minutes while cables are pulled and mended without end: nothing may be
wrong, lost without a cause, dead or growing.

MRCBED_SOAK_S: how long, seconds (default 600). MRCBED_SOAK_SEED: which cables when (default 1).
"""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest

from testbed.emulated.cluster import Cluster
from tests.emulated.ring import Ring, unexplained
from tests.soak.looks import ALLOWED_GROWTH, resident
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = [pytest.mark.soak, pytest.mark.sandbox, pytest.mark.timeout(0)]
STEPS = 12


def test_a_ring_lives_through_cables_pulled_and_mended_again_and_again(tmp_path: Path) -> None:
    seconds, seed = (
        float(os.environ.get("MRCBED_SOAK_S", "600")),
        int(os.environ.get("MRCBED_SOAK_SEED", "1")),
    )
    rng = random.Random(seed)
    fabric = load_fabric("demo")
    cables = [link.name for link in fabric.links]
    with Cluster(fabric, dilation=DILATION) as cluster:
        before = cluster.counters()
        cluster.start_agents("mrc", {}, tmp_path / "log", seed)
        ring = Ring(cluster)
        pids = [process.pid for process in cluster._agents]
        first: list[int] = []
        begun, rounds, steps = time.monotonic(), 0, 0
        while (now := time.monotonic() - begun) < seconds or rounds < 4:
            cable, at, back = rng.choice(cables), rng.uniform(0.02, 0.3), rng.uniform(0.02, 0.6)
            where = (
                f"seed {seed}, round {rounds}: {cable} pulled {at:.3f} s after the start for "
                f"{back:.3f} s"
            )
            acts = [
                (at, partial(cluster.set_link, cable, False)),
                (at + back, partial(cluster.set_link, cable, True)),
            ]
            assert ring.run(STEPS, acts, size=1 << 17, timeout=60), (
                f"{where}: {ring.failures or 'no end'}"
            )
            assert ring.all_right(), f"{where}: {ring.wrong} wrong, {ring.failures}"
            assert cluster.controller_alive, where
            assert unexplained(cluster, before) == 0, where
            rounds, steps = rounds + 1, steps + STEPS
            ring.ends.clear()
            if not first and (rounds == 3 or now > seconds / 10):
                first = [resident(pid) for pid in pids]  # pools and caches are filled by now
        grown = [resident(pid) - was for pid, was in zip(pids, first, strict=True)]
        again = sum(agent.call("counters")["retransmitted"] for agent in cluster.agents)
        print(
            f"{rounds} cables pulled under {steps} steps, {again} packets sent again, agents "
            f"grew by at most {max(grown) >> 10} KiB"
        )
        assert again > 0, "the faults must have been felt"
        assert max(grown) <= ALLOWED_GROWTH, grown
