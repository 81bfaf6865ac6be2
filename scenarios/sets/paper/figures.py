"""Every figure of the paper that is reproduced here, in the paper's order: figures.toml, and the function that measures each."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from scenarios.sets.paper import collectives, failures, incast, lossless, nic_ports, one_path, operations, pairs, point_to_point, sizing
from scenarios.sets.paper.claims import Evidence, Found, Statement
from scenarios.sets.paper.figure import HERE, Head, PaperFigure
from scenarios.sets.paper.plots import DRAW
from testbed.errors import UserError
from topologies.structs import Refused, convert, there_are

JUDGES: dict[str, Callable[[Evidence], Mapping[str, Found]]] = {
    "sizing": sizing.sizes,
    "ecmp": operations.ecmp,
    "4": one_path.start_up,
    "planes": operations.thin_plane,
    "operations": operations.operations,
    "5-7": failures.flaps_under_a_job,
    "8": failures.silent_t1,
    "9a": nic_ports.ports,
    "9b": nic_ports.four_of_eight,
    "9c": failures.sequential,
    "9d": failures.flapping,
    "10": failures.dead_t0,
    "11": failures.dead_t1,
    "5.2.1": point_to_point.pair,
    "12": one_path.throughput,
    "13": one_path.activity,
    "14": one_path.balance,
    "15": collectives.send_recv,
    "16": collectives.ring,
    "17": collectives.all_to_all,
    "18": incast.victim,
    "19": pairs.uplinks,
    "20": lossless.permutation,
    "21": lossless.victim,
    "22": lossless.profiles,
}
"""Figure -> what it measures, by statement."""


def read_figures(text: str) -> tuple[PaperFigure, ...]:
    """Read figures.toml. Raises :class:`topologies.structs.Refused` for what it may not say, KeyError for a figure without a function."""
    data = tomllib.loads(text)
    words = data["words"]
    shared = _statements(data["shared"], words, "figures.toml: shared", {})
    figures = []
    for id, table in data["figure"].items():
        where = f"figures.toml: figure.{id}"
        statements = _statements(table.pop("says"), words, f"{where}.says", shared)
        head = convert(_with_words(table, words), Head, where)
        figures.append(PaperFigure(id, head.title, DRAW[head.draw], head.parts, head.note, head.section, statements, JUDGES[id]))
    return tuple(figures)


def _statements(tables: Mapping[str, Any], words: Mapping[str, str], where: str, shared: Mapping[str, Statement]) -> dict[str, Statement]:
    """Read a table of statements, each complete with what it takes from another one."""
    known, own = dict(shared), {}
    for id, table in tables.items():
        it = convert(_with_words(table, words), Statement, f"{where}.{id}")
        if it.like:
            if it.like not in known:
                raise Refused(f"{where}.{id}.like", f"= {it.like!r}: {there_are(it.like, known)}")
            it = replace(known[it.like], **{key: value for key, value in asdict(it).items() if value})
        own[id] = known[id] = replace(it, text=f"{it.who}: {it.text}", who="") if it.who else it
    return own


def _with_words(table: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return the table with ``{word}`` in its texts replaced by the word's text."""
    filled = dict(table)
    for key, value in table.items():
        for word, meaning in words.items() if isinstance(value, str) else ():
            filled[key] = filled[key].replace(f"{{{word}}}", meaning)
    return filled


FIGURES = read_figures((HERE / "figures.toml").read_text(encoding="utf-8"))


def chosen(ids: Sequence[str]) -> list[PaperFigure]:
    """Return the named figures in the paper's order, or all if there are no names. ``9`` means 9a to 9d, ``6`` means 5-7.

    Raises :class:`testbed.errors.UserError`, which names the nearest figure.
    """
    if not ids:
        return list(FIGURES)
    selected: set[str] = set()
    for text in ids:
        id = text.lower().removeprefix("fig").lstrip(" .-")
        matches = [f.id for f in FIGURES if f.id == id or (f.id[:-1] == id and f.id[-1].isalpha()) or id in _range(f.id)]
        if not matches:
            nearest = difflib.get_close_matches(id, JUDGES, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            raise UserError(f"there is no figure {text!r} here: there are {', '.join(JUDGES)}{hint}")
        selected |= set(matches)
    return [f for f in FIGURES if f.id in selected]


def _range(id: str) -> set[str]:
    """``5-7`` -> 5, 6, 7."""
    found = re.fullmatch("([0-9]{1,2})-([0-9]{1,2})", id)
    return {str(n) for n in range(int(found[1]), int(found[2]) + 1)} if found else set()
