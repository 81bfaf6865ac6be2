"""What a person sees of a validation: a table for the terminal, ``validation.html`` (self-contained), ``.json``, ``.csv`` and one plot.

From ``case.json`` files alone: the same files give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.run.resume import write_json
from scenarios.sets.series import FORMAT
from scenarios.sets.validation import plot
from scenarios.sets.validation.agreement import AGREES, ALONE, CHANCE, DIFFERS, EXPLAINED, NO_DATA, THEORY, counts_of
from scenarios.sets.validation.concluding import concluded, read_form
from scenarios.sets.validation.observed import BOUNDS
from testbed import terminal
from testbed.simulated import EMULATED, SIMULATED

NAME, DATA, TABLE = "validation.html", "validation.json", "validation.csv"
COLUMNS = (THEORY, SIMULATED, EMULATED)
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
_UNITS = {"ns": (1e-6, "ms", ",.1f"), "bit/s": (1e-6, "Mb/s", ".2f"), "%": (1.0, "%", ".3g")}

Made = Mapping[str, Any]


def shown(value: float | None, unit: str) -> str:
    """A figure for people, with its unit; a dash where there is none."""
    if value is None:
        return "–"
    factor, name, form = _UNITS[unit]
    return f"{format(value * factor, form)} {name}"


def off(row: Made, of: str, against: str) -> str:
    """How far one column is off another; "" where they are not held against each other."""
    for parting in row["partings"]:
        if (parting["of"], parting["from"]) == (of, against):
            return "from zero" if parting["by"] is None else f"{100 * parting['by']:+.1f} %"
    return ""


def place(case: Made, row: Made) -> str:
    return str(case["id"]) + (f", {row['where']}" if row["where"] else "")


def doubtful(case: Made) -> bool:
    return any(world["not_trustworthy"] for world in case["worlds"].values())


def table(made: Sequence[Made]) -> Any:
    """A row per figure, for the terminal."""
    from rich.text import Text

    rows: list[list[terminal.Cell] | None] = []
    for case in made:
        last = ""
        for row in case["rows"]:
            at = place(case, row)
            verdict = Text.assemble((row["verdict"], _STYLE[row["verdict"]]), (f"\n{row['why']}" if row["why"] else "", "dim"))
            values = [shown(row[column], row["unit"]) for column in COLUMNS]
            parted = [off(row, SIMULATED, THEORY), off(row, EMULATED, SIMULATED) or off(row, EMULATED, THEORY)]
            rows.append(["" if at == last else at, row["title"], *values, *parted, verdict])
            last = at
        rows.append(None)
    heads = ("case", "figure", "theory", "simulated", "emulated", "sim. off\ntheory", "emu. off\nsim.", "verdict")
    return terminal.table(heads, rows, title="Theory, simulation, emulation", words=("case", "figure", "verdict"))


def notes(made: Sequence[Made]) -> list[str]:
    """What is to be told beside the rows: what could not be read, and runs that are not to be believed."""
    out = [f"{case['id']}: {line}" for case in made for line in case["trouble"]]
    for case in made:
        for name, world in case["worlds"].items():
            out += [f"{case['id']}, {name}: {line}" for line in world["doubts"]]
    return out


def summary_line(made: Sequence[Made]) -> str:
    rows = [row for case in made for row in case["rows"]]
    told = ", ".join(f"{number} {WORDS[verdict]}" for verdict, number in counts_of(rows).items() if number or verdict in (AGREES, DIFFERS))
    return f"{len(rows)} figures in {len(made)} case{'s' if len(made) != 1 else ''}: {told}"


def write_page(out: Path) -> Path:
    """Write page, data, table and plot from what is concluded in a directory; returns the page."""
    from scenarios.figures.rows import table as frame_of
    from scenarios.show.html import embedded, rendered

    made, form = concluded(out), read_form(out)
    rows = [row for case in made for row in case["rows"]]
    bounds = dict(BOUNDS)
    write_json(out / DATA, {"format": FORMAT, **form.to_dict(), "bounds": bounds, "counts": counts_of(rows), "cases": made})
    flat = [
        {
            **{key: row[key] for key in ("case", "where", "figure", "unit", *COLUMNS, "bound", "verdict", "why")},
            **{f"{p['of']}_off_{p['from']}": p["by"] for p in row["partings"]},
        }
        for row in rows
    ]
    frame_of(flat, floats=COLUMNS).to_csv(out / TABLE, index=False)
    images = [embedded(path) for path in plot.draw(made, out) if path.suffix == ".png"]
    cases = [{**case, "doubtful": doubtful(case), "shown": [_shown(row) for row in case["rows"]], "told": notes([case])} for case in made]
    values = {"cases": cases, "line": summary_line(made), "quick": form.quick, "marks": MARKS, "images": images, "bounds": bounds}
    text = rendered(Path(__file__).parent / "validation.html.j2", **values)
    path = out / NAME
    path.write_text(text, encoding="utf-8")
    return path


def _shown(row: Made) -> dict[str, Any]:
    return {
        **row,
        "values": [shown(row[column], row["unit"]) for column in COLUMNS],
        "parted": [off(row, SIMULATED, THEORY), off(row, EMULATED, SIMULATED) or off(row, EMULATED, THEORY)],
    }
