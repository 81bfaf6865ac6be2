"""What the terminal shows of several seeds or settings: one line per transport."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from scenarios.schema.scenario import load_scenario
from scenarios.show import medians_table
from scenarios.show.document import rich
from scenarios.show.run_tables import faults_table, show
from testbed import terminal
from testbed.results.summary import Run
from tests.made import made
from tests.scenarios.figures.test_comparison import entry
from tests.scenarios.synthetic import Play, make

FAILOVER = {
    "fault": "cable",
    "last_on_dead_over_rotation": 0.5,
    "losses_per_ev": 1,
    "losses_per_ev_bound": 2,
    "lost": 3,
    "kept_during": None,
    "kept_after": None,
}


def cells(runs: list[dict[str, Any]]) -> list[dict[str, str]]:
    entries = [made(Run, **run) for run in runs]
    return [
        {head: str(cell(line)) for head, cell in medians_table.columns(entries)}
        for line in medians_table.lines(entries)
    ]


def test_medians_intervals_and_what_was_left_out() -> None:
    runs = [entry("mrc", seed, 8e9 * value) for seed, value in enumerate([3.0, 1.0, 2.0], 1)]
    runs += [
        entry("roce", 1, 32e9),
        entry("roce", 2, 72e9, "failed"),
        entry("roce", 3, 40e9, "not trustworthy"),
    ]
    mrc, roce = cells([{**run, "ideal_busbw_bps": 32e9} for run in runs])
    assert (mrc["bus GB/s"], mrc["of\nideal"], mrc["n"], mrc["verdict"]) == (
        "2.0\n[1.0, 3.0]",
        "50%",
        "3",
        "ok",
    )
    assert (roce["bus GB/s"], roce["n"], roce["median\nµs"]) == ("4.5\n[4.0, 5.0]", "2", "–")
    assert roce["verdict"] == "1 failed, left out; 1 not trustworthy"


def test_settings_have_lines_of_their_own_whatever_type_their_values_have() -> None:
    runs = [
        entry("mrc", 1, 8e9 * k, "ok" if k else "failed", settings={"fault.0.probability": v})
        for k, v in enumerate((0, 0.5, "1"))
    ]
    assert medians_table.applies_to([made(Run, **run) for run in runs])
    shown = cells(runs)
    assert [c["transport"].splitlines()[2] for c in shown] == [
        "probability = 0",
        "probability = 0.5",
        "probability = 1",
    ]
    assert [c["verdict"] for c in shown] == ["1 failed, left out", "ok", "ok"] and [
        c["bus GB/s"] for c in shown
    ] == ["–", "1.0", "2.0"]


@pytest.mark.dear("runs of sixteen hosts' flows, one seed and three")
def test_flows_have_a_line_per_group(tmp_path: Path) -> None:
    given = {"overrides": ["workload.duration=400us", "expect=[]"], "transports": ["mrc", "roce"]}
    for seeds, title in (
        ([1], "incast-victim: incast under each transport\n"),
        ([1, 2, 3], "under each transport, 3 seeds"),
    ):
        where = tmp_path / str(len(seeds))
        where.mkdir()
        summary = make(
            where,
            load_scenario("incast-victim", seeds=seeds, **given),
            {"roce": Play(rate=lambda flow, fabric, t: 20e9)},
        )
        out = io.StringIO()
        show(terminal.console(140, file=out), summary, where, everything=True)
        text = out.getvalue()
        assert title in "\n".join(line.rstrip() for line in text.splitlines())
        narrow = io.StringIO()
        show(terminal.console(80, file=narrow), summary, where, everything=True)
        assert "…" not in narrow.getvalue() and "retrans-" in narrow.getvalue(), (
            "nothing is cut off"
        )
    assert "7 seeds" not in text and text.count("[20.0, 20.0]") == 1, (
        "the victim's; the incast's is the sum"
    )
    assert "in brackets the range" in text and "interval" not in text, (
        "three seeds carry no interval"
    )


def test_tables_of_single_runs_name_their_settings() -> None:
    runs = [
        made(Run, **entry("mrc", 1, 1e6, settings={"fault.0.probability": p}, failovers=[FAILOVER]))
        for p in (0.1, 0.5)
    ]
    out = io.StringIO()
    terminal.console(140, file=out).print(rich(faults_table(runs)))
    text = out.getvalue()
    assert "probability = 0.1" in text and "probability = 0.5" in text
