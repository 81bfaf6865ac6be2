"""Shipped scenarios over many seeds: what runs, what is kept, what a failure looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrcbed.cli.tools.bench import seeds
from scenarios.schema.scenario import ScenarioError, named_scenarios
from scenarios.sets.seeds import (
    FAILED,
    LARGE,
    MANY_OF,
    NOT_SIMULATED,
    OK,
    SLOW,
    UNFINISHED,
    VERDICT,
    Seeds,
    chosen,
    conclude,
)
from testbed.results.summary import Summary
from tests.made import made
from topologies.structs import plain


def command(*words: str) -> int:
    """The exit status of ``mrcbed tools bench seeds``."""
    with pytest.raises(SystemExit) as ended:
        seeds.main(list(words), standalone_mode=False)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def verdict(directory: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((directory / name / VERDICT).read_text()))


def test_every_shipped_scenario_runs_over_its_seeds_or_says_why_not() -> None:
    items = chosen(())
    assert [item.name for item in items[-len(SLOW) :]] == [*reversed(SLOW)]
    assert sorted(item.name for item in items) == list(named_scenarios())
    for item in items:
        scenario = item.load()
        assert len(scenario.seeds) == (
            100 if item.name in MANY_OF else 1 if item.name in LARGE else 10
        )
        assert {t.kind for t in scenario.transports} == {"mrc"} or item.obstacle()
    assert [item.name for item in items if item.obstacle()] == [
        "controller-killed",
        "cross-traffic",
    ]
    with pytest.raises(ScenarioError, match="no scenario 'nope'"):
        chosen(["nope"])


def test_what_is_finished_is_kept_and_a_scenario_that_needs_a_kernel_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["smoke", "controller-killed", "--seeds", "1-2", "--jobs", "1", "--out", str(out)]
    assert command(*words) == 0
    assert verdict(out, "smoke") | {"runs": 2, "checks": 4, "held": 4} == verdict(out, "smoke")
    assert verdict(out, "controller-killed")["verdict"] == NOT_SIMULATED
    assert "kills the controller" in capsys.readouterr().out
    first, second = sorted((out / "smoke" / "raw").glob("*/run.json"))
    was = first.stat().st_mtime_ns
    second.unlink()
    (out / "smoke" / "summary.json").unlink()  # as if it had been killed during the second run
    assert command(*words, "--resume") == 0
    assert first.stat().st_mtime_ns == was and second.is_file()


def test_a_check_that_did_not_hold_is_told_with_its_seed(tmp_path: Path) -> None:
    item = Seeds("smoke")
    conclude(item, tmp_path)
    assert verdict(tmp_path, "smoke")["verdict"] == UNFINISHED
    path = tmp_path / "smoke" / "summary.json"

    def write(verdict: str, runs: list[dict[str, Any]], *checks: dict[str, Any]) -> None:
        path.write_text(
            json.dumps(plain(made(Summary, verdict=verdict, runs=runs, checks=list(checks))))
        )
        conclude(item, tmp_path)

    run = {"run": "mrc-tiny-packed-s7"}
    held = {"name": "every sum right [packed, seed 6]", "expected": "== 0", "seen": 0, "ok": True}
    write("interrupted", [])
    assert verdict(tmp_path, "smoke")["verdict"] == UNFINISHED, "no run of it has ended"
    write("ok", [run], held)
    assert verdict(tmp_path, "smoke")["verdict"] == OK
    write(
        "ok",
        [run],
        held,
        {"name": "every sum right [packed, seed 7]", "expected": "== 0", "seen": 3, "ok": False},
    )
    assert verdict(tmp_path, "smoke") | {"verdict": FAILED, "checks": 2, "held": 1} == verdict(
        tmp_path, "smoke"
    )
    assert verdict(tmp_path, "smoke")["failed"] == [
        "every sum right [packed, seed 7]: expected == 0, seen 3"
    ]
    write(
        "ok",
        [run | {"verdict": "not trustworthy", "distrust": ["3 packets unaccounted for"]}],
        held,
    )
    assert verdict(tmp_path, "smoke")["failed"] == [
        "mrc-tiny-packed-s7: done: 3 packets unaccounted for"
    ]
