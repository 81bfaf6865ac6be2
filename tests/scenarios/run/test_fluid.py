"""Scenarios in the fluid world: the same files as elsewhere, the same run from the same seed, and one line for what it cannot express."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures import results
from scenarios.figures.measure import load_runs
from scenarios.run.fluid import check_fluid, flow
from scenarios.schema.scenario import ScenarioError, load_scenario
from testbed.faults.kinds import KINDS
from testbed.fluid.calibration import stored
from testbed.fluid.faults import not_fluid
from topologies.theory import sack_share

RING = """
format = 3
description = "A ring."
fabric = "demo"
seeds = [1]
timeout = "100s"
[workload]
kind = "ring-allreduce"
placement = ["interleaved"]
message_bytes = "3MiB"
dtype = "int32"
steps = 8
slices = 16
[[transport]]
kind = "mrc"
"""
CUT = '[[fault]]\nname = "cut"\nkind = "link"\non = "p0-t0-0:p0-t1-0"\nstep = 3\nfor = "240us"\n'


def write(directory: Path, text: str) -> str:
    file = directory / "ring.toml"
    file.write_text(text)
    return str(file)


def run(directory: Path, text: str, name: str = "out") -> Path:
    out = directory / name
    out.mkdir()
    flow(load_scenario(write(directory, text)), out, figures=False)
    return out


def steps_of(out: Path) -> list[int]:
    """Times of the measured steps, ns of the clock."""
    (only,) = load_runs(out)
    return [int(time) for time in only.step_times]


def entry_of(out: Path) -> dict[str, Any]:
    (entry,) = json.loads((out / "summary.json").read_text())["runs"]
    return dict(entry)


def logged(out: Path) -> list[dict[str, Any]]:
    """What the hosts of the only run logged."""
    return [json.loads(line) for log in (out / "raw").glob("*/h*.jsonl") for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ring in which nothing breaks, with checks of what a fluid has not."""
    checks = "".join(f'[[expect]]\ncheck = "mrc.{check}"\n' for check in ("wrong == 0", "packets.unexplained == 0", "failed_steps == 0"))
    return run(tmp_path_factory.mktemp("whole"), RING + checks)


def test_a_cut_cable_costs_steps_and_packets_and_is_found_and_used_again(tmp_path: Path) -> None:
    entry = entry_of(run(tmp_path, RING.replace("steps = 8", "steps = 12") + CUT.replace("step = 3", "step = 6")))
    assert (entry["world"], entry["outcome"], entry["verdict"], entry["steps"]) == ("fluid", "done", "ok", 12)
    (fault,) = entry["failovers"]
    rtt, healthy = entry["base_rtt_ns"], entry["typical_step_ns"]
    assert 2 * rtt < fault["detected_ns"] - fault["at_ns"] < 7 * rtt
    assert fault["lost"] == entry["packets"]["lost"] == entry["packets"]["retransmitted"] > 8  # every rank has lost some
    assert 1.3 < entry["step_time_ns"]["max"] / healthy < 2
    assert entry["failure_cost"]["extra_ns"] > 240_000 / 4  # more than the capacity that was missing


def test_an_outage_that_never_ends_leaves_the_pace_of_what_is_left(whole: Path, tmp_path: Path) -> None:
    entry = entry_of(run(tmp_path, RING + CUT.replace('for = "240us"\n', "")))
    healthy = steps_of(whole)[0]
    frame = steps_of(tmp_path / "out")
    assert frame[:3] == pytest.approx([healthy] * 3, rel=0.01)
    assert frame[-1] / healthy == pytest.approx(4 / 3, rel=0.02) and frame[3] > frame[-1]
    assert entry["failovers"][0]["healed_ns"] is None


def test_the_same_files_come_out_twice_and_another_seed_cuts_another_cable(tmp_path: Path) -> None:
    text = RING.replace("steps = 8", "steps = 4") + CUT.replace("p0-t0-0:p0-t1-0", "used-by-qp")
    outs = [run(tmp_path, text, "a"), run(tmp_path, text, "b"), run(tmp_path, text.replace("[1]", "[2]"), "c")]
    raws = [next((out / "raw").iterdir()) for out in outs]
    logs = [{file.name: file.read_bytes() for file in raw.iterdir()} for raw in raws]
    assert logs[0] == logs[1]
    cables = [json.loads((raw / "run.json").read_text())["fault_links"] for raw in raws]
    assert cables[0] == cables[1] != cables[2]


def test_a_ring_that_is_cut_off_waits_for_the_timeout(tmp_path: Path) -> None:
    faults = "".join(f'[[fault]]\nkind = "port"\non = "h0-p{plane}"\nstep = 2\n' for plane in range(4))
    entry = entry_of(run(tmp_path, RING + faults))
    assert entry["outcome"] == "timeout" and entry["steps"] == 2 and "raise 'timeout'" in entry["reason"]


def test_a_silent_t1_and_a_plane_that_dies_leave_what_they_do_not_carry(whole: Path, tmp_path: Path) -> None:
    silent = '[[fault]]\nkind = "silent"\non = "p0-t1-1"\nstep = 3\n'
    plane = '[[fault]]\nkind = "plane"\non = "p1"\nstep = 3\n'
    for number, fault in enumerate((silent, plane)):
        out = run(tmp_path, RING + fault, str(number))
        assert steps_of(out)[-1] / steps_of(whole)[0] == pytest.approx(4 / 3, rel=0.03)
        lost = entry_of(out)["packets"]["lost"]
        assert lost > 0
        kinds = {line["kind"] for line in logged(out)}
        assert ("ev" in kinds) == (fault is silent) and ("plane" in kinds) == (fault is plane)


def test_a_mended_port_carries_again(tmp_path: Path) -> None:
    port = '[[fault]]\nkind = "port"\non = "h0-p0"\nstep = 2\nfor = "200us"\n'
    times = steps_of(run(tmp_path, RING + port))
    assert times[2] / times[0] == pytest.approx(4 / 3, rel=0.05) and times[-1] == pytest.approx(times[0], rel=0.001)


def test_what_was_not_measured_is_no_number_and_no_check(whole: Path) -> None:
    entry = entry_of(whole)
    assert entry["wrong"] is None and entry["packets"]["marked"] is None and entry["packets"]["unexplained"] is None
    verdicts = json.loads((whole / "summary.json").read_text())["checks"]
    assert [check["ok"] for check in verdicts] == [None, None, True]


def test_the_bytes_of_ports_and_goodput_are_those_that_the_ring_moved(whole: Path) -> None:
    goodput = [line for line in logged(whole) if line["kind"] == "goodput"]
    moved = 2 * 7 / 8 * (3 << 20) * 9 * 8  # bytes that a rank sends, steps with their warm-up, ranks
    for direction in ("tx", "rx"):
        assert sum(sum(line[direction]) for line in goodput) == pytest.approx(moved, rel=1e-4)


def test_tables_plots_and_the_report_are_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    flow(load_scenario(write(tmp_path, RING + CUT)), out)
    assert (out / "report.html").is_file() and (out / "replay.html").is_file() and list((out / "plots").glob("step-times*.png"))
    frame = results.load(out)
    assert set(frame.events["kind"]) >= {"fault", "ev", "loss", "redelivered"} and len(frame.step_times) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RING.replace("ring-allreduce", "all-to-all"), "the fluid world knows ring-allreduce"),
        (RING.replace('kind = "mrc"', 'kind = "roce"'), "the fluid world has MRC alone"),
        (RING + "options = { qps = 4 }\n", "qps = 4"),
        (RING + "options = { skip = false }\n", "'skip' means nothing without packets"),
        (RING + 'controller = "hint"\n', "neither"),
        (RING + "clustermapper = true\n", "neither"),
        (RING + '[[fault]]\nkind = "loss"\non = "p0-t0-0:p0-t1-0"\nprobability = 0.1\nat = "1us"\n', "acts on single packets"),
        (RING + '[[fault]]\nkind = "kill"\non = "h0"\nat = "1us"\n', "acts on a process"),
        (RING + '[[background]]\ntool = "iperf3"\nsrc = "h0"\ndst = "h5"\nprotocol = "udp"\nrate = "1Gbit"\n', "no such traffic"),
    ],
)
def test_what_it_cannot_express_gets_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        check_fluid(load_scenario(write(tmp_path, text)))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_every_kind_of_fault_is_either_refused_or_takes_links() -> None:
    known = {name for name in KINDS if not not_fluid(name)}
    assert known == {"link", "port", "flap", "failures", "transceiver", "switch", "silent", "plane", "dead-paths"}


PERMUTATION = """
format = 3
description = "Everyone to one other."
fabric = "demo"
seeds = [1]
timeout = "100s"
[workload]
kind = "permutation"
duration = "1ms"
message_bytes = "256KiB"
outstanding = 4
[[transport]]
kind = "mrc"
"""


def flows_of(out: Path) -> list[dict[str, Any]]:
    return sorted((line for line in logged(out) if line["kind"] == "message"), key=lambda line: (line["flow"], line["number"]))


def test_a_permutation_fills_the_line_and_a_message_takes_what_little_says(tmp_path: Path) -> None:
    out = run(tmp_path, PERMUTATION)
    entry = entry_of(out)
    fabric = load_scenario(write(tmp_path, PERMUTATION)).fabric.real
    line = fabric.host_rate * fabric.payload_share / (1 + sack_share(fabric)) * stored().efficiency
    goodput = entry["groups"]["permutation"]["goodput_bps"] / 8  # of eight flows
    assert goodput == pytest.approx(line, rel=0.01) and entry["groups"]["permutation"]["jain"] == pytest.approx(1)
    assert entry["groups"]["permutation"]["message_ns"]["p50"] == pytest.approx(4 * (256 << 10) * 8e9 / line, rel=0.01)
    assert entry["outcome"] == "done" and entry["wrong"] is None
    of_first = [message for message in flows_of(out) if message["flow"] == 0]
    assert all(later["start_ns"] == earlier["end_ns"] for earlier, later in zip(of_first, of_first[4:], strict=False))


def test_a_plane_that_dies_takes_its_share_of_flows_and_gives_it_back(tmp_path: Path) -> None:
    fault = '[[fault]]\nkind = "plane"\non = "p1"\nat = "300us"\nfor = "300us"\n'
    (failover,) = entry_of(run(tmp_path, PERMUTATION + fault))["failovers"]
    assert failover["kept_during"] == pytest.approx(0.75, abs=0.03)


def test_flows_start_stop_and_share_a_receiver(tmp_path: Path) -> None:
    """The second of two flows to one host begins later and sends ten messages; while it does, both have half of the line."""
    text = PERMUTATION.replace('kind = "permutation"\nduration = "1ms"\n', 'kind = "flows"\n')
    one = '[[workload.flow]]\nname = "long"\nsrc = "h0"\ndst = "h4"\nfor = "1ms"\n'
    two = '[[workload.flow]]\nname = "ten"\nsrc = "h1"\ndst = "h4"\nstart = "400us"\nmessages = 10\n'
    out = run(tmp_path, text + one + two)
    flows = entry_of(out)["flows"]
    messages = flows_of(out)
    ten = [message for message in messages if message["flow"] == 1]
    assert len(ten) == 10 and sum(m["bytes"] for m in ten) == 10 * (256 << 10)
    alone = [m["end_ns"] - m["start_ns"] for m in messages if m["flow"] == 0 and m["end_ns"] < ten[0]["start_ns"]]
    assert ten[8]["end_ns"] - ten[8]["start_ns"] == pytest.approx(2 * alone[-1], rel=0.02)
    assert flows["ten"]["goodput_bps"] < 0.6 * flows["long"]["alone_bps"]


def test_a_flow_that_begins_after_a_cable_died_finds_out_for_itself_if_it_is_the_first(tmp_path: Path) -> None:
    text = PERMUTATION.replace('kind = "permutation"\nduration = "1ms"\n', 'kind = "flows"\n')
    late = '[[workload.flow]]\nname = "late"\nsrc = "h0"\ndst = "h4"\nstart = "600us"\nmessages = 20\n'
    near = '[[workload.flow]]\nname = "near"\nsrc = "h1"\ndst = "h2"\nfor = "900us"\n'
    fault = '[[fault]]\nkind = "link"\non = "p0-t0-0:p0-t1-0"\nat = "100us"\n'
    out = run(tmp_path, text + near + late + fault)
    (raw,) = (out / "raw").iterdir()
    losses, dilation = [line for line in logged(out) if line["kind"] == "loss"], load_scenario("smoke", fabric="demo").fabric.dilation
    t0 = json.loads((raw / "run.json").read_text())["t0"]
    assert {line["host"] for line in losses} == {0}  # the other flow stays under its T0
    assert all((line["t"] - t0) / dilation > 600_000 for line in losses)
