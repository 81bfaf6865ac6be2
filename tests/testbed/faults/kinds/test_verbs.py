"""Faults of the verbs: the rule that a host's agent gets, its end, and where there can be none."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.verbs.faults import CALLS, Rule
from scenarios.run.runner import run_scenario
from scenarios.run.simulate import check_simulable
from scenarios.schema.dilation import check_emulable
from scenarios.schema.scenario import ScenarioError, load_scenario
from testbed.errors import UserError
from testbed.faults.kinds import KINDS, FaultError
from testbed.faults.kinds.verbs import ERRNOS
from testbed.faults.plan import EVERY_KIND
from testbed.faults.targets import Injected
from testbed.simulated.cluster import SimulatedCluster
from tests.testbed.faults.places import TINY, refused, tiny
from topologies import FabricError
from topologies.units import US

WORDS = {
    "verbs-error": {"status": "retry_exc_err"},
    "verbs-lost": {},
    "verbs-late": {"by": "40us"},
    "verbs-dead-qp": {},
    "verbs-refused": {"call": "reg_mr"},
    "verbs-port": {},
}


class Bench:
    """A machine that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, dict[str, Any] | None]] = []

    def verbs(self, host: int, number: int, rule: dict[str, Any] | None) -> int:
        self.told.append((host, number, rule))
        return 5

    def report(self, t: int, fault: Injected, phase: str, links: tuple[str, ...]) -> None:
        assert (t, phase, links) == (5, "begin", ())


def test_these_are_all() -> None:
    assert set(WORDS) == {name for name, kind in KINDS.items() if kind.programs} and not set(
        WORDS
    ) & set(EVERY_KIND)


@pytest.mark.parametrize(
    ("kind", "keys", "rule"),
    [
        (
            "verbs-error",
            {"status": "retry_exc_err"},
            {"what": "error", "value": 12, "of": "send", "after": 0},
        ),
        (
            "verbs-error",
            {"status": "wr_flush_err", "of": "recv", "after": "3"},
            {"what": "error", "value": 5, "of": "recv", "after": 3},
        ),
        (
            "verbs-lost",
            {"program": 41, "count": 2},
            {"what": "lost", "value": 0, "of": "send", "program": "41", "after": 0, "count": 2},
        ),
        (
            "verbs-late",
            {"by": "40us"},
            {"what": "slow", "value": 40 * US, "of": "send", "after": 0},
        ),
        (
            "verbs-dead-qp",
            {"program": "a.py"},
            {"what": "dead-qp", "value": 0, "of": "", "program": "a.py", "after": 0},
        ),
        (
            "verbs-refused",
            {"call": "reg_mr"},
            {"what": "refused", "value": errno.ENOMEM, "of": "reg_mr", "after": 0},
        ),
        (
            "verbs-refused",
            {"call": "create_qp", "errno": "EIO"},
            {"what": "refused", "value": errno.EIO, "of": "create_qp", "after": 0},
        ),
        ("verbs-port", {}, {"what": "port", "value": 0, "of": ""}),
    ],
)
def test_the_agent_gets_a_rule_and_loses_it(
    kind: str, keys: dict[str, Any], rule: dict[str, Any]
) -> None:
    bench, fault = (
        Bench(),
        Injected(7, tiny(kind, "h2", **{name: str(value) for name, value in keys.items()}), 0),
    )
    KINDS[kind].begin(fault, bench)
    KINDS[kind].undo(fault, bench)
    assert bench.told == [(2, 7, rule), (2, 7, None)] and fault.told_ps == 5
    assert Rule(**rule).what == rule["what"]


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("verbs-error", {}, "status is missing"),
        ("verbs-error", {"status": "success"}, "status = 'success': there are loc_len_err"),
        (
            "verbs-error",
            {"status": "IBV_WC_RETRY_EXC_ERR"},
            "status = 'IBV_WC_RETRY_EXC_ERR': there are",
        ),
        ("verbs-error", {"status": "retry_exc_er"}, "did you mean 'retry_exc_err'"),
        ("verbs-lost", {"of": "both"}, "of = 'both': there are send, recv"),
        ("verbs-lost", {"after": -1}, "after = -1 must be a whole number"),
        ("verbs-lost", {"program": "a b"}, "program = 'a b' must be a pid, or a command's name"),
        ("verbs-late", {"by": "0us"}, "by = '0us' must be longer"),
        ("verbs-refused", {"call": "ibv_reg_mr"}, "call = 'ibv_reg_mr': there are alloc_pd"),
        ("verbs-refused", {"call": "reg_mr", "errno": "12"}, "errno = '12': there are ENOMEM"),
        ("verbs-port", {"count": 1}, "count is not a key"),
    ],
)
def test_what_it_cannot_be(kind: str, keys: dict[str, Any], message: str) -> None:
    refused(FaultError, kind, "h0", message, **keys)


def test_errors_and_calls_are_names() -> None:
    assert all(getattr(errno, name) for name in ERRNOS) and len(set(CALLS.values())) == len(CALLS)
    refused(FabricError, "verbs-lost", "h9", "no host 'h9'")


@pytest.mark.parametrize("kind", WORDS)
def test_where_there_are_no_programs_one_line_says_so(kind: str, tmp_path: Path) -> None:
    cluster = SimulatedCluster(TINY)
    with pytest.raises(
        UserError, match="simulated world runs no programs of RDMA verbs: drop --world simulated"
    ):
        cluster.inject(kind, "h0", **WORDS[kind])
    assert cluster.faults() == [] == cluster.fault_events()
    entry = ", ".join(
        f'{key} = "{value}"'
        for key, value in {"kind": kind, "on": "h0", "at": "1us", **WORDS[kind]}.items()
    )
    loaded = load_scenario("smoke", overrides=[f"fault=[{{{entry}}}]"])
    assert [fault.kind for fault in loaded.faults] == [kind]
    fix = f"mrcbed launch --verbs --scenario {loaded.file} -- PROGRAM"
    line = f"smoke: fault '{kind} h0' is for programs of RDMA verbs, and a run has none: {fix}"
    for refuses in (
        check_simulable,
        partial(check_emulable, dilation=10_000),
        partial(run_scenario, directory=tmp_path),
    ):
        with pytest.raises(ScenarioError) as refusal:
            refuses(loaded)
        assert str(refusal.value) == line
    assert list(tmp_path.iterdir()) == []
