"""Whether there is a TUN to be had."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agents import tun


@pytest.mark.parametrize("code", [errno.ENODEV, errno.EPERM, errno.ENOENT])
def test_a_file_that_cannot_be_opened_is_no_tun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """The driver is missing, a container may not, there is no such file."""
    path = tmp_path / "tun"
    path.touch()
    monkeypatch.setattr(tun, "PATH", str(path))
    assert tun.available()

    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(code, "")

    monkeypatch.setattr(os, "open", refuse)
    assert not tun.available()
