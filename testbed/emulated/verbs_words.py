"""What a program of RDMA verbs gets on its host: its arguments filled in, the library, and
variables that name the device."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from testbed.emulated.management import NAME
from testbed.errors import UserError
from topologies.addressing import management_address

DEVICE = "mrcbed0"
PYTHON = "/usr/bin/python3"
WORDS = ("rank", "host", "address", "peer", "server")
_WORD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_LISTENS = "0A"


def check_words(arguments: Sequence[str]) -> None:
    for argument in arguments:
        for found in _WORD.finditer(argument):
            if found[1] is not None and found[1] not in WORDS:
                known = ", ".join(f"{{{word}}}" for word in WORDS)
                raise UserError(
                    f"{argument}: {found[0]} is no word that is filled in: there are {known}; "
                    "{{ is a brace"
                )


def awaits_server(arguments: Sequence[str]) -> bool:
    return any(found[1] == "server" for argument in arguments for found in _WORD.finditer(argument))


def filled(arguments: Sequence[str], rank: int, hosts: Sequence[int]) -> list[str]:
    """``hosts`` in rank order. Rank 0, the server, gets no argument with {server} in it."""
    values = {
        "rank": str(rank),
        "host": f"h{hosts[rank]}",
        "address": management_address(hosts[rank]),
        "peer": management_address(hosts[(rank + 1) % len(hosts)]),
        "server": management_address(hosts[0]),
    }
    kept = [argument for argument in arguments if rank or not awaits_server([argument])]
    return [
        _WORD.sub(lambda found: found[0][0] if found[1] is None else values[found[1]], argument)
        for argument in kept
    ]


def of_host(host: int, dilation: float) -> dict[str, str]:
    return {
        "MRCBED_DILATION": f"{dilation:.12g}",
        "MRCBED_HOST": f"h{host}",
        "MRCBED_ADDRESS": management_address(host),
    }


def of_rank(rank: int, hosts: Sequence[int]) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": "0",
        "MRCBED_ADDRESSES": ",".join(map(management_address, hosts)),
        "MASTER_ADDR": management_address(hosts[0]),
    }


def of_device(library: Path) -> dict[str, str]:
    return {
        "NCCL_IB_HCA": DEVICE,
        "NCCL_IBVERBS_LIB": str(library),
        "NCCL_SOCKET_IFNAME": NAME,
        "UCX_NET_DEVICES": f"{DEVICE}:1",
    }


def preloading(library: Path) -> list[str]:
    """Return words that load the library into the program after them. Raises :class:`UserError` for
    a path that the loader does not take."""
    if re.search(r"[\s:]", str(library)):
        raise UserError(
            f"{library}: the loader takes no path with a space or colon for LD_PRELOAD: move the "
            "project elsewhere"
        )
    return [
        "env",
        "LD_PRELOAD=" + ":".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")])),
    ]


def listens(process: int) -> bool:
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        if any(row.split()[3] == _LISTENS for row in rows):
            return True
    return False
