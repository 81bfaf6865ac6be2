"""Plots and terminal tables of flows: each appears when its data are there, and only then."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scenarios.figures.invariants import hop_of
from scenarios.schema.scenario import load_scenario
from scenarios.show.plots import draw_all
from scenarios.show.plots.evs import grid
from scenarios.show.plots.packets import NAMES, buffer_of
from scenarios.show.plots.sweep import GOODPUT, most_apart
from scenarios.show.run_tables import show
from testbed import terminal
from tests.scenarios import plays
from tests.scenarios.small import only_drawn
from tests.scenarios.synthetic import Play, make
from topologies import load_fabric


def drawn(directory: Path) -> set[str]:
    made = draw_all(directory)
    assert all(path.stat().st_size > 2000 for path in made)
    assert all("<!-- fidelity: " in path.read_text() for path in made if path.suffix == ".svg"), (
        "each says what its runs are worth"
    )
    return {path.name for path in made if path.suffix == ".png"}


def printed(summary: dict[str, object], directory: Path, width: int = 100) -> str:
    out = StringIO()
    show(terminal.console(width, file=out), summary, directory, everything=True)
    return out.getvalue()


@pytest.mark.dear("draws three figures of many flows")
def test_incast(tmp_path: Path) -> None:
    scenario = load_scenario(
        "incast-victim",
        transports=["mrc", "mrc-last-hop-ecn", "roce"],
        overrides=["workload.duration=400us"],
    )
    mrc, marked, roce = (
        plays.incast(0.97, 1.4, 0.97, 1),
        plays.incast(0.9, 0.5, 0.98, 2),
        plays.incast(0.5, 6, 0.3, 3),
    )
    summary = make(tmp_path, scenario, {"mrc": mrc, "mrc-last-hop-ecn": marked, "roce": roce})
    assert drawn(tmp_path) == {
        "flows-packed-s1.png",
        "queues-packed-s1.png",
        "windows-packed-s1.png",
    }
    text = printed(summary, tmp_path)
    for words in (
        "7 × incast",
        "kept vs",
        "rack16-last-hop-ecn",
        "25–100",
        "125 (187.5)",
        "1,000",
        "Queues on the last hop",
    ):
        assert words in text, words
    assert "RoCE runs without PFC" in text


def test_permutation(tmp_path: Path) -> None:
    scenario = load_scenario(
        "permutation",
        transports=["mrc", "roce-1p"],
        seeds=[1, 2],
        overrides=["workload.duration=300us"],
    )
    summary = make(
        tmp_path,
        scenario,
        {"mrc": plays.collide((0.96,), 1), "roce-1p": plays.collide((0.98, 0.5), 2)},
    )
    assert drawn(tmp_path) == {"permutation-packed-s1.png", "permutation-packed-s2.png"}
    text = printed(summary, tmp_path)
    # which flow is which differs between seeds
    assert "seed" in text and "Goodput per flow" not in text


def test_ev_balance(tmp_path: Path) -> None:
    summary = make(tmp_path, load_scenario("ev-balance"), {"mrc": plays.part(5.0, 0.5, 1)})
    assert drawn(tmp_path) == {
        "flows-packed-s1.png",
        "windows-packed-s1.png",
        "ev-shares-mrc-wide-packed-s1.png",
    }
    assert "A shares 8 of its 128 EVs with B and left them within" in " ".join(
        printed(summary, tmp_path).split()
    )
    flows = pd.read_parquet(tmp_path / "flows.parquet")
    flows[flows["flow"] != "B"].to_parquet(tmp_path / "flows.parquet")
    with only_drawn("flows"):
        assert drawn(tmp_path) == {"flows-packed-s1.png"}, (
            "also of a run in which B received nothing"
        )


def test_without_data_no_plots_but_tables(tmp_path: Path) -> None:
    scenario = load_scenario("incast-15", transports=["mrc"])
    summary = make(tmp_path, scenario, {"mrc": Play(rate=lambda flow, fabric, t: 1e9)})
    for name in ("flows", "queues"):
        (tmp_path / f"{name}.parquet").unlink()
    assert drawn(tmp_path) == set()
    assert "15 × incast" in printed(summary, tmp_path)


def test_a_fabric_without_trimming_and_marking_says_off(tmp_path: Path) -> None:
    scenario = load_scenario(
        "incast-15",
        overrides=["transport.mrc-no-trim.fabric_options.ecn=false"],
        transports=["mrc-no-trim"],
    )
    summary = make(tmp_path, scenario, {})
    row = next(
        line
        for line in printed(summary, tmp_path, 120).splitlines()
        if line.lstrip().startswith("rack16-no-ecn-no-trimming")
    )
    assert row.split()[4:7] == ["off", "off", "off"]


def test_grid_counts_in_fair_shares() -> None:
    packets = pd.DataFrame(
        {
            "t_ns": [0, 0, 10, 10, 20],
            "bin_ns": [10] * 5,
            "ev": [1, 2, 1, 2, 2],
            "tx_packets": [3, 1, 5, 5, 4],
        }
    )
    assert grid(packets, [1, 2], 0, 10, 3).tolist() == [[1.5, 1.0, 0.0], [0.5, 1.0, 2.0]]
    assert grid(packets, [1, 2], 0, 20, 1).tolist() == [[16 / 14], [12 / 14]]
    assert np.isnan(grid(packets, [1, 2], -10, 10, 1)).all()


def test_a_buffers_name_leaves_room_for_its_figure() -> None:
    names = ["mrc", "mrc-no-trim", "mrc-no-skip", "mrc-no-order", "mrc-oblivious", "mrc-one-ev"]
    assert buffer_of(names, 1) == "buffer"
    assert buffer_of(names, 2) == "buffer of mrc, mrc-no-trim and 4 more"
    assert buffer_of(names[:3], 2) == "buffer of mrc, mrc-no-trim, mrc-no-skip"


@pytest.mark.parametrize("fabric", ["demo", "two-sites"])
def test_the_figure_of_queues_has_a_place_for_every_port(fabric: str) -> None:
    for port in load_fabric(fabric).ports:
        assert hop_of(port.name) in NAMES, port.name


def test_a_sweeps_title_says_where_transports_differ_most() -> None:
    made = [("mrc", 1, 8e9), ("mrc", 2, 90e9), ("roce", 1, 4e9), ("roce", 2, 60e9), ("tcp", 1, 0.0)]
    runs: Any = [
        SimpleNamespace(
            transport=name,
            settings={"workload.senders": senders},
            groups={"incast": SimpleNamespace(goodput_bps=rate)},
        )
        for name, senders, rate in made
    ]
    assert most_apart(runs, "workload.senders", GOODPUT) == ("2", {"mrc": 90.0, "roce": 60.0}), (
        "a rate of zero has no ratio"
    )
    assert most_apart(runs[2:4], "workload.senders", GOODPUT) == ("", {})
