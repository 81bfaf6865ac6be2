"""Programs that speak to an agent without a library, over both engines on a virtual network: seeds
that stay, and one that is drawn."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from random import Random, SystemRandom

import pytest

from agents.nic.device import make_engine
from agents.verbs.queue_pair import SUCCESS
from agents.verbs.session import Session
from tests.agents.verbs.program import RTR_MASK, RTS_MASK, Rig
from tests.agents.verbs.test_session import FABRIC, SOME, Ends
from tests.verbs_programs.garbage import RTR, RTS, Ended, Stranger, sacrifice
from tests.waiting import wait_until

ROUNDS = 40


@pytest.fixture(scope="module")
def memory() -> Iterator[int]:
    child, fd = sacrifice()
    yield fd
    os.close(fd)
    child.kill()
    child.communicate()


def test_the_masks_are_those_of_the_states() -> None:
    assert (RTR, RTS) == (RTR_MASK, RTS_MASK)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize("seed", [1, 2, 3, None])
def test_nothing_but_the_stranger_ends(transport: str, seed: int | None, memory: int) -> None:
    seed = SystemRandom().getrandbits(32) if seed is None else seed
    print(f"seed {seed}")
    drawn = Random(seed)
    gc.collect()  # sockets of tests before
    rig = Rig(
        FABRIC, [make_engine(transport, FABRIC, host, {}, 1) for host in range(FABRIC.host_count)]
    )
    victim = Ends(rig)
    descriptors = len(os.listdir("/proc/self/fd"))
    counts = [(server.count, server.requests, server.channels) for server in rig.servers]
    ended = errors = 0
    for number in range(ROUNDS):
        host = drawn.choice((0, 3))
        server = rig.servers[host]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)  # a turn has answered, or never will
        server.sessions.append(Session(server, theirs))
        server.sockets = [*server.sockets, theirs]

        def pump(number: int = number) -> None:
            rig.turn()
            if number % 4 == 0:
                rig.run(SOME // 1000)

        stranger = Stranger(ours, memory, drawn, pump)
        with stranger.stack:
            try:
                stranger.go_on(drawn.randrange(40))
            except Ended:
                ended += 1
        errors += stranger.errors
        for at in range(0, victim.src.size, 4096):
            victim.src.map[at] = drawn.getrandbits(8)
        victim.b.recv(victim.qb, number)
        victim.write(imm=number, wr_id=number)
        rig.run(SOME)
        assert [(wc.wr_id, wc.status) for wc in victim.a.poll(victim.cq_a)] == [(number, SUCCESS)]
        assert [(wc.wr_id, wc.status) for wc in victim.b.poll(victim.cq_b)] == [(number, SUCCESS)]
        assert victim.dst.map[:] == victim.src.map[:]
    assert ended and errors
    assert [len(server.sessions) for server in rig.servers] == [1, 0, 0, 1]
    assert [(server.count, server.requests, server.channels) for server in rig.servers] == counts
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert sum(server.garbage for server in rig.servers) > 0
    rig.close()
    victim.a.end()
    victim.b.end()
