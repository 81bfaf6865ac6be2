"""Finds keys of scenario and fabric files by what people type: ``workload.steps``, ``fault[0].at``,
``transport.roce.options.qps``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from scenarios.schema.keys import CHOICES, FABRIC, SCENARIO, Key, keys

LISTS = ("transport", "fault", "background", "expect", "workload.flow", "workload.job")
"""An entry of these lists is named by number, name or kind."""
IN_FABRIC = "fabric"  # the word before a key of a fabric file: ``fabric.planes``


def find(words: str) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Return (the keys that ``words`` name, the keys of the table that it names). A key without its
    table is enough if only one table has it, or no dotted key is called so."""
    every = keys()
    exact = [key for key in every if key.file == SCENARIO and _matches(words, key)]
    if words.startswith(f"{IN_FABRIC}."):
        exact += [
            key
            for key in every
            if key.file == FABRIC and key.name == words.removeprefix(f"{IN_FABRIC}.")
        ]
    exact = exact or [key for key in every if key.name == words or key.dotted.endswith(f".{words}")]
    path = words.replace("[0]", "")
    table = [
        key
        for key in every
        if (key.path == path and key.file == SCENARIO and path)
        or (path == IN_FABRIC and key.file == FABRIC)
    ]
    return tuple(exact), tuple(table)


def _matches(words: str, key: Key) -> bool:
    """``words`` may name a list's entry. A kind among them must be one of the key's."""
    parts = re.sub(r"\[([0-9]+)\]", r".\1", words).split(".")
    place = 0
    walked: list[str] = []
    for part in key.dotted.split("."):
        if place < len(parts) and ".".join(walked) in LISTS and parts[place] != part:
            if key.kinds and parts[place] in _every_kind(key) and parts[place] not in key.kinds:
                return False
            place += 1
        if place >= len(parts) or parts[place] != part:
            return False
        place += 1
        walked.append(part)
    return place == len(parts)


def _every_kind(key: Key) -> Iterable[str]:
    return CHOICES.get(key.path) or {
        kind for other in keys(SCENARIO) if other.path == key.path for kind in other.kinds
    }


def nearest_keys(words: str, most: int = 2) -> list[str]:
    """Compare whole names first, then last parts."""
    dotted = list(dict.fromkeys(named(key) for key in keys()))
    last: dict[str, str] = {}
    for name in dotted:
        last.setdefault(name.rpartition(".")[2], name)
    tails = difflib.get_close_matches(words.rpartition(".")[2], last, n=most, cutoff=0.6)
    near = difflib.get_close_matches(words, dotted, n=most, cutoff=0.7) + [
        last[tail] for tail in tails
    ]
    return list(dict.fromkeys(near or difflib.get_close_matches(words, dotted, n=1, cutoff=0.0)))[
        :most
    ]


def named(key: Key) -> str:
    return f"{IN_FABRIC}.{key.name}" if key.file == FABRIC else key.dotted


def example_in_file(key: Key) -> str:
    if key.dotted in LISTS or not key.example:
        return f"[[{key.dotted}]]" if key.dotted in LISTS else f"[{key.dotted}]"
    line = f"{key.name} = {key.example}"
    table, _, inner = key.path.partition(".")
    if not key.path:
        return line
    if key.path in LISTS:
        return f"[[{key.path}]]\n{line}"
    if table in LISTS:
        return f"[[{table}]]\n{inner} = {{ {line} }}"
    return f"[{key.path}]\n{line}"


def example_of_set(key: Key) -> str:
    """Return "" where no --set can give the key."""
    if key.file == FABRIC or not key.example or key.name == "format" or key.dotted in LISTS:
        return ""
    parts: list[str] = []
    for part in key.path.split(".") if key.path else []:
        parts.append(part)
        if ".".join(p for p in parts if p != "0") in LISTS:
            kind = key.kinds[0] if key.kinds and part == "transport" else "0"
            parts.append(kind)
    value = key.example.strip('"') if re.fullmatch(r'"[\w./:-]*"', key.example) else key.example
    quote = "" if re.fullmatch(r"[\w.=:/-]*", value) else "'"
    return f"--set {quote}{'.'.join([*parts, key.name])}={value}{quote}"
