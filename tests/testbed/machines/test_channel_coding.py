"""The far side's end of the channel: whole lines, whatever the pieces, and logs that come back as
they were."""

from __future__ import annotations

import base64
import json
import os
import threading
import zlib
from pathlib import Path

import pytest

from testbed.machines import channel_coding as module
from testbed.machines.channel_coding import Wire, unpacked


@pytest.fixture
def ends() -> tuple[Wire, int, int]:
    """A wire, and the other ends of its input and output."""
    incoming, writer = os.pipe()
    reader, outgoing = os.pipe()
    return Wire(incoming, outgoing), writer, reader


def test_messages_come_whole_whatever_the_pieces(ends: tuple[Wire, int, int]) -> None:
    wire, writer, _ = ends
    lines = b"".join(
        json.dumps({"op": "x", "id": n, "text": "x" * n}).encode() + b"\n" for n in range(50)
    )

    def write() -> None:
        for at in range(0, len(lines), 7):
            os.write(writer, lines[at : at + 7])
        os.close(writer)

    threading.Thread(target=write).start()
    assert [order.id for order in iter(wire.read, None)] == list(range(50))


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 20_000 + b"\n",
        b'{"op": 5}\n',
        b"{}\n",
        b'{"op": "clock", "id": "x"}\n',
        b'{"op": "clock", "id": NaN}\n',
        b'{"op": "x", "id": ' + b"9" * 5000 + b"}\n",
    ],
)
def test_what_is_no_message_ends_the_channel_and_is_told(
    ends: tuple[Wire, int, int], line: bytes
) -> None:
    wire, writer, reader = ends
    os.write(writer, line + b'{"op": "beat"}\n')
    assert wire.read() is None
    told = json.loads(os.read(reader, 1 << 16))
    assert (
        told["event"] == "died"
        and told["reason"].startswith("what it was sent makes no sense: ")
        and "\n" not in told["reason"]
    )


def test_a_line_without_end_is_cut(
    ends: tuple[Wire, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINE", 1 << 15)
    wire, writer, reader = ends
    os.write(writer, b"x" * (1 << 16))
    assert wire.read() is None
    assert b"a line of more than" in os.read(reader, 1 << 16)


@pytest.mark.parametrize(
    "data", [zlib.compress(bytes(5 << 20)), zlib.compress(b"abc")[:-2], b"abc"]
)
def test_a_part_of_a_log_that_lies_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, zlib.error)):
        unpacked(base64.b85encode(data).decode())


def test_silence_ends_the_channel(ends: tuple[Wire, int, int]) -> None:
    assert ends[0].read(0.01) is None


def test_a_log_comes_back_in_parts_as_it_was(
    ends: tuple[Wire, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
