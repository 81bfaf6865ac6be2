"""The books of planes and queues: kept by what is right, broken by each thing that is wrong, with
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from scenarios.figures import invariants
from scenarios.figures.books import port_rows
from scenarios.figures.invariants import broken, expectations, hops, pool_peak_share, rotation
from testbed.results import log
from testbed.results.record import Record
from tests.fabrics import near
from tests.made import made
from topologies.clos import Fabric
from topologies.structs import plain

FABRIC = near(Fabric("made", 4, 2, 4, 4))
LOW = FABRIC.ecn_bytes[0]
LINE: dict[str, Any] = {
    "host": 0,
    "sent": [30, 30, 31, 30],
    "due": [30, 30, 31, 30],
    "first": [2, 2, 1, 2],
    "passed": 0,
    "unsure": 0,
    "repeats": 4,
}


def run_of(
    lines: Sequence[dict[str, Any]] = (),
    ports: Sequence[dict[str, Any]] = (),
    world: str = "simulated",
    kind: str = "mrc",
    evs: Sequence[dict[str, Any]] = (),
) -> Any:
    record = made(Record, world=world, kind=kind, fabric=FABRIC, counters_after=list(ports))
    events = {
        log.Rotation: [made(log.Rotation, **line) for line in lines],
        log.Evs: [made(log.Evs, **line) for line in evs],
    }
    return SimpleNamespace(
        fabric=FABRIC,
        record=record,
        window=(0, 1_000_000),
        of=events.__getitem__,
        ports=port_rows(record),
    )


def port(name: str, peak: int, marked: int = 0, trimmed: int = 0, **more: Any) -> dict[str, Any]:
    link = next(link for link in FABRIC.links if name in (link.a.name, link.b.name))
    node = link.a.node if link.a.name == name else link.b.node
    zeros = dict.fromkeys(("met_packets", "met_bytes", "admitted_bytes"), 0)
    return {
        "port": name,
        "node": node,
        "link": link.name,
        "plane": link.plane,
        "kind": link.kind,
        **zeros,
        "backlog_peak_bytes": peak,
        "marked": marked,
        "trimmed": trimmed,
        **more,
    }


def test_what_is_dealt_and_in_turn_breaks_nothing() -> None:
    run = run_of([LINE, LINE | {"host": 1, "sent": [30, 29, 31, 31], "passed": 1}])
    assert broken(run) == []
    assert plain(rotation(run)) == {
        "sent_packets": [60, 59, 62, 61],
        "apart": 3 / 60.5,
        "apart_allowed": 3 / 60.5,
        "host_apart": 2,
        "host_allowed": 1,
        "turns_passed": 1,
    }
    assert rotation(run_of()) is None and broken(run_of()) == []
    alone = rotation(run_of([LINE, LINE | {"host": 1, "first": [0, 1, 0, 0], "repeats": 12}]))
    assert alone and alone.repeats == 12 / 120  # of the host with one queue pair


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"first": [7, 0, 0, 0]},
            (
                "first planes are not dealt: h0 began 7 queue pairs on plane 0, 0 on plane 1, "
                "which may differ by one (1 of 2"
            ),
        ),
        ({"first": [3, 2, 1, 1]}, "h0 began 3 queue pairs on plane 0, 1 on plane 2"),
        (
            {"sent": [30, 30, 33, 28]},
            (
                "planes did not take turns: h0 first sent 33 packets on plane 2, where strict "
                "turns put 31, and 0 turns"
            ),
        ),
        (
            {"sent": [30, 28, 32, 31], "passed": 1},
            "h0 first sent 28 packets on plane 1, where strict turns put 30, and 1 turns",
        ),
    ],
)
def test_first_planes_and_turns(change: dict[str, Any], said: str) -> None:
    (line,) = broken(run_of([LINE | change, LINE | {"host": 1}]))
    assert said in line


def test_a_queue_pair_whose_first_packet_met_a_closed_plane_proves_nothing() -> None:
    assert broken(run_of([LINE | {"first": [3, 2, 1, 0], "unsure": 2}])) == []


def test_marks_and_trims_need_a_queue() -> None:
    trim, frame = FABRIC.trim_bytes(False), FABRIC.frame_bytes
    fine = [
        port("p0-t0-0-u1", LOW + 1, marked=3),
        port("p0-t1-1-d1", trim - frame + 1, trimmed=2, marked=1),
        port("h0-p0", 0, marked=0),
        port("p0-t0-0-d1", FABRIC.trim_bytes(True), trimmed=9),
    ]
    assert broken(run_of(ports=fine)) == []
    (marks,) = broken(run_of(ports=[*fine, port("p1-t0-0-u2", LOW, marked=5)]))
    assert marks == (
        f"port p1-t0-0-u2 marked 5 packets above {LOW:,} bytes, where at most {LOW:,} have "
        "ever waited"
    )
    # the queue may shrink between two looks
    assert broken(run_of(ports=[port("p1-t0-0-u2", LOW, marked=5)], world="emulated")) == []
    (trims,) = broken(run_of(ports=[port("p1-t1-0-d0", trim - frame, trimmed=1)]))
    assert "p1-t1-0-d0 trimmed 1 packets above" in trims
    (last,) = broken(run_of(ports=[port("p2-t0-1-d3", FABRIC.trim_bytes(False), trimmed=4)]))
    assert f"above {FABRIC.trim_bytes(True):,} bytes" in last
    (several,) = broken(run_of(ports=[port(f"p{p}-t0-0-u2", 0, marked=1) for p in range(3)]))
    assert several.endswith("(3 such lines)")


def test_what_a_switch_holds_of_its_pool_waits_and_others_may_leave_no_room_below_trimming() -> (
    None
):
    ports = [
        port(
            "p0-t0-0-u1", 0, trimmed=3, backlog_bytes=5000, pool_bytes=9000, pool_peak_bytes=600_000
        )
    ]
    ports += [port("p0-t0-0-d0", 0, backlog_bytes=4000, pool_bytes=9000, pool_peak_bytes=600_000)]
    run = run_of(ports=ports)
    run.fabric = FABRIC.with_(pool_mb_per_tbps=2.5)
    assert broken(run) == []
    assert pool_peak_share(run) == 600_000 / run.fabric.pool_bytes[0]
    run = run_of(ports=ports[:1])
    run.fabric = FABRIC.with_(pool_mb_per_tbps=2.5)
    assert broken(run) == ["switch p0-t0-0 holds 9,000 bytes of its pool, where 5,000 wait"]
    assert pool_peak_share(run_of(ports=[port("p0-t0-0-d0", 0)])) is None


def test_the_last_hop_marks_roce_alone() -> None:
    ports = [port("p0-t0-1-d0", 10 * LOW, marked=6)]
    assert broken(run_of(ports=ports)) == [
        "port p0-t0-1-d0 marked 6 packets on a last hop, where ECN is off"
    ]
    assert broken(run_of(ports=ports, kind="roce")) == []
    run = run_of(ports=ports)
    run.fabric = FABRIC.with_(last_hop_ecn=True)
    assert broken(run) == []


def test_hops_and_what_is_usual() -> None:
    rate, ns = FABRIC.nic_rate, 1_000_000
    half = rate * ns // 8_000_000_000 // 2
    waits = {"met_packets": 10, "met_bytes": 10 * FABRIC.frame_bytes, "admitted_bytes": half}
    ports = [
        port("p0-t0-0-u1", 99, marked=1, **waits),
        port("p1-t0-0-u1", 99, trimmed=2, **waits),
        port("h0-p0", 0),
    ]
    run = run_of(
        [LINE, LINE | {"host": 1, "first": [1, 0, 0, 0], "repeats": 120}],
        ports,
        evs=[
            {"host": 0, "peer": 4, "tx": {0: 12, 1: 8, 2: 10, 3: 10}},
            {"host": 0, "peer": 4, "tx": {65536: 10}},
        ],
    )
    assert plain(hops(run)) == {
        "t0_up": {"marked": 1, "trimmed": 2, "backlog_mean_bytes": FABRIC.frame_bytes}
    }
    usual = plain(expectations(run))
    assert usual["lockstep"] == 4 / 120  # a host with one queue pair cannot be out of step
    assert (usual["evs_least"], usual["evs_most"]) == (1, 4)
    assert usual["evs_in_turn"] == 1
    assert usual["ev_spread"] == 0.4  # of 10 on each of four EVs, 12 and 8
    # M/D/1 at half load: a quarter of a packet waits
    assert usual["queue_wait"] == {"t0_up": pytest.approx(4, rel=0.01)}
    run.record.world = "emulated"
    assert expectations(run).queue_wait == {}
    assert plain(expectations(run_of())) == {"ev_spread": None, "lockstep": None, "queue_wait": {}}
    assert invariants.hop_of("lo") is None


@pytest.mark.parametrize(
    ("second", "share"),
    [
        ({0: 2, 1: 2, 2: 1, 3: 1}, 1.0),  # neighbours changed places
        ({0: 3, 1: 3}, 0.5),  # three packets in a row on each
        ({0: 3, 1: 2}, 1.0),  # too few for all of them
        ({0: 6, 3: 0}, 0.25),
    ],
)
def test_evs_that_take_turns_are_all_used_in_a_lap(second: dict[int, int], share: float) -> None:
    bins = [{"host": 0, "peer": 4, "tx": tx} for tx in ({0: 2, 1: 2, 2: 2, 3: 2}, second)]
    assert (
        expectations(run_of(evs=[*bins, {"host": 1, "peer": 4, "tx": {1: 9}}])).evs_in_turn == share
    )
