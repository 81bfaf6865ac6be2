"""Limits of time on machines of several speeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.errors import UserError
from testbed.machine import slowness


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(slowness.PATIENCE, raising=False)
    slowness.slowness.cache_clear()
    yield
    slowness.slowness.cache_clear()


@pytest.mark.parametrize(
    ("rounds", "factor", "words"),
    [
        ((0.5, 0.5, 0.5), 1.0, ""),  # quicker than ordinary: limits stay
        ((1.5, 1.5, 1.5), 1.5, ""),
        ((3.0, 90.0, 1.0), 3.0, "3 times slower"),  # a round that was pushed aside does not count
        ((900.0, 900.0, 900.0), slowness.MOST, "50 times slower"),
    ],
)
def test_limits_follow_the_machine(
    monkeypatch: pytest.MonkeyPatch, rounds: tuple[float, ...], factor: float, words: str
) -> None:
    took = iter(rounds)
    monkeypatch.setattr(slowness, "_round_s", lambda: next(took) * slowness.USUAL_S)
    assert slowness.patient(20.0) == pytest.approx(20.0 * factor)
    assert words in slowness.remark() and bool(words) == bool(slowness.remark())


def test_this_machine_is_measured_once() -> None:
    assert (
        slowness.slowness() is slowness.slowness() and 1.0 <= slowness.slowness() <= slowness.MOST
    )


@pytest.mark.parametrize(("asked", "factor"), [("", 1.5), ("1.2", 1.5), ("5", 5.0), ("50", 50.0)])
def test_what_yields_waits_longer(
    monkeypatch: pytest.MonkeyPatch, asked: str, factor: float
) -> None:
    monkeypatch.setattr(slowness, "_round_s", lambda: 1.5 * slowness.USUAL_S)
    monkeypatch.setenv(slowness.PATIENCE, asked)
    assert slowness.patient(20.0) == pytest.approx(20.0 * factor)


@pytest.mark.parametrize("asked", ["much", "0.5", "51", "nan", "-1"])
def test_a_patience_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(slowness.PATIENCE, asked)
    with pytest.raises(
        UserError, match=f"^MRCBED_PATIENCE={asked}: give a factor of 1 to 50, or drop it$"
    ):
        slowness.patient(20.0)
