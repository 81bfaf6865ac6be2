"""Faults of the verbs: what a program sees of each, whom it hits, in what order the rest is
flushed, and that it is taken back."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.nic.device import make_engine
from agents.verbs import faults, layout, states
from agents.verbs.faults import DEAD, ERROR, LOST, PORT, REFUSED, SLOW, STATUSES, UNLIMITED, Rule
from agents.verbs.queue_pair import SUCCESS, WR_FLUSH_ERR
from agents.verbs.session import PORT_ACTIVE, PORT_ERR, QP_FATAL
from tests.agents.verbs.program import Program, Rig
from tests.agents.verbs.test_session import FABRIC, SOME, Ends
from topologies.units import US

RETRY_EXC_ERR = STATUSES.index("retry_exc_err")
PID = str(os.getpid())


@pytest.fixture(params=["mrc", "roce"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(
        FABRIC,
        [make_engine(request.param, FABRIC, host, {}, 1) for host in range(FABRIC.host_count)],
    )
    yield made
    made.close()


def begin(
    rig: Rig, what: str, value: int = 0, of: str = "send", host: int = 0, **more: Any
) -> None:
    rig.servers[host].begin(1, Rule(what, value, of, **more))


def seen(p: Program, cq: int) -> list[tuple[int, int]]:
    return [(wc.wr_id, wc.status) for wc in p.poll(cq)]


def test_statuses_are_those_of_verbs() -> None:
    header = Path("/usr/include/infiniband/verbs.h")
    if not header.exists():
        pytest.skip("no header of verbs: apt-get install libibverbs-dev")
    listed = (
        header.read_text()
        .partition("enum ibv_wc_status {")[2]
        .partition("}")[0]
        .replace(",", "")
        .split()
    )
    assert [word.removeprefix("IBV_WC_").lower() for word in listed][: len(STATUSES)] == list(
        STATUSES
    )


@pytest.mark.parametrize("hosts", [(0, 3), (0, 0)])
def test_an_error_and_the_rest_is_flushed_in_order(rig: Rig, hosts: tuple[int, int]) -> None:
    e = Ends(rig, hosts)
    begin(rig, ERROR, RETRY_EXC_ERR, after=2, count=1)
    e.a.recv(e.qa, 90)
    for number in range(6):
        # which counts, too
        e.write(number * 100, 100, wr_id=number, flags=0 if number == 1 else layout.SIGNALED)
    rig.run(SOME)
    flushed = [(number, WR_FLUSH_ERR) for number in (3, 4, 5, 90)]
    assert seen(e.a, e.cq_a) == [(0, SUCCESS), (2, RETRY_EXC_ERR), *flushed]
    assert e.a.state(e.qa) == states.ERROR and e.a.async_events() == []
    e.write(0, 8, wr_id=7)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == [(7, WR_FLUSH_ERR)]
    assert rig.servers[0].end(1) == 1 and rig.servers[0].end(1) == -1
    if hosts == (0, 3):
        for p, q, host, dest in ((e.a, e.qa, 3, e.qb), (e.b, e.qb, 0, e.qa)):
            p.modify(q, states.STATE, state=states.RESET)
            p.to_rts(q, host, dest)
        e.write(0, 8, wr_id=8)
        rig.run(SOME)
        assert seen(e.a, e.cq_a) == [(8, SUCCESS)]


def test_an_unsignalled_request_fails_visibly(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, ERROR, RETRY_EXC_ERR)
    e.write(0, 8, wr_id=1, flags=0)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == [(1, RETRY_EXC_ERR)]


def test_a_receive_that_fails(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, ERROR, STATUSES.index("loc_prot_err"), "recv", host=3)
    e.b.recv(e.qb, 1)
    e.b.recv(e.qb, 2)
    e.write(0, 8, 5, wr_id=1)
    rig.run(SOME)
    assert seen(e.b, e.cq_b) == [(1, STATUSES.index("loc_prot_err")), (2, WR_FLUSH_ERR)]
    assert e.b.state(e.qb) == states.ERROR


def test_a_completion_is_lost_and_its_place_comes_back_with_the_next(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, LOST, after=1, count=2)
    for number in range(5):
        e.write(0, 8, wr_id=number)
    rig.run(SOME)
    found = e.a.poll(e.cq_a)
    assert [(wc.wr_id, wc.status, wc.retired) for wc in found] == [
        (0, SUCCESS, 1),
        (3, SUCCESS, 4),
        (4, SUCCESS, 5),
    ]
    assert e.a.state(e.qa) == states.RTS and rig.servers[0].end(1) == 2


def test_a_late_completion_holds_those_behind_it(rig: Rig) -> None:
    e = Ends(rig)
    late = 7 * SOME
    begin(rig, SLOW, late, after=1, count=1)
    for number in range(3):
        e.write(0, 8, wr_id=number)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == [(0, SUCCESS)]
    due = rig.servers[0].due()
    assert late < due < late + SOME
    rig.net.now = due - 1
    rig.turn()
    assert seen(e.a, e.cq_a) == []
    rig.net.now = due
    rig.turn()
    found = e.a.poll(e.cq_a)
    assert [wc.wr_id for wc in found] == [1, 2] and found[0].time == due
    e.write(0, 8, wr_id=3)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == [(3, SUCCESS)]


@pytest.mark.parametrize("end", ["heal", "reset", "destroy", "close"])
def test_what_is_held_goes_with_what_ends(rig: Rig, end: str) -> None:
    e = Ends(rig)
    begin(rig, SLOW, 1 << 50)
    e.write(0, 8, wr_id=1)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == []
    if end == "heal":
        rig.servers[0].end(1)
        assert seen(e.a, e.cq_a) == [(1, SUCCESS)]
        return
    if end == "reset":
        e.a.modify(e.qa, states.STATE, state=states.RESET)
    elif end == "destroy":
        e.a.call(layout.DESTROY_QP, e.qa)
    else:
        e.a.end()
    rig.servers[0].end(1)
    rig.run(SOME)
    assert end == "close" or seen(e.a, e.cq_a) == []


def test_no_more_is_held_than_a_queue_has_room_for(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, SLOW, 1 << 50)
    for number in range(60):
        e.write(0, 8, wr_id=number)
    rig.run(SOME)
    for number in range(60, 70):
        e.write(0, 8, wr_id=number)
    rig.run(SOME)
    assert len(e.a.session.cqs[e.cq_a].late) < 64
    assert [wr_id for wr_id, _ in seen(e.a, e.cq_a)][:60] == list(range(60))


def test_queue_pairs_die(rig: Rig) -> None:
    e = Ends(rig)
    e.a.recv(e.qa, 1)
    e.a.recv(e.qa, 2)
    begin(rig, DEAD, of="", count=2)
    rig.run(SOME)
    assert e.a.async_events() == [(QP_FATAL, e.qa)] and e.a.state(e.qa) == states.ERROR
    assert seen(e.a, e.cq_a) == [(1, WR_FLUSH_ERR), (2, WR_FLUSH_ERR)]
    dead, well = (e.a.qp(e.pd_a, e.cq_a) for _ in range(2))
    for qpn in (dead, well):
        e.a.to_rts(qpn, 3, e.qb)
    assert e.a.async_events() == [(QP_FATAL, dead)]
    assert (e.a.state(dead), e.a.state(well)) == (states.ERROR, states.RTS)


def test_calls_fail(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, REFUSED, errno.ENOSPC, "create_qp", after=1, count=1)
    for error in (0, errno.ENOSPC, 0):
        e.a.qp(e.pd_a, e.cq_a)
        assert e.a.error == error
    for number, (name, request) in enumerate(faults.CALLS.items()):
        rig.servers[0].begin(10 + number, Rule(REFUSED, errno.ENOMEM, name))
        e.a.call(request, 0)
        assert e.a.error == errno.ENOMEM
        assert rig.servers[0].end(10 + number) == 1
    e.a.ask(layout.ALLOC_PD)
    assert e.a.error == 0


def test_a_port_that_only_seems_to_fall(rig: Rig) -> None:
    e, elsewhere = Ends(rig), Program(rig, 1)
    begin(rig, PORT, of="")
    rig.servers[0].begin(2, Rule(PORT))
    later = Program(rig, 0)
    for p in (e.a, later):
        assert p.call(layout.QUERY_PORT, 1)[0][:3] == [1, 3, 0]
    e.write(0, 8, wr_id=1)
    rig.run(SOME)
    assert seen(e.a, e.cq_a) == [(1, SUCCESS)]
    rig.nics[0].port_state(rig.net.now, 1, False)
    rig.nics[0].port_state(rig.net.now, 1, True)
    rig.servers[0].end(1)
    assert e.a.async_events() == [(PORT_ERR, 1)]
    rig.servers[0].end(2)
    assert (
        e.a.async_events() == [(PORT_ACTIVE, 1)] == later.async_events()
        and elsewhere.async_events() == []
    )
    assert e.a.call(layout.QUERY_PORT, 1)[0][:2] == [4, 5]


@pytest.mark.parametrize(
    ("program", "meant"),
    [("", True), (PID, True), ("1", False), ("no-such-program", False)],
    ids=["all", "me", "another", "none"],
)
def test_whom_it_hits(rig: Rig, program: str, meant: bool) -> None:
    p = Program(rig, 0)
    begin(rig, REFUSED, errno.ENOMEM, "alloc_pd", program=program)
    p.ask(layout.ALLOC_PD)
    assert p.error == (errno.ENOMEM if meant else 0)


def test_names_of_a_process() -> None:
    names = faults.names_of(os.getpid())
    assert {PID, Path("/proc/self/comm").read_text().strip()} <= names and "" not in names
    assert faults.names_of(1 << 22) == {str(1 << 22)}


def test_the_kernel_says_who_a_program_is(rig: Rig) -> None:
    p = Program(rig, 0, hello=False)
    fd = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    _, given = p.call(layout.HELLO, layout.VERSION, 1, fds=[fd])
    for each in (fd, *given):
        os.close(each)
    assert p.session.pid == os.getpid()


def test_all_that_fit_count_and_the_first_acts(rig: Rig) -> None:
    p, server = Program(rig, 0), rig.servers[0]
    begin(rig, REFUSED, errno.EPERM, "alloc_pd", after=1, count=1)
    server.begin(2, Rule(REFUSED, errno.EBUSY, "alloc_pd", after=1))
    server.begin(3, Rule(REFUSED, errno.EBUSY, "create_cq"))
    errors = []
    for _ in range(3):
        p.ask(layout.ALLOC_PD)
        errors.append(p.error)
    assert errors == [0, errno.EPERM, errno.EBUSY] and [
        server.end(number) for number in (1, 2, 3)
    ] == [1, 1, 0]


def test_what_no_rule_is() -> None:
    with pytest.raises(ValueError, match="no fault of verbs does 'nothing'"):
        Rule("nothing")
    assert Rule(LOST).count == UNLIMITED


def test_rules_are_limited(rig: Rig) -> None:
    for number in range(faults.MOST_RULES):
        rig.servers[0].begin(number, Rule(PORT))
    with pytest.raises(ValueError, match="heal one"):
        rig.servers[0].begin(faults.MOST_RULES, Rule(PORT))


def test_a_loop_wakes_for_what_is_late(rig: Rig) -> None:
    e = Ends(rig)
    begin(rig, SLOW, 50 * US)
    e.write(0, 8)
    rig.run(20 * US)
    assert rig.net.now < rig.servers[0].due() < rig.net.now + 50 * US
    rig.run(SOME)
    assert rig.servers[0].due() > 1 << 60
