"""A cable is pulled under a ring all-reduce and put back. Judged by what was on the wire, by the
books, and by the sums."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from agents.mrc import wire
from agents.mrc.config import Config
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import (
    BYTES,
    PATIENCE_S,
    Ring,
    logged,
    paths,
    quiet,
    unexplained,
    wait_until,
)
from topologies import addressing, load_fabric
from topologies.fabrics import DILATION
from topologies.paths import path_links

pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]

FABRIC = load_fabric("tiny")
CABLE = "p0-t0-0:p0-t1-0"
OTHER = "h0:p1-t0-0"
NIC = "h1:p0-t0-0"
SHIFT = Config.from_fabric(FABRIC, {}).ts_shift


def on_cable(src: int, dst: int, ev: int) -> bool:
    return any(link.name == CABLE for link in path_links(FABRIC, src, dst, ev))


@dataclass
class Seen:
    """A frame on a host's NIC link, its time, ps."""

    at: int
    src: int
    dst: int
    fields: dict[str, Any]

    @property
    def is_data(self) -> bool:
        return bool(wire.WRITE_FIRST <= self.fields["opcode"] <= wire.WRITE_ONLY_IMM)

    @property
    def sent(self) -> int:
        """When its sender built it, in units of 2^SHIFT ps: the frame says the low 16 bits, the
        capture the rest."""
        latest = (self.at >> SHIFT) + 1  # the two clocks were compared to within less than a unit
        return latest - (latest - int(self.fields["tx_ts"]) & 0xFFFF)


def read(path: Path, offset: int, clock: WallClock) -> list[Seen]:
    """A pcap; ``offset``: what to take off its clock to come to the monotonic one, ns."""
    data = path.read_bytes()
    assert data[:4] == b"\x4d\x3c\xb2\xa1", "nanosecond pcap"
    made, at = [], 24
    while at < len(data):
        seconds, ns, kept, length = struct.unpack_from("<IIII", data, at)
        assert kept == length
        d = wire.describe(data[at + 16 : at + 16 + kept])
        src, dst = (addressing.host_of_inner(d[key]) for key in ("inner_src", "inner_dst"))
        made.append(Seen(clock.at(seconds * 1_000_000_000 + ns - offset), src, dst, d))
        at += 16 + kept
    return made


@dataclass
class Story:
    """One run: whole, cable pulled and mended, whole again."""

    ring: Ring
    wire: dict[int, list[Seen]]  # host -> what went over its plane 0 link
    other: list[Seen]  # over h0's plane 1 link
    bad: list[dict[str, Any]]
    losses: list[dict[str, Any]]
    healthy_paths: list[dict[str, Any]]
    healthy_until: int
    pulled: int
    mended: int
    again: int  # when the last run began, all paths back
    came_back: bool
    unexplained: int
    dropped_by_capture: list[int]


def pulled_and_mended(ring: Ring, pull: Callable[[], object], mend: Callable[[], object]) -> bool:
    """A ring of 36 steps during which something goes, and is mended once the ring has shown that it
    goes on without, however slowly."""
    clock = ring.cluster.clock
    begun = clock.now()
    told: list[int] = []

    def act() -> int:
        now = clock.now()
        if not told and now > begun + clock.patience(0.4):
            pull()
            told.append(now)
        elif (
            len(told) == 1
            and now > told[0] + clock.patience(1.6)
            and len({step for at, step, _ in ring.ends if at > told[0]}) > 5
        ):
            mend()
            told.append(now)
        ring.cluster.check()
        return clock.patience(0.05)

    return ring.go(36, act, BYTES, 2 * PATIENCE_S) and len(told) == 2


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    logs, pcaps = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("pcaps")
    links = [link.name for link in FABRIC.links if link.a.node in FABRIC.hosts and link.plane == 0]
    assert len(links) == 4
    when: dict[str, int] = {}
    cluster = Cluster(
        FABRIC, dilation=DILATION, controller=False, pcap_links=[*links, OTHER], pcap_dir=pcaps
    )
    with cluster:
        logs.chmod(0o777)
        before = cluster.counters()
        cluster.start_agents("mrc", {}, logs, seed=3)
        ring = Ring(cluster)
        ring.run(12)
        assert quiet(cluster)
        healthy, healthy_until = paths(cluster), cluster.clock.now()
        assert pulled_and_mended(
            ring,
            lambda: when.update(pulled=cluster.set_link(CABLE, False)),
            lambda: when.update(mended=cluster.set_link(CABLE, True)),
        )
        came_back = wait_until(
            lambda: all(row["state"] == "GOOD" and row["active"] for row in paths(cluster))
        )
        when["again"] = cluster.clock.now()
        ring.run(8)
        rest = unexplained(cluster, before)
        offset = time.time_ns() - time.monotonic_ns()
        cluster.stop_agents()
    seen = [
        read(pcaps / f"{link.replace(':', '_')}.pcap", offset, cluster.clock)
        for link in [*links, OTHER]
    ]
    bad = [
        e
        for e in logged(logs, "ev")
        if e["to"] == "ASSUMED_BAD" and on_cable(e["host"], e["peer"], e["ev"])
    ]
    losses = [e for e in logged(logs, "loss") if on_cable(e["host"], e["peer"], e["ev"])]
    drops = [capture.dropped for capture in cluster.captures]
    return Story(
        ring,
        dict(enumerate(seen[:4])),
        seen[4],
        bad,
        losses,
        healthy,
        healthy_until,
        **when,
        came_back=came_back,
        unexplained=rest,
        dropped_by_capture=drops,
    )


def test_every_sum_is_right_and_no_step_fails(story: Story) -> None:
    assert story.ring.all_right()
    # in the first run and the second
    assert Counter(step for _, step, _ in story.ring.ends)[11] == 2 * 4
    # It went on while the cable was out, and not just the step that was under way.
    assert len({step for at, step, _ in story.ring.ends if story.pulled < at < story.mended}) >= 5


def test_a_path_given_up_carries_no_data_until_a_probe_came_back(story: Story) -> None:
    assert story.dropped_by_capture == [0] * 5, "the evidence must be complete"
    assert {e["host"] for e in story.bad} == {0, 1, 2, 3}, "every host sends over the cable"
    for e in story.bad:
        host, peer, ev = e["host"], e["peer"], e["ev"]
        data = [
            s
            for s in story.wire[host]
            if s.is_data and (s.src, s.dst, s.fields["ev"]) == (host, peer, ev)
        ]
        answers = [
            s.at
            for s in story.wire[host]
            if (s.src, s.dst, s.fields["name"]) == (peer, host, "SACK")
            and s.fields["pr"]
            and s.fields["entropy"] == ev
            and s.at > e["t"]
        ]
        assert answers and answers[0] > story.mended, "a dead cable answers nothing"
        assert [s for s in data if e["t"] >> SHIFT < s.sent < answers[0] >> SHIFT] == []
        assert [s for s in data if s.sent <= e["t"] >> SHIFT], "it was in use before"
        others = [
            s
            for s in story.wire[host]
            if s.is_data and s.src == host and s.fields["ev"] != ev and e["t"] < s.at < answers[0]
        ]
        assert len(others) > 10, "the plane's other path took over"


def test_the_verdict_comes_within_some_round_trips(story: Story) -> None:
    for e in story.bad:
        assert story.pulled < e["t"] < story.pulled + 20 * FABRIC.base_rtt_ps


def test_what_was_lost_went_again_on_another_plane(story: Story) -> None:
    lost = {(e["peer"], e["psn"], e["t"]) for e in story.losses if e["host"] == 0}
    assert lost
    for peer, psn, at in lost:
        went = [
            s
            for s in story.other
            if s.is_data and (s.src, s.dst, s.fields["psn"]) == (0, peer, psn) and s.fields["rtx"]
        ]
        assert went and at >> SHIFT <= went[0].sent < at + 10 * FABRIC.base_rtt_ps >> SHIFT


def test_the_path_is_in_use_again_after_mending(story: Story) -> None:
    assert story.came_back
    for e in story.bad:
        flow = (e["host"], e["peer"], e["ev"])
        assert [
            s
            for s in story.wire[e["host"]]
            if s.is_data and (s.src, s.dst, s.fields["ev"]) == flow and s.at > story.again
        ]


def test_planes_are_equally_loaded_while_healthy(story: Story) -> None:
    checked = 0
    for qp in {(row["host"], row["peer"]) for row in story.healthy_paths}:
        rows = [row for row in story.healthy_paths if (row["host"], row["peer"]) == qp]
        per_plane = [
            sum(row["data_tx"] for row in rows if row["plane"] == p) for p in range(FABRIC.planes)
        ]
        if not sum(per_plane):
            continue  # towards the predecessor go no data
        assert abs(per_plane[0] - per_plane[1]) <= 4 and min(per_plane) > 100
        captured = [
            s
            for s in story.wire[qp[0]]
            if s.is_data and (s.src, s.dst) == qp and s.at <= story.healthy_until
        ]
        assert len(captured) == per_plane[0], (
            "what the endpoint says of itself is what was on the wire"
        )
        assert set(Counter(s.fields["ev"] for s in captured)) == {0, 1}
        checked += 1
    assert checked == 4


def test_books_balance(story: Story) -> None:
    assert story.unexplained == 0


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o777)
    yield tmp_path


def test_a_roce_flow_stalls_until_it_is_re_routed(tiny: Cluster, logs: Path) -> None:
    before = tiny.counters()
    tiny.start_agents("roce", {}, logs, seed=3)
    try:
        ring = Ring(tiny)
        ring.run(3)
        senders = {host: ring.hosts[(rank + 1) % 4] for rank, host in enumerate(ring.hosts)}
        flow = next(row for row in paths(tiny) if senders[row["host"]] == row["peer"])
        cable = path_links(FABRIC, flow["host"], flow["peer"], flow["ev"])[1].name
        when: dict[str, int] = {}
        stalled: list[dict[str, Any]] = []

        def reroute(*dead: str) -> None:
            for agent in tiny.agents:
                agent.call("reroute", dead_links=list(dead))

        def give_way() -> None:
            stalled.extend(
                r
                for r in paths(tiny)
                if cable in {c.name for c in path_links(FABRIC, r["host"], r["peer"], r["ev"])}
            )
            when["rerouted"] = tiny.clock.now()
            reroute(cable)

        ended = ring.run(
            30,
            [
                (0.4, lambda: when.update(pulled=tiny.set_link(cable, False))),
                (1.4, give_way),
                (1.9, lambda: tiny.set_link(cable, True)),
                (1.9, reroute),
            ],
        )
        assert ended and ring.all_right()
        # A step may have had all of that flow's data already; the next one needs the flow.
        settled = when["pulled"] + tiny.clock.patience(0.3)
        assert [step for at, step, _ in ring.ends if settled < at < when["rerouted"]] == []
        assert len([step for at, step, _ in ring.ends if at < when["pulled"]]) > 2 * 4
        assert len([step for at, step, _ in ring.ends if at > when["rerouted"]]) > 2 * 4
        # None of the cable's flows has moved, and at least one of them is what the ring waits for:
        # not always the one that was picked.
        assert (flow["host"], flow["qpn"], flow["ev"]) in [
            (r["host"], r["qpn"], r["ev"]) for r in stalled
        ]
        assert sum(r["outstanding"] for r in stalled) > 0
        assert unexplained(tiny, before) == 0
    finally:
        tiny.stop_agents()
        tiny.heal()
    moves = [
        e for e in logged(logs, "reroute") if (e["host"], e["peer"]) == (flow["host"], flow["peer"])
    ]
    assert (
        moves
        and moves[0]["old"] == flow["ev"] != moves[0]["ev"]
        and moves[0]["t"] >= when["rerouted"]
    )


def test_a_hosts_port_down_and_up_under_mrc(tiny: Cluster, logs: Path) -> None:
    lost_before = tiny.counters()
    tiny.start_agents("mrc", {}, logs, seed=3)

    def sent() -> dict[str, int]:
        return {
            row["port"]: row["admitted_packets"] for row in tiny.counters() if row["node"] == "h1"
        }

    try:
        ring = Ring(tiny)
        marks: list[tuple[int, dict[str, int]]] = []

        def mark(up: bool | None = None) -> None:
            now = tiny.set_link(NIC, up) if up is not None else tiny.clock.now()
            marks.append((now, sent()))

        assert (
            pulled_and_mended(ring, lambda: mark(False), lambda: (mark(), mark(True)))
            and ring.all_right()
        )
        (down, first), (until, second), _ = marks
        assert second["h1-p0"] == first["h1-p0"], "nothing leaves by a port without carrier"
        assert second["h1-p1"] > first["h1-p1"] + 100
        assert len({step for at, step, _ in ring.ends if down < at < until}) >= 4, (
            "the other plane carries on"
        )
        assert wait_until(
            lambda: all(
                row["state"] == "GOOD" and row["active"] and row["plane_state"] == "USED"
                for row in paths(tiny)
            )
        )
        before = {(row["host"], row["peer"], row["ev"]): row["data_tx"] for row in paths(tiny)}
        ring.run(8)
        assert ring.all_right()
        for host, peer in zip(ring.hosts, [*ring.hosts[1:], ring.hosts[0]], strict=True):
            grown = [
                row
                for row in paths(tiny)
                if row["data_tx"] > before[row["host"], row["peer"], row["ev"]]
                and row["host"] == host
            ]
            assert {(row["peer"], row["plane"]) for row in grown} == {(peer, 0), (peer, 1)}, (
                "it comes back"
            )
        assert unexplained(tiny, lost_before) == 0
    finally:
        tiny.stop_agents()
        tiny.heal()
    verdicts = [
        e
        for e in logged(logs, "ev")
        if e["to"] == "ASSUMED_BAD" and e["ev"] >> 16 == 0 and down <= e["t"] <= until
    ]
    assert verdicts == [], (
        "the host knows of its own port, its peers are told of it: nobody blames a path"
    )
    closed = [
        e
        for e in logged(logs, "plane")
        if (e["host"], e["peer"], e["plane"], e["to"]) == (2, 1, 0, "DOWN")
    ]
    assert closed and closed[0]["cause"] == "peer's port down" and down < closed[0]["t"] < until
