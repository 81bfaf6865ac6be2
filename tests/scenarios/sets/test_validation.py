"""``mrcbed validate``: figures by hand, verdicts, causes, the command. Worlds are played; one test
runs the simulated one."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from mrcbed.cli import validate
from scenarios.figures.stored import Stored
from scenarios.run.planning import plan
from scenarios.run.simulate import check_simulable, simulate
from scenarios.schema.dilation import at_dilation
from scenarios.schema.scenario import Scenario, ScenarioError, load_scenario, named_scenarios
from scenarios.sets.series import Form
from scenarios.sets.validation import agreement, concluding, page, plot
from scenarios.sets.validation.agreement import (
    AGREES,
    ALONE,
    CHANCE,
    DIFFERS,
    EXPLAINED,
    NO_DATA,
    THEORY,
    rows_of,
)
from scenarios.sets.validation.cases import CASES, HERE, SLOWER, chosen, parse_worlds
from scenarios.sets.validation.causes import CAUSES, Cause, Parting
from scenarios.sets.validation.expected import expected
from scenarios.sets.validation.observed import BOUNDS, FIGURES, Seen, figures_of, times_of
from testbed.errors import UserError
from testbed.results.record import Record, read_record
from testbed.results.summary import Run, Summary
from testbed.world import EMULATED, SIMULATED, WORLDS
from tests.made import made
from tests.scenarios.small import undrawn
from topologies import load_fabric
from topologies.paths import path_evs
from topologies.structs import plain
from topologies.theory import place_ranks, sack_share
from topologies.units import NS

TINY = load_fabric("tiny")
FRAME = TINY.frame_bytes * 0.08  # ns
FILL = TINY.delay_ps / NS  # switches cut through
QUICK = Form(quick=True)
ROOT = Path(__file__).parents[3]


# --- the set --------------------------------------------------------------------------------------


def test_cases_are_run_by_their_file_only_and_all_files_are_used() -> None:
    files = {path.name for path in HERE.glob("*.toml")}
    assert files == {case.scenario for case in CASES} and not {
        name.removesuffix(".toml") for name in files
    } & {"smoke", "demo"}
    assert len({case.id for case in CASES}) == len(CASES)
    assert "ring" not in named_scenarios()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_worlds_run_the_same_and_the_short_form_is_shorter(case: Any) -> None:
    assert [part.name for part in case.parts] == [*WORLDS, *([SLOWER] if case.slower else [])]
    for quick in (False, True):
        one, other, *slower = (part.load(quick) for part in case.parts)
        assert one == other and [t.name for t in one.transports] == [case.transport]
        for scenario in slower:
            assert scenario == at_dilation(one, 2 * one.dilation)
        check_simulable(one)
    assert len(plan(case.parts[0].load(True))) < len(plan(case.parts[0].load()))
    steps = case.parts[0].load(True).workload.steps
    assert not steps or steps >= 20  # what a median takes


def test_cases_are_named_alone_or_together() -> None:
    assert [case.id for case in chosen([])] == [case.id for case in CASES]
    assert [case.id for case in chosen(["ring"])] == ["ring-50", "ring-80", "ring-100", "ring-roce"]
    assert [case.id for case in chosen(["incast", "idle"])] == ["idle", "incast"]
    assert [case.worlds for case in chosen(["idle"], ("simulated",))] == [("simulated",)]
    assert parse_worlds("simulated, emulated") == WORLDS and parse_worlds("simulated") == (
        "simulated",
    )


@pytest.mark.parametrize("words", [["rings"], [""], ["ring-"]])
def test_a_case_that_is_not_there_is_one_line(words: list[str]) -> None:
    with pytest.raises(UserError, match="there is no case"):
        chosen(words)


# --- what was seen --------------------------------------------------------------------------------


def entry(seed: int = 1, **more: Any) -> Run:
    """A run that ended well."""
    own = {
        "run": f"mrc-s{seed}",
        "seed": seed,
        "placement": "interleaved",
        "transport": "mrc",
        "steps": 34,
        "busbw_bps": 10e6,
        "ranks": 4,
    }
    counted = {"sent": 1000, "marked": 10, "trimmed": 0, "lost": 0}
    return made(
        Run,
        **{**own, "step_time_ns": {"n": 1, "max": 9}, "packets": counted, "fabric": "tiny", **more},
    )


def times(*values: int) -> pd.Series[Any]:
    return pd.Series(values)


def test_percentiles_are_of_all_seeds_together() -> None:
    runs = [entry(1), entry(2, busbw_bps=12e6), entry(3, busbw_bps=20e6)]
    seen = figures_of(runs, times(*range(1, 103)))
    assert seen["p50"] == Seen(51.0, 102) and seen["p90"] == Seen(92.0, 102) and "p99" not in seen
    assert seen["goodput"].value == 12e6 and "cost" not in seen
    assert "p50" not in figures_of(runs, times(*range(19)))


def test_messages_that_met_nothing_yet_are_left_out(tmp_path: Path) -> None:
    """Four at once into an empty path: the first of them waits for none."""
    sent = [
        {
            "run": "r",
            "flow": f,
            "number": n,
            "start_ns": 0,
            "end_ns": min(n + 1, 4) * (10 if f == "a" else 20),
        }
        for f in "ab"
        for n in range(6)
    ]
    pd.DataFrame(sent).to_parquet(tmp_path / "messages.parquet")
    scenario = {"name": "x", "seeds": [1], "transports": [], "workload": {"outstanding": 4}}
    (tmp_path / "manifest.json").write_text(
        json.dumps({"scenario": scenario, "fabrics": {"tiny": load_fabric("tiny").to_dict()}})
    )
    summary = made(Summary, format=4, runs=[entry(run="r")])
    (tmp_path / "summary.json").write_text(json.dumps(plain(summary)))
    assert list(times_of(Stored(tmp_path), [entry(run="r", steps=0)])) == [40, 40, 80, 80]


def test_packets_are_shares_of_what_was_sent() -> None:
    runs = [
        entry(n, packets={"sent": 1000 * n, "marked": 10, "trimmed": 0, "lost": 1})
        for n in (1, 2, 4)
    ]
    seen = figures_of(runs, times(1))
    assert seen["marked"] == Seen(0.5, 7000, (10, 10, 10)) and seen["trimmed"].value == 0


def test_a_failure_has_figures_of_its_own() -> None:
    failed = {"at_ns": 100, "last_on_dead_path_ns": 130, "detected_ns": 190}
    cost = {"healthy_step_ns": 50, "extra_ns": 400}
    seen = figures_of([entry(failovers=[failed], failure_cost=cost)], times(*range(200)))
    assert {id: seen[id].value for id in ("left", "found", "healthy", "cost", "slowest")} == {
        "left": 30, "found": 90, "healthy": 50, "cost": 400, "slowest": 9,
    }  # fmt: skip
    assert "p50" not in seen and "goodput" not in seen
    unseen = figures_of(
        [entry(failovers=[failed | {"detected_ns": None}], failure_cost=cost)], times(1)
    )
    assert "found" not in unseen and "left" in unseen


# --- what theory says -----------------------------------------------------------------------------


def record(**more: Any) -> Record:
    told = {
        "ranks": place_ranks(TINY, "interleaved"),
        "workload": "ring-allreduce",
        "message_bytes": 320 << 10,
        "kind": "mrc",
    }
    return made(Record, fabric=TINY, **{**told, **more})


def test_theory_of_a_ring() -> None:
    ideal = expected(record(), 2, 4)
    # of 10 packets, on two ports
    step, slice_ns = ideal["p50"].value, 5 * FRAME * (1 + sack_share(TINY))
    assert step == pytest.approx(6 * (slice_ns + FILL) + slice_ns)
    assert (
        ideal["goodput"].value == pytest.approx(1.5 * (320 << 10) * 8e9 / step)
        and ideal["lost"].value == 0
    )
    assert "marked" not in ideal
    # short and long edges: no figure
    assert set(expected(record(ranks=place_ranks(TINY, "packed")), 2, 4)) == {"lost"}


def test_theory_of_a_ring_over_single_paths_is_of_its_slowest_edge() -> None:
    hosts = place_ranks(TINY, "interleaved")  # h0, h2, h1, h3
    other = path_evs(TINY, 3, 0)[-1]
    evs = {(0, 2): 0, (2, 1): 0, (1, 3): 0, (3, 0): other}
    paths = {str(a): [{"peer": b, "ev": ev, "qpn": 16}] for (a, b), ev in evs.items()}
    # h0 and h1 on one uplink: half of a port each
    shared = expected(record(kind="roce", paths=paths), 2, 4)["p50"].value
    apart = {**paths, "1": [{"peer": 3, "ev": 1, "qpn": 16}]}
    alone = expected(record(kind="roce", paths=apart), 2, 4)["p50"].value
    slice_ns, fill = 10 * FRAME * (1 + sack_share(TINY)), FILL
    assert alone == pytest.approx(max(6 * 2 * slice_ns + fill, 6 * (slice_ns + fill) + slice_ns))
    assert shared == pytest.approx(6 * 2 * 2 * slice_ns + fill)
    assert "lost" not in expected(record(kind="roce", paths=apart), 2, 4) and hosts == [0, 2, 1, 3]
    assert expected(record(kind="roce"), 2, 4) == {}  # nobody told of its paths


def flows(*pairs: tuple[int, int], **more: Any) -> Record:
    told = [{"src": a, "dst": b} for a, b in pairs]
    return record(
        workload="flows", ranks=[0, 1, 2, 3], flows=told, **{"message_bytes": 4096, **more}
    )


def test_theory_of_flows() -> None:
    idle = expected(flows((0, 2), (1, 3)), 4, 1)
    assert (
        idle["p50"].value == idle["p99"].value == pytest.approx(TINY.base_rtt_ps / NS, abs=0.01)
        and idle["trimmed"].value == 0
    )
    assert idle["goodput"].value == pytest.approx(
        2 * 4096 * 8e9 / (TINY.base_rtt_ps / NS), rel=1e-6
    )
    line = TINY.host_rate * TINY.payload_share
    # two to one: half of its line each
    full = expected(flows((0, 2), (1, 2), message_bytes=1 << 20), 4, 4)
    assert full["goodput"].value == pytest.approx(line) and full["p50"].value == pytest.approx(
        4 * (1 << 20) * 8e9 / (line / 2)
    )
    # both ways: SACKs take their part
    turned = expected(flows((0, 2), (2, 0), message_bytes=1 << 20), 4, 4)
    assert turned["goodput"].value == pytest.approx(2 * line / (1 + sack_share(TINY)))


def test_theory_of_a_failure_is_what_the_capacity_costs() -> None:
    """1280 KiB keep the ports busy: half of the bandwidth makes a step 6 x 2 slices longer, of 20
    packets a port."""
    cable = {"fault_links": ["p0-t0-0:p0-t1-0"], "message_bytes": 1280 << 10}
    lost = expected(record(**cable), 2, 4, entry(failovers=[{"outages_ns": [[5, 1_000_000_005]]}]))
    busy, fill = 6 * 2 * 20 * FRAME * (1 + sack_share(TINY)), FILL
    assert set(lost) == {"healthy", "cost"} and lost["healthy"].value == pytest.approx(busy + fill)
    assert lost["cost"].value == pytest.approx(1e9 * (1 - (busy + fill) / (2 * busy + fill)))
    lasting = expected(record(**cable), 2, 4, entry(failovers=[{"outages_ns": [[5, None]]}]))
    assert set(lasting) == {"healthy"}  # it has no end: nobody can say how much


def test_the_simulated_ring_is_theorys_where_no_uplink_is_shared(tmp_path: Path) -> None:
    """One host under each T0: packets of two hosts never meet on the way up. What is left is
    serialisation, filling and SACKs."""
    (tmp_path / "alone.toml").write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 4\nt1_per_plane = 2\nhosts_per_t0 = 1\n"
        'nic_rate = "100Gbit"\n'
    )
    changes = ["workload.steps=4", "workload.message_bytes=128KiB"]
    ring = load_scenario(
        str(HERE / "ring.toml"),
        fabric=str(tmp_path / "alone.toml"),
        transports=["mrc"],
        seeds=[1],
        overrides=changes,
    )
    (tmp_path / "out").mkdir()
    with undrawn():
        run = simulate(ring, tmp_path / "out")["runs"][0]
    told = read_record(tmp_path / "out" / "raw" / run["run"] / "run.json")
    assert run["typical_step_ns"] == pytest.approx(expected(told, 2, 4)["p50"].value, rel=0.02)


def test_a_slower_emulation_is_compared_with_the_usual_one_alone() -> None:
    row = row_of(
        "p50",
        wanted=("emulated", "slower"),
        theory=100.0,
        simulated=100.0,
        emulated=101.0,
        slower=103.0,
    )
    assert row.verdict == AGREES and [(p.of, p.against) for p in row.partings][-1] == (
        "slower",
        "emulated",
    )
    assert (
        row_of(
            "p50",
            wanted=("emulated", "slower"),
            theory=100.0,
            simulated=100.0,
            emulated=101.0,
            slower=120.0,
        ).verdict
        == DIFFERS
    )
    assert (
        row_of("p50", wanted=("emulated", "slower"), simulated=100.0, emulated=101.0).verdict
        == NO_DATA
    )


# --- verdicts -------------------------------------------------------------------------------------


def row_of(
    figure: str, causes: tuple[Cause, ...] = (), wanted: tuple[str, ...] = WORLDS, **columns: Any
) -> agreement.Row:
    """Of one figure: theory, simulated, emulated as given (a number, or counts of each run)."""
    made = {
        name: {figure: Seen(sum(v) / 100, 100, tuple(v)) if isinstance(v, list) else Seen(v, 100)}
        for name, v in columns.items()
        if v is not None
    }
    (row,) = rows_of("ring-50", "", made, wanted, causes)
    return row


@pytest.mark.parametrize(
    ("figure", "theory", "simulated", "emulated", "verdict"),
    [
        ("p50", 100.0, 104.9, 100.0, AGREES),
        ("p50", 100.0, 105.1, 105.0, DIFFERS),
        ("p50", None, 100.0, 105.1, DIFFERS),
        ("p50", 100.0, 104.0, 108.5, AGREES),  # each is held against the one before it
        ("goodput", 100.0, 94.9, 95.0, DIFFERS),
        ("p90", None, 100.0, 114.0, AGREES),
        ("p90", None, 100.0, 116.0, DIFFERS),
        ("slowest", None, 100.0, 84.0, DIFFERS),
        ("lost", 0.0, 0.0, 0.0, AGREES),
        ("lost", 0.0, [0, 0], [0, 1], DIFFERS),  # against a zero of theory there is no chance
        ("marked", None, [30, 31], [33, 40], CHANCE),
        ("marked", None, [300, 310], [410, 400], DIFFERS),
        # bursts: its own seeds lie as far apart
        ("marked", None, [27, 32, 36], [104, 162, 1847], CHANCE),
        ("marked", None, [284, 286, 300], [479, 468, 515], DIFFERS),
        ("trimmed", None, [0, 0], [0, 2], CHANCE),
        ("trimmed", None, [0, 0], [9, 9], DIFFERS),
        # a single run shows no bursts: they are taken to be there
        ("trimmed", None, [1200], [1090], CHANCE),
        ("trimmed", None, [1200], [950], DIFFERS),
        ("trimmed", 0.0, 0.0, None, NO_DATA),
    ],
)
def test_verdicts(figure: str, theory: Any, simulated: Any, emulated: Any, verdict: str) -> None:
    assert row_of(figure, theory=theory, simulated=simulated, emulated=emulated).verdict == verdict


@pytest.mark.parametrize(
    ("simulated", "emulated", "verdict"),
    [
        ((700.0, 908.0, 858.0), (814.0, 600.0, 700.0), CHANCE),
        ((222.0, 223.0, 221.0), (182.0, 182.0, 181.0), DIFFERS),
        ((222.0,), (182.0,), DIFFERS),  # one run shows no spread
    ],
)
def test_figures_that_a_run_has_once_may_part_by_chance(
    simulated: tuple[float, ...], emulated: tuple[float, ...], verdict: str
) -> None:
    made = {
        name: {"cost": Seen(statistics.median(v), len(v), values=v)}
        for name, v in (("simulated", simulated), ("emulated", emulated))
    }
    (row,) = rows_of("link-failure", "", made, WORLDS, ())
    assert row.verdict == verdict


def test_one_world_alone_is_held_against_theory() -> None:
    assert row_of("p50", wanted=("simulated",), theory=100.0, simulated=110.0).verdict == DIFFERS
    assert row_of("p50", wanted=("emulated",), theory=100.0, emulated=110.0).verdict == DIFFERS
    assert row_of("p50", wanted=("emulated",), emulated=110.0).verdict == ALONE


COLLIDE = Cause("ring-*", "p50|goodput", SIMULATED, THEORY, 0.0, 0.2, "packets meet", "spray")
LATE = Cause("*", "p50", EMULATED, SIMULATED, 0.0, 0.1, "late", "wake-up")


def test_a_cause_explains_its_figure_columns_direction_and_size_alone() -> None:
    assert (
        row_of("p50", (COLLIDE,), theory=100.0, simulated=110.0, emulated=110.0).verdict
        == EXPLAINED
    )
    assert (
        row_of("p50", (COLLIDE,), theory=100.0, simulated=125.0, emulated=125.0).verdict == DIFFERS
    )
    assert row_of("p50", (COLLIDE,), theory=100.0, simulated=90.0, emulated=90.0).verdict == DIFFERS
    assert (
        row_of("p50", (COLLIDE,), theory=100.0, simulated=100.0, emulated=110.0).verdict == DIFFERS
    )
    assert row_of("p90", (COLLIDE,), simulated=100.0, emulated=120.0).verdict == DIFFERS
    both = row_of("p50", (COLLIDE, LATE), theory=100.0, simulated=110.0, emulated=118.0)
    assert (
        both.verdict == EXPLAINED
        and both.to_dict()["why"] == "packets meet; late"
        and both.to_dict()["sections"] == ["spray", "wake-up"]
    )
    # one of two
    assert (
        row_of("p50", (COLLIDE,), theory=100.0, simulated=110.0, emulated=118.0).verdict == DIFFERS
    )


def test_within_the_bound_it_agrees_whatever_is_known() -> None:
    row = row_of("p50", (COLLIDE, LATE), theory=100.0, simulated=104.0, emulated=105.0)
    assert row.verdict == AGREES and not row.causes


def test_bounds_are_the_issues() -> None:
    assert BOUNDS == {"median": 0.05, "tail": 0.15, "count": 0.05}
    assert {id for id, f in FIGURES.items() if f.kind == "tail"} == {"p90", "p99", "slowest"}


def test_a_percentile_that_one_world_has_no_samples_for_is_left_out() -> None:
    columns = {
        "simulated": {"p50": Seen(1.0, 1001), "p99": Seen(1.0, 1001)},
        "emulated": {"p50": Seen(1.0, 990)},
    }
    assert [row.figure.id for row in rows_of("idle", "", columns, WORLDS)] == ["p50"]
    assert [
        row.verdict for row in rows_of("idle", "", {"simulated": columns["simulated"]}, WORLDS)
    ] == [NO_DATA, NO_DATA]


def test_every_cause_is_of_a_case_and_figure_and_argued() -> None:
    text = (ROOT / "docs" / "why" / "fidelity.md").read_text(encoding="utf-8")
    headings = {line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")}
    for cause in CAUSES:
        at = {
            Parting(c.id, f, cause.of, cause.against, (cause.low + cause.high) / 2, True)
            for c in CASES
            for f in FIGURES
        }
        assert any(cause.explains(parting) for parting in at), cause
        assert cause.section in headings, cause.section
        assert cause.low < cause.high and cause.words


# --- running, concluding, showing -----------------------------------------------------------------


def write(
    directory: Path, scenario: Scenario, step_ns: float = 41_000, **more: Any
) -> dict[str, Any]:
    """Results as the runner leaves them: 34 steps in every run, of ``step_ns``."""
    (directory / "raw").mkdir(parents=True, exist_ok=True)
    runs, steps = [], []
    for spec in plan(scenario):
        run = entry(spec.seed, run=spec.key, busbw_bps=1.5 * (320 << 10) * 8e9 / step_ns, **more)
        runs.append(run)
        told = plain(record(seed=spec.seed, key=spec.key, transport="mrc", placement="interleaved"))
        (directory / "raw" / spec.key).mkdir(exist_ok=True)
        (directory / "raw" / spec.key / "run.json").write_text(json.dumps(told))
        steps += [
            {
                "run": spec.key,
                "rank": r,
                "step": n,
                "warmup": False,
                "start_ns": n * 1e5,
                "end_ns": n * 1e5 + step_ns,
            }
            for r in range(4)
            for n in range(34)
        ]
    pd.DataFrame(steps).to_parquet(directory / "steps.parquet")
    summary = made(Summary, format=4, scenario=scenario.name, runs=runs)
    (directory / "summary.json").write_text(json.dumps(plain(summary)))
    (directory / "manifest.json").write_text(
        json.dumps(
            {"scenario": {"transports": []}, "fabrics": {"tiny": load_fabric("tiny").to_dict()}}
        )
    )
    return summary


RING = chosen(["ring-50"])[0]


def played(out: Path, form: Form = QUICK, **step_ns: int) -> dict[str, Any]:
    """ring-50 in the worlds given, concluded."""
    out.mkdir(exist_ok=True)
    if not (out / concluding.SET).is_file():
        concluding.open_directory(out, form, False)
    for part in RING.parts:
        if part.name in step_ns:
            write(RING.directory(part, out), part.load(form.quick, form.seeds), step_ns[part.name])
    return concluding.conclude(RING, out, form)


def rows(made: dict[str, Any]) -> dict[str, Any]:
    return {row["figure"]: row for row in made["rows"]}


def test_a_case_is_concluded_from_its_files(tmp_path: Path) -> None:
    found = rows(played(tmp_path, Form(), simulated=41_000, emulated=45_670))
    assert (
        found["p50"]["theory"] == pytest.approx(40_920.12, rel=3e-4)
        and found["p50"]["emulated"] == 45_670
    )
    assert found["p50"]["n"] == {"simulated": 102, "emulated": 102}
    by = {(p["of"], p["from"]): p["beyond"] for p in found["p50"]["partings"]}
    assert by == {("simulated", "theory"): False, ("emulated", "simulated"): True}
    # 11 % of a tail
    assert found["p90"]["verdict"] == AGREES and found["lost"]["verdict"] == AGREES
    assert concluding.concluded(tmp_path)[0]["id"] == "ring-50"


def test_what_is_missing_is_told_and_has_no_data(tmp_path: Path) -> None:
    made = played(tmp_path, simulated=41_000)
    assert made["trouble"] == ["emulated: not run"] and {
        row["verdict"] for row in made["rows"]
    } == {NO_DATA}
    assert concluding.exit_status([made]) == 1
    alone = concluding.conclude(replace(RING, worlds=(SIMULATED,)), tmp_path, QUICK)
    assert (
        not alone["trouble"]
        and {row["verdict"] for row in alone["rows"]} == {AGREES, ALONE}
        and concluding.exit_status([alone]) == 0
    )
    (tmp_path / "ring-50" / "simulated" / "summary.json").write_text("{")
    broken = concluding.conclude(RING, tmp_path, QUICK)
    assert "summary.json is not JSON" in broken["trouble"][1] and broken["rows"] == []


def test_exit_status(tmp_path: Path) -> None:
    good = played(tmp_path / "good", simulated=41_000, emulated=41_100)
    bad = played(tmp_path / "bad", simulated=41_000, emulated=66_000)
    assert concluding.exit_status([good]) == 0 and concluding.exit_status([bad]) == 1
    assert concluding.exit_status([good, {**bad, "id": "other"}], ["ring-50"]) == 0
    failed = {
        **good,
        "worlds": {**good["worlds"], "emulated": {**good["worlds"]["emulated"], "failed": 1}},
    }
    assert concluding.exit_status([failed]) == 1 and concluding.exit_status([]) == 1


def test_the_page_says_it_all_and_needs_no_network(tmp_path: Path) -> None:
    played(tmp_path, simulated=41_000, emulated=45_670)
    path = page.write_page(tmp_path)
    text = path.read_text()
    assert (
        "40.92 µs" in text
        and "45.67 µs" in text
        and "+11.4 %" in text
        and "Quick form" in text
        and "Ring all-reduce, ports half idle" in text
    )
    assert (
        "http://" not in text.replace("http://www.w3.org", "")
        and "<script" not in text
        and 'src="data:image/png;base64,' in text
    )
    assert (tmp_path / "validation.png").is_file() and (tmp_path / "validation.svg").is_file()
    data = json.loads((tmp_path / page.DATA).read_text())
    assert data["quick"] and data["counts"][DIFFERS] >= 2 and data["bounds"]["median"] == 0.05
    table = pd.read_csv(tmp_path / page.TABLE)
    assert list(table["case"].unique()) == ["ring-50"] and "emulated_off_simulated" in table
    assert "DIFFER without a known cause" in page.summary_line(data["cases"])


def test_doubts_reach_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.sets.validation.plot.draw", lambda made, directory: [])
    out = tmp_path
    concluding.open_directory(out, QUICK, False)
    for part in RING.parts:
        write(
            RING.directory(part, out),
            part.load(True),
            verdict="not trustworthy",
            distrust=["the machine was <busy>"],
        )
    made = concluding.conclude(RING, out, QUICK)
    assert made["worlds"]["emulated"]["not_trustworthy"] == 1
    text = page.write_page(out).read_text()
    assert "the machine was &lt;busy&gt;" in text and "not trustworthy" in text


def test_the_plot_has_times_and_rates_alone(tmp_path: Path) -> None:
    made = [played(tmp_path, simulated=41_000, emulated=45_670)]
    drawn = plot.points(made)
    assert [label for label, _, _ in drawn] == ["ring-50: time, median", "ring-50: goodput"]
    assert (
        drawn[0][1] == 0.05
        and drawn[0][2]["simulated"] == 1
        and drawn[0][2]["emulated"] == pytest.approx(4567 / 4100)
    )
    (tmp_path / "validation.png").touch()  # of an earlier drawing
    assert plot.draw([], tmp_path) == [] and not list(tmp_path.glob("*.png"))


# --- the command ----------------------------------------------------------------------------------


def called_of(command: click.Command, *words: str) -> tuple[int, str]:
    """(exit status, what was printed)."""
    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


called = partial(called_of, validate.command)


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Both worlds played, as root; ``how`` may change what a world writes or how it ends."""
    how: dict[str, Any] = {"asked": [], EMULATED: 41_100, SIMULATED: 41_000}

    def in_world(world: str) -> Any:
        def run(scenario: Scenario, directory: Path, **given: Any) -> dict[str, Any]:
            how["asked"].append((world, directory.parent.name))
            if how[world] is None:
                return made(Summary, verdict="interrupted")
            return write(directory, scenario, how[world])

        return run

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("testbed.machine.sandbox.run", lambda work: work())
    monkeypatch.setattr("scenarios.run.runner.run_scenario", in_world(EMULATED))
    monkeypatch.setattr("scenarios.run.simulate.simulate", in_world(SIMULATED))
    monkeypatch.setattr("scenarios.sets.validation.plot.draw", lambda made, directory: [])
    return how


def test_both_worlds_are_run_and_judged(tmp_path: Path, worlds: dict[str, Any]) -> None:
    out = str(tmp_path / "set")
    status, text = called("ring-50", "--quick", "--out", out)
    assert status == 0 and "agree, 0 DIFFER" in text and "validation.html" in text
    assert worlds["asked"] == [("emulated", "ring-50"), ("simulated", "ring-50")]
    with pytest.raises(ScenarioError, match="holds cases already: add --resume"):
        called("ring-50", "--quick", "--out", out)
    with pytest.raises(ScenarioError, match="holds the --quick set, not the full set"):
        called("ring-50", "--resume", "--out", out)
    worlds["asked"].clear()
    assert called("ring-50", "--quick", "--resume", "--out", out)[0] == 0 and worlds["asked"] == []


def test_a_difference_without_a_cause_is_status_1_and_stays_so_from_files(
    tmp_path: Path, worlds: dict[str, Any]
) -> None:
    worlds[EMULATED] = 66_000
    out = str(tmp_path / "set")
    status, text = called("ring-50", "--quick", "--out", out)
    assert status == 1 and "DIFFERS" in text
    assert called("--report", out)[0] == 1
    write(tmp_path / "set" / "ring-50" / "emulated", RING.parts[0].load(True), 41_100)
    status, text = called("--report", out, "--json")
    assert status == 0 and json.loads(text)["counts"][DIFFERS] == 0


def test_one_world_first_and_the_other_later(
    tmp_path: Path, worlds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "set")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError, match="needs root for network namespaces"):
        called("ring-50", "--out", out)
    assert not (tmp_path / "set").exists()
    assert called("ring-50", "--quick", "--worlds", "simulated", "--out", out)[0] == 0
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert called("ring-50", "--quick", "--resume", "--out", out)[0] == 0
    assert worlds["asked"] == [("simulated", "ring-50"), ("emulated", "ring-50")]
    assert rows(concluding.concluded(tmp_path / "set")[0])["p50"]["emulated"] == 41.1e3


def test_ctrl_c_ends_the_command(tmp_path: Path, worlds: dict[str, Any]) -> None:
    worlds[SIMULATED] = None
    assert called("ring", "--quick", "--out", str(tmp_path / "set"))[0] == 130
    assert worlds["asked"] == [("emulated", "ring-50"), ("simulated", "ring-50")]


def test_the_list_has_every_case_and_its_time() -> None:
    status, text = called("--list")
    assert (
        status == 0
        and all(case.id in text for case in CASES)
        and "min" in text
        and "link-failure.toml" in text
    )
    assert "incast" not in called("--list", "ring")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rings"], "there is no case 'rings': .*did you mean ring-"),
        (["--worlds", "real"], "there is no world 'real'"),
        (["idle", "--resume"], "--resume needs --out DIR"),
        (["idle", "--seeds", "3-1"], "must go upwards"),
        (["--report", "/nowhere"], "/nowhere holds no cases .*mrcbed validate wrote"),
        (["idle", "--out", "/proc/x/y"], "cannot make the results directory"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError, match=said):
        called(*words)


def test_a_report_of_cases_that_were_not_run_is_one_line(tmp_path: Path) -> None:
    concluding.open_directory(tmp_path / "set", QUICK, False)
    with pytest.raises(UserError, match="holds no results of idle"):
        called("idle", "--report", str(tmp_path / "set"))
