"""Finds what is missing or stale in results/reference, and makes the pages' blocks from it.

A block lies between ``<!-- table: ID -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from scenarios.sets import provenance, speed
from scenarios.sets.paper import page, series
from scenarios.sets.paper.claims import AGREES, CANNOT
from scenarios.sets.paper.figure import PaperFigure
from scenarios.sets.paper.figures import FIGURES
from scenarios.sets.provenance import OLDER, Stamp, asked, begun, world_of
from scenarios.sets.tables.table import CONCLUDED, TABLES, StoredTable, Table, conclude
from testbed.errors import UserError
from testbed.installation import ROOT
from topologies.files import read_json

Item = PaperFigure | Table
ITEMS: tuple[Item, ...] = (*FIGURES, *TABLES)
BLOCK = re.compile(
    r"(?<=<!-- table: )(?P<id>[\w.-]+)(?P<head> -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL
)
CLAIMS, DIFFERING = "claims", "paper"


class Reference:
    """``folder``: results/reference, or a copy; ``pages``: the folder of README.md and docs/."""

    def __init__(self, folder: Path = provenance.REFERENCE, pages: Path = ROOT) -> None:
        self.folder, self.pages = folder, pages
        self.now = provenance.stored(folder)

    def file(self, item: Item) -> Path:
        paper = isinstance(item, PaperFigure)
        return (
            self.folder / "paper" / item.id / series.FIGURE
            if paper
            else self.folder / "tables" / f"{item.id}.json"
        )

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
        else:
            same = [(row["number"], row["claim"]) for row in found["rows"]] == [
                (it.claim, it.text) for it in item.statements.values()
            ]
        return "" if same else "stale: what is asked has changed"

    def unstamped(self) -> list[str]:
        bad, pictures = [], {self.folder / speed.NAME / f"{speed.NAME}.png"}
        for path in sorted(
            (*self.folder.glob("tables/*.json"), *self.folder.glob(f"paper/*/{series.FIGURE}"))
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


def _differing(
    conclusions: list[dict[str, Any]], stamps: Mapping[str, Stamp], older: list[str]
) -> str:
    lines = ["| claim | asked | here | why | figure |", "| --- | --- | --- | --- | --- |"]
    for row in (row for claim in series.by_claim(conclusions) for row in claim["evidence"]):
        if row["verdict"] not in (AGREES, CANNOT):
            words = (
                f"{row['number']}: {row['claim']}",
                row["asked"],
                row["seen"],
                row["why"],
                row["figure"],
            )
            lines.append(f"| {' | '.join(word.replace('|', '/') for word in words)} |")
    commits = dict.fromkeys(
        commit for stamp in stamps.values() for commit in stamp.commit.split(", ")
    )
    dates = sorted(stamp.date for stamp in stamps.values())
    said = f" *Made on an older state*: {', '.join(older)}." if older else ""
    return "\n".join(
        [*lines, "", f"Commits {', '.join(commits)}, {dates[0]} to {dates[-1]}.{said}", ""]
    )


def conclude_any(item: Item, out: Path) -> None:
    if isinstance(item, PaperFigure):
        series.conclude(item, out)
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
