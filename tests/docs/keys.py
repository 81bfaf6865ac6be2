"""Generated pages of docs/reference: every key of a scenario, of a fabric and of results, every kind of fault, every scenario that ships.
``python -m tests.docs.keys`` writes them whole.

Keys come from scenarios/schema/keys.py, as ``mrcbed explain`` and ``mrcbed tools schema`` do, kinds of faults from their classes, scenarios
from their files; tests/docs/test_keys.py compares.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from scenarios.schema.keys import FABRIC, SCENARIO, Key, keys, of_kinds
from scenarios.schema.result_keys import reference
from testbed.faults.keys import Key as FaultKey
from testbed.faults.kinds import KINDS, USED_BY_QP
from tests.docs.check import ROOT

EXPLAINED = {
    SCENARIO: "[scenarios.md](../how/scenarios.md) explains the file",
    FABRIC: "[fabrics.md](../how/fabrics.md) explains the file, and lists the fabrics that ship",
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(head)
    cells = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def row(key: Key) -> tuple[str, ...]:
    kinds = f" ({of_kinds(key)})" if key.kinds else ""
    unit = f" [{key.unit}]" if key.unit else ""
    return f"`{key.dotted}`{kinds}", f"{key.must}{unit}", key.default or "required", key.meaning


def every_key(file: str) -> str:
    """A section for each table of the file; the first is the top of the file."""
    lines = [
        f"# Every key of a {file} file",
        "",
        f"Made by `python -m tests.docs.keys` from `scenarios/schema/keys.py`; {EXPLAINED[file]}. `mrcbed explain KEY` prints a row "
        "with an example. In round brackets: the kinds that have the key. In square brackets: the unit of a number.",
    ]
    for path, group in groupby(keys(file), key=lambda key: key.path):
        lines += ["", f"## {f'`{path}`' if path else 'The file'}", "", *table(("key", "must be", "default", "means"), map(row, group))]
    return "\n".join(lines) + "\n"


def every_fault() -> str:
    places = [key for key in keys(SCENARIO) if (key.path, key.name) == ("fault", "on")]
    on = {kind: key.must + (f", {USED_BY_QP}" if USED_BY_QP in key.meaning else "") for key in places for kind in key.kinds}

    def of(key: FaultKey) -> str:
        return f"`{key.name}`" if key.required else f"[`{key.name}`]"

    rows = ((f"`{name}`", on[name], " ".join(map(of, kind.keys)) or "–", kind.doc) for name, kind in KINDS.items())
    lines = [
        "# Every kind of fault",
        "",
        "Made by `python -m tests.docs.keys` from `testbed/faults/kinds/`; [faults.md](../how/faults.md) says how to use them. "
        "[ ]: the key may be left out. What a key means: [its row](scenarios.md#fault).",
        "",
        *table(("kind", "on", "keys", "what happens"), rows),
    ]
    return "\n".join(lines) + "\n"


def every_scenario() -> str:
    def of(path: Path) -> tuple[str, ...]:
        file = tomllib.loads(path.read_text(encoding="utf-8"))
        fabric, transports = file["fabric"], dict.fromkeys(transport["kind"] for transport in file["transport"])
        return (
            f"`{path.stem}`", " ".join(file["description"].split()), file["workload"]["kind"],
            f"`{fabric}`" if isinstance(fabric, str) else "of its own", ", ".join(transports),
        )  # fmt: skip

    lines = [
        "# The scenarios that ship",
        "",
        "Made by `python -m tests.docs.keys` from the files in `scenarios/`. `mrcbed run NAME` runs one, and `mrcbed check NAME` says what "
        "it would do, how long that takes, and which world can run it. How to write one: [scenarios.md](../how/scenarios.md).",
        "",
        *table(("name", "what happens", "workload", "fabric", "transports"), map(of, sorted((ROOT / "scenarios").glob("*.toml")))),
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "scenarios": lambda: every_key(SCENARIO),
    "fabrics": lambda: every_key(FABRIC),
    "results": reference,
    "faults": every_fault,
    "shipped": every_scenario,
}
"""Page of docs/reference -> its text."""


def path_of(page: str) -> Path:
    return ROOT / "docs" / "reference" / f"{page}.md"


if __name__ == "__main__":
    for page, text in PAGES.items():
        path_of(page).write_text(text(), encoding="utf-8")
