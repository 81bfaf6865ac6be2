"""Runs figures into a directory, one after the other, and concludes each from its files: verdicts, drawing, ``figure.json``.

Called by ``mrcbed paper``. Nothing here needs root: whoever calls says how a scenario is run. A figure that fails is told and left behind;
what is finished is kept and never run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.paper.claims import AGREES, DIFFERS, NO_DATA, Evidence, overall
from scenarios.paper.figure import PaperFigure, Part
from scenarios.paper.figures import FIGURES
from scenarios.resume import write_json
from scenarios.runner import plan
from scenarios.schema import Scenario, ScenarioError

FORMAT = 1
SET, FIGURE = "series.json", "figure.json"
INTERRUPTED = 130

RunOne = Callable[[Scenario, Path, bool], int]
"""(scenario, directory, whether to go on there) -> exit status of what ran it; 130: the user stopped it."""
Conclude = Callable[[PaperFigure, Path], Any]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Form:
    """Which set a directory holds."""

    quick: bool = False
    seeds: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "quick": self.quick, "seeds": list(self.seeds)}


def open_directory(out: Path, form: Form, resume: bool) -> None:
    """Make it, or go on in it. Raises :class:`ScenarioError` if it holds anything else than this set."""
    known = out / SET
    if known.is_file():
        was = read_form(out)
        if was != form:
            raise ScenarioError(f"--out {out} holds {_words(was)}, not {_words(form)}: give a new directory")
        if not resume:
            raise ScenarioError(f"--out {out} holds figures already: add --resume to go on there, or give a new directory")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ScenarioError(f"--out {out}: it exists and is not empty, and holds no figures of the paper: give a new directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(known, form.to_dict())
    except OSError as error:
        raise ScenarioError(f"cannot make the results directory {out}: {error.strerror}") from None


def read_form(out: Path) -> Form:
    """Raises :class:`ScenarioError` if the directory is not one of ``mrcbed paper``."""
    path = out / SET
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ScenarioError(f"{path} is of format {found['format']}, this version writes {FORMAT}: run the figures again")
        return Form(bool(found["quick"]), tuple(int(seed) for seed in found["seeds"]))
    except FileNotFoundError:
        raise ScenarioError(f"{out} holds no figures (no {SET}): give a directory that mrcbed paper wrote") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScenarioError(f"{path} cannot be read ({error}): run the figures again") from None


def _words(form: Form) -> str:
    seeds = f" with seeds {', '.join(map(str, form.seeds))}" if form.seeds else ""
    return f"the {'--quick' if form.quick else 'full'} set{seeds}"


# --- running -------------------------------------------------------------------------------------------------------


def finished(directory: Path, scenario: Scenario) -> bool:
    """Whether all runs of a part are over, and its summary written."""
    try:
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        over = summary["verdict"] != "interrupted" and "stopped_by" not in summary
        return over and len(summary["runs"]) == len(plan(scenario))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def run_part(figure: PaperFigure, part: Part, out: Path, form: Form, run: RunOne) -> tuple[int, str]:
    """(exit status, what went wrong in words, if anything)."""
    directory = figure.directory(part, out)
    try:
        scenario = part.load(form.quick, form.seeds)
        if finished(directory, scenario):
            return 0, ""
        begun = (directory / "manifest.json").is_file()
        directory.mkdir(parents=True, exist_ok=True)
        status = run(scenario, directory, begun)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return 1, f"{part.name}: {type(error).__name__}: {first}"
    if status == INTERRUPTED:
        return status, "stopped by the user"
    if not finished(directory, scenario):
        return status or 1, f"{part.name}: its runs did not all end (exit status {status}); --resume tries again"
    return 0, ""


def run_series(
    figures: Sequence[PaperFigure], out: Path, form: Form, run: RunOne, conclude: Conclude, tell: Tell = lambda line: None
) -> int:
    """Run what is missing, figure by figure, and conclude each. 0: all there; 1: some figure is not; 130: stopped."""
    worst = 0
    for number, figure in enumerate(figures):
        tell(f"figure {figure.id} ({number + 1} of {len(figures)}): {figure.title}")
        said = []
        for part in figure.parts:
            status, why = run_part(figure, part, out, form, run)
            if why:
                said.append(why)
                tell(f"figure {figure.id}: {why}")
            if status == INTERRUPTED:
                conclude(figure, out)
                return INTERRUPTED
        worst = max(worst, 1 if said else 0)
        try:
            conclude(figure, out)
        except Exception as error:
            worst = 1
            tell(f"figure {figure.id}: {type(error).__name__}: {error}")
    return worst


# --- concluding ----------------------------------------------------------------------------------------------------


def conclude(figure: PaperFigure, out: Path) -> dict[str, Any]:
    """Judge and draw a figure from its files, write its ``figure.json`` and return it. What is missing or unreadable is told in it."""
    from scenarios.plots.stored import Stored

    stored: dict[str, Stored] = {}
    trouble = []
    for part in figure.parts:
        directory = figure.directory(part, out)
        if not (directory / "summary.json").is_file():
            trouble.append(f"{part.name}: not run")
            continue
        try:
            one = Stored(directory)
            assert one.summary and one.manifest
            stored[part.name] = one
        except Exception as error:
            trouble.append(f"{part.name}: {error}")
    rows = figure.evaluate(Evidence({name: one.summary for name, one in stored.items()}))
    where = out / figure.id
    where.mkdir(parents=True, exist_ok=True)
    plots: list[Path] = []
    try:
        plots = figure.draw(stored, where, f"fig-{figure.id}") if stored or not figure.parts else []
    except Exception as error:  # a drawing must not take the verdicts with it
        trouble.append(f"not drawn: {type(error).__name__}: {error}")
    made = {
        "format": FORMAT,
        "id": figure.id,
        "title": figure.title,
        "note": figure.note,
        "verdict": overall(rows),
        "rows": [row.to_dict() for row in rows],
        "trouble": trouble,
        "parts": [part_figures(name, one.summary, figure) for name, one in stored.items()],
        "plots": [str(path.relative_to(out)) for path in plots],
    }
    write_json(where / FIGURE, made)
    return made


def part_figures(name: str, summary: Mapping[str, Any], figure: PaperFigure) -> dict[str, Any]:
    """What a reader needs to weigh a part's figures: time scale, base RTTs, and how far its runs can be trusted."""
    runs = summary["runs"]
    part = next(part for part in figure.parts if part.name == name)
    doubts = [f"{run['run']}: {reason}" for run in runs for reason in run["distrust"]]
    doubts += [f"{run['run']}: {run['outcome']}: {run['reason']}" for run in runs if run["outcome"] != "done"]
    return {
        "name": name,
        "scenario": summary["scenario"],
        "directory": f"{part.home or figure.id}/{name}",
        "verdict": summary["verdict"],
        "runs": len(runs),
        "seeds": len({run["seed"] for run in runs}),
        "not_trustworthy": sum(run["verdict"] == "not trustworthy" for run in runs),
        "not_done": sum(run["outcome"] != "done" for run in runs),
        "time_scales": {run["fabric"]: run["time_scale"] for run in runs},
        "base_rtts_ns": {run["fabric"]: run["base_rtt_ns"] for run in runs},
        "doubts": doubts,
    }


def concluded(out: Path, figures: Sequence[PaperFigure] = FIGURES) -> list[dict[str, Any]]:
    """Every ``figure.json`` that there is, in the paper's order; those that cannot be read are left out."""
    found = []
    for figure in figures:
        try:
            found.append(json.loads((out / figure.id / FIGURE).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found


def counts(made: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Verdict -> rows, over all figures."""
    out: dict[str, int] = {AGREES: 0, DIFFERS: 0}
    for figure in made:
        for row in figure["rows"]:
            out[row["verdict"]] = out.get(row["verdict"], 0) + 1
    return {verdict: number for verdict, number in out.items() if number or verdict != NO_DATA}
