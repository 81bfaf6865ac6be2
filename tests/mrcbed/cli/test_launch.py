"""What ``mrcbed launch`` refuses before it builds anything: words, worlds and transports of
--verbs, times and commands of --at."""

from __future__ import annotations

import pytest

from testbed.errors import UserError
from tests.mrcbed.cli.conftest import Said


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.verbs.build.library", lambda: None)


LAUNCH = ("launch", "--fabric", "tiny")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--verbs", "--world", "simulated", "--", "sh"),
            "--verbs needs processes on a kernel, and the simulated world has none",
        ),
        (
            ("--verbs", "-t", "tcp", "--", "sh"),
            "--verbs needs a NIC, and tcp is a kernel's: use --transport mrc or roce",
        ),
        (
            ("--verbs", "--", "sh", "{servers}"),
            "{servers} is no word that is filled in: there are {rank}, {host}",
        ),
        (
            ("--verbs", "--", "no-such-program"),
            "no-such-program: no such command, and no Python file (.py)",
        ),
        (("--verbs", "--", "none.py"), "none.py: there is no such file"),
        (
            ("--at", "1s break p0-t1-0", "--world", "simulated", "--", "sh"),
            "a time of the wall, of which the simulated world has none",
        ),
        (
            ("--at", "2 break p0-t1-0", "--", "sh"),
            "write 'TIME COMMAND', like '2s break p0-t1-0'; the commands: break, mend, fault, heal",
        ),
        (("--at", "2s deny p0", "--", "sh"), "the commands: break, mend, fault, heal"),
        (("--at", "2s breaks p0", "--", "sh"), "the commands: break, mend, fault, heal"),
        (("--at", "2s", "--", "sh"), "write 'TIME COMMAND'"),
        (
            ("--at", "2s break p0-t9-0", "--", "sh"),
            "--at '2s break p0-t9-0': fabric 'tiny' has no switch 'p0-t9-0'; near it:",
        ),
        (
            ("--at", "2s mend p0-t0-0:p0-t1-9", "--", "sh"),
            "fabric 'tiny' has no link 'p0-t0-0:p0-t1-9'; near it:",
        ),
        (("--at", "2s break", "--", "sh"), "usage: break LINK or SWITCH"),
        (("--at", "2s fault", "--", "sh"), "needs a kind"),
        (("--at", "2s fault loss h0-p9 probability=1", "--", "sh"), "h0-p9"),
        (("--at", "2s break 'p0", "--", "sh"), "no closing quotation"),
    ],
)
def test_refusals(mrcbed: Said, built: None, words: tuple[str, ...], line: str) -> None:
    assert line in mrcbed.refused(*LAUNCH, *words)


def test_a_library_that_is_not_built_is_said_at_once(
    mrcbed: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def library() -> None:
        raise UserError("it is not built: make verbs")

    monkeypatch.setattr("testbed.verbs.build.library", library)
    assert mrcbed.refused(*LAUNCH, "--verbs", "--", "sh") == "mrcbed: it is not built: make verbs"


def test_what_is_right_comes_as_far_as_the_need_for_root(
    mrcbed: Said, built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    at = (
        "--at",
        "0.5s mend all",
        "--at",
        "2s heal 1",
        "--at",
        "2s  fault loss h0-p1 probability=0.5",
    )
    assert "needs root" in mrcbed.refused(
        *LAUNCH, "--verbs", "-n", "2", *at, "--", "sh", "-c", "echo {rank} {{x}}"
    )
