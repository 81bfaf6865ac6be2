"""``mrcbed tools bench`` says what other processes took of the machine while it measured, and which
figures hold it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from mrcbed.cli.tools import bench
from testbed.machine.load import Cpu
from tests.waiting import wait_until

RESULTS: dict[str, Any] = {
    "codec": {"packets_per_second": 3.0, "payload_bytes": 4096, "compiled": True, "foreign": 2.5},
    "bare": {"packets_per_second": 2.0, "cpu_us_per_packet": 7.0, "paced_cpu_us_per_packet": 50.0},
    "engine": {
        "packets_per_second": 1.0,
        "ratio": 0.5,
        "fixed_packets_per_second": 1.0,
        "fixed_ratio": 0.5,
    },
    "cluster": {
        "fabric": "demo",
        "cpu_us_per_data_packet": 351.0,
        "agents_cpu_us_per_data_packet": 60.0,
        "wakeups_per_data_packet": 2.0,
        "memory_bytes_per_host": 36e6,
    },
    "verbs_missing": None,
    "fabrics": [{"fabric": "tiny", "links": 16, "up_s": 0.4, "agents_s": 0.2, "down_s": 0.1}],
}
QUIET = dict.fromkeys(
    ("codec", "bare", "engine", "paced", "cluster", "fabrics"), bench.OTHERS * 0.9
)


def shown(others: dict[str, float], capsys: pytest.CaptureFixture[str]) -> str:
    results = {**RESULTS, "others_cores": others}
    bench.show(results | {"to_bare": bench.to_bare(results)}, 3)
    return capsys.readouterr().out


def test_figures_that_hold_what_others_took_are_marked_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown({**QUIET, "cluster": 0.97, "codec": 0.4}, capsys)
    marked = {
        line.split("*")[0].split("│")[-1].strip()
        for line in said.splitlines()
        if " * " in line and "(" not in line.split("*")[0]
    }
    assert {"ring on demo, CPU", "codec, 4096 B, one core"} <= marked and "engine" not in marked, (
        said
    )
    words = " ".join(said.split())
    assert "codec (0.40), cluster (0.97)" in words
    assert (
        "Their CPU time is counted in the ring's CPU a data packet (not the agents' part of "
        "it), and in the ratios"
    ) in words
    assert "Rates and times are those of the cores that were left" in words


def test_on_a_machine_that_others_leave_alone_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = shown(QUIET, capsys)
    assert "*" not in said and "Other processes" not in said


def test_verbs_are_told_beside_the_engine_and_what_is_lacking_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = {"writes_per_second": 25_000.0, "sender_us": 18.0, "receiver_us": 12.0}
    verbs = {
        "writes_per_second": 20_000.0,
        "sender_us": 26.5,
        "receiver_us": 13.0,
        "program_us": 4.6,
        "post_us": 1.8,
        "poll_us": 0.5,
    }
    monkeypatch.setitem(
        RESULTS, "verbs", {"8 B": {"bytes": 8, "engine": engine, "verbs": verbs, "on_top_us": 13.1}}
    )
    said = " ".join(shown(QUIET, capsys).replace("│", " ").split())
    assert "WRITEs of 8 B through verbs 20,000/s, engine alone 25,000/s" in said
    assert (
        "13.1 us a WRITE: program 4.6 (post 1.8, poll 0.5), its agent 8.5; the peer's 1.0" in said
    )
    monkeypatch.delitem(RESULTS, "verbs")
    monkeypatch.setitem(RESULTS, "verbs_missing", "the verbs library is not built: no gcc")
    said = shown(QUIET, capsys)
    assert "through verbs" not in said and "the verbs library is not built: no gcc" in said


def test_others_are_what_is_neither_ours_nor_of_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds in which the cores were busy for 15 s: 2 s of interrupts, 4 s of ours."""
    ticks = os.sysconf("SC_CLK_TCK")
    cpus = iter([Cpu(100 * ticks, 0, 7 * ticks, 0), Cpu(115 * ticks, 0, 9 * ticks, 0)])
    times = iter([50.0, 60.0])
    # user and system time of us, of our children; before, and after
    used = iter([(1.0, 0.0), (2.5, 0.5), (2.0, 1.0), (4.0, 1.0)])

    class Usage:
        def __init__(self, who: int) -> None:
            self.ru_utime, self.ru_stime = next(used)

    monkeypatch.setattr(bench, "read_cpu", lambda: next(cpus))
    monkeypatch.setattr(bench.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(bench.resource, "getrusage", Usage)
    others: dict[str, float] = {}
    with bench.others_of(others, "a", "b"):
        pass
    assert others == {"a": 0.9, "b": 0.9}


def test_a_loop_beside_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured until the loop had a quarter of a second, which counts as one: the machine's other
    work only adds to what is seen."""
    ends = iter([0.0, 1.0])
    monkeypatch.setattr(bench, "time", types.SimpleNamespace(monotonic=lambda: next(ends)))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:

        def used_s() -> float:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

        try:
            wait_until(used_s, "the loop did not begin")
            before, others = used_s(), dict[str, float]()
            with bench.others_of(others, "x"):
                wait_until(lambda: used_s() > before + 0.25, "the loop got no core")
        finally:
            process.kill()
    assert others["x"] > 0.2
