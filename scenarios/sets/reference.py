"""Finds what is missing or stale in results/reference, and makes the pages' blocks from it.

A block lies between ``<!-- table: ID -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from scenarios.run.resume import write_json
from scenarios.sets import provenance, speed
from scenarios.sets.paper import page, series
from scenarios.sets.paper.claims import AGREES, CANNOT
from scenarios.sets.paper.figure import PaperFigure, Part
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.provenance import OLDER, Stamp, asked, begun, world_of
from scenarios.sets.series import Form
from scenarios.sets.tables.table import CONCLUDED, TABLES, StoredTable, Table, conclude
from scenarios.sets.validation import concluding
from scenarios.sets.validation import page as validation
from scenarios.sets.validation.agreement import AGREES as SAME
from scenarios.sets.validation.cases import CASES, SEEDS, Case
from testbed.errors import UserError
from testbed.installation import ROOT
from testbed.results.reading import read
from testbed.results.summary import Summary
from topologies.files import read_json

VALIDATION = "validation"
BLOCK = re.compile(
    r"(?<=<!-- table: )(?P<id>[\w.-]+)(?P<head> -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL
)
CLAIMS, DIFFERING = "claims", "paper"


@dataclass(frozen=True)
class Validated:
    """A case of ``mrcbed validate``; some tables have the ids of cases."""

    case: Case

    @property
    def id(self) -> str:
        return f"validate-{self.case.id}"

    @property
    def title(self) -> str:
        return self.case.title

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.case.parts

    def directory(self, part: Part, out: Path) -> Path:
        return self.case.directory(part, out / VALIDATION)

    def conclude(self, out: Path) -> None:
        found = concluding.conclude(self.case, out / VALIDATION, Form())
        runs = {
            part.name: read(self.directory(part, out) / "summary.json", Summary).runs
            for part in self.parts
        }
        stamp = msgspec.to_builtins(provenance.stamp(self, out, runs))
        write_json(self.concluded(out), {**found, "stamp": stamp})

    def concluded(self, out: Path) -> Path:
        return out / VALIDATION / self.case.id / concluding.CASE


Item = PaperFigure | Table | Validated
ITEMS: tuple[Item, ...] = (*FIGURES, *TABLES, *map(Validated, CASES))


class Reference:
    """``folder``: results/reference, or a copy; ``pages``: the folder of README.md and docs/."""

    def __init__(self, folder: Path = provenance.REFERENCE, pages: Path = ROOT) -> None:
        self.folder, self.pages = folder, pages
        self.now = provenance.stored(folder)

    def file(self, item: Item) -> Path:
        if isinstance(item, PaperFigure):
            return self.folder / "paper" / item.id / series.FIGURE
        if isinstance(item, Validated):
            return self.folder / VALIDATION / f"{item.case.id}.json"
        return self.folder / "tables" / f"{item.id}.json"

    # --- what is stored ---------------------------------------------------------------------------

    def state(self, item: Item) -> str:
        if not self.file(item).is_file():
            return "missing"
        found = read_json(self.file(item), dict[str, Any])
        if not found.get("stamp"):
            return "unstamped"
        stamp = msgspec.convert(found["stamp"], Stamp)
        for part in item.parts:
            it, scenario = stamp.parts.get(part.name), part.load()
            world = world_of(part, scenario)
            if it is None or not it.fingerprint:
                return "stale: of an older state"
            if (it.world, it.scenario, it.seeds) != (
                world,
                asked(scenario),
                tuple(sorted(scenario.seeds)),
            ):
                return f"stale: {part.name} was run as another scenario"
            if it.fingerprint != self.now[world]:
                return f"stale: the {world} world has changed since {stamp.date}"
        if isinstance(item, Table):
            same = found["declared"] == item.declared
        elif isinstance(item, Validated):
            same = found["title"] == item.title
        else:
            same = [(row["number"], row["claim"]) for row in found["rows"]] == [
                (it.claim, it.text) for it in item.statements.values()
            ]
        return "" if same else "stale: what is asked has changed"

    def unstamped(self) -> list[str]:
        bad, pictures = [], {self.folder / speed.NAME / f"{speed.NAME}.png"}
        for path in sorted(
            path
            for pattern in ("tables/*.json", f"{VALIDATION}/*.json", f"paper/*/{series.FIGURE}")
            for path in self.folder.glob(pattern)
        ):
            found = read_json(path, dict[str, Any])
            if not found.get("stamp"):
                bad.append(str(path.relative_to(self.folder)))
                continue
            pictures |= {self.folder / name for name in found.get("files", ())}
            pictures |= {self.folder / "paper" / name for name in found.get("plots", ())}
        return bad + [
            str(path.relative_to(self.folder))
            for path in sorted(self.folder.rglob("*.png"))
            if path not in pictures
        ]

    def keep(self, item: Item, work: Path) -> None:
        target, source = self.file(item), work / item.id
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(item, PaperFigure):
            for old in target.parent.glob("*.png"):
                old.unlink()
            for picture in source.glob("*.png"):
                shutil.copyfile(picture, target.parent / picture.name)
            shutil.copyfile(source / series.FIGURE, target)
            page.write_page(self.folder / "paper")
        elif isinstance(item, Validated):
            shutil.copyfile(item.concluded(work), target)
        else:
            for name, path in item.files.items():
                shutil.copyfile(work / path, self.folder / name)
            shutil.copyfile(source / CONCLUDED, target)

    # --- pages ------------------------------------------------------------------------------------

    def paths(self) -> list[Path]:
        return [
            path
            for path in (self.pages / "README.md", *sorted((self.pages / "docs").rglob("*.md")))
            if "<!-- table: " in path.read_text()
        ]

    def block(self, id: str) -> str | None:
        """Return None if the table is not stored yet. Raises :class:`UserError` for an unknown
        id."""
        if id in (CLAIMS, DIFFERING):
            conclusions = series.concluded(self.folder / "paper")
            stamps = {
                figure["id"]: msgspec.convert(figure["stamp"], Stamp) for figure in conclusions
            }
            older = [figure.id for figure in FIGURES if figure.id in stamps and self.state(figure)]
            return (
                f"{page.summary_line(conclusions)}{f', {OLDER}' if older else ''}.\n"
                if id == CLAIMS
                else _differing(conclusions, stamps, older)
            )
        if id == VALIDATION:
            stored = {item: self.file(item) for item in ITEMS if isinstance(item, Validated)}
            if not all(path.is_file() for path in stored.values()):
                return None
            older = [item.case.id for item in stored if self.state(item)]
            return _compared([read_json(path, dict[str, Any]) for path in stored.values()], older)
        if id == speed.NAME:
            path = self.folder / speed.NAME / f"{id}.json"
            return read_json(path, speed.Bench).markdown() + "\n" if path.is_file() else None
        table = next((table for table in TABLES if table.id == id), None)
        if table is None:
            raise UserError(
                f"there is no table {id!r}: tables.toml has "
                f"{', '.join(table.id for table in TABLES)}"
            )
        if not (path := self.file(table)).is_file():
            return None
        return read_json(path, StoredTable).markdown(older=self.state(table) != "") + "\n"

    def rewritten(self) -> Iterator[tuple[Path, str]]:
        for path in self.paths():

            def filled(found: re.Match[str]) -> str:
                body = self.block(found["id"])
                return found[0] if body is None else f"{found['id']}{found['head']}{body}\n"

            text = path.read_text(encoding="utf-8")
            if (must := BLOCK.sub(filled, text)) != text:
                yield path, must

    def write_pages(self) -> None:
        for path, text in self.rewritten():
            path.write_text(text, encoding="utf-8")


def _compared(cases: Sequence[Mapping[str, Any]], older: Sequence[str]) -> str:
    """Return the first figure of each case and setting, and all that do not simply agree."""
    columns, rows = validation.COLUMNS, list[list[str]]()
    for case in cases:
        places: set[str] = set()
        for row in case["rows"]:
            place = validation.place(case, row)
            if place in places and row["verdict"] == SAME:
                continue
            places.add(place)
            values = (validation.format_value(row.get(column), row["unit"]) for column in columns)
            rows.append([place, row["title"], *values, row["verdict"]])
    doubtful = sum(world["not_trustworthy"] for case in cases for world in case["worlds"].values())
    runs = sum(world["runs"] for case in cases for world in case["worlds"].values())
    said = (
        f"{validation.summary_line(cases)}. {doubtful} of {runs} runs, with seeds "
        f"{SEEDS[0]} to {SEEDS[-1]}, are not trustworthy."
    )
    stamps = [msgspec.convert(case["stamp"], Stamp) for case in cases]
    heads = ["case", "figure", *columns, ""]
    return "\n".join([*_table(heads, rows), "", f"{said} {_made(stamps, older)}", ""])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = (heads, ["---"] * len(heads), *rows)
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def _made(stamps: Sequence[Stamp], older: Sequence[str]) -> str:
    commits = dict.fromkeys(commit for stamp in stamps for commit in stamp.commit.split(", "))
    dates = sorted({stamp.date for stamp in stamps})
    said = f" *Made on an older state*: {', '.join(older)}." if older else ""
    return (
        f"Commits {', '.join(commits)}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}.{said}"
    )


def _differing(
    conclusions: list[dict[str, Any]], stamps: Mapping[str, Stamp], older: list[str]
) -> str:
    rows = [
        [
            f"{row['number']}: {row['claim']}",
            *(row[key] for key in ("asked", "seen", "why", "figure")),
        ]
        for claim in series.by_claim(conclusions)
        for row in claim["evidence"]
        if row["verdict"] not in (AGREES, CANNOT)
    ]
    heads = ("claim", "asked", "here", "why", "figure")
    return "\n".join([*_table(heads, rows), "", _made([*stamps.values()], older), ""])


def conclude_any(item: Item, out: Path) -> None:
    if isinstance(item, PaperFigure):
        series.conclude(item, out)
    elif isinstance(item, Validated):
        item.conclude(out)
    elif all((item.directory(part, out) / "summary.json").is_file() for part in item.parts):
        conclude(item, out)


def discard_stale(item: Item, work: Path, now: Mapping[str, str]) -> None:
    for part in item.parts:
        directory, scenario = item.directory(part, work), part.load()
        found = begun(directory, "")
        if directory.exists() and (found.scenario, found.fingerprint) != (
            asked(scenario),
            now[world_of(part, scenario)],
        ):
            shutil.rmtree(directory)


def chosen(ids: tuple[str, ...], world: str = "") -> list[Item]:
    """``world``: only items of it alone. Raises :class:`UserError`."""
    known = {item.id: item for item in ITEMS}
    for id in ids:
        if id not in known:
            raise UserError(f"there is no figure or table {id!r}: there are {', '.join(known)}")
    found = [known[id] for id in ids] or list(ITEMS)
    return [
        item
        for item in found
        if not world or all(world_of(part, part.load()) == world for part in item.parts)
    ]
