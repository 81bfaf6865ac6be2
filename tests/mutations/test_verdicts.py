"""What the mutation check makes of what pytest says; the tests themselves are not run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutations import __main__ as check
from tests.mutations.catalogue import Mutation

BUG = Mutation("a slip", "agents/x.py", (("x = 1", "x = 2"),), ("tests/agents/first.py",))
CAUGHT = "tests/agents/first.py::test_x[a - b]"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """What was run: (the source at that moment, the tests)."""
    seen: list[tuple[str, tuple[str, ...]]] = []

    def copied(to: Path) -> None:
        (to / "agents").mkdir()
        (to / "agents/x.py").write_text("x = 1\n")

    monkeypatch.setattr(check, "copy_tree", copied)
    return seen


def play(monkeypatch: pytest.MonkeyPatch, told: list[Any], *said: tuple[int, str]) -> check.Verdict:
    answers = iter(said)

    def run(tree: Path, what: Any) -> tuple[int, str, str]:
        told.append(((tree / "agents/x.py").read_text(), tuple(what)))
        status, failed = next(answers)
        return status, failed, "1 error"

    monkeypatch.setattr(check, "run_tests", run)
    return check.try_one(BUG)


def test_the_first_test_that_fails_must_pass_without_the_bug(
    monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    assert play(monkeypatch, told, (1, CAUGHT), (0, "")).caught_by == CAUGHT
    assert told == [("x = 2\n", BUG.first), ("x = 1\n", (CAUGHT,))]
    assert "fails without the bug" in play(monkeypatch, told, (1, CAUGHT), (1, CAUGHT)).trouble


def test_all_others_are_asked_before_a_bug_survives(
    monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    verdict = play(monkeypatch, told, (0, ""), (0, ""))
    assert (verdict.caught_by, verdict.trouble) == ("", "") and [what for _, what in told] == [
        BUG.first,
        check.ALL,
    ]
    assert play(monkeypatch, told, (0, ""), (1, CAUGHT), (0, "")).caught_by == CAUGHT


@pytest.mark.parametrize("status", [2, 3, 4, 5])
def test_a_tree_that_cannot_be_tested_catches_nothing(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], status: int
) -> None:
    verdict = play(monkeypatch, told, (status, ""))
    assert not verdict.caught_by and f"exit status {status}): 1 error" in verdict.trouble


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (check.Verdict(BUG, CAUGHT), 0),
        (check.Verdict(BUG), 1),
        (check.Verdict(BUG, trouble="it is gone"), 2),
    ],
)
def test_survivors_and_trouble_are_exit_statuses(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verdict: check.Verdict,
    status: int,
) -> None:
    monkeypatch.setattr(check, "MUTATIONS", (BUG,))
    monkeypatch.setattr(check, "try_one", lambda mutation: verdict)
    assert check.main(["--jobs", "1"]) == status
    said = capsys.readouterr().out
    assert (
        (CAUGHT in said) == (status == 0)
        and ("SURVIVES" in said) == (status == 1)
        and "a slip" in said
    )
    assert (
        f"{int(status == 0)} caught, {int(status == 1)} survive, {int(status == 2)} not tried"
        in said
    )


def test_names_with_blanks_are_read_whole() -> None:
    assert check._failed(
        f"..F\nFAILED {CAUGHT.replace(' - ', ' ')} - assert 1 == 2\n1 failed\n"
    ) == [CAUGHT.replace(" - ", " ")]


def test_what_cannot_be_asked_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        check.main(["nothing of the kind"])
    assert left.value.code == 2 and "no bug is called so" in capsys.readouterr().err
