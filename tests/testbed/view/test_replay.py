"""replay.html from a results directory: which runs it shows, what is in it, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mrcbed.cli.results.view import command
from scenarios.figures.stored import Stored
from scenarios.show.plots.style import KNOWN, look_of
from scenarios.show.replay_page import SIGNS, look, replay
from testbed.errors import UserError
from testbed.view.read import first_of_each, read_frames, read_run, run_keys


def inlined(page: Path) -> list[list[dict[str, Any]]]:
    """The frames in a page, by run."""
    blocks = re.findall(
        r'<script type="application/gzip" class="frames" id="frames-\d+">([^<]*)</script>',
        page.read_text(),
    )
    return [
        [json.loads(line) for line in gzip.decompress(base64.b64decode(block)).splitlines()]
        for block in blocks
    ]


def test_one_run_of_each_transport_is_shown_all_of_one_seed(complete: Path, tmp_path: Path) -> None:
    for key in run_keys(complete):
        record = json.loads((complete / "raw" / key / "run.json").read_text())
        for seed in (1, 2):
            other = tmp_path / "raw" / key.replace("-s1", f"-s{seed}")
            other.mkdir(parents=True)
            (other / "run.json").write_text(json.dumps(record | {"seed": seed}))
    keys = first_of_each(tmp_path)
    assert (
        len(run_keys(tmp_path)) == 6 and len(keys) == 3 and all(key.endswith("-s1") for key in keys)
    )


def test_the_page_has_every_frame_of_its_runs(complete: Path, tmp_path: Path) -> None:
    runs = inlined(replay(complete, out=tmp_path / "page.html"))
    assert [frames[0]["transport"] for frames in runs] == ["mrc", "roce", "roce-1p"]
    for frames, key in zip(runs, first_of_each(complete), strict=True):
        assert frames[1:] == list(read_frames(complete, read_run(complete, key)))[1:]
        colour, marker = look_of(Stored(complete), frames[0]["transport"])
        assert (frames[0]["colour"], frames[0]["marker"]) == (colour, SIGNS[marker])
    kinds = {frame["f"] for frame in runs[0]}
    assert {"run", "path", "fault", "step", "rate", "evs", "cwnd", "ports", "end"} <= kinds


def test_the_frames_tell_what_the_logs_tell(complete: Path) -> None:
    """Packets per EV, payload and steps add up to what the engines counted; every verdict in a log
    is on the strip."""
    key = first_of_each(complete)[0]
    frames = list(read_frames(complete, read_run(complete, key)))
    assert (frames[0]["fabric"]["base_rtt_ns"], frames[0]["links"][0]["gbps"]) == (10_000, 100)
    record = json.loads((complete / "raw" / key / "run.json").read_text())
    sent = sum(count for frame in frames if frame["f"] == "evs" for _, count in frame["tx"])
    counters = record["agent_counters"].values()
    assert sent == sum(host["data_tx"] for host in counters)
    # of a ring all-reduce, all ranks together
    payload = 2 * (len(record["ranks"]) - 1) * record["message_bytes"] * record["steps"]
    for way in ("tx", "rx"):
        assert sum(sum(frame[way]) for frame in frames if frame["f"] == "rate") == payload
    assert (
        len([frame for frame in frames if frame["f"] == "step"])
        == len(record["ranks"]) * record["steps"]
    )
    verdicts = [
        line
        for log in (complete / "raw" / key).glob("h*.jsonl")
        for line in map(json.loads, log.read_text().splitlines())
        if line["kind"] == "ev" and line["to"] == "ASSUMED_BAD"
    ]
    assert verdicts and len(verdicts) == sum(
        len(frame["evs"]) for frame in frames if frame["f"] == "path" and frame["state"] == "died"
    )
    assert all(
        "after the cut" in frame["why"]
        for frame in frames
        if frame["f"] == "path" and frame["state"] == "died"
    )


def test_ports_over_time_add_up_to_the_counters(complete: Path) -> None:
    key = first_of_each(complete)[0]
    record = json.loads((complete / "raw" / key / "run.json").read_text())
    lines = [
        json.loads(line)
        for line in (complete / "raw" / key / "ports.jsonl").read_text().splitlines()
    ]
    before, after = (
        {row["port"]: row for row in record[name]} for name in ("counters_before", "counters_after")
    )
    last = lines[-1]["t"]
    assert (
        len(lines) > 3
        and all(line["span_ps"] > 0 for line in lines)
        and last <= record["window"][1]
    )
    dropped = [0] * len(after)
    for line in lines:
        for number, _, _, _, _, drops in line["rows"]:
            dropped[number] += drops
    names = (
        "drop_tail_packets",
        "drop_link_down_packets",
        "drop_silent",
        "drop_fault_loss",
        "drop_fault_path",
    )
    ends = [port["port"] for port in record["counters_after"]]
    fabric = read_run(complete, key).fabric
    for port in fabric.ports:
        assert dropped[port.number] == sum(
            after[port.name][name] - before[port.name][name] for name in names
        )
    assert sum(dropped) > 0 and len(ends) == len(fabric.ports)


def test_the_same_files_give_the_same_page(complete: Path, tmp_path: Path) -> None:
    assert (
        replay(complete, out=tmp_path / "a.html").read_bytes()
        == replay(complete, out=tmp_path / "b.html").read_bytes()
    )


def test_nothing_in_the_page_can_be_loaded_or_run_but_its_own_script(
    complete: Path, tmp_path: Path
) -> None:
    page = replay(complete, out=tmp_path / "page.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1] and "{{" not in page.split("<script>")[0]
    assert (
        not re.search(r"(src|href|action)=", page)
        and "innerHTML" not in page
        and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    )


def test_a_hostile_name_stays_text(complete: Path, tmp_path: Path) -> None:
    manifest = json.loads((complete / "manifest.json").read_text())
    copy = tmp_path / "copy"
    (copy / "raw").mkdir(parents=True)
    key = first_of_each(complete)[0]
    (copy / "raw" / key).symlink_to(complete / "raw" / key)
    manifest["scenario"]["name"] = "</title><script>alert(1)</script>{{script}}"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    page = replay(copy).read_text()
    assert (
        "<script>alert" not in page
        and page.count("<script>") == 1
        and '"use strict"' not in page.split("</title>")[0]
    )


def test_the_command_says_where_the_page_is(complete: Path, tmp_path: Path) -> None:
    key = run_keys(complete)[-1]
    answer = CliRunner().invoke(
        command, [str(complete), "--run", key, "--out", str(tmp_path / "one.html")]
    )
    assert answer.output == f"{tmp_path / 'one.html'}\n"
    assert [frames[0]["key"] for frames in inlined(tmp_path / "one.html")] == [key]


def test_what_is_no_result_is_refused_in_one_line(complete: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="holds no complete run.*: give a directory that mrcbed run wrote"
    ):
        replay(tmp_path)
    with pytest.raises(UserError, match="has no run 'nothing'; it has mrc-"):
        replay(complete, ["nothing"])
    (tmp_path / "raw" / "x").mkdir(parents=True)
    (tmp_path / "raw" / "x" / "run.json").write_text("{")
    with pytest.raises(UserError, match="damaged: .*run.json is not JSON"):
        replay(tmp_path)
    (tmp_path / "raw" / "x" / "run.json").write_text("{}")
    with pytest.raises(UserError, match="run.json: it is missing"):
        replay(tmp_path)


def test_results_without_the_newer_logs_can_be_seen(complete: Path, tmp_path: Path) -> None:
    """Those of earlier versions have neither ports over time nor, for collectives, packets per
    EV."""
    key = first_of_each(complete)[0]
    (tmp_path / "raw" / key).mkdir(parents=True)
    for log in (complete / "raw" / key).iterdir():
        lines = log.read_bytes().splitlines(keepends=True)
        if log.name != "ports.jsonl":
            (tmp_path / "raw" / key / log.name).write_bytes(
                b"".join(line for line in lines if b'"evs","host"' not in line)
            )
    kinds = {frame["f"] for frame in inlined(replay(tmp_path))[0]}
    assert "path" in kinds and not kinds & {"ports", "evs"}


def test_every_transport_has_the_colour_of_its_plots_and_a_sign() -> None:
    for transport in (*KNOWN, "a name of mine"):
        colour, sign = look(transport)
        assert colour == KNOWN.get(transport, (colour,))[0] and len(sign) == 1
