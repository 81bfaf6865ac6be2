"""A table of tables.toml: its runs, its cells as medians with intervals, and its Markdown."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import asdict, replace

from scenarios.figures.stats import interval_note, median_interval
from scenarios.run.resume import write_json
from scenarios.sets import provenance
from scenarios.sets.paper.claims import Evidence, number, ratio, value_of
from scenarios.sets.paper.figure import Part
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.paper.statement import ARITHMETIC, OF_RUNS
from scenarios.sets.provenance import Stamp
from scenarios.sets.series import doubts_of
from testbed.results.reading import read
from testbed.results.summary import Run, Summary
from testbed.results.values import Setting
from topologies.structs import convert, text

CONCLUDED = "table.json"
# divisors: times are in ns, rates in bits/s, sizes in bytes
UNITS = {" µs": 1e3, " ms": 1e6, " GB/s": 8e9, " Gb/s": 1e9, " kB": 1e3}
FORM = re.compile(r"(?P<form>[+,]*\.\d[f%])(?P<unit>.*)")


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row or a column; what the row of a cell leaves open is the column's."""

    head: str
    part: str = ""
    of: str = ""
    where: dict[str, Setting] = {}
    value: str = ""
    form: Annotated[
        str,
        text(
            rf"(?:{FORM.pattern.replace('?P<form>', '').replace('?P<unit>', '')})?",
            "Python's form and a unit",
        ),
    ] = ""

    def and_of(self, column: Line) -> Line:
        return replace(
            column,
            **{
                key: value
                for key, value in {**asdict(self), "where": {**column.where, **self.where}}.items()
                if value
            },
        )


class Cell(msgspec.Struct, frozen=True):
    """``n`` of ``of`` runs ended well and have a value."""

    form: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    of: int = 0

    def __str__(self) -> str:
        found = FORM.fullmatch(self.form)
        assert found

        def words(value: float | None) -> str:
            return number(
                None if value is None else value / UNITS.get(found["unit"], 1.0), found["form"]
            )

        said = words(self.median)
        ends = [words(end).removesuffix(" %") for end in (self.low, self.high)]
        bare = said.removesuffix(" %")
        between = "" if self.low is None or ends == [bare, bare] else f" [{', '.join(ends)}]"
        return (
            said
            if self.median is None
            else f"{said}{found['unit']}{between}{f' ({self.n} of {self.of})' * (self.n < self.of)}"
        )


class Row(msgspec.Struct, frozen=True):
    head: str
    cells: list[Cell]


class StoredTable(msgspec.Struct, frozen=True):
    """``declared``: a hash of what was asked; ``files``: pictures and data."""

    id: str
    title: str
    declared: str
    heads: list[str] = []
    rows: list[Row] = []
    files: list[str] = []
    doubts: list[str] = []
    stamp: Stamp | None = None  # None is refused, but said of whom

    def markdown(self, older: bool) -> str:
        assert self.stamp
        lines = [
            self.heads,
            ["---"] * (" | ".join(self.heads).count("|") + 1),
            *([row.head, *map(str, row.cells)] for row in self.rows),
        ]
        intervals = interval_note(cell.n for row in self.rows for cell in row.cells)
        said = f"{self.stamp.words(older)}: medians{f' [{intervals}]' if intervals else ''}"
        doubts = f"; {len(self.doubts)} doubts" if self.doubts else ""
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", f"{said}{doubts}."])


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    parts: tuple[Part, ...]
    corner: str = ""
    rows: tuple[Line, ...] = ()
    columns: tuple[Line, ...] = ()
    files: dict[str, str] = {}

    def directory(self, part: Part, out: Path) -> Path:
        return out / (part.home or self.id) / part.name.rpartition("/")[2]

    @property
    def declared(self) -> str:
        return provenance.hashed(
            [msgspec.to_builtins(it) for it in (self.corner, self.rows, self.columns, self.files)]
        )

    def cell(self, line: Line, evidence: Evidence) -> Cell:
        asked = (line.part or self.parts[0].name, line.of, line.where)
        all_runs = evidence.parts[asked[0]].runs if asked[0] in evidence.parts else []
        values = [
            value
            for run in evidence.runs(*asked)
            if (value := of(run, line.value, all_runs)) is not None
        ]
        low, high = median_interval(values) or (None, None)
        return Cell(
            line.form,
            statistics.median(values) if values else None,
            low,
            high,
            len(values),
            len(evidence.runs(*asked, ended=False)),
        )

    def concluded(self, out: Path) -> StoredTable:
        """Raises :class:`testbed.results.reading.ResultsError`."""
        summaries = {
            part.name: read(self.directory(part, out) / "summary.json", Summary)
            for part in self.parts
        }
        evidence = Evidence(summaries)
        return StoredTable(
            id=self.id,
            title=self.title,
            declared=self.declared,
            heads=[self.corner, *(column.head for column in self.columns)],
            rows=[
                Row(row.head, [self.cell(row.and_of(column), evidence) for column in self.columns])
                for row in self.rows
            ],
            files=list(self.files),
            doubts=[doubt for summary in summaries.values() for doubt in doubts_of(summary.runs)],
            stamp=provenance.stamp(
                self, out, {name: summary.runs for name, summary in summaries.items()}
            ),
        )


def failures_per_step(run: Run) -> float | None:
    return ratio(sum(len(failover.outages_ns) for failover in run.failovers), run.steps)


FUNCTIONS = {**OF_RUNS, failures_per_step.__name__: failures_per_step}


def of(run: Run, words: str, runs: Sequence[Run] = ()) -> float | None:
    """Evaluate a key, a function or a number, or "A / B + C" of them, from left to right. ``runs``:
    for TRANSPORT:A, another transport's with the same seed, placement and settings."""

    def figure(name: str) -> float | None:
        transport, _, key = name.rpartition(":")
        same = (run.seed, run.placement, run.settings)
        its = (
            run
            if not transport
            else next(
                (
                    r
                    for r in runs
                    if r.transport == transport and (r.seed, r.placement, r.settings) == same
                ),
                None,
            )
        )
        return (
            float(name)
            if name[0].isdigit()
            else None
            if its is None
            else value_of(its, FUNCTIONS.get(key, key))
        )

    first, *rest = words.split()
    total = figure(first)
    for sign, name in zip(rest[::2], rest[1::2], strict=True):
        other = figure(name)
        total = None if total is None or other is None else ARITHMETIC[sign](total, other)
    return total


def conclude(table: Table, out: Path) -> StoredTable:
    (out / table.id).mkdir(exist_ok=True)
    it = table.concluded(out)
    write_json(out / table.id / CONCLUDED, msgspec.to_builtins(it))
    return it


def read_tables(toml: str) -> tuple[Table, ...]:
    """Raises :class:`topologies.structs.Refused`."""
    shared = {
        (name := f"{it.id}/{part.name}"): replace(part, name=name, home=part.home or it.id)
        for it in FIGURES
        for part in it.parts
    }
    tables = []
    for id, keys in tomllib.loads(toml)["table"].items():
        parts = [asdict(shared[part]) if isinstance(part, str) else part for part in keys["parts"]]
        tables.append(
            convert({**keys, "id": id, "parts": parts}, Table, f"tables.toml: table.{id}")
        )
    return tuple(tables)


TABLES = read_tables((Path(__file__).parent / "tables.toml").read_text(encoding="utf-8"))
