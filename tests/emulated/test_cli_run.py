"""``mrcbed run`` and ``mrcbed results plot`` as people call them: real processes, judged by exit
status, streams and files alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from mrcbed.cli.run import command
from testbed.errors import UserError
from testbed.machine.slowness import patient
from tests.emulated.command import DONE, ENGINE_NOTE, QUICK, ROOT, manifest_of, mrcbed, summary_of
from tests.emulated.remains import CLOSED
from tests.tshark import tshark
from topologies.fabrics import DILATION
from topologies.units import US

pytestmark = pytest.mark.sandbox
WHOLE, TEXT, NUMBER = (int,), (str,), (int, float)
CONTRACT: dict[str, Any] = {
    "format": WHOLE,
    "verdict": TEXT,
    "checks": [{"name": TEXT, "expected": TEXT, "seen": (object,), "ok": (bool,)}],
    "runs": [
        {
            "transport": TEXT,
            "fabric": TEXT,
            "workload": TEXT,
            "seed": WHOLE,
            "ranks": WHOLE,
            "message_bytes": WHOLE,
            "steps": WHOLE,
            "wrong": WHOLE,
            "step_time_ns": {
                "n": WHOLE,
                "p50": float,
                "p99": type(None),
                "p999": type(None),
                "max": float,
            },
            "algbw_bps": NUMBER,
            "busbw_bps": NUMBER,
            "ideal_busbw_bps": NUMBER,
            "base_rtt_ns": NUMBER,
            "packets": dict.fromkeys(
                ("sent", "delivered", "retransmitted", "marked", "trimmed", "lost", "unexplained"),
                WHOLE,
            ),
            "failovers": [
                {"fault": TEXT, "at_ns": NUMBER, "last_on_dead_path_ns": NUMBER, "lost": WHOLE}
            ],
            "cpu_percent": NUMBER,
            "verdict": TEXT,
        }
    ],
}
"""Of the issue. 20 steps carry a median and no more."""


def fits(value: Any, shape: Any, where: str = "summary") -> None:
    """``value`` has at least the keys of ``shape`` and its types."""
    if isinstance(shape, dict):
        assert isinstance(value, dict) and set(shape) <= set(value), (
            where,
            set(shape) - set(value),
        )
        for key, inner in shape.items():
            fits(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list) and value, where
        for item in value:
            fits(item, shape[0], f"{where}[]")
    else:
        assert isinstance(value, shape) and (not isinstance(value, bool) or bool in shape), (
            where,
            value,
        )


# --- what a run leaves ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    directory = tmp_path_factory.mktemp("smoke") / "out"
    return directory, mrcbed(
        "run",
        "smoke",
        "--json",
        *QUICK,
        "--set",
        "workload.steps=20",
        "--out",
        directory,
        drawn=True,
    )


def test_a_run_prints_and_keeps_the_summary_that_was_promised(smoke: Any) -> None:
    directory, done = smoke
    assert done.returncode in DONE, done.stderr
    summary = json.loads(done.stdout)
    assert summary == summary_of(directory)
    fits(summary, CONTRACT)
    run = summary["runs"][0]
    verdict = DONE[done.returncode]
    assert (summary["verdict"], run["verdict"], run["wrong"], run["steps"], run["ranks"]) == (
        verdict,
        verdict,
        0,
        20,
        4,
    )
    assert run["step_time_ns"]["p50"] <= run["step_time_ns"]["max"]
    manifest = manifest_of(directory)
    assert (
        manifest["verdict"] == verdict
        and manifest["seeds"] == [1]
        and manifest["dilation"]["value"] == DILATION
    )
    assert (
        manifest["kernel"] == os.uname().release
        and manifest["fidelity"][run["run"]]["verdict"] == verdict
    )
    assert manifest["fidelity"][run["run"]]["fidelity"] == run["fidelity"]["verdict"]
    assert (run["fidelity"]["verdict"] == "trustworthy") == (verdict == "ok")


@pytest.mark.quiet
def test_a_fabric_that_is_slow_enough_is_trusted(tmp_path: Path) -> None:
    """A tenth of the usual rate, so ten times as long for everything: this is what messages tell
    people to do."""
    fabric = tmp_path / "slow.toml"
    fabric.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 2\nhosts_per_t0 = 2\n"
        'nic_rate = "10Gbit"\n'
    )
    given = ("workload.steps=2", "workload.message_bytes=16384", "fault=[]", "expect=[]")
    words = ["--fabric", fabric, *(word for value in given for word in ("--set", value))]
    for attempt in range(3):  # the rest of the machine may take all of it for a while
        done = mrcbed("run", "smoke", *words, "--out", tmp_path / f"{attempt}")
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout
    (run,) = summary_of(tmp_path / f"{attempt}")["runs"]
    assert (run["verdict"], run["fidelity"]["verdict"], run["distrust"]) == (
        "ok",
        "trustworthy",
        [],
    )


def test_ports_over_time_add_up_to_the_counters_and_are_in_the_replay(smoke: Any) -> None:
    """All but what ports did before the first step and after the last."""
    directory, _ = smoke
    run = summary_of(directory)["runs"][0]["run"]
    record = json.loads((directory / "raw" / run / "run.json").read_text())
    lines = [
        json.loads(line)
        for line in (directory / "raw" / run / "ports.jsonl").read_text().splitlines()
    ]
    begin, end = record["window"]
    assert len(lines) > 3 and begin < lines[0]["t"] and lines[-1]["t"] == end
    assert all(line["span_ps"] >= 10 * US for line in lines[:-1])
    left = sum(row[1] for line in lines for row in line["rows"])
    dropped = sum(row[5] for line in lines for row in line["rows"])
    before, after = (
        {row["port"]: row for row in record[name]} for name in ("counters_before", "counters_after")
    )
    arrived = sum(
        row["arrived_bytes"] - before[port]["arrived_bytes"] for port, row in after.items()
    )
    assert 0.9 * arrived < left <= arrived
    assert (
        0
        < dropped
        <= sum(row["drop_link_down_packets"] + row["drop_tail_packets"] for row in after.values())
    )
    assert 'class="frames"' in (directory / "replay.html").read_text()


def test_tables_agree_with_the_summary_and_each_other(smoke: Any) -> None:
    directory, _ = smoke
    run = summary_of(directory)["runs"][0]
    steps, events, counters = (
        pd.read_parquet(directory / f"{name}.parquet") for name in ("steps", "events", "counters")
    )
    measured = steps[~steps["warmup"]]
    assert (
        len(measured) == run["ranks"] * run["steps"]
        and not measured.duplicated(["rank", "step"]).any()
        and steps["ok"].all()
    )
    slowest = (measured["end_ns"] - measured["start_ns"]).groupby(measured["step"]).max()
    assert slowest.max() == pytest.approx(run["step_time_ns"]["max"])
    packets = run["packets"]
    assert (
        packets["sent"] == packets["delivered"] + packets["lost"] + packets["unexplained"]
        and packets["unexplained"] == 0
    )
    drops = [c for c in counters if c.startswith("drop_") and not c.endswith("_bytes")] + [
        "flushed_packets"
    ]
    assert counters[drops].to_numpy().sum() == packets["lost"] > 0
    assert len(counters) == 32 and counters["port"].is_unique
    faults = events[events["kind"] == "fault"].sort_values("t_ns")
    assert list(faults["phase"]) == ["begin", "heal"] and set(faults["on"]) == {"p0-t0-0:p0-t1-0"}
    assert faults["t_ns"].iloc[0] == pytest.approx(run["failovers"][0]["at_ns"])
    assert measured["start_ns"].min() < faults["t_ns"].iloc[0] < measured["end_ns"].max(), (
        "one clock"
    )
    assert (events["kind"] == "rtx").any() and (events["to"] == "ASSUMED_BAD").any()


def test_the_kinds_of_plots_that_were_promised_are_drawn(smoke: Any) -> None:
    directory, _ = smoke
    plots = {path.name for path in (directory / "plots").iterdir()}
    kinds = {re.split(r"-(?:interleaved|mrc)", Path(name).stem)[0] for name in plots}
    assert kinds == {
        "failure-cost",
        "step-times",
        "transfer-times",
        "goodput",
        "paths",
        "plane-loads",
        "path-heat",
        "queue-hops",
        "losses",
    }
    assert {Path(name).stem for name in plots if name.endswith(".png")} == {
        Path(name).stem for name in plots if name.endswith(".svg")
    }


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """RoCE and MRC; one fault by step, on the cable that RoCE uses, one by time, on a switch; a
    capture."""
    base = tmp_path_factory.mktemp("broken")
    scenario = base / "broken.toml"
    scenario.write_text(
        """
        format = 3
        fabric = "tiny"
        [workload]
        kind = "ring-allreduce"
        placement = "interleaved"
        message_bytes = 32768
        steps = 12
        slices = 2
        [[transport]]
        kind = "mrc"
        [[transport]]
        kind = "roce"
        [[fault]]
        name = "cable"
        kind = "link"
        on = "used-by-qp"
        step = 3
        for = "30us"
        [[fault]]
        name = "switch"
        kind = "switch"
        on = "p1-t1-1"
        at = "10us"
        for = "20us"
        """
    )
    words = ["-t", "mrc", "-t", "roce", "--pcap", "p1-t0-0:p1-t1-1", "--json"]
    return base / "out", mrcbed("run", scenario, *words, "--out", base / "out")


def test_faults_by_step_and_by_time_on_links_and_switches(broken: Any) -> None:
    directory, done = broken
    assert done.returncode in DONE, done.stderr + done.stdout
    runs = {run["transport"]: run for run in summary_of(directory)["runs"]}
    assert set(runs) == {"mrc", "roce"} and all(
        run["steps"] == 12 and run["wrong"] == 0 for run in runs.values()
    )
    events, steps = (pd.read_parquet(directory / f"{name}.parquet") for name in ("events", "steps"))
    cables = set()
    for run in runs.values():
        mine, faults = (
            steps[steps["run"] == run["run"]],
            events[(events["run"] == run["run"]) & (events["kind"] == "fault")],
        )
        assert list(faults[faults["name"] == "switch"]["phase"]) == ["begin", "heal"]
        cable, switch = (
            faults[(faults["name"] == name) & (faults["phase"] == "begin")].iloc[0]
            for name in ("cable", "switch")
        )
        cables.add(cable["on"])
        third = mine[mine["step"] == 3]["start_ns"].min()
        assert third <= cable["t_ns"] < mine[mine["step"] == 3]["end_ns"].max(), (
            "begins with its step"
        )
        assert switch["t_ns"] - mine[mine["step"] == 0]["start_ns"].min() >= 9e3, (
            "not before its time"
        )
        assert switch["on"] == "p1-t1-1" and len(json.loads(switch["detail"])["links"]) == 2
    assert len(cables) == 1, "the same cable for every transport"


def test_a_capture_reads_with_the_dissector_and_says_what_it_missed(broken: Any) -> None:
    directory, _ = broken
    (kept,) = manifest_of(directory)["captures"]
    pcap = directory / kept["file"]
    assert kept["link"] == "p1-t0-0:p1-t1-1" and kept["dropped"] == 0 and kept["packets"] > 0
    fields = [
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-e",
        "mrc.opcode",
        "-e",
        "mrc.plane",
        "-e",
        "usid.next",
    ]
    done = tshark("-r", pcap, *fields)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == kept["packets"]
    known = [row for row in rows if row[1]]
    assert len(known) > 10 and {row[2] for row in known} == {"1"} and all(row[3] for row in rows)


def test_a_fabric_of_ones_own_seeds_changes_and_a_check_that_fails(tmp_path: Path) -> None:
    fabric, scenario = tmp_path / "own.toml", tmp_path / "hard.toml"
    fabric.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 1\nhosts_per_t0 = 1\n"
        'nic_rate = "100Gbit"\n'
    )
    scenario.write_text(
        'format = 3\nfabric = "tiny"\n[workload]\nkind = "ring-allreduce"\n'
        'message_bytes = 16384\nsteps = 50\nslices = 2\n[[transport]]\nkind = "mrc"\n[[expect]]\n'
        'name = "sums"\ncheck = "mrc.wrong == 0"\n[[expect]]\nname = "faster than light"\n'
        'check = "mrc.step_time_ns.max < 1"\n'
    )
    done = mrcbed(
        "run",
        scenario,
        "--fabric",
        fabric,
        "--seed",
        "5",
        "--seed",
        "6",
        "--set",
        "workload.steps=3",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 1, done.stderr
    summary = summary_of(tmp_path / "out")
    assert summary["verdict"] == "failed"
    assert [
        (r["seed"], r["fabric"], r["ranks"], r["steps"], r["wrong"]) for r in summary["runs"]
    ] == [(s, "own", 2, 3, 0) for s in (5, 6)]
    assert [check["ok"] for check in summary["checks"]] == [True, True, False, False]
    assert "FAILED faster than light" in done.stdout and "Verdict: failed" in done.stdout


# --- refusals -------------------------------------------------------------------------------------

GOOD = (
    'format = 3\nfabric = "tiny"\n[workload]\nkind = "ring-allreduce"\nmessage_bytes = 16384\n'
    'steps = 3\n[[transport]]\nkind = "mrc"\n'
)
REFUSED = {
    "not TOML": ("fabric = [", (), "not valid TOML"),
    "unknown key": (GOOD.replace("steps", "stepz"), (), "did you mean 'steps'?"),
    "unknown scenario": (None, ("smokke",), "no scenario 'smokke'"),
    "impossible fabric": (GOOD, ("--fabric", "FABRIC"), "t1_per_plane"),
    "unknown fabric": (GOOD, ("--fabric", "tinny"), "tinny"),
    "no such link": (GOOD, ("--pcap", "p0-t0-0:p0-t1-9"), "no link"),
    "dilation in words": (
        GOOD,
        ("--dilation", "slow"),
        "write auto, fabric, or how many times slower",
    ),
    "dilation beyond all rates": (GOOD, ("--dilation", "999999999"), "nic_rate"),
    "check of nothing": (GOOD + '[[expect]]\ncheck = "mcr.wrong == 0"\n', (), "no transport 'mcr'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_nothing_is_built(case: str, tmp_path: Path) -> None:
    text, words, says = REFUSED[case]
    scenario, fabric, out = tmp_path / "bad.toml", tmp_path / "fabric.toml", tmp_path / "out"
    fabric.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 0\nhosts_per_t0 = 2\n"
        'nic_rate = "100Gbit"\n'
    )
    if text is not None:
        scenario.write_text(text)
    given = [str(fabric) if word == "FABRIC" else word for word in words]
    if text is not None:
        given.insert(0, str(scenario))
    refused = (
        CliRunner().invoke(command, [*given, "--out", str(out)], standalone_mode=False).exception
    )
    assert isinstance(refused, UserError) and says in str(refused) and "\n" not in str(refused), (
        refused
    )
    assert not out.exists(), "not even a results directory"


def test_a_refusal_is_all_that_the_process_says(tmp_path: Path) -> None:
    done = mrcbed("run", "smokke", "--out", tmp_path / "out")
    said = [line for line in done.stderr.splitlines() if not line.startswith(ENGINE_NOTE)]
    assert (done.returncode, len(said), done.stdout) == (2, 1, ""), (said, done.stdout)
    assert said[0].startswith("mrcbed: no scenario 'smokke'")


@pytest.mark.dear("a calibration is a measurement of a fabric under load")
def test_a_calibration_is_kept_and_a_run_takes_its_time_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept" / "calibration.json"
    monkeypatch.setenv("MRCBED_CALIBRATION", str(kept))
    done = mrcbed("tools", "calibrate", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert json.loads(kept.read_text())["cpu_us"] == told["cpu_us"] > 1
    assert all(
        fabric["chosen"] == "auto" and fabric["factor"] >= 1 for fabric in told["fabrics"].values()
    )
    # 830 packets/s would be all that this machine carries: the 2,360 of `tiny` take less than 60 %
    # of it at a fifth of their rate.
    kept.write_text(
        json.dumps(json.loads(kept.read_text()) | {"cpu_us": 1_200.0 * (os.cpu_count() or 1)})
    )
    out = tmp_path / "out"
    words = (
        "--set",
        "workload.steps=1",
        "--set",
        "workload.message_bytes=32768",
        "--set",
        "fault.0.at=5us",
        "--set",
        "fault.0.for=5us",
    )
    done = mrcbed("run", "smoke", "--dilation", "auto", *words, "--out", out)
    assert done.returncode in (*DONE, 1), done.stderr
    assert "calibrating" not in done.stderr and "dilation " in done.stderr
    dilation, (run,) = manifest_of(out)["dilation"], summary_of(out)["runs"]
    assert dilation["chosen"] == "auto" and dilation["factor"] >= 5
    assert dilation["value"] == DILATION * dilation["factor"]
    assert (
        run["wrong"] == 0
        and run["steps"] == 1
        and 2 < run["typical_step_ns"] / run["base_rtt_ns"] < 60
    )


@pytest.mark.skipif(CLOSED, reason="only root can reach this clone")
@pytest.mark.parametrize("words", [("run", "smoke"), ("up", "tiny")])
def test_not_root_is_one_line(words: tuple[str, ...]) -> None:
    drop = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
        sys.executable,
        "-B",
        "-m",
        "mrcbed",
        *words,
    ]
    done = subprocess.run(
        drop, cwd=ROOT, check=False, capture_output=True, text=True, timeout=patient(240)
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith(ENGINE_NOTE)]
    assert (done.returncode, len(said)) == (2, 1), done.stderr
    assert "needs root" in said[0] and "sudo" in said[0]
