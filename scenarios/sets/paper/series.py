"""Concludes figures from their files: verdicts, drawing, ``figure.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from scenarios.run.resume import write_json
from scenarios.sets import provenance, series
from scenarios.sets.paper.claims import AGREES, DIFFERS, VERDICTS, Evidence, overall
from scenarios.sets.paper.figure import PaperFigure
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.paper.plots import DRAW
from scenarios.sets.paper.registry import CLAIMS
from scenarios.sets.series import FORMAT, INTERRUPTED, Form, RunOne, Tell, doubts_of
from testbed.results.summary import Summary

SET, FIGURE = "series.json", "figure.json"
PAPER = series.Kind(SET, "figure", "figures", "the paper", "mrcbed paper")
open_directory, read_form = PAPER.open_directory, PAPER.read_form
run_series = partial(series.run_series, PAPER)


# --- concluding -----------------------------------------------------------------------------------


def conclude(figure: PaperFigure, out: Path) -> dict[str, Any]:
    from scenarios.figures.stored import Stored

    stored: dict[str, Stored] = {}
    trouble, unread = [], []
    for part in figure.parts:
        part_directory = figure.directory(part, out)
        if not (part_directory / "summary.json").is_file():
            trouble.append(f"{part.name}: not run")
            continue
        try:
            results = Stored(part_directory)
            assert results.summary and results.manifest
            stored[part.name] = results
        except Exception as error:
            unread.append(f"{part.name}: {error}")
    rows = figure.evaluate(Evidence({name: results.summary for name, results in stored.items()}))
    directory = out / figure.id
    directory.mkdir(parents=True, exist_ok=True)
    plots: list[Path] = []
    try:
        plots = (
            DRAW[figure.draw](stored, directory, f"fig-{figure.id}")
            if stored or not figure.parts
            else []
        )
    except Exception as error:  # the verdicts must be kept if drawing fails
        trouble.append(f"not drawn: {type(error).__name__}: {error}")
    conclusion = {
        "format": FORMAT,
        "id": figure.id,
        "heading": figure.heading,
        "title": figure.title,
        "note": figure.note,
        "verdict": overall([row.verdict for row in rows]),
        "rows": [row.to_dict() for row in rows],
        "trouble": unread + trouble,
        "unread": unread,
        "parts": [part_figures(name, results.summary, figure) for name, results in stored.items()],
        "plots": [str(path.relative_to(out)) for path in plots],
        "stamp": to_builtins(
            provenance.stamp(
                figure, out, {name: results.summary.runs for name, results in stored.items()}
            )
        ),
    }
    write_json(directory / FIGURE, conclusion)
    return conclusion


def part_figures(name: str, summary: Summary, figure: PaperFigure) -> dict[str, Any]:
    runs = summary.runs
    part = next(part for part in figure.parts if part.name == name)
    return {
        "name": name,
        "scenario": summary.scenario,
        "directory": f"{part.home or figure.id}/{name}",
        "verdict": summary.verdict,
        "runs": len(runs),
        "seeds": len({run.seed for run in runs}),
        "not_trustworthy": sum(run.verdict == "not trustworthy" for run in runs),
        "not_done": sum(run.outcome != "done" for run in runs),
        "base_rtts_ns": {run.fabric: run.base_rtt_ns for run in runs},
        "doubts": doubts_of(runs),
    }


def concluded(out: Path, figures: Sequence[PaperFigure] = FIGURES) -> list[dict[str, Any]]:
    return series.concluded(out, figures, FIGURE)


def by_claim(conclusions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    claims = []
    for claim in CLAIMS:
        evidence = [
            {
                "figure": figure["id"],
                "doubtful": any(part["not_trustworthy"] for part in figure["parts"]),
                **row,
            }
            for figure in conclusions
            for row in figure["rows"]
            if row["number"] == claim.number
        ]
        verdict = overall([row["verdict"] for row in evidence])
        why = "" if evidence else "no figure of this version, or none that was run, shows it"
        claims.append({**asdict(claim), "verdict": verdict, "why": why, "evidence": evidence})
    return claims


def counts(conclusions: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    totals = Counter(claim["verdict"] for claim in by_claim(conclusions))
    return {
        verdict: totals[verdict]
        for verdict in VERDICTS
        if totals[verdict] or verdict in (AGREES, DIFFERS)
    }


__all__ = [
    "FIGURES",
    "FORMAT",
    "INTERRUPTED",
    "SET",
    "Form",
    "RunOne",
    "Tell",
    "by_claim",
    "conclude",
    "concluded",
    "counts",
    "open_directory",
    "read_form",
    "run_series",
]
