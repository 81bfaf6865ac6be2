"""An archive lands once, whole or not at all, and never outside the folders of its runs."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from scenarios.run.landing import BESIDE, land, pack
from testbed.errors import UserError


def packed(tmp_path: Path, content: str, *keys: str) -> bytes:
    for key in keys:
        folder = tmp_path / content / "raw" / key
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"content": content}))
        (folder / "h0.jsonl").write_text(content)
    return pack(tmp_path / content, keys)


def test_a_late_duplicate_is_dropped_and_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert land(packed(tmp_path, "first", "a"), out, ["a"]) == []
    assert land(packed(tmp_path, "second", "a", "b"), out, ["a", "b"]) == ["a"]
    found = {path.parent.name: path.read_text() for path in out.rglob("h0.jsonl")}
    assert found == {"a": "first", "b": "second"}
    assert not (out / BESIDE).exists()


def archive_of(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/../../x", tarfile.REGTYPE),
        ("/tmp/x", tarfile.REGTYPE),
        ("b/run.json", tarfile.REGTYPE),
        ("/tmp/x", tarfile.DIRTYPE),
        ("a/link", tarfile.SYMTYPE),
        ("a/link", tarfile.LNKTYPE),
        ("a/fifo", tarfile.FIFOTYPE),
        ("a", tarfile.SYMTYPE),
    ],
)
def test_a_file_elsewhere_is_refused(name: str, kind: bytes, tmp_path: Path) -> None:
    data = archive_of(("a/run.json", tarfile.REGTYPE), (name, kind))
    with pytest.raises(UserError, match="no file of its runs"):
        land(data, tmp_path, ["a"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", archive_of(("a/run.json", tarfile.REGTYPE))[:40], archive_of()],
    ids=["none", "other", "cut", "empty"],
)
def test_what_is_not_whole_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="^a worker's answer "):
        land(data, tmp_path, ["a"])
    assert not (tmp_path / "raw").exists()
