"""Faults on `tiny`, for the tests of this room and of testbed/faults/kinds."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.faults.kinds import resolve
from testbed.faults.targets import Target
from topologies import load_fabric

TINY = load_fabric("tiny")


def tiny(kind: str, on: str, run_seed: int = 0, **keys: Any) -> Target:
    return resolve(TINY, kind, on, keys, run_seed)


def refused(error: type[Exception], kind: str, on: str, message: str, **keys: Any) -> None:
    """The fault cannot be, and one line says why."""
    with pytest.raises(error, match=message) as caught:
        tiny(kind, on, **keys)
    assert "\n" not in str(caught.value)


def port(number: int) -> str:
    return TINY.ports[number].name
