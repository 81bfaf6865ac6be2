"""``mrcbed tools bench``: engine, codec and fabric on this machine; below it the simulated world,
random faults, and many seeds."""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import made
from testbed.machine.load import read_cpu
from testbed.options import argument, option

MOST_HOSTS = 64  # on one machine [ours]
OTHERS = 0.1  # cores of other processes that spoil a benchmark's figures [ours]
COUNTS_ALL = {
    "bare": "the bare sender's CPU a packet",
    "paced": "the CPU a packet of bare senders at the ring's pace",
    "cluster": "the ring's CPU a data packet (not the agents' part of it)",
}
"""Figures of the whole machine's CPU time."""
Results = dict[str, Any]  # by benchmark, as ``--json`` prints them


@click.group(name="bench", invoke_without_command=True)
@option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Number of rounds of which medians are taken.",
)
@option(
    "--seconds",
    type=click.FloatRange(0.5, 60),
    default=3.0,
    show_default=True,
    help="Length of each measurement.",
)
@option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def command(context: click.Context, rounds: int, seconds: float, as_json: bool) -> None:
    """Benchmark the codec, the engine and the fabrics on this machine."""
    if context.invoked_subcommand is not None:
        return
    from testbed.machine import sandbox

    if os.geteuid() != 0:
        raise UserError("mrcbed tools bench needs root for network namespaces and eBPF: use sudo")

    def work() -> int:
        from mrcbed.cli.common import ProgressBar
        from testbed.bench.cluster import cluster_cost, paced_cost
        from testbed.bench.codec import codec_rates
        from testbed.bench.fabric import bring_up, engine_ratio
        from testbed.bench.verbs import verbs_cost
        from testbed.verbs.build import missing
        from topologies import load_fabric, named_fabrics

        others: dict[str, float] = {}
        results: Results = {"machine": machine(), "others_cores": others}
        with ProgressBar() as progress:
            progress("codec", 0.0)
            with others_of(others, "codec"):
                results["codec"] = codec_rates(seconds)
                results["codec"]["foreign"] = codec_rates(seconds, foreign=True)[
                    "packets_per_second"
                ]
            with others_of(others, "bare", "engine"):
                results |= engine_ratio(rounds, seconds, progress)
            results["verbs_missing"] = missing()
            if results["verbs_missing"] is None:
                with others_of(others, "verbs"):
                    results["verbs"] = verbs_cost(rounds, seconds, progress)
            with others_of(others, "paced"):
                results["bare"]["paced_cpu_us_per_packet"] = paced_cost(rounds, seconds, progress)
            with others_of(others, "cluster"):
                results["cluster"] = cluster_cost(rounds, seconds, progress)
            emulable = tuple(
                name for name in named_fabrics() if load_fabric(name).host_count <= MOST_HOSTS
            )
            with others_of(others, "fabrics"):
                results["fabrics"] = bring_up(emulable, rounds, progress)
        results["to_bare"] = to_bare(results)
        if as_json:
            print(json.dumps(results, indent=2))
        else:
            show(results, rounds)
        return 0

    sys.exit(sandbox.run(work))


def machine() -> dict[str, object]:
    """Describe the machine before anything of ours runs."""
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


@contextmanager
def others_of(others: dict[str, float], *names: str) -> Iterator[None]:
    """Note in ``others`` the mean cores of others' processes: busy time that is neither ours, nor
    of our ended processes, nor of interrupts."""

    def own_s() -> float:
        return sum(
            u.ru_utime + u.ru_stime
            for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    before, began, own_before = read_cpu(), time.monotonic(), own_s()
    yield
    cpu, own = read_cpu(), own_s() - own_before
    foreign = (cpu.busy - cpu.interrupts - before.busy + before.interrupts) / os.sysconf(
        "SC_CLK_TCK"
    ) - own
    others.update(dict.fromkeys(names, round(max(0.0, foreign / (time.monotonic() - began)), 2)))


def spoiled(results: Results) -> str:
    others = {name: cores for name, cores in results["others_cores"].items() if cores > OTHERS}
    if not others:
        return ""
    measured = [f"{name} ({cores:.2f})" for name, cores in others.items()]
    lines = [
        (
            "Other processes kept cores busy beside these benchmarks (cores, marked *): "
            f"{', '.join(measured)}."
        )
    ]
    if shared := [COUNTS_ALL[name] for name in others if name in COUNTS_ALL]:
        lines.append(
            f"Their CPU time is counted in {', '.join(shared)}, and in the ratios of these to "
            "the bare sender."
        )
    return " ".join(
        [
            *lines,
            (
                "Rates and times are those of the cores that were left. Free the machine and "
                "measure again."
            ),
        ]
    )


def to_bare(results: Results) -> dict[str, float]:
    """Divide figures by the bare sender's: such ratios depend less on the machine."""
    rate, cpu = results["bare"]["packets_per_second"], results["bare"]["cpu_us_per_packet"]
    return {
        "codec": results["codec"]["packets_per_second"] / rate,
        "engine": results["engine"]["ratio"],
        "paced_cpu": results["bare"]["paced_cpu_us_per_packet"] / cpu,
        "cluster_cpu": results["cluster"]["cpu_us_per_data_packet"] / cpu,
    }


def show(results: Results, rounds: int) -> None:
    codec, bare, engine, cluster = (results[key] for key in ("codec", "bare", "engine", "cluster"))
    ratios = results["to_bare"]
    kind = "compiled" if codec["compiled"] else "interpreted"
    title = f"{os.cpu_count()} CPUs, Linux {platform.release()}, engine {kind}, medians of {rounds}"
    rows = [
        [
            "bare",
            "bare sender (C)",
            (
                f"{bare['packets_per_second']:,.0f} packets/s, {bare['cpu_us_per_packet']:.1f} "
                "us CPU each"
            ),
            "1",
        ],
        [
            "codec",
            f"codec, {codec['payload_bytes']} B, one core",
            f"{codec['packets_per_second']:,.0f} packets/s",
            f"{ratios['codec']:.2f}",
        ],
        ["codec", "   in another process's memory", f"{codec['foreign']:,.0f} packets/s", ""],
        [
            "engine",
            "engine",
            f"{engine['packets_per_second']:,.0f} packets/s",
            f"{ratios['engine']:.2f}",
        ],
        [
            "engine",
            "engine, fixed window",
            f"{engine['fixed_packets_per_second']:,.0f} packets/s",
            f"{engine['fixed_ratio']:.2f}",
        ],
        [
            "paced",
            f"bare senders at the pace of {cluster['fabric']}, CPU",
            f"{bare['paced_cpu_us_per_packet']:.0f} us a packet, without receivers",
            f"{ratios['paced_cpu']:.1f}",
        ],
        [
            "cluster",
            f"ring on {cluster['fabric']}, CPU",
            (
                f"{cluster['cpu_us_per_data_packet']:.0f} us a data packet, agents "
                f"{cluster['agents_cpu_us_per_data_packet']:.0f}"
            ),
            f"{ratios['cluster_cpu']:.1f}",
        ],
        [
            "cluster",
            "   its wake-ups",
            f"{cluster['wakeups_per_data_packet']:.2f} a data packet",
            "",
        ],
        ["", "   its memory", f"{cluster['memory_bytes_per_host'] / 1e6:.0f} MB a host", ""],
    ]
    rows += verbs_rows(results.get("verbs", {}))
    rows += [
        [
            "fabrics",
            f"{f['fabric']} ({f['links']} links)",
            f"up {f['up_s']:.2f} s, agents {f['agents_s']:.2f} s, down {f['down_s']:.2f} s",
            "",
        ]
        for f in results["fabrics"]
    ]
    marked = [
        [name + " *" if results["others_cores"].get(part, 0) > OTHERS else name, *more]
        for part, name, *more in rows
    ]
    terminal.console().print(
        terminal.table(("benchmark", "result", "to bare"), marked, title=title, words=("result",))
    )
    for remark in filter(None, (spoiled(results), results["verbs_missing"])):
        print(remark)


def verbs_rows(verbs: Results) -> list[list[str]]:
    """Agents' shares are what they take more than the engine's process alone."""
    rows = []
    for name, figures in verbs.items():
        engine, through, size = figures["engine"], figures["verbs"], figures["bytes"]
        rate, alone = (
            f"{part['writes_per_second'] * size * 8 / 1e9:.2f} Gb/s"
            if size > 4096
            else f"{part['writes_per_second']:,.0f}/s"
            for part in (through, engine)
        )
        program = (
            f"program {through['program_us']:.1f} (post {through['post_us']:.1f}, poll "
            f"{through['poll_us']:.1f})"
        )
        agent, peer = (through[key] - engine[key] for key in ("sender_us", "receiver_us"))
        cpu = (
            f"{figures['on_top_us']:.1f} us a WRITE: {program}, its agent {agent:.1f}; the "
            f"peer's {peer:.1f}"
        )
        rows += [["verbs", f"WRITEs of {name} through verbs", f"{rate}, engine alone {alone}", ""],
                 ["verbs", "   CPU on top of the engine's, post to wire", cpu, ""]]  # fmt: skip
    return rows


@command.command(
    name="simulator",
    help="Measure CPU time and memory of the simulated world, beside uet-htsim with --htsim. "
    "Without root.",
)
@option(
    "--htsim",
    type=click.Path(path_type=Path),
    metavar="PLACE",
    help="Folder of a build of uet-htsim, or its htsim_uec.",
)
@option(
    "--rows",
    default=None,
    metavar="NAMES",
    help="Only these rows, with commas, or all (default: those of up to 512 hosts).",
)
@option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Number of runs of which medians are taken.",
)
@option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write bench.json, and a picture of the permutations.",
)
@option("--json", "as_json", is_flag=True, help="Print all runs as JSON.")
def simulator(
    htsim: Path | None, rows: str | None, rounds: int, out: Path | None, as_json: bool
) -> None:
    """Exit status 1 if a row is missing."""
    from mrcbed.cli.common import ProgressBar
    from scenarios.sets import speed

    program = None if htsim is None else speed.program_in(htsim)
    names = speed.USUAL if rows is None else speed.chosen(rows)
    if out is not None:
        made(out)
    # what it started ends with it, as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ProgressBar() as progress:
        found = speed.measure(names, rounds, program, progress)
    if as_json:
        print(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        heads, cells = found.table()
        terminal.console().print(
            terminal.table(
                heads,
                cells,
                title=f"CPU time and memory of {speed.PACKETS:,} data packets",
                caption=found.stamp(),
            )
        )
    for path in speed.write(found, out) if out is not None else ():
        click.echo(str(path))
    missing = [f"{row.name}: {row.missing}" for row in found.rows if row.missing]
    for line in missing:
        click.echo(line, err=True)
    sys.exit(1 if missing else 0)


@command.command(
    name="schedules",
    help="Run random fault schedules in virtual time, without root. Exit status 1 if one breaks a "
    "rule.",
)
@option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Number of schedules.",
)
@option(
    "--first",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="First number; a number is a schedule.",
)
@option(
    "--jobs", type=click.IntRange(1, 256), default=2, show_default=True, help="Number of processes."
)
@option("--fabric", default="rack16", show_default=True, help="Fabric to run them on.")
@option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Keep the hosts' logs in this directory.",
)
@option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def schedules(
    count: int, first: int, jobs: int, fabric: str, keep: Path | None, as_json: bool
) -> None:
    """One line per broken schedule on stderr, with the command that repeats it."""
    from mrcbed.cli.common import ProgressBar
    from scenarios.sets.many_schedules import describe, figures, repeat_command, run_many
    from scenarios.sets.schedules import Outcome
    from topologies import load_fabric

    load_fabric(fabric)  # one line if there is none
    if keep is not None:
        made(keep)
    finished = 0
    started = time.monotonic()
    with ProgressBar() as progress:

        def report(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            progress(f"schedules ({outcome.seed})", finished / count)
            if outcome.broken:
                print(
                    f"schedule {outcome.seed}: {outcome.broken}; again: "
                    f"{repeat_command(outcome, fabric)}",
                    file=sys.stderr,
                )

        outcomes = run_many(range(first, first + count), jobs, fabric, keep, report)
    summary = figures(outcomes, time.monotonic() - started, jobs)
    print(json.dumps(summary, indent=2) if as_json else describe(summary))
    sys.exit(1 if summary["broken"] else 0)


@command.command(
    name="seeds",
    help="Run shipped SCENARIOs (default: all) over many seeds in virtual time and test their "
    "checks.",
)
@argument("names", nargs=-1, metavar="[SCENARIO]...")
@option(
    "--seeds",
    "seed_range",
    metavar="A-B",
    help="Use these seeds instead of 10 or 100 per scenario: 1-5, or 1,3,7-9.",
)
@option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=None,
    metavar="N",
    help="Number of processes (default: one per core).",
)
@option("--out", metavar="DIR", help="Write results to DIR (default: results/seeds-<time>).")
@option("--resume", is_flag=True, help="Continue in --out DIR and keep what is finished there.")
def seeds(
    names: tuple[str, ...], seed_range: str | None, jobs: int | None, out: str | None, resume: bool
) -> None:
    """Exit status: 0 every check of every run held, 1 one did not or a run is missing, 2 bad input,
    130 stopped."""
    from mrcbed.cli.common import ProgressBar, parse_seeds
    from mrcbed.cli.sets import tell
    from scenarios.run.processes import cores
    from scenarios.run.simulate import simulate
    from scenarios.sets import seeds as sets
    from scenarios.sets.series import Form, concluded, run_series

    selection = sets.chosen(names)
    form = Form(seeds=tuple(parse_seeds(seed_range)) if seed_range else ())
    if resume and out is None:
        raise UserError("--resume needs --out DIR, the directory to go on in")
    directory = Path(out) if out else Path("results") / f"seeds-{time.strftime('%Y%m%d-%H%M%S')}"
    sets.SET.open_directory(directory, form, resume)
    # what was run is kept, as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def run_one(part: Any, scenario: Any, target: Path, resuming: bool) -> int:
        with ProgressBar() as progress:
            summary = simulate(
                scenario,
                target,
                progress=progress,
                command_line=sys.argv,
                resume=resuming,
                jobs=jobs or cores(),
                figures=False,
            )
        return 130 if summary.verdict == "interrupted" else 0

    status = run_series(sets.SET, selection, directory, form, run_one, sets.conclude, tell)
    rows = []
    results = concluded(directory, selection, sets.VERDICT)
    for row in results:
        checks = f"{row['held']} of {row['checks']}" if row["runs"] else "–"
        rows.append([row["scenario"], str(row["runs"] or "–"), checks, row["verdict"]])
    terminal.console().print(
        terminal.table(("scenario", "runs", "checks held", "verdict"), rows, words=("verdict",))
    )
    for row in results:
        for line in row["failed"] or filter(None, [row["reason"]]):
            click.echo(f"{row['scenario']}: {line}")
    click.echo(f"Data: {directory}/")
    sys.exit(
        status or int(any(row["verdict"] not in (sets.OK, sets.NOT_SIMULATED) for row in results))
    )
