"""A fault schedule is right or says what is wrong, and its number is all that it takes to see it
again."""

from __future__ import annotations

import pytest

from mrcbed import cli
from scenarios.sets import schedules
from scenarios.sets.many_schedules import describe, figures, repeat_command, run_many
from scenarios.sets.schedules import Outcome, run_schedule, setting
from testbed.dataplane import layout
from testbed.simulated.frame import Frame
from testbed.simulated.network import Network
from topologies.units import US

SMALL = "tiny"
NETWORK = "testbed.simulated.cluster.Network"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "STORM", 300 * US)


def test_a_number_is_a_schedule() -> None:
    number = with_kind("switch")
    first, again = run_schedule(number, SMALL), run_schedule(number, SMALL)
    assert (
        first.broken == "" and first.kinds["switch"] and first.steps > 1 and first.retransmitted > 0
    )
    first.cpu_s = again.cpu_s = 0.0
    assert first == again
    assert len({str(setting(seed)) for seed in range(50)}) > 20


def test_what_a_fault_leaves_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that never forwards again once it was silent: its paths do not come back."""

    class StaysSilent(Network):
        def set_switch(self, name: str, state: int) -> None:
            if self._switch_states[self._numbers[name]] != layout.SWITCH_SILENT:
                super().set_switch(name, state)

    monkeypatch.setattr(NETWORK, StaysSilent)
    assert "paths not in use" in run_schedule(with_kind("silent"), SMALL).broken


def test_a_frame_that_vanishes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0]

    class ForgetsOne(Network):
        def _arrive(self, frame: Frame) -> None:
            seen[0] += 1
            if seen[0] == 300:
                self.delayed[self.ports[frame.port].host] -= 1
            else:
                super()._arrive(frame)

    monkeypatch.setattr(NETWORK, ForgetsOne)
    assert "1 packets unaccounted for" in run_schedule(3, SMALL).broken


def test_a_wrong_byte_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:

    class Spoils(Network):
        def _arrive(self, frame: Frame) -> None:
            super()._arrive(frame)
            job = self.stations[1].agent.job  # type: ignore[attr-defined]
            if job is not None and job.step == 1:
                byte = job.result[1].view("u1")
                byte[-1] = 0x55 if byte[-1] else 0xAA

    monkeypatch.setattr(NETWORK, Spoils)
    assert "wrong sum in step 1" in run_schedule(3, SMALL).broken


def test_a_bug_is_a_finding_and_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Network):
        def put(self, host: int, plane: int, frame: Frame) -> bool:
            raise KeyError("no such thing")

    class Spins(Network):
        def put(self, host: int, plane: int, frame: Frame) -> bool:
            while True:
                pass

    with monkeypatch.context() as patch:
        patch.setattr(NETWORK, Breaks)
        assert run_schedule(3, SMALL).broken.startswith(
            "KeyError: 'no such thing' (test_schedules.py:"
        )
    with monkeypatch.context() as patch:
        patch.setattr(NETWORK, Spins)
        patch.setattr(schedules, "LIMIT_S", 0.2)
        assert "more than 0.2 s of CPU time" in run_schedule(3, SMALL).broken


def test_the_command_names_the_schedule_that_broke(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_up(seed: int, fabric: str, keep: object) -> Outcome:
        return Outcome(seed, {"link": 2}, broken="it broke" if seed == 6 else "")

    monkeypatch.setattr("scenarios.sets.many_schedules.run_schedule", made_up)
    assert (
        cli.execute(
            [
                "tools",
                "bench",
                "schedules",
                "--first",
                "5",
                "--count",
                "3",
                "--jobs",
                "1",
                "--fabric",
                SMALL,
            ]
        )
        == 1
    )
    said = capsys.readouterr()
    assert (
        "schedule 6: it broke; again: mrcbed tools bench schedules --first 6 --count 1 "
        "--fabric tiny"
    ) in said.err
    assert "3 schedules, 1 broken: 6 faults" in said.out and "faults: 6 link" in said.out
    assert (
        cli.execute(
            ["tools", "bench", "schedules", "--count", "1", "--jobs", "1", "--fabric", SMALL]
        )
        == 0
    )
    assert cli.execute(["tools", "bench", "schedules", "--fabric", "nowhere"]) == 2


def test_outcomes_of_processes_stand_in_the_order_asked_for() -> None:
    heard: list[int] = []
    made = run_many([4, 3], 2, SMALL, report=lambda outcome: heard.append(outcome.seed))
    assert (
        [o.seed for o in made] == [4, 3]
        and sorted(heard) == [3, 4]
        and not any(o.broken for o in made)
    )
    assert figures(made, 1.0, 2)["schedules"] == 2 and "2 schedules, 0 broken" in describe(
        figures(made, 1.0, 2)
    )
    assert repeat_command(made[0]) == "mrcbed tools bench schedules --first 4 --count 1"


def with_kind(kind: str) -> int:
    """The first schedule that has such a fault."""
    from testbed.faults.plan import plan
    from topologies import load_fabric

    fabric = load_fabric(SMALL)
    return next(
        seed
        for seed in range(100)
        if any(fault.kind == kind for fault in plan(fabric, seed, schedules.STORM))
    )
