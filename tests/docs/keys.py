"""The pages of every key, docs/reference/scenarios.md, fabrics.md and results.md: ``python -m tests.docs.keys`` writes them whole.

They come from scenarios/schema/keys.py, as ``mrcbed explain`` and ``mrcbed tools schema`` do; tests/docs/test_keys.py compares.
"""

from __future__ import annotations

from itertools import groupby

from scenarios.schema.keys import FABRIC, FILES, SCENARIO, Key, keys, of_kinds
from scenarios.schema.result_keys import reference
from tests.docs.check import ROOT

REFERENCE = ROOT / "docs" / "reference"
PAGES = {file: REFERENCE / f"{file}s.md" for file in FILES}
RESULTS = REFERENCE / "results.md"
EXPLAINED = {
    SCENARIO: "[scenarios.md](../how/scenarios.md) explains the file",
    FABRIC: "[fabrics.md](../how/fabrics.md) explains the file, and lists the fabrics that ship",
}
HEAD = ["| key | must be | default | means |", "| --- | --- | --- | --- |"]


def row(key: Key) -> str:
    kinds = f" ({of_kinds(key)})" if key.kinds else ""
    unit = f" [{key.unit}]" if key.unit else ""
    cells = (f"`{key.dotted}`{kinds}", f"{key.must}{unit}", key.default or "required", key.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page(file: str) -> str:
    """A section for each table of the file; the first is the top of the file."""
    lines = [
        f"# Every key of a {file} file",
        "",
        f"Made by `python -m tests.docs.keys` from `scenarios/schema/keys.py`; {EXPLAINED[file]}. `mrcbed explain KEY` prints a row "
        "with an example. In round brackets: the kinds that have the key. In square brackets: the unit of a number.",
    ]
    for path, group in groupby(keys(file), key=lambda key: key.path):
        lines += ["", f"## {f'`{path}`' if path else 'The file'}", "", *HEAD, *map(row, group)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, path in PAGES.items():
        path.write_text(page(name), encoding="utf-8")
    RESULTS.write_text(reference(), encoding="utf-8")
