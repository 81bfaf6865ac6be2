"""``mrcbed paper [FIG...]``: the MRC paper's figures on this testbed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from mrcbed.cli.sets import (
    conclude_apart,
    run_stamped,
    set_directory,
    set_options,
    show_list,
    show_set,
    tell,
)
from scenarios.sets.series import Form
from testbed import terminal
from testbed.errors import UserError
from testbed.machine.caller import written
from testbed.options import argument

NOTE = (
    "Estimated from theory's step times and what runs cost to set up. Figures 12 and 13 share "
    "their runs."
)


@click.command(name="paper")
@argument("figures", nargs=-1, metavar="[FIG]...")
@set_options(
    "figures",
    "Use one seed, shorter runs and fewer sizes: a quarter of an hour for all figures.",
    "each figure's own",
    "paper.json",
)
def command(
    figures: tuple[str, ...],
    form: Form,
    as_list: bool,
    out: str | None,
    resume: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Run the MRC paper's figures (all, or FIG like 9a, 16, 5.2.1, sizing) and compare each claim
    with the results.

    Exit status: 0 all figures were run, whatever their verdicts; 1 some could not be run; 2 bad
    input; 130 stopped.
    """
    from scenarios.sets.paper import series
    from scenarios.sets.paper.figures import FIGURES, chosen

    selection = chosen(figures)
    if as_list:
        show_list(
            selection,
            form,
            ("figure", "scenarios"),
            lambda f: ", ".join(dict.fromkeys(part.scenario for part in f.parts)),
            NOTE,
        )
        return
    if report is not None:
        directory = written(Path(report))
        series.read_form(directory)
        status = _concluded_again(selection, directory)
    else:
        if os.geteuid() != 0:
            _refuse_emulated(selection, FIGURES, form)
        directory = set_directory("paper", out, resume)
        series.open_directory(directory, form, resume)
        status = series.run_series(
            selection, directory, form, run_stamped, conclude_apart(series.conclude), tell
        )
    _show(directory, as_json)
    sys.exit(status)


def _concluded_again(selection: list[Any], directory: Path) -> int:
    from scenarios.sets.paper import series

    status = 0
    for figure in selection:
        if not figure.parts or any(
            (figure.directory(part, directory) / "summary.json").is_file() for part in figure.parts
        ):
            try:
                trouble = series.conclude(figure, directory)["unread"]
            except Exception as error:
                # results of another version, say: the other figures are judged all the same
                trouble = [f"{type(error).__name__}: {error}"]
            for line in trouble:
                status = 1
                tell(f"figure {figure.id}: {line}")
    return status


def _refuse_emulated(selection: list[Any], figures: tuple[Any, ...], form: Form) -> None:
    def emulated(figure: Any) -> bool:
        return any(not part.simulated(part.load(form.quick, form.seeds)) for part in figure.parts)

    first = next((figure.id for figure in selection if emulated(figure)), None)
    if first is not None:
        others = ", ".join(figure.id for figure in figures if not emulated(figure))
        raise UserError(
            f"figure {first} needs root for network namespaces and eBPF: use sudo (without: "
            f"{others}; --list, --report)"
        )


def _show(directory: Path, as_json: bool) -> None:
    from scenarios.sets.paper import page
    from scenarios.sets.paper.series import concluded
    from scenarios.sets.paper.sizing import table

    results = concluded(directory)
    more = []
    if any(figure["id"] == "sizing" for figure in results):
        heads, rows = table()
        more.append(
            terminal.table(
                heads, rows, title="Fabrics without oversubscription, as few tiers as it takes"
            )
        )
    show_set(page, directory, results, 120, as_json, more)
