"""``mrcbed results top [DIR]``: a run on a screen of text."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed import terminal
from testbed.errors import UserError
from testbed.options import argument, option

if TYPE_CHECKING:
    from scenarios.show.live.source import Results, Up

NICE = 19  # A screen is for a moment when nobody else wants the core.


@click.command(name="top")
@argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@option(
    "--run",
    "name",
    metavar="RUN",
    help="Show this run of the directory, instead of the one that goes on or ended last.",
)
@option(
    "--every",
    type=click.FloatRange(0.2, 60.0),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Draw anew every S seconds.",
)
@option(
    "--once",
    is_flag=True,
    help="Print the screen once; also where there is no terminal, and for a run that has ended.",
)
def command(directory: Path | None, name: str | None, every: float, once: bool) -> None:
    """Show steps, goodput by plane, paths, faults and ports of a run.

    DIR is a results directory, finished or not. Without it: the run that measures on this machine,
    else a fabric that is up (under `mrcbed up`, launch or perf), else the newest run under results/
    that has not ended. It only reads files; Ctrl-C ends it, and the run goes on.
    """
    from testbed.results.reading import believing
    from testbed.view.follow import LAG_S

    source = of_directory(directory, name) if directory is not None else running(name)
    os.nice(NICE)
    out = terminal.console(120)
    with believing(source.directory):
        first = source.look()
    live = out.is_terminal and not once and (first is None or first[1].live)
    if not live:
        if first is None:
            raise UserError(
                f"no run has begun in {source.directory}: wait a moment, or give another directory"
            )
        with believing(source.directory):
            while source.follower is not None and source.follower.behind:
                first = source.look() or first
            if first[1].live:
                # what was written last is shown when nothing can come before it any more
                time.sleep(LAG_S)
                first = source.look() or first
            out.print(_screen(out, *first))
        return
    # the terminal is put back as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        watch(source, out, every)
    except KeyboardInterrupt:
        sys.exit(0)  # how one leaves it


def watch(source: Results | Up, out: Any, every: float) -> None:
    """Draw until the run has ended; its last screen stays."""
    from rich.live import Live
    from rich.text import Text

    found = source.look()
    with Live(console=out, screen=True, auto_refresh=False) as drawing:
        while True:
            drawing.update(
                _screen(out, *found, out.height)
                if found
                else Text("waiting for the first run to begin"),
                refresh=True,
            )
            if (
                found is not None
                and not found[1].live
                and not (source.follower and source.follower.behind)
            ):
                break
            time.sleep(0.05 if source.follower and source.follower.behind else every)
            found = source.look() or found
    out.print(_screen(out, *found))


def _screen(out: Any, state: Any, about: Any, height: int = 0) -> Any:
    from scenarios.show.live.screen import screen

    return screen(state, about, out.width, height)


def of_directory(directory: Path, name: str | None) -> Results:
    """Raises :class:`UserError` if there are no results, or no such run."""
    from scenarios.show.live.source import Results
    from topologies.structs import there_are

    if not (directory / "manifest.json").is_file():
        raise UserError(
            f"{directory} holds no results (no manifest.json): give a directory that mrcbed run "
            "writes"
        )
    runs = sorted(path.name for path in (directory / "raw").glob("*"))
    if name is not None and name not in runs:
        raise UserError(f"--run {name}: {there_are(name, runs)}")
    return Results(directory, name or "")


def running(name: str | None) -> Results | Up:
    """Raises :class:`UserError` if nothing runs on this machine."""
    from scenarios.show.live.source import Up, agents_folder
    from testbed.machine.exclusive import measured_directory
    from testbed.machine.running import sandboxes

    measured = measured_directory()
    if measured is not None and (measured / "manifest.json").is_file():
        return of_directory(measured, name)
    for root in sandboxes():
        found = agents_folder(root)
        if found is not None:
            folder, fabric, transport = found
            return Up(folder, fabric, transport)
    unfinished = [path.parent for path in Path("results").glob("*/manifest.json") if _goes_on(path)]
    if unfinished:
        return of_directory(max(unfinished, key=lambda path: path.stat().st_mtime), name)
    hint = "" if os.geteuid() == 0 else ", or use sudo to see a fabric that is up"
    raise UserError(
        "nothing runs here: give a results directory, as in mrcbed results top "
        f"results/demo-20261122-101500{hint}"
    )


def _goes_on(manifest: Path) -> bool:
    from testbed.results.manifest import Manifest
    from testbed.results.reading import ResultsError, read

    try:
        return read(manifest, Manifest).ended is None
    except ResultsError:
        return False
