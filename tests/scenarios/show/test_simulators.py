"""Inputs for other simulators keep those programs' rules, and hold what the run had."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.run.simulate import simulate
from scenarios.show.simulators import matrix, networks, stages, topology
from testbed import cli
from testbed.errors import UserError
from tests.scenarios.small import small, undrawn
from topologies import Fabric, load_fabric
from topologies.theory import COLLECTIVES, bus_factor

TINY = load_fabric("tiny")
LINE = re.compile(r"(\d+)->(\d+) id (\d+) (start|trigger) (\d+) size (\d+)(?: recv_done_trigger (\d+))?")
"""As csg-htsim's ConnectionMatrix::load reads it."""


def record(collective: str, hosts: list[int], size: int) -> dict[str, Any]:
    return {"flows": [], "workload": collective, "ranks": hosts, "message_bytes": size}


def connections(text: str) -> list[tuple[str, ...]]:
    """Those of a matrix, after its header's counts are checked."""
    lines = text.splitlines()
    counts = dict(line.split() for line in lines[:3] if "->" not in line)
    found = [match.groups() for line in lines if (match := LINE.fullmatch(line))]
    triggers = [line for line in lines if re.fullmatch(r"trigger id [1-9]\d* oneshot", line)]
    assert len(found) == int(counts["Connections"]) and len(triggers) == int(counts.get("Triggers", 0))
    assert len(lines) == len(counts) + len(found) + len(triggers)
    return found


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(power=st.integers(1, 3), chunk=st.integers(1, 9))
def test_a_step_ends_and_carries_its_bytes(collective: str, power: int, chunk: int) -> None:
    """Every connection begins once what it waits for is over; each rank sends what nccl-tests' bus factor says."""
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
    with pytest.raises(UserError, match="no connection matrix"):
        stages("ping-pong", [0, 1], 10)


def test_a_plane_as_a_fat_tree() -> None:
    fabric = load_fabric("rack16")
    said = dict(line.split() for line in topology(fabric).split("Tier 0")[1].split("Tier 1")[0].splitlines() if line)
    assert said["Downlink_speed_Gbps"] == "100" and (said["Radix_Down"], said["Radix_Up"]) == ("8", "8") and said["Oversubscribed"] == "1"
    assert 4 * int(said["Downlink_Latency_ns"]) == pytest.approx(fabric.delay_ns / fabric.dilation, abs=4)
    with pytest.raises(UserError, match="no T1"):
        topology(Fabric("one", planes=1, t0_per_plane=1, t1_per_plane=0, hosts_per_t0=4))


def test_files_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with undrawn():
        (tmp_path / "out").mkdir()
        simulate(small(tmp_path, transports=["mrc"]), tmp_path / "out", jobs=1, progress=lambda stage, share: None, command_line=["test"])
    for form, endings in (("htsim", {".cm", ".topo"}), ("astra-sim", {".yml"})):
        assert cli.execute(["export", str(tmp_path / "out"), "--format", form]) == 0
        files = sorted((tmp_path / "out" / form).iterdir())
        assert {path.suffix for path in files} == endings
        assert capsys.readouterr().out.splitlines() and all(path.stat().st_size for path in files)
    (network,) = (tmp_path / "out" / "astra-sim").iterdir()  # its fault is shorter than what can be told apart
    assert network.stem.endswith("-whole") and "npus_count: [ 4 ]" in network.read_text()


def test_a_network_per_state() -> None:
    summary = {
        "transport": "mrc",
        "seed": 1,
        "ranks": 4,
        "outside_busbw": [{"broken": False, "busbw_bps": 8e9}, {"broken": True, "busbw_bps": 6e9}],
    }
    found = dict(networks(summary, TINY))
    assert "bandwidth: [ 1.000 ]" in found["whole"] and "bandwidth: [ 0.750 ]" in found["broken"]
    with pytest.raises(UserError, match="of a collective"):
        list(networks({"transport": "mrc"}, TINY))
