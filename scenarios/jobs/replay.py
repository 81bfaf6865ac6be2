"""A plan on a living cluster: its ranks as programs, the times of their passes, and what is to be said of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from scenarios.jobs import aicb, chakra
from scenarios.jobs.plan import Plan, PlanError, Rehearsal, checked, estimate, rehearse, scaled
from testbed.errors import UserError
from testbed.world import Program, World
from topologies.clos import Fabric

RANK = Path(__file__).with_name("rank.py")
PLAN_FILE = "plan.json"


def read_trace(path: Path, fabric: Fabric, ranks: int | None, groups: Path | None, sigma: float) -> tuple[Plan, Rehearsal]:
    """A trace, ready to be replayed on the fabric's first hosts, and how it goes by the estimate. Raises :class:`UserError`, one line."""
    try:
        text = path.is_file() and path.suffix != ".et"
        if text and groups is not None:
            raise UserError(f"--groups {groups}: only Chakra traces name groups; {path.name} is read as AICB's text")
        plan = aicb.read(path, ranks or fabric.host_count) if text else chakra.read(path, chakra.read_groups(groups) if groups else None)
        if ranks is not None and len(plan.ranks) != ranks:
            raise UserError(f"--ranks {ranks}: {path.name} is a trace of {len(plan.ranks)} ranks, no more and no less")
        if len(plan.ranks) > fabric.host_count:
            raise UserError(
                f"{path.name} has {len(plan.ranks)} ranks, fabric {fabric.name!r} {fabric.host_count} hosts: use a larger fabric"
            )
        plan = checked(scaled(plan, sigma))
        return plan, rehearse(plan, estimate(fabric, range(fabric.host_count)))
    except PlanError as error:
        raise UserError(str(error) if str(error).startswith((str(path), path.name)) else f"{path.name}: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def write_plan(plan: Plan, directory: Path, phases: Sequence[tuple[Sequence[int], int]]) -> Path:
    """As scenarios/jobs/rank.py reads it; readable for whoever the ranks run as. ``phases``: which ranks make how many passes."""
    file = directory / PLAN_FILE
    ranks = [[{key: value for key, value in asdict(node).items() if key != "stage"} for node in nodes] for nodes in plan.ranks]
    made = {"groups": [list(group) for group in plan.groups], "ranks": ranks, "phases": [[list(own), passes] for own, passes in phases]}
    file.write_text(json.dumps(made), encoding="utf-8")
    file.chmod(0o644)
    return file


class Stopped(KeyboardInterrupt):
    """By Ctrl-C or SIGTERM. ``told``: as :func:`play` returns it, of the passes before."""

    def __init__(self, told: dict[int, list[list[float]]]) -> None:
        super().__init__("stopped")
        self.told = told


def play(
    world: World, plan: Plan, file: Path, user: int | None, qps: int, on_pass: Callable[[int, int], None],
    look: Callable[[], float | None] = lambda: None,
) -> tuple[dict[int, list[list[float]]], dict[int, str], list[str]]:  # fmt: skip
    """Carry a plan out on agents that have been started. What each rank told of each pass (rank.py), what went wrong by rank, and what
    they printed. ``on_pass(rank, number)``. Raises UserError, ClusterDied, :class:`Stopped`."""
    told: dict[int, list[list[float]]] = {rank: [] for rank in range(len(plan.ranks))}
    lines: list[str] = []

    def on_note(rank: int, note: dict[str, Any]) -> None:
        if note["event"] == "told":
            told[rank].append(note["note"]["step"])
            on_pass(rank, len(told[rank]))

    programs = world.programs(Program((str(RANK), str(file)), user, qps), range(len(plan.ranks)))
    try:
        failed = programs.run(lambda rank, line: lines.append(f"rank {rank}: {line}"), on_note, look)
    except KeyboardInterrupt:
        raise Stopped(told) from None
    finally:
        programs.end()
    return told, failed, lines


def figures(plan: Plan, rehearsal: Rehearsal, told: dict[int, list[list[float]]], warmup: int) -> dict[str, Any]:
    """Times in us of the network. ``gpu_lost_us``: of all ranks and measured passes, what was not computing."""
    passes = min((len(rows) for rows in told.values()), default=0)
    measured = range(warmup, passes)
    # A pass is as long as its slowest rank takes from its own begin: ranks do not wait for each other between passes.
    times = [max(rows[number][3] - rows[number][2] for rows in told.values()) * 1e6 for number in measured]
    spent = [sum((rows[number][3] - rows[number][2]) * 1e6 for rows in told.values()) for number in measured]
    computed = sum(plan.compute_ns) / 1e3
    return {
        "ranks": len(plan.ranks),
        "nodes": sum(map(len, plan.ranks)),
        "groups": len(plan.groups),
        "bytes": plan.bytes,
        "compute_us": computed / len(plan.ranks),
        "passes": len(times),
        "pass_us": times,
        "median_pass_us": median(times) if times else None,
        "slowest_pass_us": max(times, default=None),
        "estimate_us": rehearsal.ns / 1e3,
        "gpu_us": sum(spent),
        "gpu_lost_us": sum(spent) - computed * len(times),
        "compute_late_us": max((row[4] * 1e6 for rows in told.values() for row in rows[warmup:]), default=0.0),
        "wrong": sum(int(rows[-1][5]) for rows in told.values() if rows),
        "not_replayed": plan.skipped,
    }
