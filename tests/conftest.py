"""For all tests: what hypothesis asks of a machine's speed is not asked here, Ctrl-C works, and
they calibrate for themselves."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from testbed.crowd import MOST_IN_TURNS
from tests.suite.budgets import Plugin

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# as for the command, before anything imports NumPy: tests share the cores already
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A script's background job ignores SIGINT, and so would every process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-budgets",
        action="store_true",
        help="write what each file took into tests/suite/budgets.toml",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config), "budgets")


# thousands of tests are found, and stay: looking for garbage among them took a seventh of that time
# [measured]
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


ATTACKERS = MOST_IN_TURNS + 64
"""More connections than servers keep at once, by more than what else they may have open: without a
limit it would show."""


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    """Sockets that are closed at the end; there may be two times :data:`ATTACKERS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * ATTACKERS + 1000
    resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), hard),
    )
    made: list[socket.socket] = []
    yield made
    for connection in made:
        connection.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def signals_stay() -> Iterator[None]:
    """What a command that a test calls in its own process does with signals ends with the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def calibration_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all workers: what a packet costs beside other tests must not stretch the time of the
    machine's own runs."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(
            "MRCBED_CALIBRATION", str(tmp_path_factory.getbasetemp().parent / "calibration.json")
        )
        yield
