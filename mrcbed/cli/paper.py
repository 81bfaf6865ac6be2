"""``mrcbed paper [FIG...]``: the MRC paper's figures on this testbed, each claim beside the results."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mrcbed.cli.run import parse_seeds
from mrcbed.cli.sets import conclude_apart, run_part, show_list, tell
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument, option


@click.command(name="paper")
@argument("figures", nargs=-1, metavar="[FIG]...")
@option("--list", "as_list", is_flag=True, help="List the figures, their scenarios and how long they take; run nothing.")
@option("--quick", is_flag=True, help="Use one seed, shorter runs and fewer sizes: a quarter of an hour for all figures.")
@option("--seeds", "seed_range", metavar="A-B", help="Use these seeds instead of each figure's own: 1-5, or 1,3,7-9.")
@option("--out", metavar="DIR", help="Write results to DIR (default: results/paper-<time>).")
@option("--resume", is_flag=True, help="Continue in --out DIR and keep what is finished there.")
@option("--report", metavar="DIR", help="Evaluate and draw the results in DIR again, without root; run nothing.")
@option("--json", "as_json", is_flag=True, help="Print paper.json instead of the table.")
def command(
    figures: tuple[str, ...],
    as_list: bool,
    quick: bool,
    seed_range: str | None,
    out: str | None,
    resume: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Run the MRC paper's figures (all, or FIG like 9a, 16, 5.2.1, sizing) and compare each claim with the results.

    Exit status: 0 all figures were run, whatever their verdicts; 1 some could not be run; 2 bad input; 130 stopped.
    """
    from scenarios.sets.paper import series
    from scenarios.sets.paper.figures import FIGURES, chosen

    selection = chosen(figures)
    seeds = tuple(parse_seeds(seed_range)) if seed_range else ()
    if as_list:
        _list(selection, seeds)
        return
    if report is not None:
        directory = written(Path(report))
        series.read_form(directory)
        status = 0
        for figure in selection:
            if not figure.parts or any((figure.directory(part, directory) / "summary.json").is_file() for part in figure.parts):
                try:
                    trouble = series.conclude(figure, directory)["unread"]
                except Exception as error:  # results of another version, say: the other figures are judged all the same
                    trouble = [f"{type(error).__name__}: {error}"]
                for line in trouble:
                    status = 1
                    print(f"figure {figure.id}: {line}", file=sys.stderr)
        _show(directory, as_json)
        sys.exit(status)
    if os.geteuid() != 0:
        emulated = [f.id for f in selection if any(not part.simulated(part.load(quick, seeds)) for part in f.parts)]
        if emulated:
            others = ", ".join(f.id for f in FIGURES if not any(not part.simulated(part.load(quick, seeds)) for part in f.parts))
            raise UserError(
                f"figure {emulated[0]} needs root for network namespaces and eBPF: use sudo (without: {others}; --list, --report)"
            )
    if resume and out is None:
        raise UserError("--resume needs --out DIR, the directory to go on in")
    directory = Path(out) if out else Path("results") / f"paper-{time.strftime('%Y%m%d-%H%M%S')}"
    series.open_directory(directory, series.Form(quick, seeds), resume)
    sys.exit(_run(selection, directory, series.Form(quick, seeds), as_json))


def _run(figures: list[Any], directory: Path, form: Any, as_json: bool) -> int:
    from scenarios.sets.paper import series

    status = series.run_series(figures, directory, form, run_part, conclude_apart(series.conclude), tell)
    _show(directory, as_json)
    return status


def _list(figures: list[Any], seeds: tuple[int, ...]) -> None:
    def names(figure: Any) -> str:
        return ", ".join(dict.fromkeys(part.scenario for part in figure.parts))

    note = "Estimated from theory's step times and what runs cost to set up. Figures 12 and 13 share their runs."
    show_list(figures, seeds, ("figure", "scenarios"), names, note)


def _show(directory: Path, as_json: bool) -> None:
    from scenarios.sets.paper import page
    from scenarios.sets.paper.series import concluded

    path = page.write_page(directory)
    results = concluded(directory)
    if as_json:
        click.echo(json.dumps(json.loads((directory / page.DATA).read_text(encoding="utf-8")), indent=2))
        return
    console = terminal.console(120)
    console.print(page.table(results))
    if any(figure["id"] == "sizing" for figure in results):
        _sizes(console)
    console.print(page.summary_line(results))
    console.print(f"Page: {path}", soft_wrap=True)


def _sizes(console: Console) -> None:
    from scenarios.sets.paper.sizing import table

    heads, rows = table()
    title = "Fabrics without oversubscription, as few tiers as it takes"
    console.print(terminal.table(heads, rows, title=title))
