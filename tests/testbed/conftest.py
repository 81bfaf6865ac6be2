"""A crowd of connections to a server of ours."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

ATTACKERS = 1100
"""More than servers take by themselves, and than a process may usually open: without a limit of ours the next waits for ever."""


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    """Sockets that are closed at the end; there may be :data:`ATTACKERS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, ATTACKERS + 1000) if hard != resource.RLIM_INFINITY else ATTACKERS + 1000, hard))
    made: list[socket.socket] = []
    yield made
    for connection in made:
        connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
