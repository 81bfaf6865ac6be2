"""Reads figures.toml, the paper's reproduced figures in its order."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from scenarios.sets.paper.figure import HERE, PaperFigure
from scenarios.sets.paper.statement import Statement
from testbed.errors import UserError
from topologies.structs import Refused, convert, there_are


def read_figures(text: str) -> tuple[PaperFigure, ...]:
    """Raises :class:`topologies.structs.Refused`."""
    data = tomllib.loads(text)
    words = data["words"]
    shared = _statements(data["shared"], words, "figures.toml: shared", {})
    figures = []
    for id, table in data["figure"].items():
        where = f"figures.toml: figure.{id}"
        statements = _statements(table.pop("says"), words, f"{where}.says", shared)
        figures.append(
            replace(
                convert({**_with_words(table, words), "id": id}, PaperFigure, where),
                statements=statements,
            )
        )
    return tuple(figures)


def _statements(
    tables: Mapping[str, Any], words: Mapping[str, str], where: str, shared: Mapping[str, Statement]
) -> dict[str, Statement]:
    known, own = dict(shared), {}
    for id, table in tables.items():
        it = convert(_with_words(table, words), Statement, f"{where}.{id}")
        if it.like:
            if it.like not in known:
                raise Refused(f"{where}.{id}.like", f"= {it.like!r}: {there_are(it.like, known)}")
            base = known[it.like]
            own_keys = {
                key: value for key, value in asdict(it).items() if value and key != "numbers"
            }
            it = replace(base, **own_keys, numbers={**base.numbers, **it.numbers})
        own[id] = known[id] = replace(it, text=f"{it.who}: {it.text}", who="") if it.who else it
    return own


def _with_words(table: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    filled = dict(table)
    for key, value in table.items():
        for word, meaning in words.items() if isinstance(value, str) else ():
            filled[key] = filled[key].replace(f"{{{word}}}", meaning)
    return filled


FIGURES = read_figures((HERE / "figures.toml").read_text(encoding="utf-8"))


def chosen(ids: Sequence[str]) -> list[PaperFigure]:
    """Return the named figures in the paper's order; without names all. ``9`` means 9a to 9d, ``6``
    means 5-7.

    Raises :class:`testbed.errors.UserError`, which names the nearest figure.
    """
    if not ids:
        return list(FIGURES)
    ids_of_all = [figure.id for figure in FIGURES]
    selected: set[str] = set()
    for text in ids:
        id = text.lower().removeprefix("fig").lstrip(" .-")
        matches = [
            f.id
            for f in FIGURES
            if f.id == id or (f.id[:-1] == id and f.id[-1].isalpha()) or id in _range(f.id)
        ]
        if not matches:
            nearest = difflib.get_close_matches(id, ids_of_all, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            raise UserError(
                f"there is no figure {text!r} here: there are {', '.join(ids_of_all)}{hint}"
            )
        selected |= set(matches)
    return [f for f in FIGURES if f.id in selected]


def _range(id: str) -> set[str]:
    """``5-7`` -> 5, 6, 7."""
    found = re.fullmatch("([0-9]{1,2})-([0-9]{1,2})", id)
    return {str(n) for n in range(int(found[1]), int(found[2]) + 1)} if found else set()
