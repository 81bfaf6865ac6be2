"""Shared by all tests here."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that only play at measuring do not keep each other off, nor wait for a real measurement."""
    monkeypatch.setattr("testbed.machine.exclusive.NAME", f"mrcbed-test-{os.getpid()}")
