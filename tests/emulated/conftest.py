"""Root-and-kernel tests. Those marked ``sandbox`` run through `python -m testbed.machine.sandbox --
pytest tests/emulated`, as `make test` does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from testbed.emulated.cluster import Cluster
from testbed.machine import sandbox
from testbed.machine.awake import kept_awake
from tests.emulated.ring import PATIENCE_S
from topologies import load_fabric
from topologies.fabrics import DILATION


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sandbox: builds a fabric; needs root and the sandbox")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        reason = "needs root: sudo make test"
    elif not sandbox.inside():
        reason = "needs the sandbox: python -m testbed.machine.sandbox -- pytest tests/emulated"
    else:
        return
    for item in items:
        if item.get_closest_marker("sandbox"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of all that tests start lie with the tests' own, which pytest removes in the
    end: who is killed cannot."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        environment.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def awake() -> Iterator[None]:
    """What a run has, tests have too: cores that do not halt."""
    with kept_awake():
        yield


@pytest.fixture(scope="module")
def tiny() -> Iterator[Cluster]:
    """A `tiny` fabric with its tables, without controller and agents; one for all tests of a
    module, which leave it whole."""
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slow() -> Iterator[Cluster]:
    """`tiny` at 1 Mb/s: a full packet takes 33 ms, so queues stand still while a test looks."""
    with Cluster(
        load_fabric("tiny").with_(nic_rate=10**10, fabric_rate=10**10),
        dilation=DILATION,
        controller=False,
    ) as cluster:
        yield cluster


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose process was killed lets the test look, however slowly, before it ends this
    process."""
    monkeypatch.setattr("testbed.emulated.cluster.NOTICE_S", 2 * PATIENCE_S)
    monkeypatch.setattr("testbed.emulated.cluster.FORCE_S", 3 * PATIENCE_S)
