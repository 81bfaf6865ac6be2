"""What is tried again, where, and how often; which machines may share a sweep. On workers that pretend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures.measure import Run
from scenarios.figures.rows import row
from scenarios.figures.summary import run_summary
from scenarios.run.planning import blocks_of, plan
from scenarios.schema.scenario import load_scenario
from scenarios.sweeps import blocks, machines
from scenarios.sweeps.sweep import JOURNAL, Carrier
from scenarios.sweeps.work import answer
from testbed.errors import ClusterDied, UserError

QUICK = ["workload.steps=1", 'fault.0.at="1us"', 'fault.0.for="1us"']
FACTS = machines.facts("simulated")


@dataclass
class Future:
    key: str
    answer: Any


class Workers:
    """Workers of names; ``broken`` fail to bring up a world, ``answers`` overrides what a block's number gets."""

    def __init__(self, names: Sequence[str], broken: Sequence[str] = (), answers: dict[str, Any] | None = None) -> None:
        self.names, self.broken, self.answers = names, broken, answers or {}
        self.mixed, self.reasons, self.wanted = False, [], FACTS
        self.done: list[Future] = []
        self.submitted: list[str] = []

    def settle(self, alike: Any) -> None:
        self.wanted = {**FACTS, **alike}

    def fitting(self) -> dict[str, Any]:
        return dict.fromkeys(self.names, FACTS)

    def unlike(self) -> list[str]:
        return []

    def submit(self, text: str, name: str, elsewhere_than: Sequence[str] = ()) -> Future:
        place = next((n for n in self.names if n not in elsewhere_than), self.names[0])
        self.submitted.append(place)
        key = f"s{json.loads(text)['seed']}"
        found = {"problem": "did not come up", "bring_up": True} if place in self.broken else self.answers.get(key) or answer(text)
        self.done.append(Future(name, {**found, "worker": place}))
        return self.done[-1]

    def next(self, seconds: float) -> Future | None:
        return self.done.pop() if self.done else None

    def result(self, future: Future) -> tuple[Any, str]:
        return future.answer, future.answer["worker"]


def carry(directory: Path, workers: Workers, seeds: Sequence[int] = (1, 2)) -> tuple[list[str], list[str]]:
    """(runs that landed, lines for the user)."""
    lines: list[str] = []
    carrier = Carrier(workers, "simulated", lines.append)  # type: ignore[arg-type]
    todo = blocks_of(plan(load_scenario("smoke", seeds=seeds, overrides=QUICK)))
    runs: list[str] = []
    try:
        for specs in carrier(directory, todo):
            runs += [spec.key for spec in specs]
    finally:
        assert sorted(path.name for path in directory.glob("raw/*")) == sorted(runs)
    return sorted(runs), lines


def journal(directory: Path) -> list[tuple[str, str]]:
    entries = [json.loads(line) for line in (directory / JOURNAL).read_text().splitlines()]
    return [(entry["what"], entry["worker"]) for entry in entries]


def test_a_bring_up_that_failed_goes_elsewhere(tmp_path: Path) -> None:
    runs, lines = carry(tmp_path, Workers(["a", "b", "c"], broken=["a", "b"]), [1])
    assert runs == ["mrc-tiny-interleaved-s1"]
    assert journal(tmp_path) == [("failed", "a"), ("failed", "b"), ("landed", "c")]
    assert lines == ["mrc-tiny-interleaved-s1: did not come up: tried elsewhere"] * 2


def test_but_only_twice(tmp_path: Path) -> None:
    with pytest.raises(ClusterDied, match=r"^mrc-tiny-interleaved-s1: did not come up: .*--resume tries those again"):
        carry(tmp_path, Workers(["a", "b", "c", "d"], broken=["a", "b", "c"]), [1])
    assert journal(tmp_path) == [("failed", "a"), ("failed", "b"), ("failed", "c")]


def test_what_failed_in_a_run_is_not_tried_again_and_the_rest_goes_on(tmp_path: Path) -> None:
    workers = Workers(["a"], answers={"s1": {"problem": "an agent died", "bring_up": False}})
    with pytest.raises(ClusterDied, match="^mrc-tiny-interleaved-s1: an agent died"):
        carry(tmp_path, workers)
    assert len(workers.submitted) == 2 and [path.name for path in (tmp_path / "raw").iterdir()] == ["mrc-tiny-interleaved-s2"]


def test_an_answer_that_is_no_archive_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ClusterDied, match="a worker's answer is no archive"):
        carry(tmp_path, Workers(["a"], answers={"s2": {"archive": b"x", "machine": FACTS}}))
    assert sorted(journal(tmp_path)) == [("failed", "a"), ("landed", "a")]


def test_later_machines_must_be_like_those_before(tmp_path: Path) -> None:
    workers = Workers(["a"])
    carry(tmp_path, workers, [1])
    (tmp_path / JOURNAL).write_text((tmp_path / JOURNAL).read_text().replace(json.dumps(FACTS["kernel"]), '"2.4.37"'))
    with open(tmp_path / JOURNAL, "a") as file:
        file.write('{"what": "lan')  # the head was killed while it wrote
    list(Carrier(workers, "simulated", print)(tmp_path, []))  # type: ignore[arg-type]
    assert workers.wanted["kernel"] == "2.4.37"


def test_mixed_machines_are_columns_of_the_runs(tmp_path: Path) -> None:
    """Emulated by a worker of another kernel; a simulated answer stands for the emulated one, which needs root."""
    specs = blocks_of(plan(load_scenario("smoke", overrides=QUICK)))[0]
    found = {**answer(blocks.written(specs, "simulated", machines.version())), "machine": {**FACTS, "kernel": "2.4.37"}}
    for mixed, columns in ((True, {"machine.cpu": FACTS["cpu"], "machine.kernel": "2.4.37"}), (False, {})):
        out = tmp_path / str(mixed)
        out.mkdir()
        workers = Workers(["a"], answers={"s1": found})
        workers.mixed = mixed
        assert [list(block) for block in Carrier(workers, "emulated", print)(out, [specs])] == [specs]  # type: ignore[arg-type]
        cells = row(run_summary(Run(out / "raw" / specs[0].key)), "smoke")
        assert {name: cell for name, cell in cells.items() if name.startswith("machine")} == columns


@pytest.mark.parametrize("key", machines.SAME)
def test_workers_that_could_change_results_are_refused_by_what_differs(key: str) -> None:
    for world in ("simulated", "emulated"):
        here = {**FACTS, "world": world}
        there = {**here, key: "other"}
        assert machines.difference(there, here, mixed=True).startswith(f"has {key} other, not {here[key]}: ")
        assert machines.resource(there, mixed=True) != machines.resource(here, mixed=True)


@pytest.mark.parametrize("key", machines.ALIKE)
def test_cpu_and_kernel_count_in_the_emulated_world_unless_mixed(key: str) -> None:
    here = machines.facts("emulated")
    there = {**here, key: "other"}
    assert (
        machines.difference(there, here, mixed=False)
        == f"has {key} other, not {here[key]}: use equal machines, or --mixed, which adds columns"
    )
    assert machines.difference(there, here, mixed=True) == ""
    assert machines.difference({**FACTS, key: "other"}, FACTS, mixed=False) == "", "no simulated result depends on it"
    assert not machines.offers(there).keys() >= {machines.resource(here)}
    assert machines.resource(here, mixed=True) in machines.offers(there)
    assert machines.offered(machines.offers(there)) == there
    assert "--world emulated" in machines.difference({**FACTS}, here, mixed=True)


def test_what_is_no_worker_of_ours_is_said() -> None:
    assert machines.offered({}) is None and machines.offered({"GPU": 1, "[1]": 1}) is None
    assert "no worker of this version of mrcbed" in machines.difference(None, FACTS, mixed=False)


def test_no_worker_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.sweeps.sweep.PATIENCE_S", 0)
    with pytest.raises(UserError, match=r"^no worker fits: none came within 0 s: start mrcbed worker --world simulated; --resume goes on$"):
        carry(tmp_path, Workers([]))
