"""Two live endpoints and a fuzzer between them: what the targets ``mrc`` and ``roce`` share, and
those of single frames (frames.py).

An input is a story. Each step is a byte, its low three bits what happens, the others how much:

    0  frames that wait are carried, each to the other side
    1  frames that wait are lost
    2  time passes, 2^n ps, and timers run
    3  one side posts a WRITE
    4-7  a frame is handed in: a real one with bytes changed, sealed again or not, cut or resized,
    at any port; or random bytes

The pair lives on from input to input, since making one costs more than an input does, until a queue
pair fails or it is old. Whoever reports a failure therefore needs the inputs since it was made:
``story``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.fuzz.reader import Reader
from topologies.clos import Fabric
from topologies.units import US

FIRST_PORT = 0
GUARD = 4096
REGION = 32_768
MARK = b"\xa5" * GUARD
AGE = 200
"""Inputs after which a pair is made anew."""
FIELDS = 12
"""Where edits begin: MAC addresses are nobody's business."""


class Pair:
    """Subclasses know their transport. ``engines[side]`` is on host ``hosts[side]``."""

    max_len = 256
    words: tuple[bytes, ...] = ()

    def __init__(
        self, fabric: Fabric, hosts: tuple[int, int], make: Callable[[Fabric, int], Any]
    ) -> None:
        self.usual = fabric
        self.hosts = hosts
        self.make = make
        self.templates: list[bytes] = []
        self.recent: deque[bytes] = deque(maxlen=4096)
        self.renew()
        self.warm_up()
        assert not self.broken()
        kinds: dict[int, list[bytes]] = {}
        for frame in self.recent:
            of = kinds.setdefault(self.kind_of(frame), [])
            if len(of) < 3:
                of.append(frame)
        self.templates = [frame for kind in sorted(kinds) for frame in kinds[kind]]
        self.renew()

    # --- a subclass's -----------------------------------------------------------------------------

    def seal(self, frame: bytearray) -> bytearray:
        """Lengths and iCRC made right."""
        raise NotImplementedError

    def cut(self, frame: bytearray) -> bytearray:
        """As a switch trims it."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Make frames of every kind, which become the templates."""
        raise NotImplementedError

    def kind_of(self, frame: bytes) -> int:
        raise NotImplementedError

    def broken(self) -> bool:
        """Whether a queue pair is in ERROR."""
        raise NotImplementedError

    def check(self, side: int) -> None:
        """Invariants of one endpoint; raises AssertionError."""
        raise NotImplementedError

    # --- the world --------------------------------------------------------------------------------

    def origin(self) -> int:
        """When a pair's clock begins."""
        return 100 * US

    def place(self) -> Fabric:
        """What a pair is on."""
        return self.usual

    def renew(self) -> None:
        """A new pair, connected, with receives posted."""
        self.fabric = self.place()
        self.now = self.origin()
        self.age = 0
        self.story: list[bytes] = []
        self.recent.clear()
        self.given = [0, 0]
        self.engines = [self.make(self.fabric, host) for host in self.hosts]
        self.arenas = [bytearray(MARK + bytes(REGION) + MARK) for _ in self.hosts]
        self.regions = [
            e.register(memoryview(m)[GUARD:-GUARD])
            for e, m in zip(self.engines, self.arenas, strict=True)
        ]
        said = [e.create_qp(h) for e, h in zip(self.engines, reversed(self.hosts), strict=True)]
        self.qpns = [s["qpn"] for s in said]
        for side in (0, 1):
            self.engines[side].connect_qp(self.now, self.qpns[side], said[1 - side])
            for k in range(256):
                self.engines[side].post_recv(self.qpns[side], k)

    def give(self, side: int, port: int, frame: bytes | bytearray) -> None:
        """Hand a frame in, inside a larger buffer that nobody can write to."""
        self.given[side] += 1
        self.engines[side].receive(
            self.now, port, memoryview(b"\x77" * 16 + bytes(frame) + b"\x77" * 16), 16, len(frame)
        )

    def send(self, side: int) -> tuple[int, bytes] | None:
        """The next frame that may leave a side, and its port."""
        e = self.engines[side]
        port = e.transmit(self.now)
        if port < 0:
            return None
        frame = e.tx_frame + bytes(e.tx_payload or b"") + e.tx_trailer
        e.sent(self.now, port, True)
        assert 0 <= port < self.fabric.planes, f"a frame for port {port}"
        self.recent.append(frame)
        return port, frame

    def carry(self, most: int, lose: bool = False) -> None:
        for side in (0, 1):
            for _ in range(most):
                made = self.send(side)
                if made is None:
                    break
                if not lose:
                    self.give(1 - side, *made)

    def wait(self, time: int) -> None:
        self.now += time
        for e in self.engines:
            e.timer(self.now)
            e.deadline()

    def post(self, side: int, n: int, imm: int) -> None:
        region = self.regions[1 - side]
        if self.broken():
            return
        self.engines[side].post_write(
            self.qpns[side],
            n,
            memoryview(self.arenas[side])[GUARD : GUARD + n],
            region.va,
            region.rkey,
            imm,
        )

    def hostile(self, r: Reader, how: int) -> None:
        """``how``: 2 bits of what is done to it beside edits."""
        flags = r.u8()
        side, port = flags & 1, flags >> 1 & 1
        if flags & 0xF0 == 0xF0:
            self.give(side, port, r.take(r.u8()))
            return
        pick = r.u8()
        if pick >= 192 and self.recent:
            frame = bytearray(self.recent[-1 - (pick - 192) % len(self.recent)])
        else:
            frame = bytearray(self.templates[pick % len(self.templates)])
        for _ in range(flags >> 2 & 3):
            at, value = FIELDS + r.u8(), r.u8()
            if at < len(frame):
                frame[at] = value
        if how == 1:
            frame = frame[: max(0, len(frame) - 1 - r.u8())]
        elif how == 2:
            frame = self.cut(frame)
        elif how == 3:
            frame += r.take(r.u8() & 63)
        if flags & 0x10 == 0:
            frame = self.seal(frame)
        self.give(side, port, frame)

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        if self.age >= AGE or self.broken():
            self.renew()
        self.age += 1
        self.story.append(data)
        r = Reader(data)
        while r.more:
            k = r.u8()
            n = k >> 3
            if k & 4:
                self.hostile(r, k & 3)
            elif k & 3 == 0:
                self.carry(1 + n)
            elif k & 3 == 1:
                self.carry(1 + n, lose=True)
            elif k & 3 == 2:
                self.wait(1 << n)
            else:
                self.post(n & 1, min(r.u16(), REGION), n >> 1 if n & 2 else -1)
        self.look()

    def look(self) -> None:
        """Memory and invariants of both sides; what they have to tell is taken."""
        for side in (0, 1):
            arena = self.arenas[side]
            assert arena[:GUARD] == MARK and arena[-GUARD:] == MARK, (
                "memory outside the region changed"
            )
            self.check(side)
            self.engines[side].completions()
            self.engines[side].events()

    def seeds(self) -> list[bytes]:
        """Stories: an honest transfer, one of each kind of frame changed, times and losses
        between."""
        made = [
            bytes([3, 0x20, 0, 0xF8, 0xFA, 0xF8, 0xFA]),
            bytes([3, 0x30, 0, 0xF9, 0xFA, 0xF8, 0xFA, 0xF8, 0xFA, 0xF8]),
        ]
        for k in range(len(self.templates)):
            whole, cut, short = (
                bytes([0x23, 16, 0, 8, 4, 0, k, 0xF8]),
                bytes([6, 1, k, 0xF8]),
                bytes([5, 3, k, 9, 0xF8]),
            )
            made.append(
                whole + cut + short + bytes([0x0B, 16, 0, 4, 9, k, 110, 1, 98, 3, 0xF8, 0xD2, 0xF8])
            )
        # A frame that is awaited, and was lost, comes with a byte changed.
        fields = (90, 91, 95, 98, 102, 105, 108, 110, 111, 114, 117)
        return made + [bytes([0x0B, 16, 0, 1, 4, 4, 192, at, 0x5A, 0xF8]) for at in fields]
