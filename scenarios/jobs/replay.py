"""Replays a plan on a living cluster: ranks as programs, times of passes, figures."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from statistics import median

from agents.transport import Note
from scenarios.jobs import aicb, chakra
from scenarios.jobs.content import is_text
from scenarios.jobs.plan import (
    MOST_BYTES,
    NeedsHosts,
    Node,
    Plan,
    PlanError,
    Rehearsal,
    checked,
    estimate,
    rehearse,
    scaled,
)
from testbed.errors import UserError
from testbed.installation import documents
from testbed.world import Program, World
from topologies import Fabric, load_fabric, named_fabrics

NO_BYTES = 1e15  # sigma that leaves only delays
RANK = Path(__file__).with_name("rank.py")
GPT_RANK = RANK.with_name("gpt_rank.py")
PLAN_FILE = "plan.jsonl"


def read_trace(
    path: Path,
    fabric: Fabric,
    ranks: int | None,
    groups: Path | None,
    sigma: float,
    most_ns: float = math.inf,
) -> tuple[Plan, Rehearsal]:
    """Read a trace for the fabric's first hosts, and estimate it. ``most_ns``: limit of a pass.
    Raises :class:`UserError` with a sigma or a number of ranks that works."""
    try:
        text = path.is_file() and is_text(path)
        if text and groups is not None:
            raise UserError(
                f"--groups {groups}: only Chakra traces name groups; {path.name} is read as "
                "AICB's text"
            )
        if text:
            whole = aicb.read(path, ranks or fabric.host_count, fabric.host_count)
        else:
            whole = chakra.read(path, chakra.read_groups(groups) if groups else None, ranks)
        count = len(whole.ranks)
        if ranks is not None and count != ranks:
            raise UserError(
                f"--ranks {ranks}: {path.name} is a trace of {count} ranks, no more and no less"
            )
        if count > fabric.host_count:
            raise NeedsHosts(
                f"{path.name} has {count} ranks, fabric {fabric.name!r} {fabric.host_count} hosts",
                count,
            )
        duration = estimate(fabric, range(fabric.host_count))
        nodes = ((node, rank) for rank, own in enumerate(whole.ranks) for node in own)
        largest, rank = max(nodes, key=lambda pair: pair[0].size, default=(Node(0, ""), 0))
        least = max(sigma, largest.size / MOST_BYTES)
        plan = checked(scaled(whole, least))
        rehearsal = rehearse(plan, duration)
        if least > sigma:
            why = (
                f"rank {rank}: {largest} has {largest.size / sigma:,.0f} bytes, {MOST_BYTES:,} "
                "at most"
            )
        elif rehearsal.ns > most_ns:
            why = (
                f"a pass takes {rehearsal.ns / 1e6:,.3g} ms, --within leaves "
                f"{max(0, most_ns) / 1e6:,.3g} ms for it"
            )
        else:
            return replace(plan, ranks=rehearsal.ranks), rehearsal
        delays_ns = rehearse(scaled(plan, NO_BYTES), duration).ns
        if delays_ns < most_ns:
            fix = (
                "use --sigma "
                f"{_rounded(_fitting(plan, least, rehearsal.ns, delays_ns, duration, most_ns))}"
            )
        else:
            with_sigma = f" and --sigma {_rounded(least)}" if least > sigma else ""
            fix = (
                f"its delays alone take {delays_ns / 1e6:,.3g} ms, whatever sigma: use --world "
                f"simulated{with_sigma}"
            )
        raise UserError(
            f"{path.name}: {why}: {fix}"
            + (", fewer --passes, or a longer --within" if least == sigma else "")
        )
    except NeedsHosts as error:
        larger = sorted(
            (hosts, name)
            for name in named_fabrics()
            if (hosts := load_fabric(name).host_count) >= error.hosts
        )
        raise UserError(
            f"{_named(path, error)}: use a larger fabric"
            + (f", such as {larger[0][1]}" if larger else "")
        ) from None
    except PlanError as error:
        raise UserError(_named(path, error)) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _named(path: Path, error: PlanError) -> str:
    return str(error) if str(error).startswith((str(path), path.name)) else f"{path.name}: {error}"


def _fitting(
    plan: Plan,
    sigma: float,
    ns: float,
    delays_ns: float,
    duration: Callable[[Node], float],
    most_ns: float,
) -> float:
    """Return the sigma at which a pass fits. A pass takes ``ns`` at ``sigma``; ``delays_ns`` of it
    stay."""
    while ns > most_ns:
        factor = 1.05 * (ns - delays_ns) / (most_ns - delays_ns)
        sigma, plan = sigma * factor, scaled(plan, factor)
        ns = rehearse(plan, duration).ns
    return sigma


def _rounded(sigma: float) -> str:
    unit = Decimal(10) ** (math.floor(math.log10(sigma)) - 1)
    return f"{math.ceil(Decimal(sigma) / unit) * unit:f}"


def write_plan(plan: Plan, directory: Path, phases: Sequence[tuple[Sequence[int], int]]) -> Path:
    """Write a line for all and one for each rank; readable for whoever the ranks run as. ``plan``:
    in the order of its rehearsal. ``phases``: which ranks make how many passes."""
    file = directory / PLAN_FILE
    with file.open("w", encoding="utf-8") as out:
        print(
            json.dumps(
                {
                    "groups": [list(group) for group in plan.groups],
                    "phases": [[list(own), n] for own, n in phases],
                }
            ),
            file=out,
        )
        for nodes, incoming in zip(plan.ranks, plan.incoming, strict=True):
            own = [
                {key: value for key, value in asdict(node).items() if key != "stage"}
                for node in nodes
            ]
            print(json.dumps({"nodes": own, "incoming": incoming}), file=out)
    file.chmod(0o644)
    return file


def training_text(directory: Path) -> Path:
    """Write the project's own documents for all runs of a results directory: earlier text stays,
    whatever was edited since. Raises
    :class:`UserError` where there are none."""
    file, place = directory / "text.txt", documents()
    if not file.exists():
        text = b"\n".join(
            path.read_bytes()
            for path in (place / "README.md", *sorted((place / "docs").rglob("*.md")))
            if path.is_file()
        )
        if len(text) < 10_000:
            raise UserError(
                "a job that trains reads the project's pages below docs/, which are not there: "
                "use a complete clone or wheel"
            )
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(text)
        part.rename(file)
    return file


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came. ``told``: as :func:`play` returns it, of the passes before."""

    def __init__(self, told: dict[int, list[list[float]]]) -> None:
        super().__init__("stopped")
        self.told = told


def play(
    world: World,
    plan: Plan,
    file: Path,
    user: int | None,
    qps: int,
    on_pass: Callable[[int, int], None],
    look: Callable[[], int | None] = lambda: None,
) -> tuple[dict[int, list[list[float]]], dict[int, str], list[str]]:
    """Return each rank's reports of passes (rank.py), what went wrong by rank, and what they
    printed. ``on_pass(rank, number)``. Raises UserError, ClusterDied, :class:`Stopped`."""
    told: dict[int, list[list[float]]] = {rank: [] for rank in range(len(plan.ranks))}
    lines: list[str] = []

    def on_note(rank: int, note: Note) -> None:
        if note["event"] == "told":
            told[rank].append(note["note"]["step"])
            on_pass(rank, len(told[rank]))

    programs = world.programs(Program((str(RANK), str(file)), user, qps), range(len(plan.ranks)))
    try:
        failed = programs.run(
            lambda rank, line: lines.append(f"rank {rank}: {line}"), on_note, look
        )
    except KeyboardInterrupt:
        raise Stopped(told) from None
    finally:
        programs.end()
    return told, failed, lines


def figures(
    plan: Plan, rehearsal: Rehearsal, told: dict[int, list[list[float]]], warmup: int
) -> dict[str, object]:
    """Times are in us of the network. ``gpu_lost_us``: of all ranks and measured passes, what was
    not computing."""
    passes = min((len(rows) for rows in told.values()), default=0)
    measured = range(warmup, passes)
    # A pass is as long as its slowest rank takes from its own begin: ranks do not wait for each
    # other between passes.
    times = [
        max(rows[number][3] - rows[number][2] for rows in told.values()) * 1e6
        for number in measured
    ]
    spent = [
        sum((rows[number][3] - rows[number][2]) * 1e6 for rows in told.values())
        for number in measured
    ]
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
        "compute_late_us": max(
            (row[4] * 1e6 for rows in told.values() for row in rows[warmup:]), default=0.0
        ),
        "wrong": sum(int(rows[-1][5]) for rows in told.values() if rows),
        "not_replayed": plan.skipped,
    }
