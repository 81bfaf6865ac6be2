"""``mrcbed results export DIR --format ...``: a results directory for other programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.errors import UserError
from testbed.machine.caller import made
from testbed.options import argument, option

if TYPE_CHECKING:
    from scenarios.figures.measure import Run


@click.command(name="export")
@argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "csv", "htsim", "astra-sim"]),
    required=True,
    help="perfetto: a Chrome trace of each run, for ui.perfetto.dev. csv: every Parquet table. "
    "htsim: traffic and one plane of each run. astra-sim: the network of each run, whole and "
    "broken, and what runs its step there.",
)
@option("--run", "names", multiple=True, metavar="RUN", help="Only this run. Repeatable.")
@option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Default: DIR/FORMAT, for csv DIR.",
)
def command(directory: Path, form: str, names: tuple[str, ...], out: Path | None) -> None:
    """Write the runs of results directory DIR in a form that other programs read, and print the
    files. Needs no root.

    htsim, for uet-htsim and csg-htsim: RUN.cm, one plane's equal part of the traffic, whose first
    line is the command, and RUN.topo, that plane as a two-tier fat tree. Faults and background
    traffic are left out.

    astra-sim, for its analytical backend, of rings, trees, reduce-scatter and all-gather:
    RUN-whole.yml and RUN-broken.yml (-broken-2 and so on), the network while nothing, or something,
    was broken; RUN-system.json, RUN-memory.json, and a Chakra trace per rank.
    """
    if form == "csv" and names:
        raise UserError("--run is for the other formats: a CSV has all runs, in its column run")
    from testbed.results.reading import believing

    folder = out or (directory if form == "csv" else directory / form)
    with believing(directory):
        for line in (
            tables(directory, folder) if form == "csv" else of_runs(directory, form, names, folder)
        ):
            click.echo(line)


def of_runs(directory: Path, form: str, names: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Write files for each run; yield a line for each. Raises :class:`UserError`."""
    from scenarios.figures.measure import Run, load_runs
    from scenarios.figures.writing import written_to
    from scenarios.show.perfetto import write_trace
    from topologies.structs import there_are

    runs = {run.key: run.directory for run in load_runs(directory)}
    if not runs:
        raise UserError(
            f"{directory / 'raw'} holds no finished runs: give a directory that mrcbed run wrote"
        )
    for name in names:
        if name not in runs:
            raise UserError(f"--run {name}: {there_are(name, runs)}")
    with written_to(folder):
        made(folder)
        for name in names or runs:
            if form == "perfetto":
                path = folder / f"{name}.json"
                yield f"{path} ({write_trace(Run(runs[name]), path):,} events)"
                continue
            for ending, content in _inputs(directory, Run(runs[name]), form):
                path = folder / f"{name}{ending}"
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
                # one line for the traces of all ranks
                if not re.search(r"\.[1-9]\d*\.et$", ending):
                    yield str(path)


def _inputs(directory: Path, run: Run, form: str) -> Iterator[tuple[str, str | bytes]]:
    """Yield (end of the file's name, its content)."""
    from scenarios.figures.stored import Stored
    from scenarios.show import simulators

    stored = Stored(directory)
    summary = next(entry for entry in stored.runs if entry.run == run.key)
    if form == "htsim":
        yield ".cm", simulators.matrix(run.record, summary, run.fabric)
        yield ".topo", simulators.topology(run.fabric)
        return
    slices = int(summary.settings.get("workload.slices", stored.manifest.scenario.workload.slices))
    yield from [(f"-{state}.yml", text) for state, text in simulators.networks(run, slices)]
    yield "-system.json", simulators.system(run.record.workload)
    yield "-memory.json", '{"memory-type": "NO_MEMORY_EXPANSION"}\n'
    trace = simulators.workload(run.record)
    yield from ((f".{rank}.et", trace) for rank in range(len(run.record.ranks)))


def tables(directory: Path, folder: Path) -> Iterator[str]:
    """Write a CSV per Parquet table; yield its name. Raises :class:`UserError`."""
    from scenarios.figures.stored import OF_FIGURES, Stored
    from scenarios.figures.writing import replacing, written_to

    # Those of figures are there as CSV from the run itself.
    found = [
        path
        for path in sorted(directory.glob("*.parquet"))
        if path.stem not in OF_FIGURES or folder != directory
    ]
    if not found:
        raise UserError(
            f"{directory} holds no Parquet tables: give a directory that mrcbed run wrote"
        )
    with written_to(folder):
        made(folder)
        for source in found:
            frame = Stored(directory).unjudged_table(source.stem)
            path = folder / f"{source.stem}.csv"
            with replacing(path) as part:
                frame.to_csv(part, index=False)
            yield f"{path} ({len(frame):,} rows)"
