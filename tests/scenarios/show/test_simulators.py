"""Inputs for other simulators keep those programs' rules, and hold what the run had."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcbed import cli
from scenarios.figures.measure import Run
from scenarios.jobs.chakra import read
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.show.simulators import (
    htsim_ends,
    htsim_run,
    matrix,
    networks,
    stages,
    topology,
    tree,
    workload,
)
from testbed.errors import UserError
from testbed.results.record import Record
from testbed.results.summary import Run as Entry
from tests.made import made
from tests.scenarios.small import TEXT, undrawn
from topologies import Fabric, load_fabric
from topologies.theory import COLLECTIVES, bus_factor
from topologies.timing import fill_ns
from topologies.units import NS

TINY = load_fabric("tiny")
LINE = re.compile(
    r"(\d+)->(\d+) id (\d+) (start|trigger) (\d+) size (\d+)(?: send_done_trigger (\d+))?"
)
"""As htsim's ConnectionMatrix::load reads it. Its receivers activate no trigger: who sends has
to."""


def record(collective: str, hosts: list[int], size: int) -> Record:
    return made(Record, fabric=TINY, workload=collective, ranks=hosts, message_bytes=size)


def connections(text: str) -> list[tuple[str, ...]]:
    """Those of a matrix, after its header's counts are checked."""
    lines = text.splitlines()
    counts = dict(line.split() for line in lines[:3] if "->" not in line)
    found = [match.groups() for line in lines if (match := LINE.fullmatch(line))]
    triggers = [line for line in lines if re.fullmatch(r"trigger id [1-9]\d* oneshot", line)]
    assert len(found) == int(counts["Connections"]) and len(triggers) == int(
        counts.get("Triggers", 0)
    )
    assert len(lines) == len(counts) + len(found) + len(triggers)
    return found


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(power=st.integers(1, 3), chunk=st.integers(1, 9))
def test_a_step_ends_and_carries_its_bytes(collective: str, power: int, chunk: int) -> None:
    """Every connection begins once what it waits for is over; each rank sends what nccl-tests' bus
    factor says."""
    ranks = 1 << power
    size = chunk * ranks * 64
    fabric = Fabric("t", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=ranks // 2)
    found = connections(matrix(record(collective, list(range(ranks)), size), {}, fabric))
    assert sorted(int(line[2]) for line in found) == list(range(1, len(found) + 1))
    over: set[str] = set()
    waiting = list(found)
    while waiting:
        ready = [line for line in waiting if line[3] == "start" or line[4] in over]
        assert ready, "deadlock"
        over.update(line[6] for line in ready if line[6])
        waiting = [line for line in waiting if line not in ready]
    sent: Counter[str] = Counter()
    for line in found:
        sent[line[0]] += int(line[5])
    assert set(sent.values()) == {round(size * bus_factor(collective, ranks) / fabric.planes)}


def test_each_transfer_of_a_ring_waits_for_its_own_rank() -> None:
    found = connections(matrix(record("ring-allreduce", [0, 2, 1, 3], 4096), {}, TINY))
    receivers = {line[6]: line[1] for line in found if line[6]}
    assert all(receivers[line[4]] == line[0] for line in found if line[3] == "trigger")


def test_a_collective_without_a_plan_is_refused() -> None:
    with pytest.raises(UserError, match="ping-pong is no list of transfers here"):
        stages("ping-pong", [0, 1], 10)


def said(text: str) -> dict[str, dict[str, int]]:
    """The numbers of a topology, by heading, as FatTreeTopologyCfg::read_cfg reads them."""
    found: dict[str, dict[str, int]] = {"": {}}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, value = line.split(" ")
            if key == "Tier":
                found[value] = {}
            else:
                list(found.values())[-1][key] = int(value)
    return found


sizes = st.integers(1, 13)


@given(
    t0s=sizes,
    t1s=sizes,
    hosts=sizes,
    nic=st.sampled_from([25, 100, 200, 400]),
    up=st.sampled_from([40, 100, 400]),
)
def test_htsim_takes_every_shape_with_all_its_links(
    t0s: int, t1s: int, hosts: int, nic: int, up: int
) -> None:
    """The checks and asserts of FatTreeTopologyCfg::set_custom_params; then a link from each T0 to
    each T1, and our hosts under our T0s."""
    if t0s * hosts < 2:
        return
    fabric = Fabric("t", 1, t0s, t1s, hosts, nic_rate=nic * 10**9, fabric_rate=up * 10**9)
    head, t0, t1 = said(topology(fabric)).values()
    down, ups, over = t0["Radix_Down"], t0["Radix_Up"], t0["Oversubscribed"]
    uplinks, rest = divmod(head["Nodes"] * nic, up * over)
    assert rest == 0 and head["Podsize"] == head["Nodes"] and head["Nodes"] % down == 0
    assert down // ups == over and uplinks % t1["Radix_Down"] == 0
    assert uplinks // t1["Radix_Down"] == ups == t1s
    assert head["Nodes"] // down >= t0s and down >= hosts
    assert min(tier["Downlink_Latency_ns"] for tier in (t0, t1)) > 0, (
        "htsim takes 0 for a latency that was left out"
    )
    pairs = [(a, b) for a in range(fabric.host_count) for b in range(fabric.host_count) if a != b]
    nodes = {a: tree(fabric).node(fabric, a) for a in range(fabric.host_count)}
    assert all(
        (nodes[a] // down == nodes[b] // down) == (fabric.t0_of(a) == fabric.t0_of(b))
        and nodes[a] != nodes[b]
        for a, b in pairs
    )


def test_a_plane_as_a_fat_tree() -> None:
    """Fixed values that htsim_uec takes; a path has the fabric's delay under one T0 and across
    T1s."""
    fabric = load_fabric("rack16")
    head, t0, t1 = said(topology(fabric)).values()
    assert (
        2 * t0.pop("Downlink_Latency_ns") == pytest.approx(fabric.local_delay_ps / NS, abs=1)
        and t0.pop("Switch_Latency_ns") == 0
    )
    assert head == {"Nodes": 16, "Tiers": 2, "Podsize": 16}
    assert t0 == {"Downlink_speed_Gbps": 100, "Radix_Down": 8, "Radix_Up": 8, "Oversubscribed": 1}
    assert t1 == {
        "Downlink_speed_Gbps": 100,
        "Radix_Down": 2,
        "Downlink_Latency_ns": 725,
        "Switch_Latency_ns": 0,
    }
    wide = load_fabric("wide")
    head, t0, _ = said(topology(wide)).values()
    assert (head["Nodes"], t0["Radix_Down"], t0["Radix_Up"]) == (32, 16, 16) and "idle" in topology(
        wide
    )
    assert matrix(record("ring-allreduce", [0, 4], 4096), {}, wide).splitlines()[:4] == [
        "Nodes 32",
        "Connections 4",
        "Triggers 2",
        "0->16 id 1 start 0 size 256 send_done_trigger 1",
    ]
    one = Fabric("one", planes=1, t0_per_plane=1, t1_per_plane=0, hosts_per_t0=4)
    assert said(topology(one))["0"]["Radix_Up"] == 1 and "htsim needs a T1: it is idle" in topology(
        one
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hosts_per_t0": 97}, "97 downlinks"),
        ({"t1_per_plane": 65}, "65 downlinks and 65 uplinks"),
        ({"t0_per_plane": 129, "hosts_per_t0": 1}, "129 ports"),
        ({"nic_rate": 2_500_000_000, "fabric_rate": 10**10}, "nic_rate is 2.5 Gb/s"),
    ],
)
def test_what_htsim_cannot_have_is_one_line(given: dict[str, Any], says: str) -> None:
    fabric = Fabric(
        **{
            "name": "odd",
            "planes": 1,
            "t0_per_plane": 2,
            "t1_per_plane": 1,
            "hosts_per_t0": 2,
            **given,
        }
    )
    with pytest.raises(UserError, match=says):
        topology(fabric)


def test_a_connection_of_more_bytes_than_htsim_reads() -> None:
    flows = made(Record, fabric=TINY, flows=[{"name": "f", "src": 0, "dst": 3, "start_ps": 0}])
    carried = made(Entry, flows={"f": {"bytes": TINY.planes * (2**31 - 1)}})
    assert "0->3 id 1 start 0 size 2147483647" in matrix(flows, carried, TINY)
    with pytest.raises(UserError, match="h0 sends h3 2,147,483,648 bytes in a plane at once"):
        matrix(flows, made(Entry, flows={"f": {"bytes": TINY.planes * 2**31}}), TINY)


def test_what_htsim_says_of_a_run() -> None:
    said = (
        "Endtime(us) 1\n..Flow a flowId 1 finished at 86.5 total\n"
        "Flow b flowId 2 finished at 7 total\n.Done\nNew: 20 Rtx: 3 NACKs: 1\n"
    )
    assert htsim_ends(said, 2) == ([86.5, 7.0], {"New": 20, "Rtx": 3, "NACKs": 1})
    for text, count in ((said, 3), (said.replace("New:", "Old:"), 2), ("", 0)):
        with pytest.raises(UserError, match=f"of {count} transfers of htsim_uec ended"):
            htsim_ends(text, count)


def test_htsim_has_as_many_packets_of_our_size(tmp_path: Path) -> None:
    fabric = load_fabric("rack16").with_(name="plane", planes=1)
    words = htsim_run(
        "program", fabric, [[(0, 9, 3 * fabric.mtu + 1)], [(9, 0, 1)]], tmp_path, seed=7
    )
    size = int(words[words.index("-mtu") + 1])
    assert (
        size == fabric.frame_bytes
        and words[-2:] == ["-seed", "7"]
        and words[words.index("-linkspeed") + 1] == "100000"
    )
    assert [int(line[5]) for line in connections((tmp_path / "a.cm").read_text())] == [
        4 * (size - 64),
        size - 64,
    ]
    assert (tmp_path / "a.topo").read_text() == topology(fabric)


def test_files_of_a_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["results", "export", str(results), "--format", "htsim"]) == 0
    files = sorted((results / "htsim").iterdir())
    assert [path.suffix for path in files] == [
        ".cm",
        ".topo",
    ] and capsys.readouterr().out.split() == [str(path) for path in files]
    assert all(path.stat().st_size for path in files)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a ring whose cable dies for good in its middle."""
    directory = tmp_path_factory.mktemp("results")
    text = (
        TEXT.replace("steps = 12", "steps = 70")
        .replace('"40KiB"', '"640KiB"')
        .replace('at = "10us"\nfor = "10us"', "step = 30")
    )
    (directory / "ring.toml").write_text(text)
    with undrawn():
        scenario = load_scenario(str(directory / "ring.toml"), transports=["mrc"])
        simulate(
            scenario, directory, jobs=1, progress=lambda stage, share: None, command_line=["test"]
        )
    return directory


def astra_ns(network: Path, stages: int, sent: int) -> float:
    """Of a collective in so many stages in which a rank sends so many bytes, by the analytical
    backend's formula."""
    values = dict(line.split(": ", 1) for line in network.read_text().splitlines() if ": [" in line)
    latency, bandwidth = (float(values[key].split()[1]) for key in ("latency", "bandwidth"))
    assert values["topology"] == "[ Switch ]"
    return stages * 2 * latency + sent / (bandwidth * 2**30 / 1e9)


def test_astra_sim_takes_as_long_as_the_run(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.execute(
            ["results", "export", str(results), "--format", "astra-sim", "--out", str(tmp_path)]
        )
        == 0
    )
    assert len(capsys.readouterr().out.splitlines()) == 5, "one line for the traces of all ranks"
    whole, broken = (next(tmp_path.glob(f"*-{state}.yml")) for state in ("whole", "broken"))
    run = Run(next((results / "raw").iterdir()))
    times = run.step_times
    seen = {
        state: astra_ns(path, 6, 2 * 3 * 163840)
        for state, path in (("whole", whole), ("broken", broken))
    }
    assert seen["whole"] == pytest.approx(times.iloc[:29].median(), rel=0.02)
    assert seen["broken"] == pytest.approx(times.iloc[45:].median(), rel=0.02)
    assert seen["broken"] > 1.05 * seen["whole"], "else this tells no state from the other"
    for (node,) in read(next(tmp_path.glob("*.0.et"))).ranks:
        assert (node.kind, node.size, node.group) == ("all_reduce", 640 * 1024, (0, 1, 2, 3))


def test_latency_of_long_messages_is_of_the_whole_step(results: Path) -> None:
    """With one slice the way counts once in each of 6 stages; with such that a rank sends without
    pause, once in a step."""
    run = Run(next((results / "raw").iterdir()))
    found = [
        float(dict(networks(run, slices))["whole"].split("latency: [ ")[1].split()[0])
        for slices in (1, 4)
    ]
    ways = [fill_ns(run.fabric, local=False)] * 2
    assert found == [pytest.approx(ways[0] / 2, rel=1e-4), pytest.approx(ways[1] / 12, rel=1e-4)]


@pytest.mark.parametrize(
    ("collective", "kind"),
    [
        ("tree-allreduce", "all_reduce"),
        ("all-gather", "all_gather"),
        ("reduce-scatter", "reduce_scatter"),
    ],
)
def test_a_trace_says_what_the_step_did(collective: str, kind: str, tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"a.{rank}.et").write_bytes(workload(record(collective, [0, 1, 2, 3], 1 << 20)))
    for (node,) in read(tmp_path / "a.0.et").ranks:
        assert (node.kind, node.size, node.group) == (kind, 1 << 20, (0, 1, 2, 3))


def test_what_astra_sim_has_no_network_for(tmp_path: Path) -> None:
    told = {
        "fabric": TINY.to_dict(),
        "workload": "all-to-all",
        "ranks": [0, 1],
        "message_bytes": 8,
        "kind": "mrc",
        "transport": "mrc",
    }
    told |= {"placement": "packed", "seed": 1, "warmup_steps": 0, "window": [0, 1]}
    (tmp_path / "run.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="these are results of all-to-all"):
        list(networks(Run(tmp_path), 1))


# --- the programs themselves (docs/how/testing.md) ------------------------------------------------

HTSIM, ASTRA_SIM = (os.environ.get(name, "") for name in ("MRCBED_HTSIM", "MRCBED_ASTRA_SIM"))
ODD = [
    *(load_fabric(name) for name in ("tiny", "demo-1p", "wide")),
    Fabric("prime", planes=3, t0_per_plane=3, t1_per_plane=5, hosts_per_t0=3),
    Fabric(
        "over",
        planes=1,
        t0_per_plane=2,
        t1_per_plane=2,
        hosts_per_t0=3,
        nic_rate=10**11,
        fabric_rate=4 * 10**11,
    ),
    Fabric("rack", planes=1, t0_per_plane=1, t1_per_plane=0, hosts_per_t0=5),
]


@pytest.mark.skipif(not HTSIM, reason="MRCBED_HTSIM names no htsim_uec")
@pytest.mark.parametrize("fabric", ODD, ids=lambda fabric: fabric.name)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_htsim_runs_every_connection(fabric: Fabric, collective: str, tmp_path: Path) -> None:
    ranks = list(range(fabric.host_count))[: 4 if collective.startswith(("tree", "hier")) else None]
    text, shape = (
        matrix(record(collective, ranks, 40_000 * len(ranks)), {}, fabric),
        topology(fabric),
    )
    (tmp_path / "a.cm").write_text(text)
    (tmp_path / "a.topo").write_text(shape)
    options = re.findall(r"-(?:linkspeed|end) \d+", shape)
    words = [HTSIM, "-topo", "a.topo", "-tm", "a.cm", *" ".join(options).split()]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        len(re.findall(r"^Flow .* finished at", done.stdout, re.MULTILINE)) == text.count("->") > 0
    )


@pytest.mark.skipif(
    not ASTRA_SIM, reason="MRCBED_ASTRA_SIM names no AstraSim_Analytical_Congestion_Unaware"
)
def test_astra_sim_runs_the_step(results: Path, tmp_path: Path) -> None:
    assert (
        cli.execute(
            ["results", "export", str(results), "--format", "astra-sim", "--out", str(tmp_path)]
        )
        == 0
    )
    for network in tmp_path.glob("*.yml"):
        base = tmp_path / re.sub(r"-(whole|broken)$", "", network.stem)
        words = [
            ASTRA_SIM,
            f"--workload-configuration={base}",
            f"--system-configuration={base}-system.json",
            f"--remote-memory-configuration={base}-memory.json",
            f"--network-configuration={network}",
        ]
        out = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        wall = [int(ns) for ns in re.findall(r"Wall time: (\d+)", out)]
        assert len(wall) == 4 and max(wall) == pytest.approx(
            astra_ns(network, 6, 60 * 1024), rel=0.01
        )
