"""What a run writes down about where it came from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scenarios.run import manifest


def test_a_checkout_is_looked_at_and_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed while git refreshes its index would leave a lock, and every later commit
    would be refused."""

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *words],
            check=True,
            capture_output=True,
        )

    file, index = tmp_path / "file", tmp_path / ".git" / "index"
    file.write_text("text")
    git("init")
    git("add", "file")
    git("commit", "-m", "one")
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    os.utime(file, (1, 1))  # its entry in the index is out of date: git would write a new one
    before = index.read_bytes()
    found = manifest.git()
    assert (
        found is not None
        and found["commit"]
        and not found["dirty"]
        and index.read_bytes() == before
    )
    file.write_text("another")
    assert (manifest.git() or {})["dirty"]
