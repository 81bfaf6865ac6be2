"""The controller's configuration: one JSON file from the process that starts it, checked here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from agents.clock import WallClock
from testbed.errors import UserError
from topologies import Fabric
from topologies.structs import Refused, convert, one_of, text

SOUTHBOUNDS = ("ebpf", "openflow")
LEAST_TOKEN = 32


class Time(Struct, frozen=True, forbid_unknown_fields=True):
    dilation: Annotated[float, Meta(gt=0.0)]
    origin: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]

    def clock(self) -> WallClock:
        return WallClock(self.dilation, self.origin)


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fabric: Fabric
    clock: Time
    ports: dict[str, Any]
    """Switch port -> ifindex; host ports are in other namespaces."""
    netns: str
    maps: Path
    bridges: Path = Path()
    southbound: Annotated[str, one_of(SOUTHBOUNDS)]
    rest_host: Annotated[
        str,
        text(r"127\.0\.0\.1|::1", "127.0.0.1 or ::1: the REST view answers on the loopback only"),
    ]
    rest_port: Annotated[int, Meta(ge=0, le=65535)]
    """With 0 it takes a free port, which the ready line contains."""
    token: str
    """Changes through REST need the token: only the owner may read this file."""

    def __post_init__(self) -> None:
        if len(self.token) < LEAST_TOKEN:
            raise Refused(
                "token", f"must have at least {LEAST_TOKEN} characters: draw them at random"
            )
        for name, number in self.ports.items():
            if type(number) is not int or number <= 0:
                raise Refused(f"ports.{name}", f"= {number!r} is no interface's index")
        switches = set(self.fabric.switches)
        switch_ports = [port.name for port in self.fabric.ports if port.node in switches]
        lacking = sorted(name for name in switch_ports if name not in self.ports)
        if lacking:
            raise Refused(
                "ports",
                f"lacks the ifindex of {len(lacking)} switch ports, {lacking[0]!r} among them",
            )
        force_setattr(
            self,
            "ports",
            {name: self.ports[name] for name in self.ports if name in set(switch_ports)},
        )

    def __repr__(self) -> str:
        return (
            f"Config({self.fabric.name!r}, {self.southbound!r}, {self.rest_host!r}, "
            f"{self.rest_port!r})"
        )


def load(path: Path) -> Config:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"controller: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"controller: {path} is not JSON: {error}") from None
    return from_dict(data)


def from_dict(data: Any) -> Config:
    try:
        return convert(data, Config)
    except Refused as error:
        raise UserError(f"controller: configuration: {error}") from None
