"""One application on Ryu or on os-ken: which is chosen, and that both carry every module that the
application uses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.controller import framework
from testbed.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
EVERYTHING = (
    "from testbed.controller import app, ryu_base, ryu_openflow; "
    "print(ryu_base.RyuApp.__module__, ryu_base.hub.HUB_TYPE)"
)


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name in names else None
    )


@pytest.mark.parametrize(
    ("names", "asked", "name"),
    [
        (("ryu", "os_ken"), "", "ryu"),
        (("ryu",), "", "ryu"),
        (("os_ken",), "", "os_ken"),
        (("ryu", "os_ken"), "os_ken", "os_ken"),
    ],
)
def test_ryu_comes_first(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], asked: str, name: str
) -> None:
    installed(monkeypatch, *names)
    monkeypatch.setenv("MRCBED_CONTROLLER", asked)
    assert framework.chosen() == name


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("", "neither Ryu nor os-ken is installed: sudo make install, or pip install os-ken"),
        ("os_ken", "os_ken is not installed"),
        ("onos", "MRCBED_CONTROLLER=onos: it may be ryu or os_ken"),
    ],
)
def test_what_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, asked: str, line: str
) -> None:
    installed(monkeypatch)
    monkeypatch.setenv("MRCBED_CONTROLLER", asked)
    with pytest.raises(UserError, match=line):
        framework.chosen()


@pytest.mark.parametrize("name", framework.FRAMEWORKS)
def test_either_carries_the_application(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    environment = {**os.environ, "MRCBED_CONTROLLER": name}
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [f"{name}.base.app_manager", "eventlet"], done.stderr
