"""The far side's end of the channel: lines of JSON on standard input and output. They are read
without Python's buffer, since the reader changes its process on the way (far.py)."""

from __future__ import annotations

import base64
import json
import os
import select
import threading
import zlib
from pathlib import Path
from typing import Any

import msgspec

from topologies.files import FileError, parse_json, typed

LOG_CHUNK = 1 << 22
MOST_LINE = 64 << 20
"""The longest message, bytes [ours]; a part of a log takes 5 MiB at most."""


class Order(msgspec.Struct):
    op: str
    id: int = 0
    keys: dict[str, object] = {}


class Wire:
    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._buffer = bytearray()
        self._lock = threading.Lock()

    @classmethod
    def standard(cls) -> Wire:
        outgoing = os.dup(1)
        os.set_inheritable(outgoing, False)
        os.dup2(2, 1)
        return cls(0, outgoing)

    def read(self, silence_s: float | None = None) -> Order | None:
        """Return None at the end, if nothing comes for so long, and for anything but a message, of
        which the other side is told."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MOST_LINE:
                self._refuse(f"a line of more than {MOST_LINE >> 20} MiB")
                return None
            if not select.select([self._incoming], [], [], silence_s)[0]:
                return None
            data = os.read(self._incoming, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = parse_json(line, Path("an order"))
            order = typed(message, Order, Path("an order"))
        except FileError as error:
            self._refuse(str(error))
            return None
        order.keys = {key: value for key, value in message.items() if key not in ("op", "id")}
        return order

    def _refuse(self, why: str) -> None:
        self.say(event="died", reason=f"what it was sent makes no sense: {why}")

    def say(self, **message: Any) -> None:
        """Send a message; nothing happens if nobody listens: the reading side hears of that."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._outgoing, data) :]
            except OSError:
                return

    def send_file(self, path: Path) -> None:
        with path.open("rb") as file:
            while part := file.read(LOG_CHUNK):
                self.say(
                    event="log",
                    name=path.name,
                    data=base64.b85encode(zlib.compress(part, 1)).decode(),
                )


def unpacked(data: str) -> bytes:
    packed = zlib.decompressobj()
    part = packed.decompress(base64.b85decode(data), LOG_CHUNK)
    if packed.unconsumed_tail or not packed.eof:
        raise ValueError(f"a part of a log is cut, or of more than {LOG_CHUNK >> 20} MiB")
    return part
