"""Flows: every message arrives as it was meant, slots are never written over unchecked, ends and
verdicts reach both sides."""

from __future__ import annotations

import random
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest

from agents.collectives.flows import (
    Content,
    Flow,
    Flows,
    Receiver,
    Slots,
    bundles_for,
    flows_at,
    parse,
    peak,
    place,
)
from agents.collectives.group import ARENA, CollectiveError, Group
from agents.process.flow_log import MOST_PATHS, FlowLog, PathLog
from agents.transport import NEVER, OK, RECEIVE, RETRY_EXCEEDED, WRITE, Completion, Reports
from tests.agents.collective_rig import EngineWorld, LooseWorld, Ranks, flows
from tests.fabrics import near
from topologies.clos import Fabric
from topologies.units import NS

TINY = near(Fabric("tiny", 2, 4, 2, 2))
TICK = 100 * NS
INCAST = [{"name": f"f{s}", "src": s, "dst": 0, "messages": 20 + s} for s in (1, 2, 3)]
CROSSED = [
    {"name": "there", "src": 0, "dst": 1, "messages": 30},
    {"name": "back", "src": 1, "dst": 0, "messages": 17},
    {"name": "twin", "src": 0, "dst": 1, "messages": 9},
    {"name": "on", "src": 1, "dst": 2, "messages": 12},
]


def ends(ranks: Ranks) -> dict[int, dict[str, Any]]:
    """The senders' notes, by flow."""
    notes = [n for n in ranks.notes if n["event"] == "flow"]
    assert len(notes) == len({n["flow"] for n in notes})
    return {n["flow"]: n for n in notes}


@pytest.mark.parametrize("tables", [INCAST, CROSSED], ids=["incast", "crossed"])
@pytest.mark.parametrize("outstanding", [1, 2, 4])
@pytest.mark.parametrize("qps", [1, 3])
@pytest.mark.parametrize("slots", [False, True], ids=["memory", "slots"])
def test_all_arrive_right_in_whatever_order_things_come(
    tables: list[dict[str, Any]], outstanding: int, qps: int, slots: bool
) -> None:
    for seed in range(6):
        world = LooseWorld(4, seed, sloth=1 + 30 * (seed % 2))
        ranks = flows(world, 4, tables, 64, outstanding, qps, slots=slots)
        jobs = list(ranks.jobs)
        assert world.run(ranks.look), f"seed {seed}: no end"
        noted = ends(ranks)
        for i, table in enumerate(tables):
            note = noted[i]
            count = int(table["messages"])
            assert (note["rank"], note["messages"], note["bytes"], note["wrong"]) == (
                table["src"],
                count,
                64 * count,
                0,
            )
            lines = [
                fields for _, kind, fields in ranks.log if kind == "message" and fields["flow"] == i
            ]
            assert sorted(f["number"] for f in lines) == list(range(count))
            assert note["start_ps"] == min(f["start_ps"] for f in lines) and note["end_ps"] == max(
                f["end_ps"] for f in lines
            )
            assert all(f["bytes"] == 64 and f["end_ps"] >= f["start_ps"] for f in lines)
        for job in jobs:
            assert isinstance(job, Flows) and job.done()["wrong"] == 0
            assert all(r.received == r.flow.messages for r in job.receivers)


def test_a_receiver_that_hardly_gets_to_look_is_never_overrun() -> None:
    for seed in range(4):
        world = LooseWorld(4, seed, sloth=300)
        ranks = flows(world, 4, INCAST, 32, 2, 2)
        assert world.run(ranks.look)
        assert all(n["wrong"] == 0 for n in ends(ranks).values())


def test_no_more_in_flight_than_asked_and_slots_free_only_when_checked() -> None:
    world = LooseWorld(2, 3, sloth=50)
    ranks = flows(world, 2, [{"name": "a", "src": 1, "dst": 0, "messages": 60}], 32, 3)
    sender, receiver = ranks.jobs[1], ranks.jobs[0]
    assert isinstance(sender, Flows) and isinstance(receiver, Flows)
    tx, rx = sender.senders[0], receiver.receivers[0]
    most = ahead = 0

    def look() -> bool:
        nonlocal most, ahead
        through = ranks.look()
        most, ahead = max(most, len(tx.posted_ps)), max(ahead, tx.posted - rx.received)
        assert tx.posted - tx.checked <= 2 * 3
        return through

    assert world.run(look)
    assert most == 3
    assert 3 < ahead <= 6, "acknowledged, not checked: the second set of slots is used"


def test_a_wrong_byte_is_counted_and_both_ends_hear_of_it() -> None:
    """Verdicts may come last of all: the sender waits for them."""
    for seed in range(6):
        world = LooseWorld(2, seed, sloth=40)
        ranks = flows(world, 2, [{"name": "a", "src": 1, "dst": 0, "messages": 10}], 64, qps=2)
        job = ranks.jobs[0]
        assert isinstance(job, Flows)
        content = job.receivers[0].content
        # half of the words
        content.sequence = content.sequence ^ np.tile(
            np.array([1, 0], np.uint32), len(content.sequence) // 2
        )
        assert world.run(ranks.look)
        assert ends(ranks)[0]["wrong"] == 80
        assert job.done() == {"event": "done", "rank": 0, "wrong": 80}
        assert not any(ranks.waiting), "nothing is left over"


def one_flow() -> tuple[Slots, Receiver, bytes]:
    """The receiver of a flow whose peer does nothing, and its first message."""
    ranks = flows(
        LooseWorld(2, 1), 2, [{"name": "a", "src": 1, "dst": 0, "messages": 1}], 64, slots=True
    )
    slots, job = ranks.groups[0].slots, ranks.jobs[0]
    assert isinstance(slots, Slots) and isinstance(job, Flows)
    return slots, job.receivers[0], job.receivers[0].content.message(0).tobytes()


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([(0, 32), (32, 64)], 0),
        ([(48, 64), (0, 16), (16, 48)], 0),
        ([(0, 32)], 32),
        ([(0, 32), (0, 32)], 1),
        ([], 64),
        ([(0, 64), (0, 64)], 64),
        ([(0, 32), (33, 64)], 1),
    ],
)
def test_slots_that_keep_nothing_count_what_is_missing_or_came_twice(
    parts: list[tuple[int, int]], wrong: int
) -> None:
    slots, receiver, message = one_flow()
    for begin, end in parts:
        slots.write(begin, memoryview(message[begin:end]))
    assert receiver.on_immediate(0) and receiver.wrong == wrong


def test_slots_that_keep_nothing_count_bytes_in_a_wrong_place() -> None:
    slots, receiver, message = one_flow()
    slots.write(0, memoryview(message[32:]))
    slots.write(32, memoryview(message[32:60] + b"\0" * 4))
    assert receiver.on_immediate(0) and 20 < receiver.wrong <= 36


def test_what_comes_before_a_flow_begins_is_compared_then() -> None:
    """A peer may have begun earlier."""
    early, receiver, message = Slots(), one_flow()[1], one_flow()[2]
    early.write(0, memoryview(message))
    assert receiver.came[0] == 0
    early.begin(receiver.job)
    assert receiver.on_immediate(0) and receiver.wrong == 0


def test_messages_differ_in_every_word() -> None:
    a = Content(1, 0, 4096)
    seen: list[np.ndarray] = []
    for number in (0, 1, 2, 7, 8, 1 << 15, (1 << 30) - 1):
        out = a.message(number)
        assert a.wrong(number, out) == 0
        for other in seen:
            assert not (out == other).any()
        seen.append(out)
    assert a.wrong(3, seen[0]) > 0.98 * 4096
    assert (
        Content(1, 1, 4096).wrong(0, seen[0]) > 0.98 * 4096
        and Content(2, 0, 4096).wrong(0, seen[0]) > 0.98 * 4096
    )
    assert not (seen[0] == 0).all(), "memory that was never written is no message"


# --- time -----------------------------------------------------------------------------------------


def test_flows_begin_and_stop_by_the_clock() -> None:
    world = EngineWorld(TINY)
    t0 = world.clock() + 50 * TICK + TICK // 2  # between two looks at the clock
    tables: list[dict[str, Any]] = [
        {"name": "long", "src": 0, "dst": 5, "for_ps": 300 * TICK},
        {"name": "late", "src": 1, "dst": 6, "start_ps": 150 * TICK, "for_ps": 100 * TICK},
        {"name": "count", "src": 2, "dst": 7, "start_ps": 20 * TICK, "messages": 5},
        {"name": "short", "src": 3, "dst": 4, "start_ps": 60 * TICK, "for_ps": 1},
    ]
    ranks = flows(world, 8, tables, 8192, at=t0)
    jobs = [job for job in ranks.jobs if isinstance(job, Flows)]
    assert [j.deadline() for j in jobs[:5]] == [
        t0,
        t0 + 150 * TICK,
        t0 + 20 * TICK,
        t0 + 60 * TICK,
        NEVER,
    ]
    for at in range(world.clock(), t0 + 400 * TICK, TICK):
        world.net.at(at, lambda: None)  # something happens all the time, as in a host
    assert world.run(ranks.look)
    noted = ends(ranks)
    for i, table in enumerate(tables):
        begin = t0 + table.get("start_ps", 0)
        posts = sorted(
            f["start_ps"] for _, kind, f in ranks.log if kind == "message" and f["flow"] == i
        )
        assert begin <= noted[i]["start_ps"] == posts[0] < begin + 2 * TICK
        if i == 3:
            assert len(posts) == 1, "at least one, never more after its time"
        elif "for_ps" in table:
            assert posts[-1] < begin + table["for_ps"] <= noted[i]["end_ps"]
            assert posts[-1] > begin + table["for_ps"] - 60 * TICK
        assert noted[i]["wrong"] == 0
    assert noted[2]["messages"] == 5


def test_without_a_time_they_begin_at_once_and_a_rank_without_flows_is_done() -> None:
    world = LooseWorld(3, 0)
    ranks = flows(world, 3, [{"name": "a", "src": 0, "dst": 1, "messages": 1}], 16)
    assert world.run(ranks.look)
    assert ranks.finished == {0, 1, 2}


def test_due_says_what_no_completion_brings() -> None:
    world = LooseWorld(2, 0)
    ranks = flows(
        world,
        2,
        [{"name": "a", "src": 0, "dst": 1, "start_ps": 5000, "for_ps": 7000}],
        16,
        at=10_000,
    )
    job = ranks.jobs[0]
    assert isinstance(job, Flows)
    assert job.deadline() == 15_000 and job.senders[0].posted == 0
    world.now = 15_000
    job.idle()
    assert job.deadline() == 22_000 and job.senders[0].posted == 4
    world.now = 22_000
    job.idle()
    assert job.deadline() == NEVER and job.senders[0].end_sent and job.senders[0].posted == 4


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("qps", [1, 2])
def test_an_incast_over_mrc_with_loss_and_copies(qps: int) -> None:
    world = EngineWorld(TINY)
    rng = Random(4)
    world.net.fate = lambda frame, link, now: rng.random() > 0.005
    world.net.copies = lambda frame, link, now: 2 if rng.random() < 0.01 else 1
    tables = [{"name": f"f{s}", "src": s, "dst": 0, "messages": 6} for s in range(1, 8)]
    ranks = flows(world, 8, tables, 40_000, qps=qps)
    job = ranks.jobs[0]
    assert isinstance(job, Flows)
    lines: list[tuple[int, str, dict[str, Any]]] = []
    log = FlowLog(world.verbs[0].engine, job, lambda *line: lines.append(line))
    assert world.run(ranks.look)
    assert (
        all((n["messages"], n["wrong"]) == (6, 0) for n in ends(ranks).values())
        and len(ends(ranks)) == 7
    )
    log.bin(0, 1)
    assert {f["flow"]: f["rx"] for _, kind, f in lines if kind == "flow"} == dict.fromkeys(
        range(7), 240_000
    )


def test_a_lost_peer_is_named() -> None:
    world = LooseWorld(2, 0)
    ranks = flows(world, 2, [{"name": "a", "src": 0, "dst": 1, "messages": 9}], 16)
    job = ranks.jobs[0]
    assert isinstance(job, Flows)
    qpn = job.group.bundles[0].qpns[0]
    job.completed([Completion(qpn, 0, WRITE, RETRY_EXCEEDED, 0, 16)])
    assert job.failure == {"peer_rank": 1, "reason": "retries exhausted"}


VERDICT, END = 1 << 31, 1 << 30


@pytest.mark.parametrize(
    "sender, imms",
    [
        (True, [VERDICT | 1]),
        (True, [VERDICT, VERDICT]),
        (True, [0]),
        (True, [VERDICT | END]),
        (True, [VERDICT | 4]),
        (False, [0, 0]),
        (False, [2, 2]),
        (False, [8]),
        (False, [VERDICT]),
        (False, [END | 9, END | 9]),
        (False, [1, END | 1]),
        (False, [END | 1, 1]),
        (False, [VERDICT | END]),
    ],
)
def test_an_immediate_that_cannot_come_now_ends_the_flows_and_names_the_peer(
    sender: bool, imms: list[int]
) -> None:
    """A verdict of nothing sent, a message twice, more than one end: else the flow would wait for
    ever for what it has miscounted."""
    world = LooseWorld(2, 0)
    ranks = flows(world, 2, [{"name": "a", "src": 0, "dst": 1, "messages": 9}], 16)
    job = ranks.jobs[0 if sender else 1]
    assert isinstance(job, Flows)
    if sender:
        # of what it sent only message 0 waits for a verdict
        job.senders[0].in_slot[1:] = [-1] * (job.slots - 1)
    qpn = job.group.bundles[0].qpns[0]
    for imm in imms:
        assert job.failure is None
        job.completed([Completion(qpn, 0, RECEIVE, OK, imm, 0)])
    said = f"it sent the immediate {imms[-1]:#010x}, which is nothing that can come now"
    assert job.failure == {"peer_rank": 1 if sender else 0, "reason": said}


# --- the log --------------------------------------------------------------------------------------


class FakeEngine(Reports):
    """What :class:`FlowLog` asks of an engine."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.cwnd: list[dict[str, Any]] = []

    def placed(self) -> dict[int, int]:
        return dict(self.bytes)

    def paths(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows]

    def windows(self) -> list[dict[str, Any]]:
        return self.cwnd


def test_arrived_bytes_are_told_per_flow_and_bin() -> None:
    engine = FakeEngine()
    world = LooseWorld(4, 0)
    job = flows(world, 4, CROSSED, 64, qps=2).jobs[1]
    assert isinstance(job, Flows)
    there, twin = job.receivers
    assert (there.number, twin.number) == (0, 2)
    engine.bytes = {there.bundle.qpns[0]: 1000, 999: 5}
    lines: list[tuple[int, str, dict[str, Any]]] = []
    log = FlowLog(engine, job, lambda *line: lines.append(line))  # type: ignore[arg-type]
    log.bin(10, 20)
    assert lines == [], "what was placed before is not the flow's"
    engine.bytes = {
        there.bundle.qpns[0]: 1100,
        there.bundle.qpns[1]: 50,
        twin.bundle.qpns[1]: 7,
        999: 99,
    }
    log.bin(30, 20)
    assert lines == [
        (30, "flow", {"flow": 0, "bin_ps": 20, "rx": 150}),
        (30, "flow", {"flow": 2, "bin_ps": 20, "rx": 7}),
    ]
    lines.clear()
    log.bin(50, 20)
    assert lines == []


def test_packets_per_path_and_windows_of_senders() -> None:
    engine = FakeEngine()
    world = LooseWorld(4, 0)
    job = flows(world, 4, CROSSED, 64, qps=1).jobs[0]
    assert isinstance(job, Flows)
    a, b = (s.bundle.qpns[0] for s in job.senders)  # flows 0 and 2, both to host 1
    back = job.receivers[0].bundle.qpns[0]

    def row(qpn: int, ev: int, sent: int) -> dict[str, Any]:
        return {"qpn": qpn, "peer": 1, "ev": ev, "data_tx": sent}

    engine.rows = [row(a, 0, 5), row(a, 65536, 0), row(b, 0, 1), row(back, 0, 9)]
    engine.cwnd = [
        {"qpn": q, "peer": 1, "cwnd": 9, "in_flight": 4, "srtt_ps": 3} for q in (a, b, back)
    ]
    lines: list[tuple[int, str, dict[str, Any]]] = []
    log = FlowLog(engine, job, lambda *line: lines.append(line))  # type: ignore[arg-type]
    engine.rows = [row(a, 0, 7), row(a, 65536, 2), row(b, 0, 4), row(back, 0, 100)]
    log.bin(30, 20)
    assert lines[0] == (30, "evs", {"peer": 1, "bin_ps": 20, "tx": {"0": 5, "65536": 2}})
    assert [(kind, f["flow"], f["qpn"]) for _, kind, f in lines[1:]] == [
        ("cwnd", 0, a),
        ("cwnd", 2, b),
    ]
    assert lines[1][2] == {"flow": 0, "qpn": a, "peer": 1, "cwnd": 9, "in_flight": 4, "srtt_ps": 3}
    lines.clear()
    job.senders[1].complete = True
    engine.rows[1] = row(a, 131072, 3)  # re-routed: the same row, another path
    log.bin(50, 20)
    assert lines[0][2]["tx"] == {"131072": 1}
    assert [f["flow"] for _, kind, f in lines if kind == "cwnd"] == [0]


def test_without_flows_every_queue_pair_that_sends_is_logged() -> None:
    """Those of collectives and jobs, which have no numbers."""
    engine = FakeEngine()
    engine.rows = [
        {"qpn": 7, "peer": 1, "ev": 0, "data_tx": 3},
        {"qpn": 8, "peer": 2, "ev": 1, "tx_packets": 5},
    ]
    engine.cwnd = [
        {"qpn": q, "peer": q - 6, "cwnd": 9, "in_flight": 4, "srtt_ps": 3} for q in (7, 8)
    ]
    lines: list[tuple[int, str, dict[str, Any]]] = []
    log = PathLog(engine, lambda *line: lines.append(line))  # type: ignore[arg-type]
    log.bin(10, 20)
    assert lines == [], "what was sent before is not of this bin"
    engine.rows[1]["tx_packets"] = 9
    log.bin(30, 20)
    assert lines == [
        (30, "evs", {"peer": 2, "bin_ps": 20, "tx": {"1": 4}}),
        (30, "cwnd", {"bin_ps": 20, "qpn": 8, "peer": 2, "cwnd": 9, "in_flight": 4, "srtt_ps": 3}),
    ]
    lines.clear()
    log.bin(50, 20)
    assert lines == []


def test_a_host_with_very_many_paths_does_not_count_packets_on_each() -> None:
    engine = FakeEngine()
    lines: list[tuple[int, str, dict[str, Any]]] = []
    logged = []
    for count in (MOST_PATHS, MOST_PATHS + 1):
        engine.rows = [{"qpn": 7, "peer": 1, "ev": ev, "data_tx": 0} for ev in range(count)]
        log = PathLog(engine, lambda *line: lines.append(line))  # type: ignore[arg-type]
        engine.rows[0]["data_tx"] = 1
        log.bin(10, 20)
        logged.append(len(lines))
    assert logged == [1, 1]


# --- what is asked for ----------------------------------------------------------------------------


def test_both_ends_agree_where_things_are() -> None:
    listed = parse(CROSSED, 4)
    for slots in (2, 8):
        for rank in range(4):
            mine, end = flows_at(listed, rank), 0
            for received, flow in zip(
                accumulate((flow.dst == rank for flow in mine), initial=0), mine, strict=False
            ):
                at = place(received, mine.index(flow) - received, 100, slots)
                assert end <= at
                end = at + slots * (100 if flow.dst == rank else 4)
                theirs = next(
                    f
                    for f in flows_at(listed, flow.src + flow.dst - rank)
                    if f.number == flow.number
                )
                # as the other end computes it
                assert at == place(theirs.received, theirs.sent, 100, slots)
    assert [w.peer for w in bundles_for(listed, 1)] == [0, 0, 0, 2]
    assert bundles_for(listed, 3) == []


def test_a_flow_may_be_kept_to_few_paths() -> None:
    world = LooseWorld(2, 0)
    listed = parse([{"name": "a", "src": 0, "dst": 1, "messages": 1, "evs": 1}], 2)
    group = Group(world.verbs[0], [0, 1], 0, bundles_for(listed, 0), 1, world.clock)
    assert group.local["1"][0]["evs"] == 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            {"src": 0, "dst": 0, "messages": 1},
            r"flow 0 \(x\) goes from rank 0 to 0: two different ranks below 2",
        ),
        ({"src": 0, "dst": 2, "messages": 1}, "two different ranks below 2"),
        ({"src": -1, "dst": 1, "messages": 1}, "whole numbers from 0"),
        ({"src": 0, "dst": 1}, "give one of for_ps and messages"),
        ({"src": 0, "dst": 1, "messages": 1, "for_ps": 1}, "give one of for_ps and messages"),
        ({"src": 0, "dst": 1, "messages": 0}, "at least 1"),
        ({"src": 0, "dst": 1, "for_ps": 1.5}, "whole numbers"),
        (
            {"src": 0, "dst": 1, "messages": 1, "to": 1},
            "flow 0: got an unexpected keyword argument 'to'",
        ),
        ({"src": 0, "messages": 1}, "flow 0: missing 1 required positional argument: 'dst'"),
    ],
)
def test_a_flow_that_cannot_be_is_refused_in_one_line(table: dict[str, Any], says: str) -> None:
    with pytest.raises(CollectiveError, match=says) as caught:
        parse([{"name": "x", **table}], 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "outstanding", "says"),
    [
        (0, 4, "message_bytes = 0 must be a multiple of 4 above 0"),
        (10, 4, "message_bytes = 10 must be a multiple of 4"),
        (4, 0, "outstanding = 0: 1 to 256"),
        (
            ARENA // 4,
            4,
            (
                "the flows of rank 1 need .* bytes of slots: there are .*; lower message_bytes "
                "or outstanding"
            ),
        ),
    ],
)
def test_sizes_that_cannot_be_are_refused(size: int, outstanding: int, says: str) -> None:
    with pytest.raises(CollectiveError, match=says):
        flows(
            LooseWorld(2, 0),
            2,
            [{"name": "a", "src": 0, "dst": 1, "messages": 1}],
            size,
            outstanding,
        )


def test_none_and_others_than_were_set_up() -> None:
    with pytest.raises(CollectiveError, match="there are none"):
        parse(None, 2)
    world = LooseWorld(3, 0)
    listed = parse([{"name": "a", "src": 0, "dst": 1, "messages": 1}], 3)
    group = Group(world.verbs[0], [0, 1, 2], 0, bundles_for(listed, 0), 1, world.clock)
    with pytest.raises(CollectiveError, match="set up again"):
        Flows(group, [Flow("b", 0, 2, messages=1)], 64, 4, 1, None)


def test_an_immediate_reaches_the_right_end() -> None:
    """Twin flows between the same ranks have queue pairs of their own."""
    world = LooseWorld(4, 0)
    job = flows(world, 4, CROSSED, 64).jobs[1]
    assert isinstance(job, Flows)
    kinds = [(type(end).__name__, end.number) for end in job.ends.values()]
    assert kinds == [("Receiver", 0), ("Sender", 1), ("Receiver", 2), ("Sender", 3)]
    twin = job.receivers[1]
    job.completed([Completion(twin.bundle.qpns[0], 0, RECEIVE, OK, 1 << 30 | 9, 0)])
    assert (twin.total, job.receivers[0].total) == (9, -1)
    assert isinstance(twin, Receiver)


def perftests_peak(posted: list[int], acknowledged: list[int]) -> float:
    """Messages a ps: the loops of print_report_bw() in perftest's src/perftest_parameters.c, with
    cq_mod and post_list 1."""
    count = len(posted)
    return 1 / min(
        (acknowledged[j] - posted[i]) / (j - i + 1) for i in range(count) for j in range(i, count)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_peak_is_perftests(seed: int) -> None:
    rng = random.Random(seed)
    posted = sorted(rng.randrange(1000) for _ in range(rng.randint(1, 40)))
    acknowledged = sorted(t + rng.randint(1, 300) for t in posted)
    messages, time = peak(posted, acknowledged)
    assert messages / time == pytest.approx(perftests_peak(posted, acknowledged), rel=1e-12)


def test_the_peak_of_a_burst_of_acknowledgements_is_no_faster_than_the_messages() -> None:
    """Four messages posted at 0, all acknowledged within 3 ps after 400: one lost cable's worth of
    them came late, together."""
    assert peak([0, 0, 0, 0], [400, 401, 402, 403]) == (4, 403)
    assert peak([0, 100, 200, 1000], [100, 200, 300, 1900]) == (3, 300)
    assert peak([], []) == peak([5], [5]) == (0, 0)
