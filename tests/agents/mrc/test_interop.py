"""The engine and an endpoint written from docs/why/protocol.md alone (tests/second): each writes to
the other over a network that misbehaves.

Neither may find the other in the wrong: the second one lists what contradicts the page, the engine
counts what it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from agents.mrc.endpoint import Endpoint
from agents.packets import dscp
from agents.transport import NEVER, Engine
from testbed.conform.targets import rows
from tests.agents.mrc.rig import GUARD, SMALL
from tests.agents.virtual import VirtualNetwork
from tests.second.target import endpoint
from topologies.clos import Fabric

A, B = 0, 3
BYTES, MESSAGES = 6_000, 6


class Seconded(Engine):
    """The second endpoint, where the virtual network expects an engine."""

    def __init__(self, fabric: Fabric, host: int, seed: int) -> None:
        super().__init__()
        self.second = endpoint(fabric, host, seed)

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        self.second.receive(now, port, bytes(buffer[start : start + length]))

    def transmit(self, now: int) -> int:
        made = self.second.transmit(now)
        if made is None:
            return -1
        port, self.tx_frame = made
        return port

    def sent(self, now: int, port: int, ok: bool) -> None: ...

    def timer(self, now: int) -> None: ...

    def deadline(self) -> int:
        at = self.second.deadline()
        return NEVER if at is None else at

    def port_state(self, now: int, port: int, up: bool) -> None:
        self.second.port_state(now, port, up)


class Side:
    """Either endpoint behind one face."""

    def __init__(self, engine: Any, host: int) -> None:
        self.engine, self.host = engine, host
        self.end = engine.second if isinstance(engine, Seconded) else engine
        self.memory = bytearray(b"\xa5" * (MESSAGES * BYTES + 2 * GUARD))
        view = memoryview(self.memory)[GUARD:-GUARD]
        self.va, self.rkey = self.end.register(view)[:2]
        self.done: list[tuple[str, str, int | None]] = []

    def create(self, peer: int) -> dict[str, Any]:
        made: dict[str, Any] = self.end.create_qp(peer)
        self.qpn = made["qpn"]
        return made

    def write(self, number: int, data: bytes, there: Side) -> None:
        words = (self.qpn, number, data, there.va + number * BYTES, there.rkey)
        if isinstance(self.engine, Seconded):
            self.end.post_write(*words, imm=number)
        else:
            self.end.post_write(
                self.qpn, number, memoryview(data), there.va + number * BYTES, there.rkey, number
            )

    def collect(self) -> None:
        finished = self.end.completions()
        self.done += [
            row[2:5] for row in (finished if isinstance(self.engine, Seconded) else rows(finished))
        ]

    def writes(self) -> int:
        return sum(kind == "write" for kind, _, _ in self.done)


Story = Callable[[VirtualNetwork, Random], None]


def healthy(net: VirtualNetwork, random: Random) -> None: ...


def loss(net: VirtualNetwork, random: Random) -> None:
    net.fate = lambda frame, link, now: random.random() > 0.01


def reordering(net: VirtualNetwork, random: Random) -> None:
    late = {
        link: random.randrange(0, net.fabric.base_rtt_ps // 2)
        for link in sorted(set(net.link_of.values()))
    }
    net.jitter = lambda frame, link, now: late[link]


def duplicates(net: VirtualNetwork, random: Random) -> None:
    net.copies = lambda frame, link, now: 2 if random.random() < 0.05 else 1


def dead_path(net: VirtualNetwork, random: Random) -> None:
    net.fate = lambda frame, link, now: link != "p0-t0-0:p0-t1-1"


def trims(net: VirtualNetwork, random: Random) -> None:
    """The T1s of a plane are at a hundredth of their rate, and their queues trim."""
    for name, port in net.ports.items():
        if name.startswith("p0-t1"):
            port.rate = port.rate // 100


def port_falls(net: VirtualNetwork, random: Random) -> None:
    rtt = net.fabric.base_rtt_ps

    def change(up: bool) -> None:
        (net.down.discard if up else net.down.add)("h3:p1-t0-1")
        net.engines[B].port_state(net.now, 1, up)

    net.at(net.now + 2 * rtt, lambda: change(False))
    net.at(net.now + 12 * rtt, lambda: change(True))


STORIES: list[Story] = [healthy, loss, reordering, duplicates, dead_path, trims, port_falls]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize(
    "seconds", [(B,), (A,), (A, B)], ids=["to the second", "from the second", "between two"]
)
def test_every_byte_arrives_and_neither_finds_the_other_wrong(
    story: Story, seconds: tuple[int, ...]
) -> None:
    fabric = SMALL
    engines: list[Any] = [
        Seconded(fabric, host, 7) if host in seconds else Endpoint(fabric, host, {}, 7)
        for host in range(fabric.host_count)
    ]
    net = VirtualNetwork(fabric, engines)
    seen: list[int] = []  # DSCP of what arrived
    net.taken = lambda now, host, frame: seen.append(
        int.from_bytes(frame[14:16], "big") >> 6 & 0x3F
    )
    sides = [Side(engines[host], host) for host in (A, B)]
    one, other = sides
    made = one.create(B), other.create(A)
    for side, remote in ((one, made[1]), (other, made[0])):
        side.end.connect_qp(net.now, side.qpn, remote)
    random = Random(story.__name__)
    story(net, random)
    data = {
        side: [random.randbytes(random.randrange(1, BYTES)) for _ in range(MESSAGES)]
        for side in (A, B)
    }
    for side, there in ((one, other), (other, one)):
        for number in range(MESSAGES):
            there.end.post_recv(there.qpn, number)
            side.write(number, data[side.host][number], there)

    def done() -> bool:
        for side in sides:
            side.collect()
        return all(side.writes() == MESSAGES for side in sides)

    assert net.run(net.now + 400 * fabric.base_rtt_ps, done), [
        (side.done, getattr(side.end, "violations", [])[:3]) for side in sides
    ]
    net.run(net.now + 4 * fabric.base_rtt_ps)
    assert (net.dropped > 0) == (story in (loss, dead_path, port_falls)) and (
        dscp.TRIMMED in seen
    ) == (story is trims), "the story happened"
    for side, there in ((one, other), (other, one)):
        for number, sent in enumerate(data[side.host]):
            at = GUARD + number * BYTES
            assert there.memory[at : at + len(sent)] == sent
            assert there.memory[at + len(sent) : at + BYTES] == b"\xa5" * (BYTES - len(sent))
        assert [d[1] for d in side.done if d[0] == "write"] == ["ok"] * MESSAGES
        assert [d[2] for d in there.done if d[0] == "receive"] == list(range(MESSAGES))
        if isinstance(side.engine, Seconded):
            assert side.end.violations == []
        else:
            counters = side.engine.counters()
            wrong = (
                "rx_bad_icrc",
                "rx_bad_length",
                "rx_bad_opcode",
                "rx_bad_ev",
                "rx_bad_qp",
                "rx_refused",
                "rx_unexpected",
                "bad_nacks",
                "rx_beyond",
            )
            assert {name: counters[name] for name in wrong if counters.get(name)} == {}
