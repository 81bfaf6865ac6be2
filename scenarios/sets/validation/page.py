"""Writes the output of a validation: a table for the terminal, ``validation.html`` (self-contained), ``.json``, ``.csv`` and one plot.

It reads ``case.json`` files only: the same files give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.run.resume import write_json
from scenarios.sets.series import FORMAT
from scenarios.sets.validation import plot
from scenarios.sets.validation.agreement import AGREES, ALONE, CHANCE, DIFFERS, EXPLAINED, NO_DATA, THEORY, counts_of
from scenarios.sets.validation.cases import SLOWER, SLOWER_BY
from scenarios.sets.validation.concluding import concluded, read_form
from scenarios.sets.validation.observed import BOUNDS
from testbed import terminal
from testbed.world import EMULATED, SIMULATED

NAME, DATA, TABLE = "validation.html", "validation.json", "validation.csv"
COLUMNS = (THEORY, SIMULATED, EMULATED, SLOWER)
_STYLE = {AGREES: "green", CHANCE: "green", EXPLAINED: "yellow", DIFFERS: "bold red", ALONE: "dim", NO_DATA: "red"}
MARKS = {AGREES: "good", CHANCE: "good", EXPLAINED: "doubt", DIFFERS: "bad", ALONE: "", NO_DATA: "bad"}
WORDS = {
    AGREES: "agree",
    CHANCE: "differ only by chance",
    EXPLAINED: "explained",
    DIFFERS: "DIFFER without a known cause",
    ALONE: "with nothing to compare",
    NO_DATA: "without data",
}
_UNITS = {"ns": (1e-3, "µs", ",.2f"), "bit/s": (1e-9, "Gb/s", ".1f"), "%": (1.0, "%", ".3g")}

Conclusion = Mapping[str, Any]


def format_value(value: float | None, unit: str) -> str:
    """Write a figure with its unit; a dash if there is none."""
    if value is None:
        return "–"
    factor, name, form = _UNITS[unit]
    return f"{format(value * factor, form)} {name}"


def deviation(row: Conclusion, of: str, against: str) -> str:
    """Write how far one column deviates from another; "" if they are not compared."""
    for parting in row["partings"]:
        if (parting["of"], parting["from"]) == (of, against):
            return "from zero" if parting["by"] is None else f"{100 * parting['by']:+.1f} %"
    return ""


def place(case: Conclusion, row: Conclusion) -> str:
    return str(case["id"]) + (f", {row['where']}" if row["where"] else "")


def doubtful(case: Conclusion) -> bool:
    return any(world["not_trustworthy"] for world in case["worlds"].values())


def table(conclusions: Sequence[Conclusion]) -> Any:
    """Return a table for the terminal, one row per figure."""
    from rich.text import Text

    rows: list[list[terminal.Cell] | None] = []
    for case in conclusions:
        last_label = ""
        for row in case["rows"]:
            label = place(case, row)
            verdict = Text.assemble((row["verdict"], _STYLE[row["verdict"]]), (f"\n{row['why']}" if row["why"] else "", "dim"))
            rows.append(["" if label == last_label else label, row["title"], *_values(row), *_deviations(row), verdict])
            last_label = label
        rows.append(None)
    slower = f"emulated,\n{SLOWER_BY} x slower"
    heads = (
        "case",
        "figure",
        "theory",
        "simulated",
        "emulated",
        slower,
        "sim. off\ntheory",
        "emu. off\nsim.",
        "slower\noff emu.",
        "verdict",
    )
    return terminal.table(heads, rows, title="Theory, simulation, emulation", words=("case", "figure", "verdict"))


def notes(conclusions: Sequence[Conclusion]) -> list[str]:
    """Return lines to show beside the rows: files that could not be read, and runs that are not trustworthy."""
    lines = [f"{case['id']}: {line}" for case in conclusions for line in case["trouble"]]
    for case in conclusions:
        for name, world in case["worlds"].items():
            lines += [f"{case['id']}, {name}: {line}" for line in world["doubts"]]
    return lines


def summary_line(conclusions: Sequence[Conclusion]) -> str:
    rows = [row for case in conclusions for row in case["rows"]]
    counts = ", ".join(f"{n} {WORDS[verdict]}" for verdict, n in counts_of(rows).items() if n or verdict in (AGREES, DIFFERS))
    return f"{len(rows)} figures in {len(conclusions)} case{'s' if len(conclusions) != 1 else ''}: {counts}"


def write_page(out: Path) -> Path:
    """Write page, data, table and plot from the conclusions in a directory; return the path of the page."""
    from scenarios.figures.rows import table as frame_of
    from scenarios.show.html import embedded, rendered

    conclusions, form = concluded(out), read_form(out)
    rows = [row for case in conclusions for row in case["rows"]]
    bounds = dict(BOUNDS)
    write_json(out / DATA, {"format": FORMAT, **form.to_dict(), "bounds": bounds, "counts": counts_of(rows), "cases": conclusions})
    flat = [
        {
            **{key: row.get(key) for key in ("case", "where", "figure", "unit", *COLUMNS, "bound", "verdict", "why")},
            **{f"{p['of']}_off_{p['from']}": p["by"] for p in row["partings"]},
        }
        for row in rows
    ]
    frame_of(flat, floats=COLUMNS).to_csv(out / TABLE, index=False)
    images = [embedded(path) for path in plot.draw(conclusions, out) if path.suffix == ".png"]
    cases = [
        {**case, "doubtful": doubtful(case), "shown": [_formatted_row(row) for row in case["rows"]], "told": notes([case])}
        for case in conclusions
    ]
    values = {
        "cases": cases,
        "line": summary_line(conclusions),
        "quick": form.quick,
        "marks": MARKS,
        "images": images,
        "bounds": bounds,
        "slower_by": SLOWER_BY,
    }
    text = rendered(Path(__file__).parent / "validation.html.j2", **values)
    path = out / NAME
    path.write_text(text, encoding="utf-8")
    return path


def _formatted_row(row: Conclusion) -> dict[str, Any]:
    return {**row, "values": _values(row), "parted": _deviations(row)}


def _values(row: Conclusion) -> list[str]:
    return [format_value(row.get(column), row["unit"]) for column in COLUMNS]


def _deviations(row: Conclusion) -> list[str]:
    emulated = deviation(row, EMULATED, SIMULATED) or deviation(row, EMULATED, THEORY)
    return [deviation(row, SIMULATED, THEORY), emulated, deviation(row, SLOWER, EMULATED)]
