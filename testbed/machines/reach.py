"""Says which machines carry a fabric, and which command reaches one, as ``--on`` and ``--reach``
give them. The command's standard streams lead to ``mrcbed tools machine`` on the other side."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import UserError

REACH = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o "
    "ServerAliveCountMax=3 {host} sudo -n mrcbed tools machine"
)
"""No password, no terminal, and a connection that is lost is noticed."""
REACH_ENV = "MRCBED_REACH"
MOST_MACHINES = 16
"""The data plane takes 64, and nobody has tried more than a few [ours]."""


@dataclass(frozen=True)
class Place:
    name: str
    address: str
    command: tuple[str, ...]


def places(on: str, reach: str = REACH) -> tuple[Place, ...]:
    """Read ``on``, ``HOST[=ADDRESS],...``, and ``reach``, a command with ``{host}``. Raises
    :class:`UserError`."""
    names = [word.strip() for word in on.split(",")]
    hosts = [name.partition("=")[0] for name in names]
    if len(names) < 2 or not all(hosts):
        raise UserError(
            f"--on {on}: name two machines or more, like --on host1,host2 or "
            "host1=10.0.0.1,host2=10.0.0.2"
        )
    if len(names) > MOST_MACHINES:
        raise UserError(
            f"--on {on}: {len(names)} machines, and a fabric takes {MOST_MACHINES} at most: name "
            "fewer"
        )
    if any(host.startswith("-") for host in hosts):  # ssh would take it for an option
        raise UserError(f"--on {on}: a host's name does not begin with '-'")
    if len(set(hosts)) < len(hosts):
        raise UserError(f"--on {on}: a machine is named twice: each carries another part")
    if "{host}" not in reach:
        raise UserError(f"--reach {reach}: it needs {{host}}, where the name of a machine stands")
    try:
        template = shlex.split(reach)
    except ValueError as error:
        raise UserError(f"--reach {reach}: {error}") from None
    found = tuple(
        Place(host, _address(name), tuple(word.replace("{host}", host) for word in template))
        for host, name in zip(hosts, names, strict=True)
    )
    _check_distinct(found)
    return found


def _address(name: str) -> str:
    host, given, address = name.partition("=")
    host = host.rpartition("@")[2]  # of ssh's user@host
    try:
        return str(socket.getaddrinfo(address if given else host, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        fix = f"give an IPv4 address by which the other machines reach it, --on {host}=ADDRESS"
        raise UserError(f"{name}: {error.strerror}: {fix}") from None


def _check_distinct(found: Sequence[Place]) -> None:
    addresses = [place.address for place in found]
    for place in found:
        if addresses.count(place.address) > 1:
            raise UserError(
                f"--on: {place.name} and another machine have the address {place.address}: each "
                "needs its own"
            )
        if place.address.startswith("127."):
            raise UserError(
                f"--on {place.name}: {place.address} is no address for others: give one, --on "
                f"{place.name}=ADDRESS"
            )
