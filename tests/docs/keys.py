"""The tables of keys in docs/how/scenarios.md and docs/how/fabrics.md: ``python -m tests.docs.keys`` writes them between their markers, and
docs/reference/results.md whole.

They come from scenarios/schema/keys.py, as ``mrcbed explain`` and ``mrcbed tools schema`` do; tests/docs/test_keys.py compares.
"""

from __future__ import annotations

import re
from pathlib import Path

from scenarios.schema.keys import FABRIC, SCENARIO, Key, keys, of_kinds
from scenarios.schema.result_keys import reference
from tests.docs.check import ROOT

PAGES = {SCENARIO: ROOT / "docs" / "how" / "scenarios.md", FABRIC: ROOT / "docs" / "how" / "fabrics.md"}
RESULTS = ROOT / "docs" / "reference" / "results.md"
HEAD = ["| key | must be | default | means |", "| --- | --- | --- | --- |"]


def row(key: Key) -> str:
    kinds = f" ({of_kinds(key)})" if key.kinds else ""
    unit = f" [{key.unit}]" if key.unit else ""
    cells = (f"`{key.dotted}`{kinds}", f"{key.must}{unit}", key.default or "required", key.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(file: str) -> str:
    return "\n".join([*HEAD, *map(row, keys(file))])


def with_table(page: str, file: str) -> str:
    """The page with its table as it must be. Raises ValueError if it has no markers."""
    begin, end = (f"<!-- keys of a {file} file: {word} -->" for word in ("begin", "end"))
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"needs one {begin} and one {end}")
    return re.sub(rf"({begin}\n).*?(\n{end})", lambda match: f"{match[1]}{table(file)}{match[2]}", page, flags=re.DOTALL)


def write(page: Path, file: str) -> None:
    page.write_text(with_table(page.read_text(), file))


if __name__ == "__main__":
    for name, path in PAGES.items():
        write(path, name)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(reference(), encoding="utf-8")
