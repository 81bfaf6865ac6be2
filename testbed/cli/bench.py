"""``mrcbed bench``: engine, codec and fabric on this machine; ``mrcbed bench schedules``: random faults in virtual time."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from testbed import terminal
from testbed.errors import UserError


@click.group(
    name="bench", invoke_without_command=True,
    help="Benchmark the codec, the engine and the fabrics on this machine.",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Number of rounds of which medians are taken.")
@click.option("--seconds", type=click.FloatRange(0.5, 60), default=3.0, show_default=True, help="Length of each measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_context
def command(context: click.Context, rounds: int, seconds: float, as_json: bool) -> None:
    """Exit status 0, or 2 for what the machine lacks."""
    if context.invoked_subcommand is not None:
        return
    from testbed.machine import sandbox

    if os.geteuid() != 0:
        raise UserError("mrcbed bench needs root for network namespaces and eBPF: use sudo")

    def work() -> int:
        from testbed.bench.codec import codec_rates
        from testbed.bench.fabric import bring_up, engine_ratio
        from testbed.bench.simulated import simulated_rates
        from testbed.cli.run import ProgressBar
        from topologies import named_fabrics

        with ProgressBar() as progress:
            progress("codec", 0.0)
            codec = codec_rates(seconds)
            progress("simulated world", 0.0)
            simulated = simulated_rates(seconds)
            ratio = engine_ratio(rounds, seconds, progress)
            fabrics = bring_up(named_fabrics(), rounds, progress)
        results = {
            "machine": {
                "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(), "load": os.getloadavg()[0],
            },
            "codec": codec, "simulated": simulated, "engine": ratio, "fabrics": fabrics,
        }  # fmt: skip
        if as_json:
            print(json.dumps(results, indent=2))
            return 0
        console = terminal.console()
        kind = "compiled" if codec["compiled"] else "interpreted"
        title = f"{os.cpu_count()} CPUs, Linux {platform.release()}, engine {kind}, medians of {rounds}"
        hops = f"{simulated['hops_per_s']:,.0f} packet-hops/s, {simulated['slowdown']:.2f} s per second of virtual time"
        rows = [
            ["codec: data packets built, checked, SACKed", f"{codec['both_per_s']:,.0f} /s ({codec['payload_bytes']} B payload, one core)"],
            [f"simulated world, MRC on all hosts of {simulated['fabric']}", hops],
            ["bare sender through 3 switch hops", f"{ratio['bare_per_s']:,.0f} packets/s"],
            ["engine on the same paths, sender and receiver", f"{ratio['engine_per_s']:,.0f} packets/s"],
            ["engine / bare sender", f"{ratio['ratio']:.2f}"],
            ["engine with a fixed window instead of NSCC", f"{ratio['fixed_per_s']:,.0f} packets/s, {ratio['fixed_ratio']:.2f}"],
        ]
        rows += [[f"{f['fabric']} ({f['links']} links), up and down", f"{f['up_s']:.2f} s, {f['down_s']:.2f} s"] for f in fabrics]
        console.print(terminal.table(("benchmark", "result"), rows, title=title, words=("result",)))
        return 0

    sys.exit(sandbox.run(work))


@command.command(name="schedules", help="Run random fault schedules in virtual time, without root. Exit status 1 if one breaks a rule.")
@click.option("--count", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Number of schedules.")
@click.option("--first", type=click.IntRange(0), default=1, show_default=True, help="First number; a number is a schedule.")
@click.option("--jobs", type=click.IntRange(1, 256), default=2, show_default=True, help="Number of processes.")
@click.option("--fabric", default="rack16", show_default=True, help="Fabric to run them on.")
@click.option("--keep", type=click.Path(path_type=Path), default=None, help="Keep the hosts' logs in this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def schedules(count: int, first: int, jobs: int, fabric: str, keep: Path | None, as_json: bool) -> None:
    """One line per broken schedule on stderr, with the command that repeats it."""
    from scenarios.sets.many_schedules import describe, figures, repeat_command, run_many
    from scenarios.sets.schedules import Outcome
    from testbed.cli.run import ProgressBar
    from topologies import load_fabric

    load_fabric(fabric)  # one line if there is none
    finished = 0
    started = time.monotonic()
    with ProgressBar() as progress:

        def report(outcome: Outcome) -> None:
            nonlocal finished
            finished += 1
            progress(f"schedules ({outcome.seed})", finished / count)
            if outcome.broken:
                print(f"schedule {outcome.seed}: {outcome.broken}; again: {repeat_command(outcome, fabric)}", file=sys.stderr)

        outcomes = run_many(range(first, first + count), jobs, fabric, keep, report)
    summary = figures(outcomes, time.monotonic() - started, jobs)
    print(json.dumps(summary, indent=2) if as_json else describe(summary))
    sys.exit(1 if summary["broken"] else 0)


@command.command(name="seeds", help="Run shipped SCENARIOs (default: all) over many seeds in virtual time and test their checks.")
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--seeds", "seed_range", metavar="A-B", help="Use these seeds instead of 10 or 100 per scenario: 1-5, or 1,3,7-9.")
@click.option("--jobs", type=click.IntRange(1, 256), default=None, metavar="N", help="Number of processes (default: one per core).")
@click.option("--out", metavar="DIR", help="Write results to DIR (default: results/seeds-<time>).")
@click.option("--resume", is_flag=True, help="Continue in --out DIR and keep what is finished there.")
def seeds(names: tuple[str, ...], seed_range: str | None, jobs: int | None, out: str | None, resume: bool) -> None:
    """Exit status: 0 every check of every run held, 1 one did not or a run is missing, 2 bad input, 130 stopped."""
    from scenarios.run.processes import cores
    from scenarios.run.simulate import simulate
    from scenarios.sets import seeds as sets
    from scenarios.sets.series import Form, concluded, run_series
    from testbed.cli.run import ProgressBar, give_back, parse_seeds
    from testbed.cli.sets import tell

    selection = sets.chosen(names)
    form = Form(seeds=tuple(parse_seeds(seed_range)) if seed_range else ())
    if resume and out is None:
        raise UserError("--resume needs --out DIR, the directory to go on in")
    directory = Path(out) if out else Path("results") / f"seeds-{time.strftime('%Y%m%d-%H%M%S')}"
    sets.SET.open_directory(directory, form, resume)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was run is kept, as after Ctrl-C

    def run_one(scenario: Any, target: Path, resuming: bool) -> int:
        with ProgressBar() as progress:
            summary = simulate(
                scenario, target, progress=progress, command_line=sys.argv, resume=resuming, jobs=jobs or cores(), figures=False
            )
        return 130 if summary["verdict"] == "interrupted" else 0

    status = run_series(sets.SET, selection, directory, form, run_one, sets.conclude, tell)
    rows = []
    results = concluded(directory, selection, sets.VERDICT)
    for row in results:
        checks = f"{row['held']} of {row['checks']}" if row["runs"] else "–"
        rows.append([row["scenario"], str(row["runs"] or "–"), checks, row["verdict"]])
    terminal.console().print(terminal.table(("scenario", "runs", "checks held", "verdict"), rows, words=("verdict",)))
    for row in results:
        for line in row["failed"] or filter(None, [row["reason"]]):
            click.echo(f"{row['scenario']}: {line}")
    click.echo(f"Data: {directory}/")
    give_back(directory)
    sys.exit(status or int(any(row["verdict"] not in (sets.OK, sets.NOT_SIMULATED) for row in results)))
