"""With no path left a queue pair goes to ERROR, in a time that its retries say, and tells every
request what became of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mrc.queue_pair import ERROR
from agents.transport import FLUSHED, OK, PEER_UNKNOWN, RETRY_EXCEEDED
from tests.properties.play import POSTS, SETTINGS, Post, Setting, act
from tests.properties.profiles import QUICK
from tests.properties.world import GUARD, Host, Weather, World

HOW = (
    "our ports",
    "their ports",
    "silent",
    "planes",
    "data lost",
    "answers lost",
    "stalled",
    "denied",
)


def cut(world: World, how: str) -> None:
    """Nothing gets from one host to the other and back any more."""
    fabric = world.fabric
    last = fabric.hosts[-1]
    if how in ("our ports", "their ports"):
        node = "h0" if how == "our ports" else last
        for plane in range(fabric.planes):
            world.inject("port", f"{node}-p{plane}")
    elif how == "silent":
        for plane in range(fabric.planes):
            world.inject("silent", f"p{plane}-t0-{fabric.t0_of(fabric.host_count - 1)}")
    elif how == "planes":
        for plane in range(fabric.planes):
            world.inject("plane", f"p{plane}")
    elif how in ("data lost", "answers lost"):
        world.weather.append(Weather("loss", 1 if how == "data lost" else 0))
    elif how == "stalled":
        world.hosts[1].pause(True)
    else:
        for host in world.hosts:
            host.engine.deny(world.now, [f"p{plane}" for plane in range(fabric.planes)])
            host.turn()


def life(world: World) -> int:
    """From the last progress to ERROR: ``linear`` intervals of an RTO, then ``exponential`` + 1
    that double."""
    c = world.config
    return c.rto * (c.linear + (1 << c.exponential + 2) - 2)


def end(
    setting: Setting, posts: list[Post], how: str, after: int, linear: int, exponential: int
) -> None:
    world = setting.world(may_fail=True, linear=linear, exponential=exponential)
    for post in posts:
        act(world, post)
    world.run(after)
    cut(world, how)
    begun, slack = world.now, 8 * world.rtt
    waiting = [host for host in world.hosts if len(host.done) < len(host.writes)]
    if how == "stalled":
        waiting = [host for host in waiting if host.side == 0]  # the other one does nothing at all
    told = [len(host.done) for host in world.hosts]
    world.run(12)  # what was on its way
    still = [host for host in waiting if len(host.done) < len(host.writes)]
    while world.now < begun + life(world) + slack:
        world.run(16)
    for host in world.hosts:
        # Denied paths still bring what was on its way: who had only that left completes.
        assert (host.qp.state == ERROR) == (host in still), (
            f"h{host.number} {how}: {host.done[told[host.side] :]}"
        )
        ended(host, begun + life(world) - slack, begun + life(world) + slack)


def ended(host: Host, earliest: int, latest: int) -> None:
    """What a host was told, if its queue pair failed."""
    failed = [
        (t, fields)
        for t, kind, fields in host.watch.events
        if kind == "qp" and fields["state"] == "ERROR"
    ]
    if host.qp.state != ERROR:
        assert not failed and all(c.status == OK for c in host.done)
        return
    ((when, fields),) = failed
    assert fields["cause"] == "retries exhausted" and earliest <= when <= latest, (
        f"{when - earliest} of {latest - earliest} ps"
    )
    assert [c.wr_id for c in host.done] == list(range(len(host.writes))), (
        "every request is told once, in order"
    )
    statuses = [c.status for c in host.done if c.status != OK]
    assert statuses == [RETRY_EXCEEDED] + [FLUSHED] * (len(statuses) - 1)
    assert len(host.got) == len(host.imms), "receives that nobody was told of"
    assert not host.qp.owes() and host.qp.requester.sent.in_flight == 0
    with pytest.raises(ValueError, match="not in RTS"):
        host.engine.post_write(host.qp.qpn, 99, memoryview(b"x"), 0, 0, -1)


@settings(QUICK, max_examples=25)
@given(
    SETTINGS,
    st.lists(POSTS, min_size=1, max_size=5),
    st.sampled_from(HOW),
    st.integers(1, 12),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_with_no_path_left_the_queue_pair_fails_in_time_and_says_so(
    setting: Setting, posts: list[Post], how: str, after: int, linear: int, exponential: int
) -> None:
    end(setting, posts, how, after, linear, exponential)


def test_who_writes_to_a_failed_queue_pair_is_told_and_its_memory_stays() -> None:
    world = Setting().world(may_fail=True, linear=1, exponential=0)
    a, b = world.hosts
    a.post(3000, False)
    world.run(1)
    cut(world, "answers lost")
    while a.qp.state != ERROR:
        world.run(16)
    world.mend()
    before = bytes(a.memory)
    b.post(500, True)
    b.post(500, False)
    world.run(40)
    assert (b.qp.state, [c.status for c in b.done]) == (ERROR, [PEER_UNKNOWN, FLUSHED])
    assert a.memory == before and set(before[GUARD:-GUARD]) == {0xA5}
