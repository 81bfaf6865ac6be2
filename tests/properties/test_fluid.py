"""Random faults under a ring of the fluid world: whatever breaks and is mended, the ring ends, and every byte has gone somewhere."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fluid.world import FluidCluster
from topologies import Fabric
from topologies.theory import place_ranks

FABRIC = Fabric("f", planes=2, t0_per_plane=3, t1_per_plane=2, hosts_per_t0=2)
RTT = FABRIC.base_rtt_ns
STEPS, SIZE = 4, 6 * 4 * 64 * 1024
CABLES = [link.name for link in FABRIC.links]
SWITCHES = list(FABRIC.switches)
FAULTS = st.one_of(
    st.tuples(st.just("link"), st.sampled_from(CABLES)),
    st.tuples(st.sampled_from(["switch", "silent"]), st.sampled_from(SWITCHES)),
    st.tuples(st.just("plane"), st.sampled_from(["p0", "p1"])),
)
SCHEDULES = st.lists(st.tuples(FAULTS, st.integers(0, 60 * RTT), st.integers(1, 60 * RTT)), max_size=5)


def lines_of(directory: Path) -> list[dict[str, Any]]:
    return [line for log in directory.glob("h*.jsonl") for line in map(json.loads, log.read_text().splitlines())]


def ring(schedule: list[tuple[tuple[str, str], int, int]], placement: str, directory: Path) -> FluidCluster:
    """Run a ring to its end while faults come and go; time goes on until senders trust every path again."""
    cluster = FluidCluster(FABRIC)
    cluster.start_agents("mrc", {}, directory, seed=1)
    hosts = place_ranks(FABRIC, placement)
    breaking(cluster, schedule)
    for rank, host in enumerate(hosts):
        cluster.agents[host].call("setup", collective="ring-allreduce", ranks=hosts, rank=rank, qps=1, slices=4)
    for host in hosts:
        cluster.agents[host].call("start", collective="ring-allreduce", message_bytes=SIZE, steps=STEPS, warmup=0)
    cluster.clock.sleep(100_000 * RTT / 1e9)
    return cluster


def breaking(cluster: FluidCluster, schedule: list[tuple[tuple[str, str], int, int]]) -> None:
    """Faults begin and end at their times from now."""
    network = cluster.network
    for (kind, on), at, lasts in schedule:

        def begin(kind: str = kind, on: str = on, lasts: int = lasts) -> None:
            number = cluster.inject(kind, on).number
            network.at(network.time + lasts, lambda: (cluster.clear(number), None)[1])

        network.at(network.time + at, begin)


@settings(max_examples=60, deadline=None)
@given(SCHEDULES, st.sampled_from(["interleaved", "packed"]))
def test_a_ring_ends_and_its_bytes_add_up_whatever_breaks_and_is_mended(schedule: Any, placement: str) -> None:
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        cluster = ring(schedule, placement, directory)
        notes = [note for agent in cluster.agents for note in agent.notifications()]
        assert Counter(note["event"] for note in notes) == {"step": STEPS * 6, "done": 6}
        network = cluster.network
        assert network.works.up.all() and network.works.port.all() and network.used.port.all()
        tally = cluster._job.tally  # type: ignore[union-attr]
        moved = 2 * 5 / 6 * SIZE * STEPS
        assert abs(tally.sent.sum(axis=0) - moved).max() < 1 and abs(tally.received.sum(axis=0) - moved).max() < 1
        assert abs(tally.up.sum() - tally.down.sum()) < 1
        cluster.stop()
        lines = lines_of(directory)
    steps = sorted((line["start_ns"], line["end_ns"]) for line in lines if line["kind"] == "step" and line["rank"] == 0)
    assert all(begin < end for begin, end in steps) and [a[1] for a in steps[:-1]] == [b[0] for b in steps[1:]]
    paths: dict[tuple[int, int, int], str] = {}
    for line in sorted((x for x in lines if x["kind"] == "ev"), key=lambda x: int(x["t"])):
        path = (line["host"], line["peer"], line["ev"])
        assert line["from"] == paths.get(path, "GOOD")  # a path is given up once before it is used again
        paths[path] = line["to"]


@settings(max_examples=30, deadline=None)
@given(SCHEDULES.filter(bool))
def test_no_fault_makes_a_ring_faster(schedule: Any) -> None:
    ends = []
    for faults in (schedule, []):
        with TemporaryDirectory() as folder:
            cluster = ring(faults, "interleaved", Path(folder))
            ends.append(max(note["end_ns"] for agent in cluster.agents for note in agent.notifications() if note["event"] == "step"))
            cluster.stop()
    assert ends[0] >= ends[1]


FLOWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 30 * RTT), st.integers(1, 12)),
    min_size=1,
    max_size=5,
    unique_by=lambda f: f[:2],
)


@settings(max_examples=40, deadline=None)
@given(FLOWS, SCHEDULES)
def test_flows_end_and_every_message_arrives_once_and_in_order(flows: Any, schedule: Any) -> None:
    specs = [
        {"name": f"f{i}", "src": src, "dst": (src + by) % 6, "start_ns": start, "for_ns": None, "messages": count}
        for i, (src, by, start, count) in enumerate(flows)
    ]
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        cluster = FluidCluster(FABRIC)
        cluster.start_agents("mrc", {}, directory, seed=1)
        breaking(cluster, schedule)
        request = {"flows": specs, "outstanding": 3, "at": cluster.clock.now(), "message_bytes": SIZE}
        hosts = list(range(6))
        for rank in hosts:
            cluster.agents[rank].call("setup", collective="flows", ranks=hosts, rank=rank, qps=1, slices=4)
        for rank in hosts:
            cluster.agents[rank].call("start", collective="flows", **request)
        cluster.clock.sleep(100_000 * RTT / 1e9)
        notes = Counter(note["event"] for agent in cluster.agents for note in agent.notifications())
        assert notes == {"flow": len(specs), "done": 6}
        cluster.stop()
        lines = lines_of(directory)
    for number, spec in enumerate(specs):
        messages = [line for line in lines if line["kind"] == "message" and line["flow"] == number]
        assert [m["number"] for m in messages] == list(range(spec["messages"]))
        assert all(m["start_ns"] < m["end_ns"] for m in messages)
        assert sum(line["rx"] for line in lines if line["kind"] == "flow" and line["flow"] == number) == spec["messages"] * SIZE
