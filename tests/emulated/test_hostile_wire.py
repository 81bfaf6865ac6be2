"""Frames from strangers on a living cluster: each is counted under its own name, and a ring
all-reduce under way does not notice.

What a frame may do to an endpoint is tested byte by byte in tests/agents/mrc/test_hostile.py; here
they come over real cables.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.framing import Framer, Route
from agents.packets import dscp, headers
from testbed.dataplane.counters import books
from testbed.emulated.cluster import Cluster
from testbed.emulated.trace import socket_in
from tests.agents.mrc.packets import write_packet
from tests.emulated.frames import change
from tests.emulated.ring import BYTES, Ring, logged, paths, wait_until
from topologies import addressing, load_fabric

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")
MARK = bytes(range(7, 71))
CHECKED = (
    "rx_foreign",
    "rx_bad_length",
    "rx_bad_icrc",
    "rx_bad_opcode",
    "rx_bad_qp",
    "rx_bad_ev",
    "rx_refused",
    "rx_beyond_window",
    "rx_unexpected",
    "rx_unsupported",
    "rx_too_many",
    "bad_sacks",
)
"""Counters that a healthy ring leaves alone."""


class Attacker:
    """Builds and sends frames to h0 from any host's namespace, with any identity. Ring: h0 -> h2 ->
    h1 -> h3 -> h0."""

    def __init__(self, cluster: Cluster, ring: Ring) -> None:
        self.cluster = cluster
        self.ring = ring
        # h0's queue pair with its successor: nobody writes through it
        self.to_h2 = ring.local(0, 2)
        self.from_h3 = ring.local(0, 3)  # the one its predecessor writes through
        self.h2 = ring.local(2, 0)
        self.h3 = ring.local(3, 0)
        self.va, self.rkey, self.size = self.to_h2["arena"]
        self.framer = Framer(Config.from_fabric(FABRIC, {}))

    def write(
        self,
        *,
        src: int = 2,
        ev: int = 0,
        qpn: int | None = None,
        psn: int | None = None,
        va: int | None = None,
        rkey: int | None = None,
        payload: bytes = MARK,
    ) -> bytes:
        """A WRITE Only that h0 would place, unless an argument spoils it; high up in the arena,
        where the ring does not come."""
        packet = write_packet(
            ev=ev, psn=self.h2["psn"] if psn is None else psn, va=self.spot if va is None else va,
            rkey=self.rkey if rkey is None else rkey, dmalen=len(payload),
        )  # fmt: skip
        to = self.to_h2["qpn"] if qpn is None else qpn
        self.framer.write(0, Route(FABRIC, src, 0), to, packet, memoryview(payload))
        return self.framer.frame + payload + self.framer.trailer

    def bare(self, op: int, ext: bytes, qpn: int | None = None, word: int = 0) -> bytes:
        self.framer.bare(
            Route(FABRIC, 2, 0),
            0,
            dscp.CONTROL,
            op,
            self.to_h2["qpn"] if qpn is None else qpn,
            word,
            ext,
        )
        return self.framer.frame

    @property
    def spot(self) -> int:
        return int(self.va) + int(self.size) - 4096

    def send(self, frame: bytes, host: int = 2) -> None:
        sender = socket_in(self.cluster.net.namespaces[f"h{host}"], 0)
        try:
            sender.sendto(frame, (f"h{host}-p0", 0))
        finally:
            sender.close()

    def counters(self) -> dict[str, int]:
        return dict(self.cluster.agents[0].call("counters"))

    def memory(self, va: int, length: int) -> bytes:
        """Of h0's arena, as h0's process has it."""
        pid = self.cluster.agents[0].call("hello")["pid"]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            if high - low == self.size:
                fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
                try:
                    return os.pread(fd, length, low + va - self.va)
                finally:
                    os.close(fd)
        raise AssertionError("no arena")


def changed(frame: bytes, at: int, *values: int) -> bytes:
    return frame[:at] + bytes(values) + frame[at + len(values) :]


def sealed(frame: bytes) -> bytes:
    """With lengths and iCRC made right, so that only what it says is wrong."""
    b = bytearray(frame)
    inner = len(b) - headers.INNER
    struct.pack_into("!H", b, 18, inner)
    struct.pack_into("!H", b, 58, inner - 40)
    struct.pack_into("!H", b, 98, inner - 40)
    b[-4:] = headers.S_ICRC.pack(headers.icrc_of(b, 0, len(b)))
    return bytes(b)


def cut(frame: bytes, end: int) -> bytes:
    """Only the outer header says so: with that wrong, too, no switch forwards it."""
    left = frame[:end]
    return changed(left, 18, *(len(left) - headers.INNER).to_bytes(2, "big"))


def masquerade(a: Attacker, seed: int) -> bytes:
    """Random bytes behind headers that lead to h0 and look like MRC's."""
    body = random.Random(seed).randbytes(16 + 37 * seed)
    me, you = addressing.inner_address(2), addressing.inner_address(0)
    outer = addressing.path_address(FABRIC, 2, 0, 0)
    return headers.head((me, outer), (me, you), 0, dscp.NO_TRIM, dscp.ECT0, len(body)) + body


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def attacker(tiny: Cluster, logs: Path) -> Iterator[Attacker]:
    tiny.start_agents("mrc", {}, logs, seed=5)
    yield Attacker(tiny, Ring(tiny))
    tiny.stop_agents()


Made = Callable[[Attacker], bytes]
FRAMES: list[tuple[str, int, Made, str]] = [
    ("wrong rkey, unknown QP", 2, lambda a: a.write(qpn=4000, rkey=a.rkey ^ 1), "rx_bad_qp"),
    ("wrong rkey, another host's QP", 1, lambda a: a.write(src=1, rkey=a.rkey ^ 1), "rx_bad_qp"),
    ("right rkey, another host's QP", 1, lambda a: a.write(src=1), "rx_bad_qp"),
    (
        "out of bounds, another host's QP",
        1,
        lambda a: a.write(src=1, va=a.va + a.size - 1),
        "rx_bad_qp",
    ),
    ("beyond the window", 2, lambda a: a.write(psn=a.h2["psn"] + 2000), "rx_beyond_window"),
    ("bad iCRC", 2, lambda a: changed(a.write(), 150, 0xAA), "rx_bad_icrc"),
    (
        "unknown opcode",
        2,
        lambda a: sealed(changed(a.write(), headers.BTH_AT, 0x77)),
        "rx_bad_opcode",
    ),
    ("for another host", 2, lambda a: sealed(changed(a.write(), 93, 2)), "rx_foreign"),
    ("truncated", 2, lambda a: cut(a.write(), -8), "rx_bad_length"),
    ("truncated to a stump", 2, lambda a: cut(a.write(), 110), "rx_bad_length"),
    ("headers cut, lengths and iCRC right", 2, lambda a: sealed(a.write()[:130]), "rx_bad_length"),
    ("oversized", 2, lambda a: a.write() + bytes(300), "rx_bad_length"),
    (
        "as large as the link takes",
        2,
        lambda a: a.write(payload=bytes(FABRIC.mtu)) + bytes(60),
        "rx_bad_length",
    ),
    ("EV of another plane", 2, lambda a: sealed(changed(a.write(), 57, 1)), "rx_bad_ev"),
    (
        "endpoint request",
        2,
        lambda a: a.bare(wire.ENDPOINT_REQUEST, b"\0\3" + bytes(14), qpn=wire.ENDPOINT_QPN),
        "rx_unsupported",
    ),
    ("SACK of what was never sent", 2, lambda a: lying_sack(a), "bad_sacks"),
    *[
        (f"random bytes {n}", 2, lambda a, n=n: masquerade(a, n), "rx_bad_icrc")
        for n in range(1, 20)
    ],
]


def lying_sack(a: Attacker) -> bytes:
    """To h0's queue pair with h2, through which h0 writes: 700 000 PSNs ahead."""
    cack = a.to_h2["psn"] + 700_000 & headers.PSN_MASK
    return a.bare(wire.SACK, wire.S_SACK.pack(0, 0, 0, 0, 0, cack, 0, 8, 1, 0, 0, 0, 5), word=cack)


def test_every_hostile_frame_has_a_counter_and_the_ring_goes_on(attacker: Attacker) -> None:
    said: list[str] = []

    def throw() -> None:
        for name, host, make, counter in FRAMES:
            frame = make(attacker)
            before = attacker.counters()
            attacker.send(frame, host)
            if not wait_until(lambda b=before, c=counter: attacker.counters()[c] > b[c]):  # type: ignore[misc]
                said.append(f"{name}: {counter} did not move")
            after = attacker.counters()
            grown = {key: after[key] - before[key] for key in CHECKED if after[key] != before[key]}
            if grown != {counter: 1}:
                said.append(f"{name}: {grown}, not {counter}")

    assert attacker.ring.run(15, [(0.2, throw)])
    assert said == []
    assert attacker.ring.all_right()
    assert attacker.ring.run(3) and attacker.ring.all_right()
    assert attacker.memory(attacker.spot, len(MARK)) == bytes(len(MARK))
    assert {row["state"] for row in paths(attacker.cluster)} == {"GOOD"}


def test_noise_from_everywhere(attacker: Attacker) -> None:
    """Real frames with bits flipped behind the outer header, from all hosts: every one is refused,
    the sums are right."""
    rng = random.Random(11)
    sent = 0

    def noise() -> None:
        nonlocal sent
        for _ in range(150):
            host = rng.randrange(1, 4)
            frame = bytearray(attacker.write(src=host))
            # Not the inner next header nor the UDP port, by which the kernel's filter chooses what
            # an agent gets to see, and not what the iCRC leaves out.
            for at in rng.sample(
                [*range(62, 94), *range(102, 106), *range(107, len(frame))], rng.randint(1, 4)
            ):
                frame[at] ^= 1 << rng.randrange(8)
            attacker.send(bytes(frame), host)
            sent += 1

    before = attacker.counters()
    assert attacker.ring.run(10, [(0.2, noise)])
    assert attacker.ring.all_right()
    after = attacker.counters()
    # where the inner source was hit
    spoofed = sum(row["drop_spoofed"] for row in attacker.cluster.counters())
    assert (
        0 < spoofed < 150
        and sum(after[key] - before[key] for key in CHECKED) + spoofed == sent == 150
    )
    assert attacker.memory(attacker.spot, len(MARK)) == bytes(len(MARK))


def nack_unexpected(a: Attacker) -> bytes:
    """To h0's queue pair with h2: you are unknown to me."""
    return a.bare(
        wire.NACK, wire.S_NETH.pack(0, wire.UNEXP_EVENT, 0, 0, 0, 0, 0, wire.CC_NACK << 4, 0, 0)
    )


def port_update(a: Attacker) -> bytes:
    """To h0: all ports of h2 are down."""
    return a.bare(
        wire.ENDPOINT_REQUEST, wire.S_ERTH.pack(0, 0, 0, wire.FTYPE), qpn=wire.ENDPOINT_QPN, word=77
    )


FORGED: list[tuple[str, Made]] = [
    ("a WRITE that would be placed", lambda a: a.write()),
    ("a Port Status Update that would close every plane", port_update),
    ("a NACK that ended the queue pair", nack_unexpected),
    ("a source of no host", lambda a: sealed(changed(a.write(), 76, 0, 99))),
]


def test_a_frame_in_anothers_name_ends_at_the_t0(attacker: Attacker) -> None:
    """h1 writes, updates and refuses in the name of h2, with all of h2's numbers: h0 gets none of
    it, and every frame is accounted for."""
    for name, make in FORGED:
        before, rows = attacker.counters(), attacker.cluster.counters()
        attacker.send(make(attacker), host=1)
        assert wait_until(
            lambda r=rows: (
                change(r, attacker.cluster.counters(), "drop_spoofed") == {"p0-t0-0-d1": 1}
            )
        ), name  # type: ignore[misc]
        after = attacker.counters()
        assert {
            key
            for key in (*CHECKED, "data_rx", "port_updates_rx", "nacks_rx")
            if after[key] != before[key]
        } == set(), name
    assert attacker.ring.run(3) and attacker.ring.all_right()
    assert attacker.memory(attacker.spot, len(MARK)) == bytes(len(MARK))
    assert books(attacker.cluster.counters()) == []


def test_a_nack_from_the_peers_own_port_must_name_what_it_refuses(attacker: Attacker) -> None:
    """As a host may send it that was taken over, or on a network without the switches' check."""
    before = attacker.counters()
    attacker.send(nack_unexpected(attacker), host=2)
    assert wait_until(lambda: attacker.counters()["bad_nacks"] == before["bad_nacks"] + 1)
    assert attacker.ring.run(3) and attacker.ring.all_right()


def test_the_honest_frame_is_placed(attacker: Attacker) -> None:
    """The others would be too, were they not refused for what is wrong with them."""
    before = attacker.counters()
    attacker.send(attacker.write())
    assert wait_until(lambda: attacker.memory(attacker.spot, len(MARK)) == MARK)
    after = attacker.counters()
    assert {
        key: after[key] - before[key] for key in (*CHECKED, "data_rx") if after[key] != before[key]
    } == {"data_rx": 1}


@pytest.mark.parametrize("what", ["rkey", "bounds"])
def test_a_real_queue_pair_goes_to_error_for_a_write_it_must_not_do(
    attacker: Attacker, logs: Path, what: str
) -> None:
    """As if h3 itself had sent it: both ends give the queue pair up, say why and who, and live on.
    No byte is written."""
    ring = attacker.ring
    end = attacker.va + attacker.size

    def strike() -> None:
        sent = sum(
            row["data_tx"]
            for row in paths(attacker.cluster)
            if (row["host"], row["peer"]) == (3, 0)
        )
        psn = attacker.h3["psn"] + sent + 400  # new to h0, and inside its window
        spoilt = {"rkey": attacker.rkey ^ 1} if what == "rkey" else {"va": end - len(MARK) + 1}
        attacker.send(attacker.write(src=3, qpn=attacker.from_h3["qpn"], psn=psn, **spoilt), host=3)

    # so much that h3 always has something on its way
    assert not ring.run(200, [(0.3, strike)], size=4 * BYTES)

    def told() -> bool:
        for rank, agent in enumerate(ring.agents):
            for note in agent.notifications():
                ring.hear(rank, note)
        return {note["rank"] for note in ring.failures} >= {0, 3}

    assert wait_until(told)
    ranks = {note["rank"]: note for note in ring.failures}
    assert (ranks[3]["peer_rank"], ranks[3]["reason"]) == (0, "remote access error"), (
        "rank 3 (h3) lost rank 0 (h0)"
    )
    assert ranks[0]["peer_rank"] == 3 and "\n" not in ranks[0]["reason"]
    assert ring.wrong == 0 and all(right for _, _, right in ring.ends)
    assert attacker.counters()["rx_refused"] >= 1
    assert attacker.memory(end - 4096, 4096) == bytes(4096)
    pids = [agent.call("hello")["pid"] for agent in attacker.cluster.agents]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    attacker.cluster.check()
    attacker.cluster.stop_agents()
    states = [
        (e["host"], e["peer"], e["state"]) for e in logged(logs, "qp") if e["state"] == "ERROR"
    ]
    assert sorted(s for s in states if s[:2] in ((0, 3), (3, 0))) == [
        (0, 3, "ERROR"),
        (3, 0, "ERROR"),
    ]
