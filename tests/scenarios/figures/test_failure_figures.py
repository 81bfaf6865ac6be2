"""Figures of failures, on runs written by hand: every number here can be worked out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.flaps import GivenUp, Move, flap_growth, flaps, given_up
from scenarios.figures.measure import Run
from scenarios.figures.outages import (
    ENDLESS,
    Failures,
    Outage,
    changes,
    dead_at,
    hit_evs,
    outages_of,
)
from scenarios.figures.summary import run_summary
from scenarios.run.timeline import resolve_used
from scenarios.schema.workloads import Flow
from tests.scenarios.broken import (
    LINE,
    MS,
    NET_MS,
    NET_RTT,
    NET_S,
    RTT,
    TINY,
    S,
    at,
    fault,
    goodput,
    loss,
    net_at,
    steps,
    verdict,
    write,
)
from topologies.structs import plain
from topologies.theory import bus_bandwidth, collective_step_ns, sack_share

CUT = "p0-t0-0:p0-t1-0"
DEAD = 0  # the EV over CUT, from h1 to h2: plane 0, uplink 0
PORT = "h0:p0-t0-0"


def near(value: float, rel: float = 1e-6) -> Any:
    return pytest.approx(value, rel=rel)


# --- outages --------------------------------------------------------------------------------------


def test_a_flapping_link_is_broken_each_time_that_it_is_down(tmp_path: Path) -> None:
    cycle = fault(
        "f", "flap", CUT, [CUT], ("begin", 1), ("down", 1), ("up", 2), ("down", 4), ("heal", 5)
    )
    silent = fault(
        "s",
        "silent",
        "p1-t1-0",
        ["p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"],
        ("begin", 3),
        ("reboot", 6),
        ("heal", 7),
    )
    lasting = fault("l", "port", "h0-p0", [PORT], ("begin", 8), ("end", 30))
    run = write(tmp_path, sorted([*cycle, *silent, *lasting], key=lambda line: line["t"]), [])
    found = outages_of(run)
    assert [(o.fault, o.begin, o.end) for o in found] == [
        ("f", net_at(1), net_at(2)),
        ("s", net_at(3), net_at(7)),
        ("f", net_at(4), net_at(5)),
        ("l", net_at(8), ENDLESS),
    ]
    assert all(o.dead and o.kills for o in found)
    assert (
        dead_at(found, net_at(4.5)) == {CUT, "p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"}
        and dead_at(found, net_at(2)) == set()
    )
    assert changes(found) == [net_at(t) for t in (1, 2, 3, 4, 5, 7, 8)]


def test_of_failures_in_turn_each_is_an_outage_of_the_link_that_went_down(tmp_path: Path) -> None:
    both = [CUT, "p1-t0-0:p1-t1-0"]
    lines = [
        dict(line, links=[both[turn // 2]])
        for turn, line in enumerate(
            fault("r", "failures", "fabric", both, ("down", 1), ("up", 2), ("down", 4), ("up", 5))
        )
    ]
    run = write(tmp_path, [*fault("r", "failures", "fabric", both, ("begin", 1)), *lines], [])
    assert [(o.begin, o.end, o.links) for o in outages_of(run)] == [
        (net_at(1), net_at(2), (both[0],)),
        (net_at(4), net_at(5), (both[1],)),
    ]


def test_what_an_outage_hits() -> None:
    def one(
        kind: str, on: str, links: tuple[str, ...] = (), to: str = "", probability: float = 1.0
    ) -> Outage:
        return Outage("x", kind, on, 0, 1, links, to, probability)

    assert hit_evs(TINY, one("link", CUT, (CUT,)), 1, 2) == {0} and hit_evs(
        TINY, one("link", CUT, (CUT,)), 2, 1
    ) == {0}
    assert hit_evs(TINY, one("link", CUT, (CUT,)), 0, 1) == frozenset()  # under one T0
    assert hit_evs(TINY, one("port", "h0-p0", (PORT,)), 0, 2) == {0, 1}
    assert hit_evs(TINY, one("port", "h0-p0", (PORT,)), 1, 2) == frozenset()
    path = one("path-loss", "h1>h2@p1/1", ("p1-t0-0:p1-t1-1",), probability=0.2)
    assert (
        hit_evs(TINY, path, 1, 2) == {1 << 16 | 1}
        and hit_evs(TINY, path, 1, 3) == frozenset()
        and not path.kills
        and not path.dead
    )
    there = one("destination-loss", "p0-t1-1", (), "h2")
    assert (
        hit_evs(TINY, there, 0, 2) == {1}
        and hit_evs(TINY, there, 0, 3) == frozenset()
        and there.kills
    )
    assert hit_evs(TINY, one("slow", CUT, (CUT,)), 1, 2) == frozenset()
    up, down = (
        Outage("x", "loss", PORT, 0, 1, (PORT,), probability=0.1, direction=way)
        for way in ("up", "down")
    )
    assert (hit_evs(TINY, up, 0, 2), hit_evs(TINY, up, 2, 0)) == ({0, 1}, frozenset())
    assert (hit_evs(TINY, down, 0, 2), hit_evs(TINY, down, 2, 0)) == (frozenset(), {0, 1})


def test_who_sends_to_whom(tmp_path: Path) -> None:
    run = write(tmp_path, [], [])
    assert (
        Failures(run).pairs == [(0, 1), (1, 2), (2, 3), (3, 0)]
        and Failures(run).peers_at_once(2) == 1
    )
    flows = [Flow("a", "flows", 0, 2, 0, S, None), Flow("b", "flows", 0, 3, 0, S, None)]
    assert (both := Failures(write(tmp_path, [], [], flows=flows))).pairs == [
        (0, 2),
        (0, 3),
    ] and both.peers_at_once(0) == 2


# --- leaving a dead path --------------------------------------------------------------------------

PACKET = TINY.mtu + 88
"""Bytes of a full packet as MRC's window counts them."""
BUSY = [goodput(1, t / 10, [40 * 4096, 40 * 4096], [0, 0]) for t in range(10)]
"""h1 sends 80 packets in 100 ms: one each 1.25 ms, so 4 EVs take 5 ms."""
CABLE = fault("cut", "link", CUT, [CUT], ("begin", 2), ("heal", 4))


def figures(run: Run) -> dict[str, Any]:
    """The run's entry in summary.json."""
    return plain(run_summary(run))


def left(
    directory: Path, lines: list[dict[str, Any]], journal: list[dict[str, Any]] = CABLE
) -> dict[str, Any]:
    return figures(write(directory, journal, [*BUSY, *lines]))


def test_last_packet_on_a_dead_path(tmp_path: Path) -> None:
    """Lost packets left 10 ms before the fault and 40 ms and 105 ms after it; srtt 50 ms by the
    last word before the fault."""
    srtt = [
        {"t": at(t), "kind": "srtt", "host": 1, "peer": 2, "srtt_ps": ms * MS}
        for t, ms in ((0.5, 20), (1.9, 50), (2.01, 90))
    ]
    lost = [loss(1, 2, DEAD, 2.2, 1.99), loss(1, 2, DEAD, 2.2, 2.04), loss(1, 2, DEAD, 2.3, 2.105)]
    made = left(
        tmp_path, [*srtt, *lost, verdict(1, 2, DEAD, 2.25, 2.105, evs=4, window=10 * PACKET)]
    )
    (row,) = made["failovers"]
    assert row["rotation_ns"] == near(4 * 1.25 * NET_MS) and row["srtt_ns"] == 50 * NET_MS
    assert made["last_on_dead_rtts"] == near(105 / 50) and made[
        "last_on_dead_over_rotation"
    ] == near(100 / 50)
    # ceil(10 / 4) + 1
    assert (row["losses_per_ev"], row["losses_per_ev_bound"], made["ev_loss_excess"]) == (3, 4, -1)
    assert (
        row["lost"] == 3
        and row["last_on_dead_path_ns"] == net_at(2.105)
        and row["detected_ns"] == net_at(2.25)
    )
    assert (made["bad_verdicts"], made["false_bad"]) == (1, 0)


def test_when_what_a_fault_lost_had_arrived(tmp_path: Path) -> None:
    lost = [loss(1, 2, DEAD, 2.2, 2.0 + k / 100) | {"psn": 7 + k, "qpn": 16} for k in range(2)]
    back = [
        {"t": at(t), "kind": "redelivered", "host": 1, "peer": 2, "qpn": 16, "psn": psn}
        for t, psn in ((1.0, 8), (2.4, 8), (2.3, 7))
    ]
    # at 1.0 s it was another of this PSN
    assert left(tmp_path / "all", [*lost, *back])["failovers"][0]["delivered_ns"] == net_at(2.4)
    assert left(tmp_path / "one", [*lost, back[2]])["failovers"][0]["delivered_ns"] is None
    assert left(tmp_path / "none", [])["failovers"][0]["delivered_ns"] is None


def test_the_window_that_bounds_the_losses_is_the_largest_until_the_verdict(tmp_path: Path) -> None:
    """4 EVs. 8 packets by the last word, 9 when the verdict fell; what was before the last word, or
    comes later, was not in force."""
    words = ((1.0, 40), (1.9, 8), (2.1, 8), (2.3, 60))
    told = [
        {"t": at(t), "kind": "srtt", "host": 1, "peer": 2, "window": n * PACKET} for t, n in words
    ]
    lost = [loss(1, 2, DEAD, 2.2, 2.0 + i / 100) for i in range(4)]
    for window, bound in ((9, 4), (7, 3)):
        made = left(
            tmp_path / str(window),
            [*told, *lost, verdict(1, 2, DEAD, 2.2, 2.1, evs=4, window=window * PACKET)],
        )
        assert (made["failovers"][0]["losses_per_ev_bound"], made["ev_loss_excess"]) == (
            bound,
            4 - bound,
        )


def test_the_bound_divides_the_window_by_what_it_counts(tmp_path: Path) -> None:
    """4 EVs and a byte more than 8 packets: MRC's window counts payload and 88 bytes (protocol.md:
    share), others' whole frames."""
    for kind, packet in (("mrc", PACKET), ("roce", TINY.frame_bytes)):
        for window, bound in ((8 * packet, 3), (8 * packet + 1, 4)):
            lines = [
                *BUSY,
                loss(1, 2, DEAD, 2.2, 2.0),
                verdict(1, 2, DEAD, 2.2, 2.1, evs=4, window=window),
            ]
            run = write(tmp_path / f"{kind}-{window}", CABLE, lines)
            run.record.kind = kind
            assert figures(run)["failovers"][0]["losses_per_ev_bound"] == bound


def test_where_nothing_is_logged_before_the_verdict_says(tmp_path: Path) -> None:
    made = left(
        tmp_path, [loss(1, 2, DEAD, 2.2, 2.003), verdict(1, 2, DEAD, 2.25, 2.003, srtt_ps=30 * MS)]
    )
    assert made["failovers"][0]["srtt_ns"] == 30 * NET_MS
    made = left(tmp_path, [loss(1, 2, DEAD, 2.2, 2.003), verdict(1, 2, DEAD, 2.25, 2.003)])
    # nobody told a window
    assert made["failovers"][0]["srtt_ns"] == NET_RTT and made["ev_loss_excess"] is None


def test_a_sender_that_waited_counts_from_its_next_packets(tmp_path: Path) -> None:
    """It sends nothing until 700 ms after the fault; the first packet there is lost, the last
    leaves 60 ms later."""
    lost = [loss(1, 2, DEAD, 2.9, 2.7), loss(1, 2, DEAD, 2.9, 2.76)]
    made = left(tmp_path, [*lost, verdict(1, 2, DEAD, 2.8, 2.76, srtt_ps=50 * MS, evs=4)])
    assert made["last_on_dead_rtts"] == near(65 / 50) and made[
        "last_on_dead_over_rotation"
    ] == near(60 / 50)


def test_packets_that_never_left_their_host_are_not_lost_on_the_path(tmp_path: Path) -> None:
    lost = [loss(1, 2, DEAD, 2.2, 2.01, rule) for rule in ("time", "port", "trim", "no room")]
    made = left(tmp_path, [*lost, verdict(1, 2, DEAD, 2.25, 2.02, window=PACKET, evs=4)])
    assert made["failovers"][0]["losses_per_ev"] == 1 and made["ev_loss_excess"] == 1 - 2


def test_the_worst_sender_counts(tmp_path: Path) -> None:
    """h2 lost five packets on one EV, with a window of four over four EVs: three too many. And it
    left late."""
    worse = [loss(2, 1, DEAD, 2.4, 2.1 + i / 100) for i in range(5)] + [
        verdict(2, 1, DEAD, 2.4, 2.2, srtt_ps=20 * MS, window=4 * PACKET, evs=4)
    ]
    fine = [
        loss(1, 2, DEAD, 2.2, 2.01),
        verdict(1, 2, DEAD, 2.2, 2.01, srtt_ps=20 * MS, window=4 * PACKET, evs=4),
    ]
    made = left(tmp_path, worse + fine)
    assert made["ev_loss_excess"] == 3 and made["failovers"][0]["left_queue_pairs"] == 2
    # h2 has logged no packet before: its rotation is not known
    assert made["last_on_dead_over_rotation"] is None


def test_queue_pairs_to_one_peer_are_kept_apart(tmp_path: Path) -> None:
    """One loses four packets and leaves; another, which was idle, loses its first one there 300 ms
    later. Neither lost five."""
    window = {"srtt_ps": 50 * MS, "window": 8 * PACKET, "evs": 4}
    one = [loss(1, 2, DEAD, 2.2, 2.003 + i / 1000) | {"qpn": 16} for i in range(4)] + [
        verdict(1, 2, DEAD, 2.2, 2.006, qpn=16, **window)
    ]
    other = [
        loss(1, 2, DEAD, 2.5, 2.3) | {"qpn": 17},
        verdict(1, 2, DEAD, 2.5, 2.3, qpn=17, **window),
    ]
    made = left(tmp_path, one + other)
    assert made["failovers"][0]["left_queue_pairs"] == 2 and made["ev_loss_excess"] == 4 - 3
    assert made["last_on_dead_rtts"] == near(6 / 50) and made["last_on_dead_over_rotation"] == near(
        1 / 50
    )


def test_a_healthy_run_left_nothing(tmp_path: Path) -> None:
    made = left(tmp_path, [], [])
    assert (
        made["failovers"] == []
        and made["last_on_dead_rtts"] is None
        and made["false_bad"] == 0
        and made["killed"] == []
    )


# --- verdicts -------------------------------------------------------------------------------------


def test_a_verdict_without_a_fault_is_false(tmp_path: Path) -> None:
    made = left(
        tmp_path,
        [
            verdict(1, 2, DEAD, 1.99, 1.9),  # before the cable was cut
            # on what was sent just before it was mended
            verdict(1, 2, DEAD, 4 + 3.9 * RTT / S, 3.9),
            verdict(1, 2, DEAD, 4 + 4.1 * RTT / S, 4.1, cause="order"),  # too late for that
            verdict(1, 2, 1, 3, 2.9),  # a path that it does not cut
            verdict(1, 2, 1, 3.5, 3.4),
        ],
    )
    assert (made["bad_verdicts"], made["false_bad"], made["false_bad_evs"]) == (5, 4, 2)
    assert made["false_bad_causes"] == {"order": 1, "time": 3}


def test_nacks_lost_are_those_that_no_agent_received(tmp_path: Path) -> None:
    own = {"0": {"nacks_tx": 7, "nacks_rx": 2}, "1": {"nacks_tx": 1, "nacks_rx": 3}}
    assert figures(write(tmp_path / "mrc", CABLE, [], agent_counters=own))["nacks_lost"] == 3
    assert (
        figures(write(tmp_path / "roce", CABLE, [], agent_counters={"0": {"data_tx": 5}}))[
            "nacks_lost"
        ]
        is None
    )


def test_the_end_of_a_denial_is_no_verdict(tmp_path: Path) -> None:
    made = left(tmp_path, [verdict(1, 2, DEAD, 9, 1) | {"from": "DENIED", "cause": "allowed"}])
    assert (made["bad_verdicts"], made["false_bad"], made["flaps"]) == (0, 0, [])


def test_paths_dead_from_the_start(tmp_path: Path) -> None:
    """Two cables of plane 0's T1s: h1 to h2 loses EV 0, h3 to h0 EVs 0 and 1, by one cable each."""
    early = fault("dead", "dead-paths", "fabric", [CUT, "p0-t0-1:p0-t1-1"], ("begin", -3))
    lines = [
        verdict(1, 2, 0, 0.5, 0.4),
        verdict(1, 2, 1, 0.7, 0.4),
        verdict(3, 0, 0, 1.5, 1.4),
        verdict(1, 2, 0, 9, 8.9),
    ]
    made = left(tmp_path, lines, early)["dead_at_start"]
    assert made == {"evs": 4, "found": 3, "missed": 1, "found_ns": 1.5 * NET_S}
    # Two before the verdict, one on a packet that left after it; one was trimmed, one took another
    # path.
    lost = [
        loss(1, 2, 0, 0.4, 0.3),
        loss(1, 2, 0, 0.45, 0.3),
        loss(1, 2, 0, 9, 8.9),
        loss(1, 2, 0, 0.4, 0.3, rule="trim"),
        loss(1, 2, 5, 1, 0.9),
    ]
    made = left(tmp_path, [*lines, *lost], early)["dead_at_start"]
    assert (made["lost"], made["lost_again"]) == (3, 1)


def test_traffic_begins_with_the_first_step(tmp_path: Path) -> None:
    """What the agents take to draw their inputs is no traffic; h1 is ready at 0.8 s, h3 at 1.1
    s."""
    early = fault("dead", "dead-paths", "fabric", [CUT], ("begin", -3))
    ready = [
        line | {"start_ps": at(1.1)} if line["rank"] == 3 else line for line in steps([(0.8, 3.0)])
    ]
    made = left(tmp_path, [*ready, verdict(1, 2, 0, 1.5, 1.4), verdict(3, 0, 0, 1.7, 1.6)], early)
    assert made["dead_at_start"] == {
        "evs": 2,
        "found": 2,
        "missed": 0,
        "found_ns": near(0.7 * NET_S),
    }


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("rank 3 (h3) is gone: x", True),
        ("rank 2 lost rank 3: retries", True),
        ("rank 31 is gone", False),
        ("", False),
    ],
)
def test_a_killed_agent(tmp_path: Path, reason: str, named: bool) -> None:
    run = write(
        tmp_path,
        fault("k", "kill", "h3", [], ("begin", 4)),
        [],
        end=6.5,
        outcome="failed",
        reason=reason,
    )
    assert figures(run)["killed"] == [
        {"on": "h3", "rank": 3, "ended_ns": 2.5 * NET_S, "named": named}
    ]


def test_queue_pairs_that_failed(tmp_path: Path) -> None:
    lines = [
        {"t": at(3), "kind": "qp", "host": 1, "peer": 2, "qpn": 16, "state": s, "cause": ""}
        for s in ("RTS", "ERROR")
    ]
    assert left(tmp_path, lines)["qp_errors"] == 1


# --- capacity -------------------------------------------------------------------------------------


def ring(
    directory: Path, share: float, journal: list[dict[str, Any]], spans: list[tuple[float, float]]
) -> dict[str, Any]:
    """Every host gets all that theory leaves but for what is lost around changes; while the port is
    down only ``share`` of it."""
    whole, rest = (
        bus_bandwidth(TINY, "ring-allreduce", (0, 1, 2, 3), dead) for dead in ([], [PORT])
    )
    lines = steps(spans)
    for i in range(round(spans[-1][1] * 10)):
        t = i / 10
        rate = whole if t < 5 or t >= 15.6 else 0.0 if t < 5.6 or t >= 15 else rest * share
        lines += [goodput(h, t, [0, 0], [round(rate * S / 10**12 / 80), 0]) for h in range(4)]
    return figures(write(directory, journal, lines, end=spans[-1][1]))


def test_outside_the_changes_what_theory_leaves(tmp_path: Path) -> None:
    """20 RTTs are 678 ms, after a return 60: what is lost in 600 ms after a change does not count,
    what is low later does."""
    whole, rest = (
        bus_bandwidth(TINY, "ring-allreduce", (0, 1, 2, 3), dead) for dead in ([], [PORT])
    )
    assert rest == near(whole / 2)  # one plane of two
    port = fault("p", "port", "h0-p0", [PORT], ("begin", 5), ("heal", 15))
    took = collective_step_ns("ring-allreduce", 4, 1 << 20, whole) / NET_S
    spans = [(0.0, 1.2 * took), (2.0, 2.0 + took), (10.0, 10.0 + 2.2 * took), (14.9, 20.0)]
    made = ring(tmp_path, 0.9, port, spans)
    assert [round(row["share"], 3) for row in made["outside_busbw"]] == [1.0, 0.9]
    assert [row["ns"] for row in made["outside_busbw"]] == [
        5 * NET_S + 5 * NET_S - 60 * NET_RTT,
        10 * NET_S - 20 * NET_RTT,
    ]
    assert made["outside_busbw_share"] == near(0.9, 1e-4)
    # The step under way at the port's return had half of the capacity at some time: so much is
    # theory for all of it.
    assert made["step_p99_over_theory"] == near(max(1.2, 1.1, 5.1 / took / 2), 1e-6)


def test_capacity_that_theory_does_not_know_of_is_left_out(tmp_path: Path) -> None:
    slow = fault("s", "slow", PORT, [PORT], ("begin", 5), ("heal", 15), rate=0.5)
    made = ring(tmp_path, 0.2, slow, [(0.0, 1.0), (6.0, 19.0), (19.0, 20.0)])
    assert made["outside_busbw"] == [] and made["outside_busbw_share"] is None
    took = (
        collective_step_ns(
            "ring-allreduce", 4, 1 << 20, bus_bandwidth(TINY, "ring-allreduce", (0, 1, 2, 3))
        )
        / NET_S
    )
    assert made["step_p99_over_theory"] == near(1 / took)  # the second one does not count


# --- NIC ports ------------------------------------------------------------------------------------


SACKS_LEAVE = 1 / (1 + sack_share(TINY))
"""Of a port whose flows of the other direction are acknowledged on it, too."""


def host_flows(
    late: float = 0.5, short: float = 0.0, skew: float = 0.0, stall: float = 0.0
) -> list[dict[str, Any]]:
    """h0 sends to h2 and gets from h3, 98 % of what SACKs leave of the line; half from 5 s to 12 s,
    when plane 0 is down, the first ``late`` s nothing, then less by ``short``, and half as much for
    ``stall`` s from 10 s on. h0 puts ``skew`` of plane 1's packets on plane 0 after all."""
    lines = []
    for i in range(200):
        t = i / 10
        down = 5 <= t < 12
        share = 0.0 if 5 <= t < 5 + late else (0.98 - short) / 2 if down else 0.98
        rx = round(LINE * share * SACKS_LEAVE / 80 / (2 if 10 <= t < 10 + stall else 1))
        lines += [
            {"t": at(t), "kind": "flow", "host": h, "flow": f, "bin_ps": 100 * MS, "rx": rx}
            for h, f in ((2, 0), (0, 1))
            if rx
        ]
        tx = [rx * skew, rx * (1 - skew)] if down else [rx / 2, rx / 2]
        lines += [
            goodput(0, t, [round(x) for x in tx], [0, 0]),
            goodput(3, t, [0, rx] if down else [rx // 2, rx // 2], [0, 0]),
        ]
    return lines


FLOWS = [Flow("out", "flows", 0, 2, 0, 20 * S, None), Flow("in", "flows", 3, 0, 0, 20 * S, None)]
DOWN = fault("p", "port", "h0-p0", [PORT], ("begin", 5), ("heal", 12))


def test_ports(tmp_path: Path) -> None:
    """A host with one port of two: half the line in both directions; nothing for half a second."""
    made = figures(write(tmp_path, DOWN, host_flows(), flows=FLOWS))
    assert [
        (r["host"], r["direction"], r["phase"], r["planes"], r["live"], r["expected"] / SACKS_LEAVE)
        for r in made["ports"]
    ] == [
        ("h0", "sent", "down", [0], 1, 0.5),
        ("h0", "sent", "up", [0], 2, 1.0),
        ("h0", "received", "down", [0], 1, 0.5),
        ("h0", "received", "up", [0], 2, 1.0),
    ]
    assert made["port_down_error"] == near(0.02, 1e-3) and made["port_back_error"] == near(
        0.02, 1e-3
    )
    # A window of 678 ms may lack 3.5 %, of which 2 are lacking anyhow: the first good one begins
    # where the silence ends.
    assert made["port_down_rtts"] == near(0.5 * NET_S / NET_RTT) and made["port_back_rtts"] == 0
    assert made["plane_deviation"] == 0 and [row["sender"] for row in made["plane_loads"]] == [
        "h0",
        "h3",
    ]
    assert (
        made["kept_during"] == near(0.5, 1e-4)
        and made["kept_late"] == near(0.5, 1e-4)
        and made["kept_after"] == near(1.0, 1e-4)
    )


def test_what_is_kept_late_in_a_fault(tmp_path: Path) -> None:
    """Nothing for the first 2 s of 7: of the 6.3 s that count from 20 RTTs on, and none of the
    second half."""
    made = figures(write(tmp_path, DOWN, host_flows(late=2), flows=FLOWS))
    counted = 7 - 20 * RTT / S
    assert made["kept_during"] == near(0.5 * 5 / counted, 1e-4) and made["kept_late"] == near(
        0.5, 1e-4
    )


def test_ports_that_do_not_settle(tmp_path: Path) -> None:
    made = figures(write(tmp_path, DOWN, host_flows(short=0.03), flows=FLOWS))
    assert (
        made["port_down_error"] == near(0.05, 1e-3)
        and made["port_down_rtts"] is None
        and made["port_back_rtts"] == 0
    )


def test_a_stall_long_after_is_no_part_of_settling(tmp_path: Path) -> None:
    """Half of 100 ms in 6.5 s is 0.8 %, and 2 % lack anyhow. Half of 500 ms is too much: then only
    what follows it is settled."""
    made = figures(write(tmp_path, DOWN, host_flows(stall=0.1), flows=FLOWS))
    late = figures(write(tmp_path, DOWN, host_flows(stall=0.5), flows=FLOWS))
    assert made["port_down_rtts"] == near(0.5 * NET_S / NET_RTT) and late["port_down_rtts"] == near(
        5.5 * NET_S / NET_RTT
    )


def test_unequal_planes(tmp_path: Path) -> None:
    """2 % of what should all go by plane 1 went by plane 0, which should carry nothing: plane 1
    lacks 2 %."""
    made = figures(write(tmp_path, DOWN, host_flows(skew=0.02), flows=FLOWS))
    assert made["plane_deviation"] == near(0.02, 1e-2)


def test_planes_are_not_compared_on_few_packets(tmp_path: Path) -> None:
    """Of 1.8 s at half the line 1.1 s count: 300 packets."""
    short = fault("p", "port", "h0-p0", [PORT], ("begin", 5), ("heal", 6.8))
    made = figures(write(tmp_path, short, host_flows(), flows=FLOWS))
    assert made["plane_deviation"] is None and made["plane_loads"][0]["equal"][1] < 1000


def test_phases_too_short_to_judge_are_left_out(tmp_path: Path) -> None:
    brief = fault("p", "port", "h0-p0", [PORT], ("begin", 5), ("heal", 5 + 39 * RTT / S))
    made = figures(write(tmp_path, brief, host_flows(), flows=FLOWS))
    assert [row["phase"] for row in made["ports"]] == ["up", "up"] and made[
        "port_down_rtts"
    ] is None


# --- flaps and lossy paths ------------------------------------------------------------------------


def test_how_long_a_path_stays_out(tmp_path: Path) -> None:
    """Down at 2, 5 and 8 s for half a second. One EV is out for 1, 2 and 2.5 s, the other for 1.4
    and 2.4, and not back from its third."""
    phases = [(p, t + d) for t in (2, 5, 8) for p, d in (("down", 0), ("up", 0.5))]
    cycle = fault("f", "flap", CUT, [CUT], ("begin", 2), *phases, ("heal", 12))
    lines = []
    for pair, outs in (((1, 2), (1, 2, 2.5)), ((2, 1), (1.4, 2.4, None))):
        for t, out in zip((2.1, 5.1, 8.1), outs, strict=True):
            lines.append(verdict(*pair, DEAD, t, t))
            lines += [verdict(*pair, DEAD, t + out, t, to="GOOD")] if out else []
    made = figures(write(tmp_path, cycle, lines))
    assert [(row["number"], row["n"], row["back"]) for row in made["flaps"]] == [
        (1, 2, 2),
        (2, 2, 2),
        (3, 2, 1),
    ]
    assert [row["out_ns"] for row in made["flaps"]] == [
        near(1.2 * NET_S),
        near(2.2 * NET_S),
        near(2.5 * NET_S),
    ]
    assert made["flaps"][0]["after_mending_ns"] == near(0.8 * NET_S)
    assert made["flap_growth"] == near(2.5 / 2)
    assert len(made["failovers"]) == 1 and len(made["failovers"][0]["outages_ns"]) == 3


def outs(ev: int, *lasted: float | None) -> list[GivenUp]:
    """Rows of one EV that was given up every 100 s, and out so long; None: it did not return."""
    times = [100 * number * S for number in range(len(lasted))]
    return [
        GivenUp((0, 1), ev, 0, number, t, None if last is None else t + int(last * S))
        for number, (t, last) in enumerate(zip(times, lasted, strict=True), 1)
    ]


def test_growth_is_of_each_ev_against_itself_and_of_times_at_which_most_came_back() -> None:
    slow, quick = outs(0, 10, 20, 80), outs(1, 1, 3, 6, 9)
    assert flap_growth(slow + quick) == near(1.5)  # medians of all EVs: 5.5, 11.5, 43, 9
    assert flap_growth(slow + outs(1, 1, 3, 4)) == near(2.5)  # the third time: 4 and 1.33
    # one of three came back from the third
    assert flap_growth(outs(0, 4, 8, 9) + outs(1, 4, 8, None) + outs(2, 4, 8, None)) == 2.0
    assert flap_growth(outs(0, 4)) is None and flap_growth([]) is None
    assert flaps([]) == [] and given_up([Move(1, (0, 1), None, 0, None, "GOOD")]) == []


LOSSY = fault(
    "l", "path-loss", "h0>h2@p1/0", ["p1-t0-0:p1-t1-0"], ("begin", 2), ("heal", 9), probability=0.2
)
BAD = 1 << 16


def lossy(directory: Path, instead: int, last: float) -> dict[str, Any]:
    """h0 uses EVs 0 and BAD; at 2.3 s the second one's loss is known, ``instead`` carries packets
    from 2.4 s on."""
    tx = [
        (t, {"0": 40, str(BAD): 40} if t < 2.3 else {"0": 40, str(instead): 40})
        for t in (1.0, 1.5, 2.0, 2.4, 3.0)
    ]
    lines = [
        {"t": at(t), "kind": "evs", "host": 0, "peer": 2, "bin_ps": 100 * MS, "tx": n}
        for t, n in tx
    ]
    lines += [
        loss(0, 2, BAD, 2.3, 2.2),
        loss(0, 2, BAD, 2.35, 2.25, rule="trim"),
        verdict(0, 2, BAD, 2.32, last),
        loss(0, 2, BAD, 4, 3.9),
    ]
    row: dict[str, Any] = figures(write(directory, LOSSY, lines, flows=FLOWS))["lossy_paths"][0]
    return row


def test_a_lossy_path_is_left_at_its_first_loss(tmp_path: Path) -> None:
    row = lossy(tmp_path, BAD | 1, 2.25)
    assert (row["host"], row["peer"], row["ev"], row["plane"]) == ("h0", "h2", BAD, 1)
    assert (row["losses"], row["losses_before_inactive"], row["used_after_loss_ns"]) == (2, 1, 0)
    assert (row["first_loss_ns"], row["inactive_ns"]) == (net_at(2.3), net_at(2.32))
    assert (row["replaced_by"], row["other_plane"]) == ([BAD | 1], 0)


def test_a_lossy_path_that_is_used_on_and_replaced_by_another_planes(tmp_path: Path) -> None:
    row = lossy(tmp_path, 1, 2.31)
    assert row["used_after_loss_ns"] == 10 * NET_MS and (
        row["replaced_by"],
        row["other_plane"],
    ) == ([1], 1)


def test_an_outage_is_looked_up_for_pairs_that_send_or_that_a_log_names(tmp_path: Path) -> None:
    """Of the ring's edges two cross the T1s; a loss of another pair that does, or under one T0,
    adds the one that the cable hits."""
    ring = {(1, 2), (3, 0)}
    quiet = Failures(write(tmp_path / "quiet", CABLE, []))
    assert set(quiet.dead(quiet.outages[0])) == ring
    heard = Failures(
        write(tmp_path / "heard", CABLE, [loss(0, 2, BAD, 2.3, 2.2), loss(1, 0, BAD, 2.3, 2.2)])
    )
    assert set(heard.dead(heard.outages[0])) == {*ring, (0, 2)}


def test_a_path_in_use_is_drawn_for_a_path_fault() -> None:
    """Of what the agent told only what is active and leads to the peer; by seed; as a path, or its
    cable."""
    told = [
        {"peer": p, "plane": pl, "uplink": u, "active": a}
        for p, pl, u, a in ((2, 0, 0, False), (2, 1, 1, True), (3, 0, 1, True))
    ]
    assert resolve_used(TINY, [0, 1, 2, 3], (0, 2), told, 7, False, "path-loss")[0] == "h0>h2@p1/1"
    assert resolve_used(TINY, [0, 1, 2, 3], (0, 2), told, 7, False)[0] == "p1-t0-0:p1-t1-1"
    assert {
        resolve_used(TINY, [0, 1, 2, 3], (0, 2), [], seed, False, "path-loss")[0]
        for seed in range(40)
    } == {f"h0>h2@p{p}/{u}" for p in (0, 1) for u in (0, 1)}


@pytest.mark.parametrize("seed", range(8))
def test_a_path_of_the_queue_pair_that_carries_data_is_drawn(seed: int) -> None:
    """With a flow each way a host has two queue pairs to its peer, and the one of the other's flow
    sends next to nothing."""
    told = [
        {
            "qpn": qpn,
            "peer": 2,
            "plane": plane,
            "uplink": uplink,
            "active": (uplink == 1) == (qpn == 16),
        }
        for qpn in (16, 17)
        for plane in (0, 1)
        for uplink in (0, 1)
    ]
    both = [(0, 2), (2, 0)]
    on, _ = resolve_used(TINY, [0, 1, 2, 3], (0, 2), told, seed, False, "path-loss", both)
    assert on in ("h0>h2@p0/1", "h0>h2@p1/1")
    on, _ = resolve_used(TINY, [0, 1, 2, 3], (0, 2), told, seed, False, "path-loss", both[::-1])
    assert on in ("h0>h2@p0/0", "h0>h2@p1/0")
    three = [*told, {**told[0], "qpn": 18}]
    on, _ = resolve_used(TINY, [0, 1, 2, 3], (0, 2), three, seed, False, "path-loss", both)
    assert on.startswith("h0>h2@"), "a queue pair without a row: any path in use will do"
