"""The comparison: which runs, how many steps fit the time, one after the other, and what is left in the directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.run.resume import write_json
from scenarios.schema.dilation import check_rates
from scenarios.schema.fabrics import twin_of
from scenarios.sets.dilation import MOST_BUSY, STEPS, free_cores
from scenarios.sets.estimate import format_duration
from scenarios.train.job import MRC, MRC_HEALTHY, ROCE, TCP, Leg, Outcome, run_leg
from scenarios.train.metrics import summary_of
from scenarios.train.page import draw, write_page
from testbed.bench.calibration import calibration, others_cores
from testbed.errors import UserError
from testbed.installation import documents
from testbed.session import Progress, Session
from testbed.world import SIMULATED
from topologies.clos import Fabric

LEGS: dict[str, tuple[Leg, ...]] = {"mrc": (MRC_HEALTHY, MRC), "roce": (ROCE,), "tcp": (TCP,)}
MOST_S, QUICK_S = 12 * 60.0, 4 * 60.0
BRING_UP_S = 9.0
"""Seconds of a run: bring-up, agents, tear-down, drawing its part [measured]."""
STEP_US = {"mrc-healthy": 104.0, "mrc": 112.0, "roce-1p": 160.0, "tcp": 180.0}
"""Network time of a step, failures among them, for the estimate [measured]."""
NUMBERS = (100, 40, 20, 8)
"""Step counts: the most that fit. Few, so that runs of one seed on one machine have the same number, and so the same parameters [ours]."""
FULL_STEPS, QUICK_STEPS = 100, 40


@dataclass(frozen=True)
class Plan:
    """What will be run."""

    world: str
    fabric: Fabric
    legs: tuple[Leg, ...]
    steps: int
    dilation: float = 1.0
    """Dilation of the emulated world."""


def plan_of(
    fabric: Fabric, usual: float, world: str, steps: int | None, quick: bool, transports: Sequence[str], dilation: float | None,
    progress: Progress,
) -> Plan:  # fmt: skip
    """Which runs, at which dilation (None: what this machine carries, ``usual`` or more), and how many steps. Raises :class:`UserError`."""
    if world == SIMULATED and "tcp" in transports:
        raise UserError("transport 'tcp' is the kernel's: the simulated world has no kernel: drop --transport tcp")
    if fabric.t0_per_plane < 2 or fabric.planes < 2:
        shape = f"{fabric.planes} planes of {fabric.t0_per_plane} T0s"
        raise UserError(f"fabric {fabric.name!r} has {shape}: training through failures needs two of each")
    names = list(transports) or (["mrc"] if quick else [name for name in LEGS if world != SIMULATED or name != "tcp"])
    legs = tuple(leg for name in names for leg in LEGS[name])
    most = QUICK_STEPS if quick else FULL_STEPS
    if world == SIMULATED:
        return Plan(world, fabric, legs, steps or most)
    if dilation is None:
        # Every host sends at its rate at once, at the busiest moment.
        packets = fabric.host_count * fabric.host_rate / usual / 8 / fabric.frame_bytes
        cpu_us, free = calibration(progress).cpu_us, free_cores(others_cores())
        dilation = usual * next((step for step in STEPS if packets * cpu_us / 1e6 / step <= MOST_BUSY * free), STEPS[-1])
    check_rates(fabric, dilation)
    wall_s = sum(STEP_US[leg.name] for leg in legs) * 1e-6 * dilation
    room_s = (QUICK_S if quick else MOST_S) - BRING_UP_S * len(legs)
    steps = steps or next((number for number in NUMBERS if number <= most and number * wall_s <= room_s), NUMBERS[-1])
    seconds = steps * wall_s + BRING_UP_S * len(legs)
    progress(f"{len(legs)} runs of {steps} steps at dilation {dilation:,.0f}: about {format_duration(seconds)}", 0.0)
    return Plan(world, fabric, legs, steps, dilation)


def text_of_docs() -> bytes:
    """The repository's own documents, which the model reads."""
    place = documents()
    files = [place / "README.md", *sorted((place / "docs").glob("*.md"))]
    text = b"\n".join(path.read_bytes() for path in files if path.is_file())
    if len(text) < 10_000:
        raise UserError("mrcbed train reads the project's docs/*.md, and they are not there: run it from a complete clone or wheel")
    return text


def compare(plan: Plan, directory: Path, seed: int, user: int | None, progress: Progress) -> dict[str, Any]:
    """Run everything; leaves summary.json, the agents' logs, drawings and report.html. What was measured stays, whatever follows."""
    directory.mkdir(parents=True, exist_ok=True)
    text = directory / "text.txt"
    text.write_bytes(text_of_docs())
    if plan.world != SIMULATED:
        from testbed.emulated.programs import require_readable

        require_readable(text, user)
    outcomes: list[Outcome] = []
    for leg in plan.legs:
        fabric = twin_of(plan.fabric) if leg.one_plane else plan.fabric
        logs = directory / "raw" / leg.name
        logs.mkdir(parents=True)
        session = Session(fabric, plan.world, leg.transport, seed=seed, dilation=plan.dilation)
        outcome = run_leg(session, leg, plan.steps, text, logs, user, progress)
        outcomes.append(outcome)
        (logs / "ranks.json").write_text(json.dumps(outcome.ranks), encoding="utf-8")
        write_json(directory / "summary.json", summary_of(outcomes, seed, plan.world, plan.dilation))
    summary = summary_of(outcomes, seed, plan.world, plan.dilation)
    progress("drawing", 1.0)
    draw(summary, directory)
    write_page(summary, directory)
    return summary
