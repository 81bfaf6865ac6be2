"""What the controller is told by whoever starts it: one JSON file, checked here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from topologies import Fabric, FabricError

SOUTHBOUNDS = ("ebpf", "openflow")
KEYS: dict[str, type] = {
    "fabric": dict,
    "ports": dict,
    "netns": str,
    "maps": str,
    "bridges": str,
    "southbound": str,
    "rest_host": str,
    "rest_port": int,
    "token": str,
}
LEAST_TOKEN = 32
"""Characters: 128 bits, if they are hexadecimal digits [ours]."""


@dataclass(frozen=True)
class Config:
    fabric: Fabric
    ports: dict[str, int]
    """Switch port name -> its ifindex in the switches' namespace. Host ports are left out: they live elsewhere."""
    netns: str
    """Path of the switches' network namespace."""
    maps: Path
    """Folder of pinned BPF maps."""
    bridges: Path
    """Folder of Open vSwitch's OpenFlow sockets, <switch>.mgmt each; for southbound "openflow" alone."""
    southbound: str
    rest_host: str
    rest_port: int
    """0 for a free one, told in the ready line."""
    token: str = field(repr=False)
    """Changes through REST need it: the file that holds it must be its owner's alone."""


def load(path: Path) -> Config:
    """Read and check a configuration. Raises UserError, one line, on anything wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"controller: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"controller: {path} is not JSON: {error}") from None
    return from_dict(data)


def from_dict(data: Any) -> Config:
    """A configuration from plain values. Raises UserError."""
    if not isinstance(data, dict):
        raise UserError("controller: the configuration must be a JSON object")
    data = {"bridges": "", **data}
    for key, kind in KEYS.items():
        if not isinstance(data.get(key), kind):
            raise UserError(f"controller: configuration key {key!r} must be there and be of type {kind.__name__}")
    if data["southbound"] not in SOUTHBOUNDS:
        raise UserError(f"controller: no southbound {data['southbound']!r}: there is {', '.join(SOUTHBOUNDS)}")
    if data["rest_host"] not in ("127.0.0.1", "::1"):
        raise UserError(f"controller: the REST view answers on the loopback only, not on {data['rest_host']!r}: use 127.0.0.1")
    if len(data["token"]) < LEAST_TOKEN:
        raise UserError(f"controller: configuration key 'token' must have at least {LEAST_TOKEN} characters: draw them at random")
    try:
        fabric = Fabric.from_dict(data["fabric"])
    except FabricError as error:
        raise UserError(f"controller: {error}") from None
    switches = set(fabric.switches)
    expected = {port.name for port in fabric.ports if port.node in switches}
    given = {str(name): number for name, number in data["ports"].items()}
    for name, number in given.items():
        if not isinstance(number, int) or number <= 0:
            raise UserError(f"controller: port {name!r} has ifindex {number!r}, which is no interface's")
    lacking = sorted(expected - set(given))
    if lacking:
        raise UserError(f"controller: {len(lacking)} switch ports have no ifindex, {lacking[0]!r} among them")
    return Config(
        fabric=fabric,
        ports={name: number for name, number in given.items() if name in expected},
        netns=data["netns"],
        maps=Path(data["maps"]),
        bridges=Path(data["bridges"]),
        southbound=data["southbound"],
        rest_host=data["rest_host"],
        rest_port=data["rest_port"],
        token=data["token"],
    )
