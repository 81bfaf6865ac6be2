"""The number that a run's agents get: nobody else's, and another one for every run."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from testbed.errors import UserError
from testbed.machine.agent_user import HIGHEST, LOWEST, STEP, choose

SPACE = 0xF000_0123
"""An inode as the kernel gives them to namespaces."""
FIRST = LOWEST + 0x123


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    made = tmp_path / "proc"
    made.mkdir()
    return made


def process(proc: Path, pid: int, uids: str, gids: str = "0 0 0 0", groups: str = "") -> None:
    (proc / str(pid)).mkdir()
    lines = (
        "Name:\tx",
        "Uid:\t" + uids.replace(" ", "\t"),
        "Gid:\t" + gids.replace(" ", "\t"),
        f"Groups:\t{groups} ",
    )
    (proc / str(pid) / "status").write_text("\n".join(lines) + "\n")


def test_runs_at_once_differ(proc: Path) -> None:
    spaces = range(SPACE, SPACE + 100)
    assert len({uid for space in spaces for uid in choose(space, 65, proc, ())}) == 65 * len(spaces)


def test_here_it_is_nobodys() -> None:
    (uid,) = choose(os.stat("/proc/self/ns/pid").st_ino, 1)
    assert LOWEST <= uid < HIGHEST and uid != 65534
    with pytest.raises(KeyError):
        pwd.getpwuid(uid)


@pytest.mark.parametrize(
    ("uids", "gids", "groups"),
    [
        (f"0 0 {FIRST} 0", "0 0 0 0", ""),
        ("1000 1000 1000 1000", f"{FIRST} 1000 1000 1000", ""),
        ("1000 1000 1000 1000", "1000 1000 1000 1000", f"27 {FIRST}"),
    ],
)
def test_an_id_that_a_process_has_is_passed_over(
    proc: Path, uids: str, gids: str, groups: str
) -> None:
    process(proc, 77, uids, gids, groups)
    (proc / "78").mkdir()  # one that ended while we looked
    assert choose(SPACE, 2, proc, ()) == [FIRST + STEP, FIRST + 2 * STEP]


def test_delegated_ranges_are_passed_over(proc: Path, tmp_path: Path) -> None:
    delegated = tmp_path / "subuid"
    delegated.write_text(
        f"# a comment\n\nalice:100000:65536\nbob:{FIRST - 5}:6\nhalf a line:12\nx:y:z\n"
    )
    assert choose(SPACE, 1, proc, (delegated, tmp_path / "absent")) == [FIRST + STEP]
    delegated.write_text(f"bob:{FIRST - 5}:5\n")
    assert choose(SPACE, 1, proc, (delegated,)) == [FIRST], (
        "a range ends before its first number plus its length"
    )


@pytest.mark.parametrize("look_up", ["pwd.getpwuid", "grp.getgrgid"])
def test_accounts_and_groups_are_passed_over(
    proc: Path, monkeypatch: pytest.MonkeyPatch, look_up: str
) -> None:
    def known(number: int) -> str:
        if number == FIRST:
            return "somebody"
        raise KeyError(number)

    monkeypatch.setattr(look_up, known)
    assert choose(SPACE, 2, proc, ()) == [FIRST + STEP, FIRST + 2 * STEP]


def test_a_run_takes_what_is_left_where_that_is_less_than_it_wants(
    proc: Path, tmp_path: Path
) -> None:
    delegated = tmp_path / "subuid"
    delegated.write_text(f"bob:{FIRST + 2 * STEP}:4294967295\n")
    assert choose(SPACE, 65, proc, (delegated,)) == [FIRST, FIRST + STEP]


def test_when_all_are_given_away_it_says_so(proc: Path, tmp_path: Path) -> None:
    delegated = tmp_path / "subuid"
    delegated.write_text("bob:0:4294967295\n")
    with pytest.raises(UserError, match="no user id in"):
        choose(SPACE, 1, proc, (delegated,))
