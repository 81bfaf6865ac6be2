"""Measures what the simulated world costs, and uet-htsim's ``htsim_uec`` beside it: CPU time and
memory of the same traffic, in turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from scenarios.run.manifest import cpu_model, engine, git
from scenarios.schema.scenario import load_scenario
from scenarios.schema.workloads import resolve_flows
from scenarios.show.plots import style
from scenarios.show.simulators import Stage, htsim_ends, htsim_run, stages
from testbed.errors import UserError
from testbed.results.manifest import Manifest
from topologies import Fabric, load_fabric
from topologies.files import read_json
from topologies.structs import there_are

NAME = "bench"  # of the files
PACKETS, MESSAGE, STEPS = 260_000, 512 << 10, 4
"""Data packets of a row, about; the most bytes of a message; all-reduces of a ring [ours]."""
LIMIT_S = 1200.0  # of one run [ours]
PERMUTATIONS = {f"permutation-{1 << power}": 1 << power for power in (4, 6, 7, 8, 9, 10, 11, 12)}
ROWS = {**PERMUTATIONS, "incast": 16, "ring": 16}  # name -> hosts
USUAL = tuple(name for name, hosts in ROWS.items() if hosts <= 512)
PLACES = (
    "",
    "htsim_uec",
    "datacenter/htsim_uec",
    "build/datacenter/htsim_uec",
    "sim/build/datacenter/htsim_uec",
)
TIMED = (
    "import resource, subprocess, sys; status = subprocess.call(sys.argv[1:]); used = "
    "resource.getrusage(resource.RUSAGE_CHILDREN); print(status, used.ru_utime + "
    "used.ru_stime, used.ru_maxrss * 1024, file=sys.stderr)"
)
"""A small process starts what is measured: the kernel counts memory of whoever starts a program as
the program's."""


class Cost(msgspec.Struct):
    cpu_s: float
    memory_bytes: int
    simulation_cpu_s: float = 0.0


class Row(msgspec.Struct):
    """``missing``: why it has no figures, if it has none."""

    name: str
    hosts: int
    ours: list[Cost] = []
    htsim: list[Cost] = []
    missing: str = ""

    def median(self, program: str, figure: str) -> float:
        return float(median(getattr(cost, figure) for cost in getattr(self, program)))


class Bench(msgspec.Struct):
    date: str
    commit: str
    cpu: str
    cores: int
    engine: str
    rounds: int
    htsim: str
    """Its commit; "" if it was not measured."""
    rows: list[Row]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return (heads, rows) of medians and their ratios."""
        seconds = [
            ("htsim", "htsim", "cpu_s"),
            ("mrcbed", "ours", "cpu_s"),
            ("simulation", "ours", "simulation_cpu_s"),
        ]
        seconds = seconds[0 if self.htsim else 1 :]
        memory = [
            (head, program, "memory_bytes")
            for head, program, figure in seconds
            if figure == "cpu_s"
        ]
        heads = [
            "traffic",
            *(f"{head} s" for head, *_ in seconds),
            *(f"{head} MB" for head, *_ in memory),
        ]
        heads += (
            ["mrcbed / htsim s", "simulation / htsim s", "mrcbed / htsim MB"] if self.htsim else []
        )
        rows = []
        for row in self.rows:
            if row.missing:
                rows.append([row.name, *["–"] * (len(heads) - 1)])
                continue
            cpu = [row.median(*of) for _, *of in seconds]
            megabytes = [row.median(*of) / 1e6 for _, *of in memory]
            ratios = (
                [cpu[1] / cpu[0], cpu[2] / cpu[0], megabytes[1] / megabytes[0]]
                if self.htsim
                else []
            )
            cells = [
                *(f"{s:.2f}" for s in cpu),
                *(f"{mb:,.0f}" for mb in megabytes),
                *(f"{ratio:.1f}" for ratio in ratios),
            ]
            rows.append([row.name, *cells])
        return heads, rows

    def stamp(self) -> str:
        how = (
            "Medians of "
            f"{self.rounds}{f' beside uet-htsim {self.htsim}, in turns' if self.htsim else ''}, "
            f"engine {self.engine}"
        )
        return f"{how}; commit {self.commit}, {self.date}, {self.cpu}, {self.cores} cores."

    def markdown(self) -> str:
        heads, rows = self.table()
        lines = [heads, ["---"] * len(heads), *rows]
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", self.stamp()])


def program_in(place: Path) -> str:
    """Find ``htsim_uec``. Raises :class:`UserError`."""
    for path in (place / part for part in PLACES):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.resolve())
    raise UserError(
        f"--htsim {place}: no program htsim_uec is there: build uet-htsim (in its folder sim: "
        "cmake -S . -B build && cmake --build build), then give its folder or the file"
    )


def commit_of(program: str) -> str:
    words = ["git", "-C", str(Path(program).parent), "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "of an unknown commit"


def chosen(words: str) -> tuple[str, ...]:
    """Read ``--rows``: names with commas, or all. Raises :class:`UserError`."""
    names = tuple(dict.fromkeys(ROWS if words == "all" else words.split(",")))
    for name in names:
        if name not in ROWS:
            raise UserError(f"--rows {name}: {there_are(name, [*ROWS, 'all'])}")
    return names


def measure(
    names: Sequence[str], rounds: int, htsim: str | None, progress: Callable[[str, float], None]
) -> Bench:
    """Measure rows in turns; ``htsim``: its program. A row that a program does not end is
    missing."""
    clone = git() or {"commit": "unknown", "dirty": False}
    commit = clone["commit"][:12] + (" with changes" if clone["dirty"] else "")
    made = Bench(
        time.strftime("%Y-%m-%d", time.gmtime()),
        commit,
        cpu_model() or "unknown CPU",
        os.cpu_count() or 1,
        engine(),
        rounds,
        "" if htsim is None else commit_of(htsim),
        [],
    )
    for number, name in enumerate(names):
        made.rows.append(row := Row(name, ROWS[name]))
        with tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as place:
            fabric, plan = write_scenario(name, Path(place))
            try:
                for n in range(rounds):
                    progress(
                        f"{name}, round {n + 1} of {rounds}", (number + n / rounds) / len(names)
                    )
                    row.ours.append(ours(Path(place)))
                    if htsim is not None:
                        row.htsim.append(htsims(htsim, fabric, plan, Path(place)))
            except UserError as error:
                row.missing = str(error)
    return made


def write_scenario(name: str, folder: Path) -> tuple[Fabric, list[Stage]]:
    """Write a row's scenario and plane into ``folder``; return the plane, and the transfers in
    payload bytes."""
    hosts, per_t0 = ROWS[name], max(8, 1 << ROWS[name].bit_length() // 2)
    shape = {
        "planes": 1,
        "t0_per_plane": hosts // per_t0,
        "t1_per_plane": per_t0,
        "hosts_per_t0": per_t0,
    }
    (folder / "plane.toml").write_text(
        "\n".join(["format = 3", *(f"{key} = {value}" for key, value in shape.items())])
    )
    fabric = load_fabric(str(folder / "plane.toml"))
    senders = hosts if name in PERMUTATIONS else hosts - 1
    messages = -(-PACKETS * fabric.mtu // (senders * MESSAGE))
    kind, size = (
        f'"{name.split("-")[0]}"\nmessages = {messages}',
        PACKETS // senders // messages * fabric.mtu,
    )
    if name == "incast":
        kind += f"\nsenders = {senders}"
    elif name == "ring":
        kind, size = (
            f'"ring-allreduce"\nsteps = {STEPS}\nwarmup_steps = 0',
            PACKETS // (2 * senders * STEPS) // hosts * hosts * fabric.mtu,
        )
    path = folder / "scenario.toml"
    path.write_text(
        f'format = 3\nname = "{name}"\ndescription = "{name}"\nfabric = "plane.toml"\n'
        f'seeds = [1]\ntimeout = "3600s"\n[workload]\nkind = {kind}\nmessage_bytes = {size}\n'
        '[[transport]]\nkind = "mrc"\n'
    )
    numbers = list(range(hosts))
    if name == "ring":
        return fabric, stages("ring-allreduce", numbers, size) * STEPS
    flows = resolve_flows(load_scenario(str(path)).workload, fabric, numbers, seed=1)
    return fabric, [[(flow.src, flow.dst, size * messages) for flow in flows]]


def ours(folder: Path) -> Cost:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        words = ["run", "scenario.toml", "--world", "simulated", "--jobs", "1", "--out", out]
        cost, _ = timed([sys.executable, "-P", "-m", "mrcbed", *words], folder)
        cost.simulation_cpu_s = (
            read_json(Path(out) / "manifest.json", Manifest).sessions[0].simulation_cpu_s or 0.0
        )
    return cost


def htsims(program: str, fabric: Fabric, plan: Sequence[Stage], folder: Path) -> Cost:
    cost, said = timed(htsim_run(program, fabric, plan, folder), folder)
    htsim_ends(said, sum(map(len, plan)))
    return cost


def timed(words: Sequence[str], folder: Path, limit_s: float = LIMIT_S) -> tuple[Cost, str]:
    """Run a program in ``folder``; return what it took, and what it printed. It ends with us.
    Raises :class:`UserError` if it fails."""
    with (
        open(folder / "said", "w+", encoding="utf-8") as out,
        open(folder / "errors", "w+", encoding="utf-8") as errors,
    ):
        process = subprocess.Popen(
            [sys.executable, "-ISc", TIMED, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise UserError(f"{Path(words[0]).name} took more than {limit_s:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        errors.seek(0)
        *before, last = ["it said nothing", *errors.read().splitlines()]
        status, cpu_s, memory_bytes = ("", "0", "0") if process.returncode else last.split()
        if status != "0":
            raise UserError(f"{Path(words[0]).name} failed: {before[-1] if status else last}")
        return Cost(float(cpu_s), int(memory_bytes)), out.read()


def write(made: Bench, folder: Path) -> list[Path]:
    """Write ``made`` as JSON, and its permutations as a picture: how cost grows with hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(msgspec.to_builtins(made), indent=1) + "\n", encoding="utf-8")
    return [path, *draw(made, folder)]


LINES: tuple[tuple[str, str, str, Any], ...] = (
    ("mrcbed", "ours", "cpu_s", {"color": style.FLOWS[0], "marker": "o"}),
    (
        "simulation alone",
        "ours",
        "simulation_cpu_s",
        {"color": style.FLOWS[0], "marker": "^", "linestyle": "--"},
    ),
    ("uet-htsim", "htsim", "cpu_s", {"color": style.FLOWS[1], "marker": "s"}),
)


def draw(made: Bench, folder: Path) -> list[Path]:
    rows = [row for row in made.rows if row.name in PERMUTATIONS and not row.missing]
    if not rows:
        return []
    lines = [line for line in LINES if made.htsim or line[1] == "ours"]
    hosts = [row.hosts for row in rows]
    with style.figure(
        2, 3.6, head=f"What a permutation of {PACKETS:,} packets costs", x="hosts"
    ) as (fig, (cpu, memory)):
        for _, program, figure, look in lines:
            cpu.plot(hosts, [row.median(program, figure) for row in rows], markersize=4, **look)
            if figure == "cpu_s":
                memory.plot(
                    hosts,
                    [row.median(program, "memory_bytes") / 1e6 for row in rows],
                    markersize=4,
                    **look,
                )
        for ax, unit in ((cpu, "CPU s"), (memory, "memory, MB")):
            ax.set(xscale="log", yscale="log", ylabel=unit)
            ax.set_xticks([], minor=True)
            ax.yaxis.set_major_formatter("{x:,g}")
            ax.yaxis.set_minor_formatter("")
            ax.grid(visible=True)
        memory.set_xticks(hosts, [f"{count:,}" for count in hosts])
        png, svg = style.save(
            style.legend(
                fig, [style.line(label, **{"linestyle": "-", **look}) for label, *_, look in lines]
            ),
            folder,
            NAME,
        )
    svg.unlink()
    return [png]
