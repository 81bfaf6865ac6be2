"""What the terminal says at the end: checks in few lines, failures first; worlds beside each other;
runs that ended early."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scenarios.figures.stored import Stored
from scenarios.figures.summary import run_summary
from scenarios.run.runner import Runner
from scenarios.sets.merging import merge, read_all
from scenarios.show.html.content import medians
from scenarios.show.run_tables import check_lines, runs_table, show
from testbed import terminal
from testbed.results.summary import Check, Summary
from tests.made import made
from tests.scenarios.broken import steps, write
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import small, undrawn


def check(
    name: str, seen: Any, ok: bool | None, expected: str = "<= 5", unit: str | None = None
) -> Check:
    return Check(name=name, expected=expected, seen=seen, ok=ok, unit=unit)


def test_failures_first_then_a_line_per_check() -> None:
    """20 seeds of 4 checks are not 80 lines."""
    found = [
        check(f"{name} [packed, seed {seed}]", seed, True)
        for seed in range(1, 21)
        for name in ("a", "b", "c", "d")
    ]
    for n in (2, 78):
        found[n] = replace(found[n], ok=False, seen=9)
    found[3] = replace(found[3], ok=None, seen="not applicable: no machine")
    assert ["".join(text for text, _ in line) for line in check_lines(found)] == [
        "FAILED c [packed, seed 1]: expected <= 5, seen 9",
        "FAILED c [packed, seed 20]: expected <= 5, seen 9",
        "ok 20/20 a: expected <= 5, seen 1 to 20",
        "ok 20/20 b: expected <= 5, seen 1 to 20",
        "ok 18/20 c: expected <= 5, seen 2 to 19",
        "ok 19/20 d: expected <= 5, seen 2 to 20",
        "-  1/20 d: not applicable: no machine",
    ]


def test_checks_of_one_run_and_over_the_seeds_stay_as_they_are() -> None:
    over = [
        check("a [packed, median of seeds 1, 2, size = 1]", 1.5, True),
        check("a [packed, median of seeds 1, 2, size = 2]", 2, True),
    ]
    found = [check("every [x] sum right", 0, True, "== 0"), check("late", None, None), *over]
    assert ["".join(text for text, _ in line) for line in check_lines(found)] == [
        "ok     every [x] sum right: expected == 0, seen 0",
        "-      late: None",
        "ok 2/2 a: expected <= 5, seen 1.5 to 2",
    ]


def test_a_bound_that_is_a_time_is_read_as_one() -> None:
    found = [
        check(
            f"a [packed, seed {n}]",
            n * 10**9,
            True,
            "<= 1.5 * mrc.degraded_step_ns (2.4e+09)",
            "ns",
        )
        for n in (2, 1)
    ]
    found.append(check("number", 2143717.456, True, ">= 2000000", "ns"))
    found.append(check("ratio", 1.5, True, "<= mrc.degraded_step_ns / mrc.ideal_step_ns (2)"))
    found.append(check("gone", None, False, "<= mrc.x_ns (2e+09)", "ns"))
    assert ["".join(text for text, _ in line) for line in check_lines(found)] == [
        "FAILED gone: expected <= mrc.x_ns (2e+09), seen None",
        "ok 2/2 a: expected <= 1.5 * mrc.degraded_step_ns (2.40 s), seen 1.00 s to 2.00 s",
        "ok     number: expected >= 2.00 ms, seen 2.14 ms",
        "ok     ratio: expected <= mrc.degraded_step_ns / mrc.ideal_step_ns (2), seen 1.5",
    ]


def test_bounds_of_their_own_are_shown_as_they_were_asked() -> None:
    found = [check(f"a [packed, seed {n}]", n, True, f"<= 2 * mrc.x ({n})") for n in (1, 2)]
    assert ["".join(text for text, _ in line) for line in check_lines(found)] == [
        "ok 2/2 a: expected <= 2 * mrc.x, seen 1 to 2"
    ]


def test_a_name_is_no_pattern() -> None:
    """Names, bounds and reasons hold what their authors wrote, also what str.format(), % or a
    regular expression would read."""
    odd = r"{a} {0} { %s %(b)s \1 [x] }"
    found = [check(odd, 9, False, odd), check(odd, 1, True, odd), check(odd, odd, None)]
    assert ["".join(text for text, _ in line) for line in check_lines(found)] == [
        rf"FAILED {odd}: expected {odd}, seen 9",
        rf"ok 1/3 {odd}: expected {odd}, seen 1",
        rf"-  1/3 {odd}: {odd}",
    ]


def shown(summary: Summary, directory: Path) -> str:
    out = io.StringIO()
    show(terminal.console(140, file=out), summary, directory, everything=True)
    return out.getvalue()


@pytest.mark.parametrize("seeds", [[1], [1, 2]])
def test_worlds_that_mix_are_told_apart(seeds: list[int], tmp_path: Path) -> None:
    wholes = []
    for world, transport in (("emulated", "mrc"), ("simulated", "roce-1p")):
        where = tmp_path / world[:3]
        where.mkdir()
        with undrawn():
            Runner(small(tmp_path, seeds=seeds, transports=[transport]), where, FakeCluster).run()
        for name in ("summary.json", "manifest.json"):
            held = json.loads((where / name).read_text())
            for one in held.get("runs", [held]):
                one["world"] = world
            (where / name).write_text(json.dumps(held))
        wholes.append(where)
    (tmp_path / "both").mkdir()
    with undrawn():
        summary = merge(read_all(wholes), tmp_path / "both", ["mrcbed", "results", "compare"])
        mixed, alone = (
            shown(summary, tmp_path / "both"),
            shown(Stored(wholes[1]).summary, wholes[1]),
        )
        one = shown(Stored(wholes[0]).summary, wholes[0])
    n = len(seeds)
    assert (
        f"({n} of {2 * n} runs simulated, in virtual time: no machine was measured in these)"
        in mixed
    )
    assert (
        "(simulated, in virtual time: no machine was measured)" in alone and "simulated" not in one
    )
    assert alone.count("simulated") == 1, "tables name the world only where it differs"
    costs, results = mixed.index("What the failure cost"), mixed.index("small: all-reduce")
    for table in (mixed[costs:results], mixed[results : mixed.index("A step is one")]):
        assert table.count("simulated") == 1 and table.count("emulated") == 1, table
    stored = Stored(tmp_path / "both")
    label = runs_table(stored.summary, stored.runs).columns[0][1]
    assert [str(label(run)).rpartition("\n")[2] for run in stored.runs].count("simulated") == n
    assert [head for head, _ in medians(stored)[0].columns] == [
        "figure",
        "mrc on tiny\nemulated",
        "roce-1p on tiny-1p\nsimulated",
    ]


def test_a_run_that_ended_early_says_so_beside_the_steps_that_were_planned(tmp_path: Path) -> None:
    for planned, said in ((5, "1/5"), (1, "1/1")):
        run = write(
            tmp_path / str(planned),
            [],
            steps([(0, 1)]),
            end=9,
            steps=planned,
            outcome="timeout",
            reason="no end",
            wrong={},
        )
        entry = run_summary(run)
        text = shown(
            made(Summary, verdict="failed", fabrics={entry.fabric: {}}, runs=[entry]), tmp_path
        )
        row = text.splitlines()
        at = next(i for i, line in enumerate(row) if said in line)
        assert "ended" in row[at + 1]


def test_runs_of_several_kinds_are_not_named_after_the_first(tmp_path: Path) -> None:
    entry = run_summary(write(tmp_path, [], steps([(0, 1)]), end=9, wrong={}))
    for kinds, word in (
        (("ring-allreduce",), "all-reduce"),
        (("ring-allreduce", "all-to-all"), "collective"),
    ):
        text = shown(
            made(
                Summary,
                fabrics={entry.fabric: {}},
                runs=[replace(entry, workload=kind) for kind in kinds],
            ),
            tmp_path,
        )
        assert f"x: {word} under each transport" in text and f"A step is one {word};" in text
