"""Shared by all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from scenarios.run import manifest
from scenarios.run.watch import Watch
from tests.suite.contained import unique


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that only play at measuring do not keep each other off, nor wait for a real
    measurement."""
    monkeypatch.setattr("testbed.machine.exclusive.NAME", unique("mrcbed-test"))


class CalmWatch(Watch):
    """What a run of fakes is watched by: it uses none of the machine, which other tests keep busy
    meanwhile."""

    def stop(self) -> None:
        super().stop()
        self.samples = [(t, min(share, 0.5)) for t, share in self.samples]

    def result(self) -> dict[str, Any]:
        return super().result() | {"gaps": [], "pressure": None}


@pytest.fixture(scope="session", autouse=True)
def calm() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.run.one_run.Watch", CalmWatch)
        yield


@pytest.fixture(scope="session", autouse=True)
def asked_once() -> Iterator[None]:
    """Git and each tool say once what they are, not in the manifest of every run: eight processes
    each."""
    ask, known, root = manifest._output, cache(manifest._output), manifest.ROOT
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            manifest,
            "_output",
            lambda *command: (known if root == manifest.ROOT else ask)(*command),
        )
        yield
