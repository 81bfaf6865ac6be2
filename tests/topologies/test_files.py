"""Files that are not what they should be: none makes a reader wait, each is refused in one line
that names it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from topologies.files import FileError, content, read_json


class Part(msgspec.Struct):
    seed: int
    name: str = ""


class Whole(msgspec.Struct):
    runs: list[Part]


def test_what_is_declared_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"runs": [{"seed": 3, "more": [1]}]}')
    assert read_json(tmp_path / "a.json", Whole).runs[0].seed == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"runs": [{"seed": 1}, {"seed": "x"}]}',
            "damaged: runs[1].seed in {}: expected `int`, got `str`",
        ),
        ('{"runs": [{}]}', "damaged: runs[0].seed in {}: it is missing"),
        ("[]", "damaged: all in {}: expected `object`, got `array`"),
        ("{", "damaged: {} is not JSON ("),
        ("[" * 100_000, "damaged: {} is not JSON ("),
        ("[" * 100 + "]" * 100, "damaged: {} has tables and lists more than 64 deep in each other"),
        ("1" * 5000, "damaged: {} is not JSON ("),
        ("\xff\xfe\x00", "damaged: {} is not JSON ("),
    ],
)
def test_what_is_not_is_refused_in_one_line_with_key_and_file(
    text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError) as refused:
        read_json(path, Whole)
    assert str(refused.value).startswith(said.format(path)) and "\n" not in str(refused.value)


def test_only_regular_files_are_read_and_only_so_much(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # nobody writes to it
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(bytes(1001))
    for name, why in (
        ("fifo", "is no regular file"),
        ("endless", "is no regular file"),
        (".", "is no regular file"),
        ("large", "is larger than"),
    ):
        with pytest.raises(FileError, match=why):
            content(tmp_path / name, 1000)
    assert content(tmp_path / "large", 1001) == bytes(1001)
