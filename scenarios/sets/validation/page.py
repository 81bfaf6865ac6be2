"""Writes a validation's page, data, table and plot from ``case.json`` files: the same files give
the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.run.resume import write_json
from scenarios.sets.series import FORMAT
from scenarios.sets.validation import plot
from scenarios.sets.validation.agreement import (
    AGREES,
    ALONE,
    CHANCE,
    DIFFERS,
    EXPLAINED,
    NO_DATA,
    THEORY,
    counts_of,
)
from scenarios.sets.validation.cases import SLOWER, SLOWER_BY
from scenarios.sets.validation.concluding import concluded, read_form
from scenarios.sets.validation.observed import BOUNDS
from scenarios.show.document import (
    Block,
    Cell,
    Column,
    Document,
    Folded,
    Section,
    Table,
    Words,
    plain,
    rich,
)
from testbed.world import EMULATED, SIMULATED

NAME, DATA, TABLE = "validation.html", "validation.json", "validation.csv"
COLUMNS = (THEORY, SIMULATED, EMULATED, SLOWER)
MARKS = {
    AGREES: "good",
    CHANCE: "good",
    EXPLAINED: "doubt",
    DIFFERS: "bad",
    ALONE: "soft",
    NO_DATA: "bad",
}
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
    if value is None:
        return "–"
    factor, name, form = _UNITS[unit]
    return f"{format(value * factor, form)} {name}"


def deviation(row: Conclusion, of: str, against: str) -> str:
    for parting in row["partings"]:
        if (parting["of"], parting["from"]) == (of, against):
            return "from zero" if parting["by"] is None else f"{100 * parting['by']:+.1f} %"
    return ""


def place(case: Conclusion, row: Conclusion) -> str:
    return str(case["id"]) + (f", {row['where']}" if row["where"] else "")


def doubtful(case: Conclusion) -> bool:
    return any(world["not_trustworthy"] for world in case["worlds"].values())


def _verdict(row: Conclusion) -> Cell:
    sections = f" (fidelity.md: {', '.join(row['sections'])})" if row.get("sections") else ""
    flag = "\nnot trustworthy" if row["doubtful"] else ""
    return [
        (row["verdict"], MARKS[row["verdict"]]),
        (flag, "bad"),
        (f"\n{row['why']}{sections}" if row["why"] else "", "soft"),
    ]


def _column(name: str) -> Callable[[Conclusion], str]:
    return lambda row: format_value(row.get(name), row["unit"])


_FIGURES: list[Column] = [
    ("figure", lambda row: str(row["title"])),
    *((name, _column(name)) for name in COLUMNS[:3]),
    (f"emulated,\n{SLOWER_BY} x slower", _column(SLOWER)),
    ("sim. off\ntheory", lambda row: deviation(row, SIMULATED, THEORY)),
    (
        "emu. off\nsim.",
        lambda row: deviation(row, EMULATED, SIMULATED) or deviation(row, EMULATED, THEORY),
    ),
    ("slower\noff emu.", lambda row: deviation(row, SLOWER, EMULATED)),
    ("verdict", _verdict),
]


def _rows(case: Conclusion) -> list[Conclusion]:
    return [{**row, "doubtful": doubtful(case)} for row in case["rows"]]


def table(conclusions: Sequence[Conclusion]) -> Any:
    rows: list[list[Cell] | None] = []
    for case in conclusions:
        last_label = ""
        for row in _rows(case):
            label = place(case, row)
            rows.append(
                ["" if label == last_label else label, *(cell(row) for _, cell in _FIGURES)]
            )
            last_label = label
        rows.append(None)
    heads = ["case", *(head for head, _ in _FIGURES)]
    return rich(
        plain(heads, rows, title="Theory, simulation, emulation", words=("figure", "verdict"))
    )


def notes(conclusions: Sequence[Conclusion]) -> list[str]:
    lines = [f"{case['id']}: {line}" for case in conclusions for line in case["trouble"]]
    for case in conclusions:
        for name, world in case["worlds"].items():
            lines += [f"{case['id']}, {name}: {line}" for line in world["doubts"]]
    return lines


def summary_line(conclusions: Sequence[Conclusion]) -> str:
    rows = [row for case in conclusions for row in case["rows"]]
    counts = ", ".join(
        f"{n} {WORDS[verdict]}"
        for verdict, n in counts_of(rows).items()
        if n or verdict in (AGREES, DIFFERS)
    )
    return (
        f"{len(rows)} figures in {len(conclusions)} case{'s' if len(conclusions) != 1 else ''}: "
        f"{counts}"
    )


def write_page(out: Path) -> Path:
    from scenarios.figures.rows import table as frame_of
    from scenarios.show.html import embedded
    from scenarios.show.html import write_page as write

    conclusions, form = concluded(out), read_form(out)
    rows = [row for case in conclusions for row in case["rows"]]
    bounds = dict(BOUNDS)
    write_json(
        out / DATA,
        {
            "format": FORMAT,
            **form.to_dict(),
            "bounds": bounds,
            "counts": counts_of(rows),
            "cases": conclusions,
        },
    )
    flat = [
        {
            **{
                key: row.get(key)
                for key in ("case", "where", "figure", "unit", *COLUMNS, "bound", "verdict", "why")
            },
            **{f"{p['of']}_off_{p['from']}": p["by"] for p in row["partings"]},
        }
        for row in rows
    ]
    frame_of(flat, floats=COLUMNS).to_csv(out / TABLE, index=False)
    said = (
        "Simulation is compared with theory, emulation with simulation, and emulation at "
        f"{SLOWER_BY} times the dilation with emulation at that of the fabric's file. They agree "
        f"within {100 * bounds['median']:g} % for medians and rates, {100 * bounds['tail']:g} % "
        "for tails; larger differences have a known cause or are marked. docs/why/fidelity.md "
        "explains them. Times are the network's: what a world's clock took, divided by the "
        "dilation."
    )
    quick = (
        [Words("Quick form: one seed and shorter runs. Tails need the full form.", "banner")]
        if form.quick
        else []
    )
    about = "Every time and rate of theory and both worlds, over the simulated one"
    pictures = [
        embedded(path, about) for path in plot.draw(conclusions, out) if path.suffix == ".png"
    ]
    head: list[Block] = [
        Words(f"{summary_line(conclusions)}.", "lead"),
        *quick,
        Words(said),
        *pictures,
    ]
    sections = [
        Section(str(case["id"]), f"{case['id']}: {case['title']}", list(_case(case)))
        for case in conclusions
    ]
    return write(Document("Theory, simulation, emulation", head, sections), out / NAME)


def _case(case: Conclusion) -> Iterator[Block]:
    counts: list[tuple[str, str]] = []
    for name, world in case["worlds"].items():
        counts.append(
            (
                (
                    f"{'; ' if counts else ''}{name}: {_number(world['runs'], 'run')}, "
                    f"{_number(world['seeds'], 'seed')}"
                ),
                "",
            )
        )
        counts += [
            (f", {world[key]} {key.replace('_', ' ')}", "strong")
            for key in ("not_trustworthy", "failed")
            if world[key]
        ]
    yield Words(counts)
    yield from (Words(line, "banner") for line in case["trouble"])
    first, *others = _FIGURES
    where: Column = ("where", lambda row: str(row["where"]))
    columns = [first, *([where] if any(row["where"] for row in case["rows"]) else []), *others]
    yield Table(columns, _rows(case), words=("figure", "where", "verdict"))
    if told := notes([case]):
        yield Folded(f"{_number(len(told), 'note')} on its runs", [Words(line) for line in told])
    yield Words(f"Data: {case['id']}/")


def _number(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n != 1 else ''}"
