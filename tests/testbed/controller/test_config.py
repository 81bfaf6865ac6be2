"""A wrong configuration is one line, never a traceback."""

from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from testbed.controller.config import from_dict, load
from testbed.errors import UserError
from topologies import load_fabric

TINY = load_fabric("tiny")
GOOD: dict[str, Any] = {
    "fabric": TINY.to_dict(),
    "clock": WallClock(12_500.0, 5).to_dict(),
    "ports": {port.name: 1000 + port.number for port in TINY.ports},
    "netns": "/proc/self/ns/net",
    "maps": "/sys/fs/bpf/mrcbed",
    "southbound": "ebpf",
    "rest_host": "127.0.0.1",
    "rest_port": 0,
    "token": "0123456789abcdef" * 2,
}


def test_host_ports_are_left_out() -> None:
    config = from_dict(GOOD)
    assert config.fabric == TINY and config.clock.clock().to_dict() == GOOD["clock"]
    assert "h0-p0" not in config.ports
    assert config.ports["p0-t0-0-d0"] > 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"netns": None}, "netns = None must be text"),
        ({"rest_port": "80"}, "rest_port = '80' must be a whole number"),
        (
            {"rest_host": "0.0.0.0"},
            "rest_host = '0.0.0.0' must be 127.0.0.1 or ::1: .* loopback only",
        ),
        ({"token": None}, "token = None must be text"),
        ({"token": ""}, "at least 32 characters"),
        ({"netsn": "x"}, "netsn is not a key: did you mean 'netns'"),
        ({"maps": 3}, "maps = 3 "),
        ({"southbound": "smoke"}, "southbound = 'smoke': there are ebpf, openflow"),
        ({"fabric": {"name": "x"}}, "fabric.planes is missing"),
        ({"clock": {"dilation": 0.0, "origin": 5}}, "clock.dilation = 0.0"),
        ({"clock": {"dilation": 1.0}}, "clock.origin is missing"),
        ({"ports": {}}, "ports lacks the ifindex of 24 switch ports"),
        ({"ports": {**GOOD["ports"], "p0-t0-0-d0": "x"}}, "ports.p0-t0-0-d0 = 'x' is no interface"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        from_dict({**GOOD, **change})
    assert "\n" not in str(error.value)


def test_its_token_is_not_shown() -> None:
    assert GOOD["token"] not in repr(from_dict(GOOD))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        load(tmp_path / "bad.json")
