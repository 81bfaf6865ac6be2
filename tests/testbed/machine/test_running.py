"""The note by which a fabric that is up is found: it holds a secret, and a stranger's is not
believed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from testbed.machine import running
from testbed.machine.running import Running

TOKEN = "0123456789abcdef" * 2
URL = "http://127.0.0.1:41607"


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the note lies; every process of this machine that we may look into counts as one of a
    run's."""
    monkeypatch.setattr(running, "NOTE", tmp_path / "controller-at.json")
    monkeypatch.setattr(running, "marked", lambda: {os.getpid(): "a run's"})
    return tmp_path / "controller-at.json"


def test_it_is_its_owners_alone_whatever_lay_there(note: Path) -> None:
    note.write_text("older, and open to all")
    note.chmod(0o666)
    before = os.umask(0)
    try:
        running.announce(URL, "tiny", TOKEN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert TOKEN not in repr(Running(URL, "tiny", TOKEN))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's notes are believed")
def test_only_a_plain_file_of_roots_is_believed(note: Path) -> None:
    running.announce(URL, "tiny", TOKEN)
    assert running.find() == [Running(URL, "tiny", TOKEN)]
    os.chown(note, 1000, 1000)
    assert running.find() == []
    note.rename(note.with_suffix(".other"))
    os.chown(note.with_suffix(".other"), 0, 0)
    note.symlink_to(note.with_suffix(".other"))
    assert running.find() == []
    note.unlink()
    os.mkfifo(note)  # reading it would wait for ever
    assert running.find() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's notes are believed")
def test_a_note_without_a_token_is_none_of_ours(note: Path) -> None:
    running.write_secret(note, json.dumps({"url": URL, "fabric": "tiny"}))
    assert running.find() == []
