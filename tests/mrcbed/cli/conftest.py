"""The command line in this process, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrcbed import cli
from testbed.bench import calibration


class Said:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """What a command prints; of a refusal the lines on stderr."""
        self.capsys.readouterr()
        found = cli.execute(list(words))
        out = self.capsys.readouterr()
        assert found == status, out.err
        return out.err if status else out.out

    def refused(self, *words: str) -> str:
        """The one line by which a command refuses bad input."""
        [line] = self(*words, status=2).splitlines()
        assert line.startswith("mrcbed: ") and "internal error" not in line
        return line


@pytest.fixture
def mrcbed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Said:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(calibration.PLACE, str(tmp_path / "no-calibration.json"))
    return Said(capsys)
