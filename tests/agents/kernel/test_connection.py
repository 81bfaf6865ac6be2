"""Two queue pairs over real sockets of the loopback: completions, receive requests, the ways it
ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from agents.kernel.connection import CLOSED, ERROR, HELD, OPEN, Connection
from agents.kernel.framing import HELLO, WRITE, Header, Memory
from agents.transport import (
    FLUSHED,
    OK,
    RECEIVE,
    REMOTE_ACCESS,
    RETRY_EXCEEDED,
    Completion,
    Event,
    Region,
)
from agents.transport import WRITE as WRITE_DONE
from tests.waiting import wait_until

MS = 1_000_000_000


class End:
    """A queue pair with memory of its own, in state OPEN."""

    def __init__(self, sock: socket.socket) -> None:
        self.made: list[Completion] = []
        self.events: list[Event] = []
        self.memory = Memory()
        self.held = bytearray(1 << 20)
        self.region: Region = self.memory.register(self.held)
        self.connection = Connection(1, 9, 77, self.memory, 2 * MS, self.made, self.events.append)
        sock.setblocking(False)
        self.connection.adopt(0, sock)

    def turn(self, now: int = 0) -> None:
        self.connection.blocked = False
        self.connection.flush(now)
        self.connection.readable(now)
        self.connection.look(now)

    def write(
        self, other: End, data: bytes, offset: int = 0, imm: int = -1, wr_id: int = 1
    ) -> None:
        self.connection.post_write(
            0, wr_id, memoryview(data), other.region.va + offset, other.region.rkey, imm
        )


@pytest.fixture
def pair() -> Iterator[tuple[End, End]]:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        left = socket.create_connection(server.getsockname()[:2])
        right, _ = server.accept()
    ends = End(left), End(right)
    yield ends
    for end in ends:
        end.connection.drop()


def until(ends: tuple[End, End], what: Callable[[], object]) -> None:
    def happened() -> object:
        for one in ends:
            one.turn()
        return what()

    wait_until(happened, "nothing more happens", pause=0.001)


def test_a_write_lands_and_completes_on_both_sides(pair: tuple[End, End]) -> None:
    left, right = pair
    data = bytes(range(256)) * 3000
    right.connection.post_recv(5)
    left.write(right, data, 1000, imm=42)
    until(pair, lambda: left.made and right.made)
    assert left.made == [Completion(1, 1, WRITE_DONE, OK, 42, len(data))]
    assert right.made == [Completion(1, 5, RECEIVE, OK, 42, len(data))]
    assert right.held[1000 : 1000 + len(data)] == data and not any(right.held[:1000])
    assert left.connection.payload_sent() == len(data) == right.connection.inbound.placed


def test_many_messages_both_ways_in_order(pair: tuple[End, End]) -> None:
    left, right = pair
    for end, other in ((left, right), (right, left)):
        for i in range(200):
            end.connection.post_recv(i)
            end.write(other, i.to_bytes(4, "big") * (i % 50), i * 200, imm=i, wr_id=i)
    until(pair, lambda: all(len(end.made) == 400 for end in pair))
    for end in pair:
        for kind in (WRITE_DONE, RECEIVE):
            assert [(c.wr_id, c.imm) for c in end.made if c.kind == kind] == [
                (i, i) for i in range(200)
            ]
        assert all(
            end.held[i * 200 : i * 200 + 4 * (i % 50)] == i.to_bytes(4, "big") * (i % 50)
            for i in range(200)
        )


def test_a_write_is_not_complete_before_the_peers_kernel_has_it(pair: tuple[End, End]) -> None:
    left, right = pair
    left.write(right, bytes(1 << 19))
    left.write(right, bytes(1 << 19), wr_id=2)
    for _ in range(200):  # the peer's agent never reads, and its kernel's buffer is smaller
        left.turn()
    assert len(left.made) < 2
    assert left.connection.waits
    until(pair, lambda: len(left.made) == 2)


def test_immediates_wait_for_receive_requests(pair: tuple[End, End]) -> None:
    left, right = pair
    for i in range(3):
        left.write(right, b"x", imm=i)
    until(pair, lambda: len(left.made) == 3 and right.connection.counts["rx_messages"] == 3)
    assert right.made == []
    for i in range(3):
        right.connection.post_recv(i)
    assert [(c.wr_id, c.imm) for c in right.made] == [(0, 0), (1, 1), (2, 2)]


def test_no_more_is_read_when_too_many_immediates_wait(pair: tuple[End, End]) -> None:
    left, right = pair
    for i in range(HELD + 500):
        left.write(right, b"", imm=i)
    until(pair, lambda: not right.connection.reads)
    right.turn()
    assert HELD <= right.connection.counts["rx_messages"] < HELD + 500
    for i in range(HELD + 500):
        right.connection.post_recv(i)
    until(pair, lambda: len(right.made) == HELD + 500)
    assert [c.imm for c in right.made] == list(range(HELD + 500))


def test_a_write_out_of_bounds_ends_the_queue_pair_and_touches_nothing(
    pair: tuple[End, End],
) -> None:
    left, right = pair
    right.connection.post_recv(3)
    left.write(right, bytes([255]) * 100, len(right.held) - 99)
    until(pair, lambda: right.connection.state == ERROR and left.connection.state == ERROR)
    assert right.connection.counts["rx_refused_access"] == 1 and not any(right.held)
    assert right.made == [Completion(1, 3, RECEIVE, FLUSHED, -1, 0)]
    assert "are not within" in right.events[0][2]["cause"]


def test_the_cause_of_a_refused_header_is_its_own(pair: tuple[End, End]) -> None:
    left, right = pair
    right.write(left, b"under way")
    assert left.connection.sock is not None
    left.connection.sock.send(Header(HELLO, 1, 1, 0, 0).pack())
    until(pair, lambda: right.connection.state == ERROR)
    assert right.connection.counts["rx_bad_header"] == 1
    assert [c.status for c in right.made if c.kind == WRITE_DONE] in ([REMOTE_ACCESS], [OK])


def test_a_dead_peer_fails_what_is_outstanding(pair: tuple[End, End]) -> None:
    left, right = pair
    left.connection.post_recv(8)
    for i in range(3):
        left.write(right, bytes(1 << 19), wr_id=i)
    left.turn()
    assert right.connection.sock is not None
    right.connection.drop()
    until((left, left), lambda: left.connection.state == ERROR)
    writes = [(c.wr_id, c.status) for c in left.made if c.kind == WRITE_DONE]
    assert (writes[0][1], [w[0] for w in writes]) == (RETRY_EXCEEDED, [0, 1, 2])
    assert {status for _, status in writes[1:]} == {FLUSHED}
    assert [(c.wr_id, c.status) for c in left.made if c.kind == RECEIVE] == [(8, FLUSHED)]
    with pytest.raises(ValueError, match="is ERROR"):
        left.write(right, b"more")
    left.connection.post_recv(9)
    assert left.made[-1] == Completion(1, 9, RECEIVE, FLUSHED, -1, 0)


def test_a_goodbye_is_no_error(pair: tuple[End, End]) -> None:
    left, right = pair
    left.connection.bye()
    left.connection.drop()
    until((right, right), lambda: right.connection.state == CLOSED)
    assert not right.events and not right.made


def test_no_progress_is_an_error_after_the_time_out(pair: tuple[End, End]) -> None:
    left, right = pair
    left.write(right, bytes(1 << 19))
    left.write(right, bytes(1 << 23))  # more than both kernels hold, of a peer that never reads
    left.turn(now=MS)
    for _ in range(100):
        left.turn(now=MS)
    assert left.connection.state == OPEN
    left.connection.look(MS + 2 * MS)
    assert left.connection.state == OPEN, "just in time"
    left.connection.look(MS + 2 * MS + 2)
    assert left.connection.state == ERROR and "no progress for 2 ms" in left.events[0][2]["cause"]


def test_nobody_who_waits_for_nothing_times_out(pair: tuple[End, End]) -> None:
    left, _ = pair
    left.connection.look(1000 * MS)
    assert left.connection.state == OPEN
    assert Header.unpack(Header(WRITE, 1, 2, 3, 4).pack()) == (WRITE, 1, 2, 3, 4)


def test_at_rest_the_kernel_gets_no_more_bytes(pair: tuple[End, End]) -> None:
    a, b = pair
    a.write(b, bytes(1 << 16), imm=1)
    a.connection.quiesced = True
    for _ in range(3):
        a.turn()
    assert a.connection.payload_sent() == 0 and not a.connection.writes
    a.connection.quiesced = False
    b.connection.post_recv(5)
    until(pair, lambda: b.made)
