"""The NIC of programs, over both engines on a virtual network: verbs in, completions and bytes
out."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain, pairwise
from random import Random

import pytest

from agents.nic.device import make_engine
from agents.verbs import layout, states
from agents.verbs.queue_pair import (
    LOC_LEN_ERR,
    LOC_PROT_ERR,
    LOC_QP_OP_ERR,
    SUCCESS,
    WC_RDMA_WRITE,
    WC_RECV_WITH_IMM,
    WR_FLUSH_ERR,
)
from agents.verbs.session import CQ_ERR, PORT_ACTIVE, PORT_ERR, QP_FATAL
from tests.agents.verbs.program import RTS_MASK, Buffer, Program, Rig
from tests.waiting import wait_until
from topologies.clos import Fabric
from topologies.units import MS, NS, US

FABRIC = Fabric(name="verbs", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)
REM_ACCESS_ERR, REM_OP_ERR, RETRY_EXC_ERR = 10, 11, 12
SOME = 10 * MS


@pytest.fixture(params=["mrc", "roce"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(
        FABRIC,
        [make_engine(request.param, FABRIC, host, {}, 1) for host in range(FABRIC.host_count)],
    )
    yield made
    made.close()


class Ends:
    """Two programs with a connected queue pair, and a buffer each: by default on hosts 0 and 3."""

    def __init__(
        self,
        rig: Rig,
        hosts: tuple[int, int] = (0, 3),
        size: int = 1 << 16,
        access: int = 3,
        timeout: int = 14,
    ) -> None:
        self.rig = rig
        self.a, self.b = (Program(rig, host) for host in hosts)
        self.pd_a, self.pd_b = self.a.ask(layout.ALLOC_PD), self.b.ask(layout.ALLOC_PD)
        self.cq_a, self.cq_b = self.a.cq(), self.b.cq()
        self.qa, self.qb = self.a.qp(self.pd_a, self.cq_a), self.b.qp(self.pd_b, self.cq_b)
        self.src, self.dst = Buffer(size), Buffer(size)
        self.src.map[:] = Random(1).randbytes(size)
        self.lkey, _ = self.src.register(self.a, self.pd_a)
        _, self.rkey = self.dst.register(self.b, self.pd_b, access)
        self.a.to_rts(self.qa, hosts[1], self.qb, 5, 9, timeout)
        self.b.to_rts(self.qb, hosts[0], self.qa, 9, 5)

    def write(self, at: int = 0, length: int = 1 << 16, imm: int = -1, **more: int) -> None:
        self.a.write(
            self.qa,
            [(self.src.address + at, length, self.lkey)],
            self.dst.address + at,
            self.rkey,
            imm,
            **more,
        )


@pytest.mark.parametrize("hosts", [(0, 3), (0, 0)])
def test_writes_and_immediates_arrive(rig: Rig, hosts: tuple[int, int]) -> None:
    e = Ends(rig, hosts)
    e.b.recv(e.qb, 77)
    e.write(0, 40_000, wr_id=1, flags=0)
    e.write(40_000, 10_000, 0x11223344, wr_id=2)
    e.a.write(e.qa, [], 0, 0, wr_id=3)
    rig.run(SOME)
    assert e.dst.map[:50_000] == e.src.map[:50_000] and e.dst.map[50_000:] == bytes(
        len(e.dst.map) - 50_000
    )
    two, three = e.a.poll(e.cq_a)
    assert (
        two[:3] == (2, SUCCESS, WC_RDMA_WRITE)
        and two.retired == 2
        and two.is_send
        and two.qpn == e.qa
    )
    assert (three.wr_id, three.status, three.retired) == (3, SUCCESS, 3)
    (got,) = e.b.poll(e.cq_b)
    assert got[:3] == (77, SUCCESS, WC_RECV_WITH_IMM)
    assert (got.imm, got.length, got.flags, got.qpn, got.source, got.is_send) == (
        0x11223344,
        10_000,
        2,
        e.qb,
        e.qa,
        0,
    )


def test_lists_inline_and_many(rig: Rig) -> None:
    e = Ends(rig)
    cut = [0, 1, 5_000, 5_001, 9_000, 20_000]
    sges = [(e.src.address + low, high - low, e.lkey) for low, high in pairwise(cut)]
    e.a.write(e.qa, [*sges[:2], (e.src.address, 0, 12345), *sges[2:]], e.dst.address, e.rkey)
    e.a.inline(e.qa, bytes(range(200)), e.dst.address + 30_000, e.rkey)
    rig.run(SOME)
    assert [wc.status for wc in e.a.poll(e.cq_a)] == [SUCCESS] * 2
    assert e.dst.map[:20_000] == e.src.map[:20_000] and e.dst.map[30_000:30_200] == bytes(
        range(200)
    )
    skipped = layout.SLOTS - 700 - e.a.tail
    e.a.raw(layout.WORK.pack(layout.PADDING, 0, 0, 0, 0, 0, 0, 0, 0, 0, skipped, 0, 0, 0), skipped)
    for k in range(256):  # five slots each: over the ring's end
        e.a.inline(e.qa, k.to_bytes(8, "little") * 30, e.dst.address, e.rkey, k)
        if k % 32 == 31:
            rig.run(SOME)
            done = e.a.poll(e.cq_a)
            assert [wc.wr_id for wc in done] == list(range(k - 31, k + 1)) and {
                wc.status for wc in done
            } == {SUCCESS}
            assert e.dst.map[:240] == k.to_bytes(8, "little") * 30


def test_masks_and_states(rig: Rig) -> None:
    p = Program(rig, 0)
    pd, cq = p.ask(layout.ALLOC_PD), p.cq()
    q = p.qp(pd, cq)
    init = states.STATE | states.PKEY_INDEX | states.PORT | states.ACCESS
    assert p.modify(q, states.STATE, state=states.INIT) == errno.EINVAL
    assert p.modify(q, init | states.AV, state=states.INIT, port=1) == errno.EINVAL
    assert p.modify(q, init, state=states.INIT, port=2) == errno.EINVAL
    assert (
        p.modify(q, init, state=states.RTR, port=1) == errno.EINVAL and p.state(q) == states.RESET
    )
    assert p.to_init(q) == 0 and p.state(q) == states.INIT
    assert p.modify(q, states.STATE, state=states.RTS) == errno.EINVAL
    assert p.modify(q, states.STATE, state=4) == errno.EINVAL
    assert (
        p.modify(q, states.STATE | states.CUR_STATE, state=states.ERROR, cur_state=states.RTS)
        == errno.EINVAL
    )
    assert p.to_rtr(q, 3, 99, gid=1) == 0 and p.state(q) == states.RTR
    assert p.modify(q, states.STATE, state=states.ERROR) == 0 and p.state(q) == states.ERROR
    assert p.modify(q, states.STATE, state=states.RESET) == 0 and p.state(q) == states.RESET
    assert p.to_init(q) == 0 and p.to_rtr(q, 3, 99) == 0
    p.call(layout.DEALLOC_PD, pd)
    assert p.error == errno.EBUSY
    p.call(layout.DESTROY_CQ, cq)
    assert p.error == errno.EBUSY
    p.call(layout.DESTROY_QP, q)
    p.call(layout.DESTROY_QP, q)
    assert p.error == errno.EINVAL
    for op, handle in ((layout.DESTROY_CQ, cq), (layout.DEALLOC_PD, pd)):
        p.call(op, handle)
        assert p.error == 0
    p.qp(pd, cq)
    assert p.error == errno.EINVAL


def test_what_is_wrong_here_is_blamed_alone(rig: Rig) -> None:
    """A request with memory that is not registered fails when its turn comes: those before it are
    done, those after it flushed."""
    e = Ends(rig)
    e.write(0, 30_000, wr_id=1)
    e.a.write(e.qa, [(e.src.address + 1, e.src.size, e.lkey)], e.dst.address, e.rkey, wr_id=2)
    e.write(0, 8, wr_id=3)
    e.a.recv(e.qa, 4)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [
        (1, SUCCESS),
        (2, LOC_PROT_ERR),
        (3, WR_FLUSH_ERR),
        (4, WR_FLUSH_ERR),
    ]
    assert e.a.state(e.qa) == states.ERROR and e.a.async_events() == []
    e.write(0, 8, wr_id=5)
    e.a.recv(e.qa, 6)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [
        (5, WR_FLUSH_ERR),
        (6, WR_FLUSH_ERR),
    ]


@pytest.mark.parametrize("opcode", [2, 4, 5])
def test_other_operations_fail(rig: Rig, opcode: int) -> None:
    e = Ends(rig)
    e.write(wr_id=1, opcode=opcode)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [(1, LOC_QP_OP_ERR)]


@pytest.mark.parametrize("hosts", [(0, 3), (1, 1)])
@pytest.mark.parametrize(
    "wrong", ["rkey", "beyond", "before", "no remote write", "domain", "queue pair"]
)
def test_peers_memory_is_guarded(rig: Rig, wrong: str, hosts: tuple[int, int]) -> None:
    e = Ends(rig, hosts, access=1 if wrong == "no remote write" else 3)
    va, rkey = e.dst.address, e.rkey
    if wrong == "rkey":
        rkey ^= 1
    elif wrong == "domain":
        rkey = e.dst.register(e.b, e.b.ask(layout.ALLOC_PD))[1]
    elif wrong == "queue pair":
        e.b.call(layout.DESTROY_QP, e.qb)
        e.qb = e.b.qp(e.pd_b, e.cq_b)
        e.b.to_init(e.qb, access=1)
        assert e.b.to_rtr(e.qb, hosts[0], e.qa, 9) == 0
        e.a.modify(e.qa, states.STATE, state=states.RESET)
        e.a.to_rts(e.qa, hosts[1], e.qb, 5, 9)
    va += {"beyond": 1, "before": -1}.get(wrong, 0)
    e.a.write(e.qa, [(e.src.address, e.src.size, e.lkey)], va, rkey, wr_id=1)
    e.a.write(e.qa, [(e.src.address, 8, e.lkey)], e.dst.address, e.rkey, wr_id=2)
    e.b.recv(e.qb, 3)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [
        (1, REM_ACCESS_ERR),
        (2, WR_FLUSH_ERR),
    ]
    assert [(wc.wr_id, wc.status) for wc in e.b.poll(e.cq_b)] == [(3, WR_FLUSH_ERR)]
    assert e.b.async_events() == [(QP_FATAL, e.qb)] and e.a.async_events() == []
    if wrong != "beyond":
        assert e.dst.map[:] == bytes(e.dst.size)


@pytest.mark.parametrize("hosts", [(0, 3), (1, 1)])
def test_a_peer_that_is_gone(rig: Rig, hosts: tuple[int, int]) -> None:
    e = Ends(rig, hosts, timeout=6)
    e.b.end()
    assert rig.servers[hosts[1]].count == (0 if hosts[0] != hosts[1] else 1)
    e.write(wr_id=1)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [(1, RETRY_EXC_ERR)]
    e.a.end()
    assert not rig.servers[0].owners and not rig.servers[0].sessions[:]


@pytest.mark.parametrize("returns", [True, False])
def test_a_program_says_how_long_it_waits(rig: Rig, returns: bool) -> None:
    e = Ends(rig, timeout=6)
    long = 3 * (4096 * NS << 6)
    e.write(wr_id=1)
    rig.run(SOME)
    assert [wc.status for wc in e.a.poll(e.cq_a)] == [SUCCESS]
    rig.net.fate = lambda frame, link, now: False
    e.write(wr_id=2)
    rig.run(long - 150 * US)
    assert e.a.poll(e.cq_a) == [] and e.a.state(e.qa) == states.RTS
    if returns:
        rig.net.fate = lambda frame, link, now: True
    rig.run(200 * US)
    assert e.a.state(e.qa) == (states.RTS if returns else states.ERROR)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [
        (2, SUCCESS if returns else RETRY_EXC_ERR)
    ]


def test_and_zero_is_for_ever(rig: Rig) -> None:
    e = Ends(rig, timeout=0)
    rig.net.fate = lambda frame, link, now: False
    e.write(wr_id=1)
    rig.run(2 * SOME)  # with the engine's own retries it would give up after 8.5 ms
    rig.net.fate = lambda frame, link, now: True
    rig.run(4 * SOME)
    assert [wc.status for wc in e.a.poll(e.cq_a)] == [SUCCESS]


def test_an_immediate_that_nobody_waits_for(rig: Rig) -> None:
    e = Ends(rig)
    e.write(0, 100, 1, wr_id=1)
    rig.run(SOME)
    if rig.servers[0].transport == layout.MRC:
        assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [(1, REM_OP_ERR)]
        assert e.b.async_events() == [(QP_FATAL, e.qb)]
    else:
        assert e.a.poll(e.cq_a) == []
        e.b.recv(e.qb, 2)
        rig.run(SOME)
        assert [wc.status for wc in e.a.poll(e.cq_a)] == [SUCCESS]


@pytest.mark.parametrize("end", ["source", "target"])
def test_memory_that_goes_in_flight(rig: Rig, end: str) -> None:
    e = Ends(rig, size=1 << 20)
    e.write(0, 1 << 20, wr_id=1)
    e.write(0, 8, wr_id=2)
    rig.run(20 * US)
    if end == "source":
        e.a.call(layout.DEREG_MR, e.lkey)
    else:
        (region,) = e.b.session.mrs
        e.b.call(layout.DEREG_MR, region)
    before = e.dst.map[:]
    assert any(before) and not all(before[-4096:])
    rig.run(SOME)
    cause = LOC_PROT_ERR if end == "source" else REM_ACCESS_ERR
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [(1, cause), (2, WR_FLUSH_ERR)]
    if end == "target":
        assert e.dst.map[:] == before


def test_queues_that_overflow(rig: Rig) -> None:
    e = Ends(rig)
    cq = e.a.cq(4, channel := e.a.channel())
    assert channel
    q = e.a.qp(e.pd_a, cq)
    other = e.b.qp(e.pd_b, e.cq_b)
    e.a.to_rts(q, 3, other)
    e.b.to_rts(other, 0, q)
    for k in range(6):
        e.a.inline(q, b"x", e.dst.address, e.rkey, k)
    rig.run(SOME)
    assert e.a.async_events() == [(CQ_ERR, cq)]
    assert struct.unpack_from("=I", e.a.rings[cq], layout.FAILED_AT)[0] == 1
    assert e.a.state(q) == states.ERROR and len(e.a.poll(cq)) == 4
    for k in range(80):  # 64 fit the queue
        e.write(0, 1, wr_id=k)
    assert e.a.session.dropped == 0
    rig.turn()
    rig.turn()
    assert e.a.session.dropped == 16


def test_channels_tell_what_was_armed(rig: Rig) -> None:
    e = Ends(rig)
    channel = e.b.channel()
    cq = e.b.cq(16, channel)
    q = e.b.qp(e.pd_b, cq)
    mine = e.a.qp(e.pd_a, e.cq_a)
    e.a.to_rts(mine, 3, q)
    e.b.to_rts(q, 0, mine)

    def told() -> int:
        rig.run(SOME)
        found = 0
        while True:
            try:
                assert layout.CHANNEL_EVENT.unpack(e.b.channels[channel].recv(64)) == (cq,)
                found += 1
            except BlockingIOError:
                return found

    for k in range(4):
        e.b.recv(q, k)
    e.a.write(mine, [], 0, 0, 1)
    assert told() == 0
    e.b.arm(cq)
    assert told() == 0
    e.a.write(mine, [], 0, 0, 1)
    e.a.write(mine, [], 0, 0, 1)
    assert told() == 1
    assert len(e.b.poll(cq)) == 3
    e.b.call(layout.DESTROY_CHANNEL, channel)
    assert e.b.error == errno.EBUSY


def test_ports_are_told(rig: Rig) -> None:
    p = Program(rig, 0)
    assert p.call(layout.QUERY_PORT, 1)[0][:3] == [4, 5, 2 * FABRIC.nic_rate // 10**6]
    for port, up in ((1, False), (0, False), (1, True)):
        rig.nics[0].port_state(rig.net.now, port, up)
        rig.turn()
    assert p.async_events() == [(PORT_ERR, 1), (PORT_ERR, 1), (PORT_ACTIVE, 1)]
    assert p.call(layout.QUERY_PORT, 1)[0][:3] == [4, 5, FABRIC.nic_rate // 10**6]
    p.call(layout.QUERY_PORT, 2)
    assert p.error == errno.EINVAL


def test_regions(rig: Rig, tmp_path: object) -> None:
    e = Ends(rig)
    memfd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, 1 << 16)
    ask = (layout.REG_MR, e.pd_b, 0x10000, 5000, 0x5000_0000, 3, 3000, 1)
    e.b.call(*ask, fds=[memfd])
    assert e.b.error == errno.EINVAL  # it could shrink
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    e.b.call(*ask[:6], (1 << 16) - 4999, 1, fds=[memfd])
    assert e.b.error == errno.EINVAL
    e.b.call(*ask)
    assert e.b.error == errno.EINVAL
    results, _ = e.b.call(*ask, fds=[memfd])
    e.a.write(e.qa, [(e.src.address, 5000, e.lkey)], 0x5000_0000, results[2])
    rig.run(SOME)
    assert os.pread(memfd, 5000, 3000) == e.src.map[:5000] and os.pread(memfd, 3000, 0) == bytes(
        3000
    )
    for bad in (
        (e.pd_b, 0, 0, 0, 3),
        (99, 4096, 8, 4096, 3),
        (e.pd_b, (1 << 63) - 4, 8, 0, 3),
        (e.pd_b, 8, 1 << 41, 8, 3),
    ):
        e.b.call(layout.REG_MR, *bad)
        assert e.b.error == errno.EINVAL
    e.b.call(layout.REG_MR, e.pd_b, 4096, 8, 4096, 1 << 6)
    assert e.b.error == errno.EOPNOTSUPP
    os.close(memfd)


def _send(p: Program, data: bytes, fds: list[int] | None = None) -> bool:
    """Whether the session is alive after that datagram."""
    socket.send_fds(p.sock, [data], fds or [])
    p.serve()
    p.rig.turn()
    return not p.session.closed


def test_garbage_ends_the_session_alone(rig: Rig) -> None:
    e = Ends(rig)
    drawn = Random(3)
    ends = 0
    for trial in range(300):
        p = Program(rig, 0)
        pd, cq = p.ask(layout.ALLOC_PD), p.cq()
        q = p.qp(pd, cq)
        match trial % 5:
            case 0:
                alive = _send(p, drawn.randbytes(drawn.randrange(1, 600)))
            case 1:
                op = drawn.randrange(0, 20)
                alive = _send(
                    p,
                    layout.REQUEST.pack(
                        op, 1, *(drawn.getrandbits(drawn.choice((1, 8, 32, 64))) for _ in range(30))
                    ),
                )
            case 2:
                for place in (layout.HEAD_AT, layout.FLAG_AT, layout.TAIL_AT):
                    struct.pack_into("=I", p.work, place, drawn.getrandbits(32))
                    struct.pack_into("=I", p.rings[cq], place, drawn.getrandbits(32))
                alive = _send(p, layout.REQUEST.pack(layout.DOORBELL, 0, *[0] * 30))
            case 3:
                p.raw(bytes([drawn.randrange(3)]) + drawn.randbytes(63), drawn.randrange(1, 3))
                p.rig.turn()
                alive = not p.session.closed
            case _:
                p.write(
                    q if drawn.random() < 0.5 else e.qa,
                    [],
                    drawn.getrandbits(64),
                    drawn.getrandbits(32),
                    opcode=drawn.randrange(16),
                )
                rig.turn()
                alive = not p.session.closed
        ends += not alive
        p.end()
    assert 60 < ends < 300
    e.write(wr_id=1)
    rig.run(SOME)
    assert [wc.status for wc in e.a.poll(e.cq_a)] == [SUCCESS] and e.dst.map[:] == e.src.map[:]
    assert len(rig.servers[0].sessions) == 1 and rig.servers[0].count == 1


def test_who_does_not_read_answers_is_not_waited_for(rig: Rig) -> None:
    p = Program(rig, 0)
    asked = 0
    while not p.session.closed:
        p.sock.send(layout.REQUEST.pack(layout.QUERY_PORT, 1, 1, *[0] * 29), socket.MSG_DONTWAIT)
        p.serve()
        asked += 1
    assert 10 < asked < 10_000 and not rig.servers[0].sessions


def _lingering(stack: ExitStack) -> int:
    """A socket that takes a minute to be closed: its peer does not read."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    sock = socket.create_connection(listener.getsockname())
    stack.enter_context(listener.accept()[0])
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while sock.send(bytes(1 << 20)):
            pass
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    return sock.detach()


@pytest.mark.parametrize("how", ["first", "third", "unread"])
def test_what_takes_long_to_be_closed_holds_nobody_up(rig: Rig, how: str) -> None:
    """The agent answers others before the socket that it was given is closed, which the end of the
    test lets happen."""
    p, other = Program(rig, 0), Program(rig, 0)
    request = layout.REQUEST.pack(layout.QUERY_PORT, 1, 1, *[0] * 29)
    with ExitStack() as stack:
        fd = _lingering(stack)
        plain = [os.dup(2), os.dup(2)] if how == "third" else []
        if how == "unread":
            p.sock.send(b"garbage")
        socket.send_fds(p.sock, [request], [*plain, fd])
        for mine in (*plain, fd):
            os.close(mine)
        p.serve()
        other.call(layout.QUERY_PORT, 1)
        assert other.error == 0 and p.session.closed == (how == "unread")
    other.end()


def test_hello_wants_memory_and_a_version(rig: Rig) -> None:
    p = Program(rig, 0, hello=False)
    read, write = os.pipe()
    p.call(layout.HELLO, layout.VERSION, 1, fds=[read])
    assert p.error == errno.EINVAL
    p.call(layout.HELLO, layout.VERSION + 1, 1)
    assert p.error == errno.EPROTO
    with open("/proc/self/status") as other:
        p.call(layout.HELLO, layout.VERSION, 1, fds=[other.fileno()])
    assert p.error == errno.EINVAL
    os.close(read)
    os.close(write)
    assert not _send(p, layout.REQUEST.pack(layout.ALLOC_PD, 1, *[0] * 30))


def test_nothing_stays_of_a_program(rig: Rig) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        e = Ends(rig)
        e.write()
        rig.run(SOME // 10)
        e.a.end()
        e.b.end()
        rig.run(SOME)
    for server in rig.servers:
        assert (
            not server.sessions and not server.owners and server.count == 0 and not server.to_flush
        )
    # fewer, if those of a test before were still closed
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= fds)


def test_what_was_done_is_told(rig: Rig) -> None:
    e = Ends(rig)
    e.b.recv(e.qb)
    e.write(0, 100)
    e.write(0, 11, 5)
    rig.run(SOME)
    mine = {
        "pid": os.getpid(),
        "qpn": e.qa,
        "peer": 3,
        "messages": 2,
        "bytes": 111,
        "immediates": 0,
    }
    assert rig.servers[0].done() == [mine] and rig.servers[0].done() == []
    e.write(0, 7)
    rig.run(SOME)
    e.a.call(layout.DESTROY_QP, e.qa)
    assert rig.servers[0].done() == [{**mine, "messages": 1, "bytes": 7}]
    assert [row["immediates"] for row in rig.servers[3].done()] == [1]
    assert rig.servers[0].table() == [
        {"pid": os.getpid(), "qps": 0, "mrs": 1, "cqs": 1, "dropped": 0, "messages": 0, "bytes": 0}
    ]


@pytest.mark.parametrize("after", [states.RTS, states.ERROR, states.RESET])
def test_the_engine_may_give_up_before_the_program_hears_of_it(rig: Rig, after: int) -> None:
    """A peer that writes where it may not ends a queue pair in RTR; what the program asks in the
    same turn still gets its answer."""
    e = Ends(rig)
    q, peer = e.b.qp(e.pd_b, e.cq_b), e.a.qp(e.pd_a, e.cq_a)
    e.a.to_rts(peer, 3, q, 5, 9)
    e.b.to_init(q)
    assert e.b.to_rtr(q, 0, peer, 9) == 0
    e.b.recv(q, 1)
    rig.turn()
    rig.nics[3].fail_qp(q)
    e.b.recv(q, 2)
    mask = RTS_MASK if after == states.RTS else states.STATE
    error = e.b.modify(q, mask, state=after, sq_psn=1)
    assert error == (errno.EINVAL if after == states.RTS else 0)
    rig.run(SOME)
    assert e.b.state(q) == (states.RESET if after == states.RESET else states.ERROR)
    flushed = [] if after == states.RESET else [(1, WR_FLUSH_ERR), (2, WR_FLUSH_ERR)]
    assert [(wc.wr_id, wc.status) for wc in e.b.poll(e.cq_b)] == flushed
    assert e.b.async_events() == ([(QP_FATAL, q)] if after == states.RTS else [])


def test_a_list_longer_than_a_message_fails_alone(rig: Rig) -> None:
    """Its bytes would not fit a completion's field."""
    e = Ends(rig)
    lkey = e.a.ask(layout.REG_MR, e.pd_a, 4096, 1 << 34, 4096, 1)
    e.a.write(e.qa, [(4096, 0xFFFF_FFFF, lkey)] * 2, e.dst.address, e.rkey, wr_id=1)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status, wc.length) for wc in e.a.poll(e.cq_a)] == [(1, LOC_LEN_ERR, 0)]
    e.a.call(layout.QUERY_PORT, 1)
    assert e.a.error == 0


def test_requests_of_a_host_have_an_end(rig: Rig) -> None:
    """One that waits takes memory of the agent: 4,096 queue pairs of 8,192 receives would be
    gigabytes."""
    e = Ends(rig)
    server = rig.servers[0]
    server.limits.requests = server.requests + 100
    q = e.a.qp(e.pd_a, e.cq_a, 50, 50)
    e.a.qp(e.pd_a, e.cq_a, 1, 0)
    assert e.a.error == errno.ENOMEM
    e.a.call(layout.DESTROY_QP, q)
    e.a.qp(e.pd_a, e.cq_a, 1, 0)
    assert e.a.error == 0
    e.a.end()
    assert server.requests == 0


def test_a_turn_is_short_whatever_programs_have_posted(rig: Rig) -> None:
    rig.servers[1].limits.flushes, rig.servers[1].limits.pieces = 10, 2
    e = Ends(rig, (1, 1))
    pairs = [e.qa]
    for _ in range(4):
        q, other = e.a.qp(e.pd_a, e.cq_a), e.b.qp(e.pd_b, e.cq_b)
        e.a.to_rts(q, 1, other, 5, 9)
        e.b.to_rts(other, 1, q, 9, 5)
        pairs.append(q)
    for q in pairs:
        e.a.write(q, [(e.src.address, 8, e.lkey)], e.dst.address, e.rkey, wr_id=q)
    done = []
    for _ in range(3):
        rig.turn()
        done.append([wc.wr_id for wc in e.a.poll(e.cq_a)])
    assert list(chain(*done)) == pairs and max(map(len, done)) == 2
    for k in range(25):
        e.a.recv(e.qa, k)
    rig.turn()
    e.a.modify(e.qa, states.STATE, state=states.ERROR)
    done.clear()
    while rig.servers[1].awake or not done:
        rig.turn()
        done.append([wc.wr_id for wc in e.a.poll(e.cq_a)])
    assert list(chain(*done)) == list(range(25)) and max(map(len, done)) == 10


def test_files_that_cannot_be_mapped_are_read_and_written(rig: Rig) -> None:
    """EINVAL tells the library to go by /proc/self/mem: for what is sealed against writing or only
    read, and for huge pages."""
    e = Ends(rig)
    made = []
    for flags, seals in (
        (0, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE),
        (0, fcntl.F_SEAL_SHRINK | 0x10),
        (os.MFD_HUGETLB, fcntl.F_SEAL_SHRINK),
    ):
        try:
            made.append(os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags))
        except OSError:
            continue  # a kernel without huge pages
        os.ftruncate(made[-1], 1 << 21)
        fcntl.fcntl(made[-1], fcntl.F_ADD_SEALS, seals)
    whole = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(whole, 1 << 21)
    fcntl.fcntl(whole, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    made += [whole, os.open(f"/proc/self/fd/{whole}", os.O_RDONLY)]
    for fd in made:
        e.b.call(layout.REG_MR, e.pd_b, 0x10000, 4096, 0x10000, 3, 0, 1, fds=[fd])
        assert e.b.error == (0 if fd == whole else errno.EINVAL), os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)


def test_a_queue_pair_that_was_reset_begins_anew(rig: Rig) -> None:
    """Library and agent count from 0 again, and what the queue pair suffered before is
    forgotten."""
    e = Ends(rig)
    e.b.recv(e.qb)
    e.write(0, 8, wr_id=1)
    e.write(0, 8, 5, wr_id=2)
    e.a.write(e.qa, [(e.src.address, 8, 999)], e.dst.address, e.rkey, wr_id=3)
    rig.run(SOME)
    assert [wc.retired for wc in e.a.poll(e.cq_a)] == [1, 2, 3] and [
        wc.retired for wc in e.b.poll(e.cq_b)
    ] == [1]
    for p, q, host, dest in ((e.a, e.qa, 3, e.qb), (e.b, e.qb, 0, e.qa)):
        assert p.modify(q, states.STATE, state=states.RESET) == 0
        p.to_rts(q, host, dest, 9, 9)
    e.b.recv(e.qb)
    e.write(0, 8, 5, wr_id=4)
    rig.run(SOME)
    (sent,), (got,) = e.a.poll(e.cq_a), e.b.poll(e.cq_b)
    assert (sent.status, sent.retired, got.status, got.retired) == (SUCCESS, 1, SUCCESS, 1)


def test_a_failure_of_before_the_reset_is_none_of_after(rig: Rig) -> None:
    """The agent reads the engine's events now and then, and a program may be quick."""
    e = Ends(rig)
    assert e.a.modify(e.qa, states.STATE, state=states.ERROR) == 0
    rig.net.now += 1
    assert e.a.modify(e.qa, states.STATE, state=states.RESET) == 0
    e.a.to_rts(e.qa, 3, e.qb)
    rig.turn()
    assert e.a.state(e.qa) == states.RTS and e.a.async_events() == []


def test_what_waits_when_the_queue_pair_fails_is_flushed_not_blamed(rig: Rig) -> None:
    e = Ends(rig)
    e.write(0, 8, wr_id=1)
    e.a.write(e.qa, [(e.src.address, 8, 999)], e.dst.address, e.rkey, wr_id=2)
    rig.turn()
    while rig.net.step(SOME):  # the engine's completion is there, and nobody has taken it
        pass
    e.a.modify(e.qa, states.STATE, state=states.ERROR)
    rig.run(SOME)
    assert [(wc.wr_id, wc.status) for wc in e.a.poll(e.cq_a)] == [(1, SUCCESS), (2, WR_FLUSH_ERR)]
