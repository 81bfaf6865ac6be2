"""report.html and the figures in it, from results directories alone: what it says first, what it
marks, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from mrcbed.cli import execute
from scenarios.figures.stored import Stored
from scenarios.run.runner import Runner
from scenarios.schema.scenario import load_scenario
from scenarios.show.document import Words, plain
from scenarios.show.html import LONG, grid, write_report
from scenarios.show.html.content import medians, reproduce
from scenarios.show.html.drawings import KINDS, prefix_of, runs_in
from scenarios.show.plots import draw_all
from scenarios.show.plots.packets import totals
from scenarios.show.plots.planes import loads
from scenarios.show.plots.sweep import as_number, points
from testbed.results.manifest import Manifest
from testbed.results.summary import Run
from testbed.terminal import duration
from tests.made import made
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.plays import collide
from tests.scenarios.small import changed, only_drawn
from tests.scenarios.synthetic import make

SCENARIO = """
description = DESCRIPTION
format = 3
fabric = "tiny"
[workload]
kind = "ring-allreduce"
placement = ["interleaved"]
message_bytes = "40KiB"
steps = 9
warmup_steps = 1
[[transport]]
kind = "mrc"
[[transport]]
kind = "roce"
[[fault]]
name = NAME
kind = "link"
on = "used-by-qp"
step = 6
for = "5us"
"""
SWEEP = """
[sweep]
"workload.message_bytes" = ["8KiB", "40KiB"]
"""
HOSTILE = "<script>alert(1)</script> & $x^{$ \"'"


def run(
    directory: Path,
    name: str = "cable",
    *,
    more: str = "",
    seeds: tuple[int, ...] = (1,),
    names: tuple[str, ...] = ("mrc",),
    drawn: tuple[str, ...] | None = None,
    **change: str,
) -> Path:
    """A directory of results, made without a network; ``name`` is the fault's and the description.
    ``drawn``: these figures only."""
    directory.mkdir(exist_ok=True)
    file = directory.with_suffix(".toml")
    file.write_text(
        SCENARIO.replace("DESCRIPTION", json.dumps(name)).replace("NAME", json.dumps(name)) + more
    )
    overrides = [f"{key}={value}" for key, value in change.items()]
    with only_drawn(*drawn) if drawn is not None else nullcontext():
        Runner(
            load_scenario(str(file), seeds=seeds, transports=names, overrides=overrides),
            directory,
            FakeCluster,
        ).run()
    return directory


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two transports, three seeds, a failure, names that a browser must not take for markup. Read
    only."""
    return run(tmp_path_factory.mktemp("results"), HOSTILE, seeds=(1, 2, 3), names=("mrc", "roce"))


@pytest.fixture
def results(shared: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy to break."""
    yield Path(shutil.copytree(shared, tmp_path / "out"))


class Page(HTMLParser):
    """What a browser would see: tags, attributes that fetch, text by section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.sections: dict[str, str] = {}
        self.open: list[str] = []
        self.section = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        told = dict(attrs)
        if tag == "a":  # fetched if somebody follows it
            self.links.append(str(told["href"]))
        else:
            self.fetched += [
                str(told[key]) for key in ("src", "href", "data", "srcset") if key in told
            ]
        if tag == "section":
            self.section = str(told["id"])
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.sections[self.section] = (
            self.sections.get(self.section, "") + " " + " ".join(data.split())
        )


def page(directory: Path) -> Page:
    return Page((directory / "report.html").read_text(encoding="utf-8"))


@pytest.mark.dear("makes the six runs and the report that the other tests read, too")
def test_the_answer_comes_first_then_the_cost_and_match_the_summary(shared: Path) -> None:
    seen = page(shared)
    assert seen.open == [] and [s for s in seen.sections if s][:3] == ["answer", "cost", "checks"]
    entries = json.loads((shared / "summary.json").read_text())["runs"]
    assert all(e["failure_cost"]["extra_ns"] is not None for e in entries)
    for transport in ("mrc", "roce"):
        own = [e for e in entries if e["transport"] == transport]
        usual, worst = (
            statistics.median(values)
            for values in zip(
                *((e["failure_cost"]["healthy_step_ns"], e["step_time_ns"]["max"]) for e in own),
                strict=True,
            )
        )
        told = f"a step usually took {duration(usual)}, the worst {duration(worst)}"
        assert told in " ".join(seen.sections["answer"].split()), (transport, told)
    assert (
        "Goodput over time" in seen.sections["answer"]
        and "Goodput over time" not in seen.sections["figures"]
    )
    for section in ("checks", "trust", "figures", "runs", "faults", "manifest", "reproduce"):
        assert seen.sections[section].strip()
    assert (
        "tiny" in seen.sections["manifest"]
        and "0.5" not in seen.sections["faults"].split("link on")[0]
    )


def test_it_needs_nothing_from_outside(shared: Path) -> None:
    """Every picture is in the page; nothing runs; no address of any kind is fetched."""
    seen = page(shared)
    assert "script" not in seen.tags and "link" not in seen.tags and "iframe" not in seen.tags
    assert seen.fetched and all(source.startswith("data:image/") for source in seen.fetched)
    assert seen.links == ["replay.html"] and (shared / "replay.html").is_file()
    assert "default-src 'none'" in (shared / "report.html").read_text()
    assert seen.tags.count("img") == len(list((shared / "plots").glob("*.png")))


def test_hostile_names_are_text(shared: Path) -> None:
    raw = (shared / "report.html").read_text()
    assert "<script" not in raw and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x^{$" in raw
    assert HOSTILE in page(shared).sections["faults"]


def test_the_same_files_give_the_same_bytes(results: Path) -> None:
    def all_bytes() -> dict[str, bytes]:
        return {
            p.name: p.read_bytes()
            for p in [results / "report.html", *(results / "plots").iterdir()]
        }

    before = all_bytes()
    shutil.rmtree(results / "raw")
    stale, other = results / "plots" / "goodput-interleaved-s9.png", results / "plots" / "notes.txt"
    for path in (results / "plots").glob("*.png"):
        path.unlink()
    stale.write_bytes(b"of an earlier drawing")
    other.write_text("not ours")
    draw_all(results)
    write_report(results)
    assert not stale.exists() and other.exists()
    other.unlink()
    assert all_bytes() == before and len(before) > 8


def test_many_seeds_show_single_runs_once(shared: Path) -> None:
    names = {p.stem for p in (shared / "plots").glob("*.png")}
    assert "goodput-interleaved-s1" in names and not any(
        "s2" in name or "s3" in name for name in names
    )
    assert "seed 1, one of 3" in Stored(shared).seed_words(1)
    stored = Stored(shared)
    assert len(runs_in("step-times-interleaved", "step-times", stored)) == 6
    assert [r["run"] for r in runs_in("paths-mrc-tiny-interleaved-s1", "paths", stored)] == [
        "mrc-tiny-interleaved-s1"
    ]
    assert {r["seed"] for r in runs_in("goodput-interleaved-s1", "goodput", stored)} == {1}


def compared(results: Path, rows: list[dict[str, Any]]) -> Any:
    order = [
        "transport",
        "kind",
        "fabric",
        "placement",
        "figure",
        "unit",
        "n",
        "median",
        "low",
        "high",
        "ideal",
    ]
    pd.DataFrame(rows)[order].to_parquet(results / "comparison.parquet")
    return medians(Stored(results))[0]


def test_medians_stand_with_their_intervals(results: Path) -> None:
    head = {
        "transport": "mrc",
        "kind": "mrc",
        "fabric": "tiny",
        "placement": "packed",
        "ideal": 320e9,
    }
    rows = [
        {
            **head,
            "figure": "busbw_bps",
            "unit": "bit/s",
            "n": 3,
            "median": 96e9,
            "low": 88e9,
            "high": 124e9,
        },
        {
            **head,
            "figure": "wrong",
            "unit": "",
            "n": 2,
            "median": 7.0,
            "low": None,
            "high": None,
            "transport": "roce",
        },
        {**head, "figure": "gone", "unit": "", "n": 0, "median": None, "low": None, "high": None},
    ]
    made = compared(results, rows)
    assert made.title == "packed ranks, n = 3" and [head for head, _ in made.columns] == [
        "figure",
        "mrc on tiny",
        "roce on tiny",
    ]
    assert made.rows == [
        ["busbw", "12.0 GB/s\n[11.0 GB/s, 15.5 GB/s]\nideal 40.0 GB/s", "–"],
        ["wrong", "–", "7\nideal 320,000,000,000\nn = 2"],
    ]


def test_medians_of_costs_within_noise_have_no_figure(results: Path) -> None:
    head = {
        "transport": "mrc",
        "kind": "mrc",
        "fabric": "tiny",
        "placement": "packed",
        "ideal": None,
        "n": 3,
    }
    medians_of = [
        ("extra_ns", "ns", 600e6, 500e6, 700e6),
        ("noise_ns", "ns", 100e6, 90e6, 110e6),
        ("extra_steps", "steps", 0.6, 0.5, 0.7),
    ]
    rows = [
        {**head, "figure": f"failure_cost.{name}", "unit": u, "median": m, "low": a, "high": b}
        for name, u, m, a, b in medians_of
    ]
    rows += [{**row, "transport": "roce", "low": -row["median"]} for row in rows]
    made = compared(results, rows)
    assert [row[1:] for row in made.rows] == [
        ["600 ms\n[500 ms, 700 ms]", "within noise (±1.20 s)"],
        ["100 ms\n[90.0 ms, 110 ms]", "100 ms\n[-100 ms, 110 ms]"],
        ["0.6\n[0.5, 0.7]", "within noise (±1.20 s)"],
    ]


def test_every_command_that_led_here_is_named() -> None:
    git = {"commit": "abc", "dirty": False}
    one = {"command_line": ["mrcbed", "run", "x y"], "git": git, "seeds": [1, 2]}

    def said(manifest: dict[str, Any]) -> list[Any]:
        return [
            block.text
            for block in reproduce(made(Manifest, **manifest))
            if isinstance(block, Words)
        ]

    assert said(one)[:2] == ["mrcbed run 'x y'", "At git commit abc."] and said(one)[2].startswith(
        "Seeds 1, 2. "
    )
    resumed = {
        **one,
        "sessions": [{"command_line": ["a"], "git": git}, {"command_line": ["b"], "git": None}],
    }
    assert said(resumed)[:3] == ["a", "At git commit abc.", "b"]
    assert said({**one, "command_line": ["compare"], "compared": [{"command_line": ["a"]}]})[
        :2
    ] == ["a", "compare"]


def test_a_long_table_keeps_its_bad_rows_open() -> None:
    rows = [["ok", str(i)] for i in range(LONG)] + [["FAILED", "x"]]
    options: dict[str, Any] = {
        "mark": lambda row: "bad" if row[0] == "FAILED" else "",
        "fold": "checks hold",
    }
    seen = grid(plain(["", "check"], rows, **options))
    assert seen["words"] == f"{LONG} of {LONG + 1} checks hold" and seen["rows"] == [
        ("bad", [[("FAILED", "")], [("x", "")]])
    ]
    short = grid(plain(["", "check"], rows[1:], **options))
    assert len(short["rows"]) == LONG and not short["all"]


def test_a_run_not_to_be_trusted_is_named_beside_its_figures(results: Path) -> None:
    path = results / "summary.json"
    summary = json.loads(path.read_text())
    manifest = json.loads((results / "manifest.json").read_text())
    for entry in summary["runs"]:  # whatever this machine was like when they were made
        entry["verdict"] = manifest["fidelity"][entry["run"]]["verdict"] = "ok"
    summary["runs"][0] |= {"verdict": "not trustworthy", "distrust": ["the machine was busy"]}
    bad = summary["runs"][0]["run"]
    path.write_text(json.dumps(summary))
    manifest["fidelity"][bad]["verdict"] = "not trustworthy"
    (results / "manifest.json").write_text(json.dumps(manifest))
    write_report(results)
    seen = page(results)
    figures = len(
        [
            f
            for f in re.findall(
                r"Not trustworthy: ([^<]*)</span>", (results / "report.html").read_text()
            )
            if f.strip() == bad
        ]
    )
    assert figures >= 3 and figures < seen.tags.count("img") + 1
    assert "the machine was busy" in seen.sections["trust"]
    assert (
        "Not trustworthy, because the machine was too busy or late: mrc (1 of 3 runs)"
        in seen.sections["cost"]
    )


def test_nothing_broken_says_what_was_carried(tmp_path: Path) -> None:
    where = run(tmp_path / "out", drawn=("failure-cost",), fault="[]")
    seen = page(where)
    assert [s for s in seen.sections if s][:2] == ["answer", "runs"] and not {
        "cost",
        "faults",
    } & set(seen.sections)
    assert (
        "Nothing was broken." in seen.sections["answer"]
        and "Gb/s per host that the links could carry" in seen.sections["answer"]
    )
    assert not list((where / "plots").glob("failure-cost*"))


def test_a_failure_whose_cost_is_not_known_is_no_healthy_run(results: Path) -> None:
    summary = json.loads((results / "summary.json").read_text())
    for entry in summary["runs"]:
        entry["failure_cost"] = None
    (results / "summary.json").write_text(json.dumps(summary))
    write_report(results)
    assert "What broke: " in page(results).sections["answer"]


def test_flows(tmp_path: Path) -> None:
    scenario = load_scenario("permutation", transports=["mrc", "roce-1p"], seeds=[1])
    make(tmp_path, scenario, {"mrc": collide((0.96,), 1), "roce-1p": collide((0.98, 0.5), 2)})
    (tmp_path / "plots").mkdir()
    write_report(tmp_path)
    assert "Gb/s in 16 flows" in page(tmp_path).sections["answer"]


def test_a_sweep_is_over_its_variable(tmp_path: Path) -> None:
    both = run(tmp_path / "out", more=SWEEP, drawn=("sweep", "step-times"))
    names = {p.stem for p in (both / "plots").glob("*.png")}
    assert {
        "sweep-busbw-interleaved",
        "step-times-interleaved-message_bytes=8KiB",
        "step-times-interleaved-message_bytes=40KiB",
    } <= names
    assert "step-times-interleaved" not in names, "settings are never pooled"
    stored = Stored(both)
    assert [len(v.runs) for v in stored.variants] == [1, 1] and stored.tag == ""
    (one,) = runs_in("step-times-interleaved-message_bytes=8KiB", "step-times", stored)
    assert one["settings"] == {"workload.message_bytes": "8KiB"}
    assert "message_bytes = 40KiB" in page(both).sections["cost"]


# --- what is refused ------------------------------------------------------------------------------


def lost(directory: Path) -> None:
    """The rows of a run."""
    steps = pd.read_parquet(directory / STEPS)
    steps[steps["run"] != steps["run"].iloc[0]].to_parquet(directory / STEPS)


MANIFEST, SUMMARY, STEPS = "manifest.json", "summary.json", "steps.parquet"
DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no summary": (
        lambda d: (d / SUMMARY).unlink(),
        "holds no results (no summary.json): give a directory that mrcbed run wrote",
    ),
    "half a summary": (
        lambda d: (d / SUMMARY).write_bytes(b'{"runs": ['),
        "summary.json is not JSON",
    ),
    "a summary of nothing": (lambda d: (d / SUMMARY).write_bytes(b"[]"), "damaged: all in "),
    "a manifest of nothing": (lambda d: (d / MANIFEST).write_bytes(b"{}"), "damaged: scenario in "),
    "no table": (
        lambda d: (d / STEPS).unlink(),
        "steps.parquet is missing: mrcbed results plot --tables",
    ),
    "half a table": (
        lambda d: (d / "goodput.parquet").write_bytes(b"PAR1 cut"),
        "goodput.parquet cannot be read",
    ),
    "a table without a run": (lost, "steps.parquet has no rows of run "),
    "a run without verdict": (
        changed(SUMMARY, lambda s: s["runs"][2].pop("verdict")),
        "damaged: runs[2].verdict in ",
    ),
    "no fidelity": (
        changed(MANIFEST, lambda m: m.pop("fidelity")),
        "has no fidelity verdicts: the run did not end",
    ),
    "a run without fidelity": (
        changed(MANIFEST, lambda m: m["fidelity"].popitem()),
        "has no fidelity verdict of run",
    ),
    "two verdicts": (
        changed(MANIFEST, lambda m: next(iter(m["fidelity"].values())).update(verdict="failed")),
        "take both from one copy",
    ),
    "no transports": (
        changed(MANIFEST, lambda m: m["scenario"].pop("transports")),
        "damaged: scenario.transports in ",
    ),
    "an unknown fabric": (
        changed(MANIFEST, lambda m: m["fabrics"].pop("tiny")),
        "does not know the fabric 'tiny'",
    ),
    "runs that are none": (
        changed(SUMMARY, lambda s: s.update(runs=["x"])),
        "damaged: runs[0] in ",
    ),
    "a run without packets": (
        changed(SUMMARY, lambda s: s["runs"][0].pop("packets")),
        "damaged: runs[0].packets in ",
    ),
    "a run that has no rows": (
        changed(SUMMARY, lambda s: s["runs"].append({**s["runs"][0], "run": "x"})),
        "of run x",
    ),
}


@pytest.mark.parametrize("command", ["report", "plot"])
@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_neither_shown_nor_drawn(
    results: Path, capsys: pytest.CaptureFixture[str], case: str, command: str
) -> None:
    harm, words = DAMAGE[case]
    harm(results)
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    assert execute(["results", command, str(results)]) == 2
    said = capsys.readouterr()
    assert (
        words in said.err
        and said.err.count("\n") == 1
        and str(results) in said.err
        and said.out == ""
    )
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_a_figure_that_is_cut_short_is_not_shown(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "plots" / "step-times-interleaved.svg").write_bytes(b"<svg>")
    assert execute(["results", "report", str(results)]) == 2
    assert "step-times-interleaved.svg is cut short: mrcbed results plot" in capsys.readouterr().err


def test_without_figures_the_fix_is_named_and_works(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(results / "plots")
    (results / "steps.parquet").write_bytes(b"PAR1")
    assert execute(["results", "plot", str(results)]) == 2
    assert f"mrcbed results plot --tables {results}" in capsys.readouterr().err
    with only_drawn("step-times"):
        assert execute(["results", "plot", "--tables", str(results)]) == 0
    assert execute(["results", "report", str(results)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(results / "report.html")
    shutil.rmtree(results / "raw")
    assert execute(["results", "plot", "--tables", str(results)]) == 2
    assert "holds no runs" in capsys.readouterr().err


# --- what figures are made of ---------------------------------------------------------------------


def test_every_figure_has_a_place(shared: Path) -> None:
    assert all(prefix_of(p.stem) for p in (shared / "plots").glob("*.png"))
    assert (
        prefix_of("path-heat-packed-s1") == "path-heat"
        and prefix_of("paths-mrc-tiny-packed-s1") == "paths"
        and prefix_of("x") is None
    )
    assert len({prefix for prefix, _, _ in KINDS}) == len(KINDS)


def test_loads_are_in_equal_shares(tmp_path: Path, shared: Path) -> None:
    """Two planes, two hosts: one sends 3 of 4 bytes on plane 0, the other all on plane 1."""
    stored = Stored(shared)
    frame = pd.DataFrame(
        {
            "run": "x",
            "host": [0, 0, 1],
            "plane": [0, 1, 1],
            "tx_bytes": [300, 100, 400],
            "rx_bytes": 0,
        }
    )
    stored._tables["goodput"] = frame
    entry = replace(stored.runs[0], run="x")
    assert loads(stored, [entry]) == [(0.75, 0.0, 1.5), (1.25, 0.5, 2.0)]


def test_losses_are_per_thousand_sent() -> None:
    def entry(sent: int, causes: dict[str, int], marked: int) -> Run:
        return made(
            Run,
            transport="mrc",
            packets={"sent": sent, "causes": causes, "marked": marked, "trimmed": 0},
        )

    (row,) = totals([entry(1500, {"drop_tail": 3}, 5), entry(500, {"flushed": 1}, 1)])
    assert row == {
        "transport": "mrc",
        "n": 2,
        "sent": 2000,
        "causes": {"drop_tail": 1.5, "flushed": 0.5},
        "marked": 3.0,
        "trimmed": 0.0,
    }


@pytest.mark.parametrize(
    ("value", "number"),
    [("64KiB", 65536.0), ("20us", 20_000.0), (0.01, 0.01), (8, 8.0), (True, None), ("bbr", None)],
)
def test_swept_values_as_numbers(value: Any, number: float | None) -> None:
    assert as_number(value) == number


def test_points_are_medians() -> None:
    assert points([made(Run, busbw_bps=v) for v in (3.0, None, 1.0, 9.0)], "busbw_bps") == (
        3.0,
        1.0,
        9.0,
        3,
    )
    assert points([{"busbw_bps": None}], "busbw_bps") is None
