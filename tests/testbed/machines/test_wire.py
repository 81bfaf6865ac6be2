"""The far side's end of the channel: whole lines, whatever the pieces, and logs that come back as they were."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from testbed.machines import wire as module
from testbed.machines.wire import Wire, unpacked


@pytest.fixture
def ends() -> tuple[Wire, int, int]:
    """A wire, and the other ends of its input and output."""
    incoming, writer = os.pipe()
    reader, outgoing = os.pipe()
    return Wire(incoming, outgoing), writer, reader


def test_messages_come_whole_whatever_the_pieces(ends: tuple[Wire, int, int]) -> None:
    wire, writer, _ = ends
    lines = b"".join(json.dumps({"id": n, "text": "x" * n}).encode() + b"\n" for n in range(50))

    def write() -> None:
        for at in range(0, len(lines), 7):
            os.write(writer, lines[at : at + 7])
        os.close(writer)

    threading.Thread(target=write).start()
    assert [message["id"] for message in iter(wire.read, None)] == list(range(50))


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"\xff\xfe\n"])
def test_what_is_no_message_ends_the_channel(ends: tuple[Wire, int, int], line: bytes) -> None:
    wire, writer, _ = ends
    os.write(writer, line + b'{"op": "beat"}\n')
    assert wire.read() is None


def test_silence_ends_the_channel(ends: tuple[Wire, int, int]) -> None:
    assert ends[0].read(0.01) is None


def test_a_log_comes_back_in_parts_as_it_was(ends: tuple[Wire, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_CHUNK", 1000)
    wire, _, reader = ends
    log = tmp_path / "h3.jsonl"
    log.write_bytes(bytes(range(256)) * 10)
    wire.send_file(log)
    messages = [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]
    assert {message["name"] for message in messages} == {"h3.jsonl"} and len(messages) == 3
    assert b"".join(unpacked(message["data"]) for message in messages) == log.read_bytes()


def test_a_listener_that_is_gone_is_no_error(ends: tuple[Wire, int, int]) -> None:
    wire, _, reader = ends
    os.close(reader)
    wire.say(event="beat")
