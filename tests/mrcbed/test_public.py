"""``import mrcbed``: every name that docs/how/python.md shows is there, is loaded when it is used,
and type checkers see the same names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mrcbed
from testbed.faults.kinds import FaultError


def test_names_resolve_and_type_checkers_see_them() -> None:
    tree = ast.parse(Path(mrcbed.__file__).read_text())
    typed = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    places = {(module, name) for module, names in mrcbed._PLACES.items() for name in names}
    assert (
        typed - {("__future__", "annotations"), ("typing", "TYPE_CHECKING"), ("typing", "Any")}
        == places
    )
    assert all(getattr(mrcbed, name) is not None for name in dir(mrcbed))
    with pytest.raises(AttributeError, match="no attribute 'Klaster'"):
        mrcbed.Klaster  # noqa: B018


def test_the_import_loads_nothing_of_ours() -> None:
    code = (
        "import sys, mrcbed; print([m for m in sys.modules if m.partition('.')[0] in ('agents', "
        "'testbed', 'scenarios', 'topologies')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_a_session_breaks_its_fabric_and_ends_it() -> None:
    cable = "p0-t0-0:p0-t1-0"
    session = mrcbed.Session(
        mrcbed.load_fabric("tiny"), "simulated", faults=[("link", cable, {})], seed=3
    )
    with session.up() as cluster:
        assert len(cluster.agents) == 4 and cluster.link_states()[cable] is False
    assert list(cluster.agents) == []


def test_a_session_that_fails_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops between start and end, here a fault of no kind, leaves nothing running."""
    ended: list[str] = []
    stop = mrcbed.SimulatedCluster.stop
    monkeypatch.setattr(
        mrcbed.SimulatedCluster, "stop", lambda self: (ended.append("stopped"), stop(self))[0]
    )
    session = mrcbed.Session(
        mrcbed.load_fabric("tiny"), "simulated", faults=[("lnk", "p0-t0-0:p0-t1-0", {})]
    )
    with pytest.raises(FaultError, match="lnk"), session.up():
        pass
    assert ended == ["stopped"]
