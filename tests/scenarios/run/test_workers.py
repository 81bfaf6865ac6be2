"""What is tried again, where, and how often; which workers get blocks, and what is said of others.
On workers that pretend."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed")

from scenarios.figures.measure import Run
from scenarios.figures.rows import row
from scenarios.figures.summary import run_summary
from scenarios.run import fitting, workers
from scenarios.run.planning import blocks_of, plan
from scenarios.run.workers import Answer, OnWorkers, carry_out, text_of_block
from scenarios.schema.scenario import load_scenario
from testbed.errors import ClusterDied, UserError
from testbed.world import EMULATED, SIMULATED
from tests.scenarios.small import small
from topologies.toml_files import parse_toml

QUICK = ["workload.steps=1", 'fault.0.at="1us"', 'fault.0.for="1us"']
FACTS = {**fitting.facts(), "cpu": "a CPU", "kernel": "6.1.0"}
Seed = Callable[[], Answer]


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(fitting, "facts", lambda: FACTS)
    monkeypatch.setattr(workers, "facts", lambda: FACTS)


@dataclass
class Future:
    """One that is done, or that was forgotten: without an answer."""

    key: str
    answer: Any

    def done(self) -> bool:
        return self.answer is not None

    def cancel(self) -> None:
        assert not self.done()

    def result(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def add_done_callback(self, call: Callable[[Future], None]) -> None:
        if self.done():
            call(self)


@dataclass
class Client:
    """A scheduler whose workers carry a block out at once. ``broken`` cannot begin one;
    ``answers``: for seeds, instead of the truth."""

    names: Sequence[str]
    broken: Sequence[str] = ()
    answers: dict[int, Any] = field(default_factory=dict)
    unlike: dict[str, str] = field(default_factory=dict)  # name -> why it does not fit
    # name -> CPU and kernel, if not FACTS'
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    forgets: int = 0  # so many blocks
    status: str = "running"
    submitted: list[str] = field(default_factory=list)
    plugin: Any = None

    def register_plugin(self, plugin: Any) -> None:
        self.plugin = plugin

    def unregister_worker_plugin(self, name: str) -> None:
        assert name == self.plugin.name

    def get_events(self, topic: str) -> list[tuple[float, list[str]]]:
        return [(0.0, [name, reason]) for name, reason in self.unlike.items()]

    def processing(self) -> dict[str, Sequence[str]]:
        return dict.fromkeys(self.names, ())

    def scheduler_info(self, n_workers: int) -> Any:
        def resources(name: str) -> dict[str, float]:
            there = {**FACTS, **self.offers.get(name, {})}
            return (
                {}
                if name in self.unlike
                else {topic + json.dumps({key: there[key] for key in self.plugin.alike}): 1.0}
            )

        topic = self.plugin.name
        return {"workers": {name: {"resources": resources(name)} for name in self.names}}

    def submit(
        self,
        work: Any,
        key: str,
        pure: bool,
        resources: dict[str, float],
        workers: Sequence[str] | None,
    ) -> Future:
        place = next(name for name in workers or self.names if name not in self.unlike)
        self.submitted.append(place)
        specs, _ = work.args
        self.forgets -= 1
        if self.forgets >= 0:
            return Future(key, None)
        if place in self.broken:
            return Future(key, Answer(place, b"", {}, "did not come up", False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "scenarios.run.workers.get_worker",
                lambda: SimpleNamespace(address=place, local_directory=None),
            )
            return Future(key, self.answers.get(specs[0].seed) or work())


def carry(
    directory: Path, client: Client, seeds: Sequence[int] = (1, 2), world: str = SIMULATED
) -> tuple[list[str], list[str]]:
    """(runs that landed, lines for the user)."""
    lines: list[str] = []
    specs = plan(load_scenario("smoke", seeds=seeds, overrides=QUICK))
    runs: list[str] = []
    try:
        for landed, entries in OnWorkers(client, world, False, lines.append)(
            directory, blocks_of(specs, world)
        ):
            assert [*entries] == [spec.key for spec in landed]
            runs += entries
    finally:
        assert sorted(path.name for path in directory.glob("raw/*")) == sorted(runs)
    return sorted(runs), lines


def test_what_could_not_begin_goes_elsewhere(tmp_path: Path) -> None:
    client = Client(["a", "b", "c"], broken=["a", "b"])
    runs, lines = carry(tmp_path, client, [1])
    assert runs == ["mrc-tiny-interleaved-s1"] and client.submitted == ["a", "b", "c"]
    assert lines == ["mrc-tiny-interleaved-s1: did not come up: tried elsewhere"] * 2


def test_but_only_twice(tmp_path: Path) -> None:
    client = Client(["a", "b", "c", "d"], broken=["a", "b", "c"])
    with pytest.raises(
        ClusterDied, match=r"^mrc-tiny-interleaved-s1: did not come up: --resume tries again$"
    ):
        carry(tmp_path, client, [1])
    assert client.submitted == ["a", "b", "c"]


def test_what_failed_in_a_run_is_not_tried_again_and_the_rest_goes_on(tmp_path: Path) -> None:
    client = Client(
        ["a"],
        answers={1: Answer("a", workers.landing.pack(tmp_path, []), {}, "an agent died", True)},
    )
    with pytest.raises(ClusterDied, match="^mrc-tiny-interleaved-s1: an agent died"):
        carry(tmp_path, client)
    assert len(client.submitted) == 2 and [path.name for path in (tmp_path / "raw").iterdir()] == [
        "mrc-tiny-interleaved-s2"
    ]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            Answer("a", b"x", {"mrc-tiny-interleaved-s2": {}}, "", True),
            "a worker's answer is no archive",
        ),
        (workers.KilledWorker("block", None, 3), "its workers were killed, again and again"),
    ],
)
def test_an_answer_that_is_none_is_a_failure(answer: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterDied, match=f"^mrc-tiny-interleaved-s2: {line}"):
        carry(tmp_path, Client(["a"], answers={2: answer}))
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["mrc-tiny-interleaved-s1"]


def test_a_block_that_the_scheduler_forgot_is_given_away_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOST_S", 0)
    monkeypatch.setattr(workers, "LOOK_S", 0.01)
    client = Client(["a"], forgets=2)
    assert (
        carry(tmp_path, client)[0] == ["mrc-tiny-interleaved-s1", "mrc-tiny-interleaved-s2"]
        and len(client.submitted) == 4
    )


def test_runs_that_ended_before_their_block_failed_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = blocks_of(plan(small(tmp_path, overrides=["workload.steps=1"])), SIMULATED)[0]
    assert len(specs) == 2
    monkeypatch.setattr(
        workers, "get_worker", lambda: SimpleNamespace(address="a", local_directory=None)
    )
    whole = workers.run_block
    monkeypatch.setattr(
        workers,
        "run_block",
        lambda world, place, specs: whole(world, place, specs[:1]) and _raise(UserError("no more")),
    )
    answer = carry_out(specs, SIMULATED)
    assert (list(answer.entries), answer.problem, answer.began) == ([specs[0].key], "no more", True)
    assert workers.landing.land(answer.archive, tmp_path, [specs[0].key]) == []


def _raise(error: Exception) -> Any:
    raise error


def test_a_worker_refuses_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        workers, "get_worker", lambda: SimpleNamespace(address="a", local_directory=None)
    )
    answer = carry_out(plan(load_scenario("smoke")), SIMULATED)
    assert (answer.problem, answer.began, answer.entries) == (
        "its worker is root: start it as a user without rights",
        False,
        {},
    )


# --- which workers fit ----------------------------------------------------------------------------


def unfit(world: str = SIMULATED, threads: int = 1, **wanted: Any) -> str:
    return fitting.Fitting("s", {**FACTS, **wanted}, world, ()).unfit(threads)


@pytest.mark.parametrize("key", fitting.SAME)
def test_what_could_change_results_is_refused_by_what_differs(key: str) -> None:
    for world in (SIMULATED, EMULATED):
        assert (
            unfit(world, **{key: "other"})
            == f"has {key} {FACTS[key]}, not other: {fitting.SAME[key]}"
        )
    assert unfit(cpu="other", kernel="other") == ""


def test_root_and_several_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        unfit(threads=8)
        == "has 8 threads, and would carry out as many blocks at once: start it with --nthreads 1"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (
        unfit(mrcbed="other")
        == "is root, and carries out what it is sent: start it as a user without rights"
    )


def test_an_emulated_worker_needs_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without any sudo
    assert (
        unfit(EMULATED).startswith("may not run emulated blocks as root: allow 'NOPASSWD: ")
        and unfit() == ""
    )
    program = tmp_path / "sudo"
    for status in (1, 0):
        program.write_text(
            f'#!/bin/sh\n[ "$*" = "-n -l {" ".join(fitting.COMMAND[2:])}" ] && exit {status}\n'
            "exit 3\n"
        )
        program.chmod(0o755)
        assert bool(unfit(EMULATED)) == bool(status)


def test_who_does_not_fit_gets_no_block_and_is_told_once(tmp_path: Path) -> None:
    client = Client(["a", "b"], unlike={"a": "is root: start it otherwise"})
    assert carry(tmp_path, client) == (
        ["mrc-tiny-interleaved-s1", "mrc-tiny-interleaved-s2"],
        ["worker a is root: start it otherwise"],
    )
    assert set(client.submitted) == {"b"}


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (Client([]), "there is none: start dask worker"),
        (
            Client(["a"], unlike={"a": "is root: start it otherwise"}),
            "a is root: start it otherwise",
        ),
    ],
)
def test_no_worker_is_one_line(
    client: Client, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PATIENCE_S", 0)
    monkeypatch.setattr(workers, "UNLIKE_S", 0)
    with pytest.raises(UserError, match=f"^no worker fits: {why}; --resume goes on$"):
        carry(tmp_path, client)
    with pytest.raises(
        UserError, match="^the scheduler is gone: start it again; --resume goes on$"
    ):
        carry(tmp_path, Client([], status="connecting"))


def test_later_machines_must_be_like_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the emulated world says what machine carried it out, and its row has that, too."""
    key = "mrc-tiny-interleaved-s1"

    def through_root(text: str, place: Path) -> tuple[Path, str]:
        """The simulated world stands for the emulated one."""
        workers.run_block(
            workers.SimulatedCluster, place, plan(load_scenario("smoke", overrides=QUICK))
        )
        return place, ""

    monkeypatch.setattr(workers, "through_root", through_root)
    carry(tmp_path, Client(["a"]), [1], EMULATED)
    run = Run(tmp_path / "raw" / key)
    cells = {k: v for k, v in row(run_summary(run), "smoke").items() if k.startswith("machine.")}
    assert cells == {"machine.cpu": "a CPU", "machine.kernel": "6.1.0"}

    (tmp_path / "raw" / key).rename(tmp_path / "raw" / "before")
    newer = Client(["b", "a"], offers={"b": {"kernel": "6.12"}})
    carry_lines: list[str] = []
    carrier = OnWorkers(newer, EMULATED, False, carry_lines.append)  # type: ignore[arg-type]
    blocks = blocks_of(plan(load_scenario("smoke", overrides=QUICK)), EMULATED)
    newer.names = ["a", "b"]
    assert [[*entries] for _, entries in carrier(tmp_path, blocks)] == [[key]]
    assert carry_lines == [
        "worker b has kernel 6.12, not 6.1.0: use equal machines, or --mixed, which adds columns"
    ]


def test_a_block_as_text_has_what_an_earlier_run_resolved(tmp_path: Path) -> None:
    specs = blocks_of(plan(small(tmp_path)), EMULATED)[0]
    specs[0].used[0] = "p0-t0-0:p0-t1-0"
    there = parse_toml(text_of_block(specs[1:]))
    assert [transport["name"] for transport in there["transport"]] == ["mrc"] and there["fault"][0][
        "on"
    ] == "p0-t0-0:p0-t1-0"
    workers._check(text_of_block(specs[1:]))
