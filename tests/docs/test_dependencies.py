"""What docs/why/dependencies.md says of versions and imports is what is pinned and imported."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "why" / "dependencies.md").read_text(encoding="utf-8")
PINS = dict(
    line.split()[0].lower().split("==")
    for line in (ROOT / "requirements/run.txt").read_text().splitlines()
    if "==" in line
)


def test_every_version_on_the_page_is_the_one_pinned() -> None:
    named = re.findall(r"\b([A-Za-z][\w.-]*) (\d+\.\d+[\w.]*\w)", PAGE.split("## What runs")[0])
    assert {"ryu", "routes", "tinyrpc", "mininet", "eventlet", "webob"} <= {
        name.lower() for name, _ in named
    }
    assert [(name, version) for name, version in named if PINS.get(name.lower()) != version] == []


def test_what_ryu_brings_is_imported_by_the_controller_alone() -> None:
    """Confined there; nowhere else does anything of ours reach it."""
    imports = (
        r"^\s*(?:from|import) "
        r"(ryu|os_ken|eventlet|routes|webob|tinyrpc|netaddr|oslo_config)\b|\bframework\.module\("
    )
    unmaintained = re.compile(imports, re.MULTILINE)
    found = {
        str(path.relative_to(ROOT))
        for room in ("agents", "mrcbed", "testbed", "scenarios", "topologies")
        for path in (ROOT / room).rglob("*.py")
        if unmaintained.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"testbed/controller/ryu_base.py", "testbed/controller/ryu_openflow.py"}


def test_mininet_is_imported_by_the_emulated_world_alone() -> None:
    rooms = ("agents", "mrcbed", "testbed", "scenarios", "topologies")
    found = [
        path
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"^\s*(from|import) mininet\b", path.read_text(), re.M)
    ]
    assert found and {path.parent.name for path in found} == {"emulated"}
