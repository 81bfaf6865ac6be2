"""What the long runs look at: memory, books, the machine's own business, and where what was seen is
kept."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scenarios.figures.fidelity import SAMPLE_S
from scenarios.run.watch import Watch
from scenarios.sets import schedules
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import accounts
from topologies.units import NS

ALLOWED_GROWTH = 8 << 20
"""Bytes of resident memory that an agent may gain after the first rounds, whatever the length of
the run [our own choice]."""
BUSY = 0.9
"""Share of the cores above which the machine is called busy [ours]."""
RESULTS = Path(__file__).resolve().parents[2] / "results"


def results(name: str) -> Path:
    """A new directory for what a long run writes, beside scenarios' results."""
    directory = RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory.mkdir(parents=True)
    return directory


def resident(pid: int) -> int:
    """Bytes of memory that a process really holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def imbalance(cluster: Cluster, before: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the books of agents, switches and cables since ``before``, in words."""
    counted = accounts(cluster, before)
    counted.outcome = "done"
    return schedules.imbalance(counted, cluster.fabric.base_rtt_ps // NS)


def machine(watch: Watch, loops: Sequence[dict[str, Any]], cluster: Cluster) -> str:
    """How much of what went wrong may be the machine's, in one line of wall time. ``loops``: the
    agents' account of how late they woke."""
    ms = cluster.clock.wall_s(10**3)
    shares = [share for _, share in watch.samples]
    mean = sum(shares) / len(shares) if shares else 0.0
    busy_s = sum(share > BUSY for share in shares) * SAMPLE_S
    late = max((int(loop.get("lag_max_ps", 0)) for loop in loops), default=0)
    often = max((int(loop.get("lag_p99_ps", 0)) for loop in loops), default=0)
    return (
        f"the machine: CPU {mean:.0%} busy, above {BUSY:.0%} for {busy_s:.1f} s of "
        f"{len(shares) * SAMPLE_S:.0f} s, a timer up to {watch.delay_max_ns / 1e6:.0f} ms late; "
        f"agents woke up to {late * ms:.0f} ms late (p99 {often * ms:.1f} ms), a base RTT is "
        f"{cluster.fabric.base_rtt_ps * ms:.0f} ms"
    )
