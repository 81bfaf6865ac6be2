"""``mrcbed launch --scenario``: what it takes from a file, what the command line says instead, and
what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrcbed.cli.launch_scenario import Planned
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from tests.mrcbed.cli.conftest import Said
from topologies.units import US

FILE = """
format = 3
fabric = "tiny"
nic_rate = "50Gbit"
dilation = 20000
seeds = [7, 8]
[workload]
kind = "ring-allreduce"
message_bytes = "64KiB"
steps = 2
[[transport]]
kind = "mrc"
name = "few"
options = { qps = 2, active_evs = 4 }
controller = "hint"
[[transport]]
kind = "roce"
options = { reconvergence = "90us" }
[[fault]]
name = "plane gone"
kind = "plane"
on = "p1"
at = "20us"
for = "40us"
"""
VERBS = """
[[fault]]
kind = "verbs-error"
on = "h1"
at = 0
status = "retry_exc_err"
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.verbs.build.library", lambda: None)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Planned]:
    """Sessions that a launch would bring up: it stops there."""
    sessions: list[Planned] = []

    def stop(session: Planned, arguments: tuple[str, ...]) -> None:
        sessions.append(session)
        raise UserError("as far as that")

    monkeypatch.setattr("mrcbed.cli.launch._check_verbs", stop)
    return sessions


def take(mrcbed: Said, taken: list[Planned], *words: str, file: str = FILE + VERBS) -> Planned:
    Path("own.toml").write_text(file)
    assert (
        mrcbed.refused("launch", "--verbs", "--scenario", "own.toml", *words, "--", "sh")
        == "mrcbed: as far as that"
    )
    return taken.pop()


def test_a_launch_takes_fabric_transport_seed_and_faults(
    mrcbed: Said, taken: list[Planned]
) -> None:
    session = take(mrcbed, taken)
    assert (session.fabric.name, session.fabric.nic_rate, session.dilation) == (
        "tiny-50Gbit",
        50 * 10**9,
        20_000,
    )
    assert (session.transport, session.options, session.seed) == ("mrc", {"active_evs": 4}, 7)
    assert (session.planned.qps, session.planned.controller, session.planned.reconvergence_ps) == (
        2,
        "hint",
        None,
    )
    assert session.scenario is not None
    assert [(fault.name, fault.at_ps, fault.for_ps) for fault in session.scenario.faults] == [
        ("plane gone", 20 * US, 40 * US), ("verbs-error h1", 0, None),
    ]  # fmt: skip


def test_the_command_line_goes_before(mrcbed: Said, taken: list[Planned]) -> None:
    session = take(
        mrcbed,
        taken,
        "--fabric",
        "demo",
        "-t",
        "roce",
        "--seed",
        "3",
        "--dilation",
        "30000",
        "--fault",
        "port h0-p0",
    )
    assert (session.fabric.name, session.transport, session.seed, session.dilation) == (
        "demo-50Gbit",
        "roce",
        3,
        30_000,
    )
    assert session.planned.reconvergence_ps == 90 * US and session.faults == [("port", "h0-p0", {})]
    assert take(mrcbed, taken, "--seed", "0").seed == 0
    assert take(mrcbed, taken, "-t", "mrc").options == {"active_evs": 4}


def test_a_shipped_scenario_by_name(mrcbed: Said, taken: list[Planned]) -> None:
    assert (
        mrcbed.refused("launch", "--verbs", "--scenario", "plane-lost", "--", "sh")
        == "mrcbed: as far as that"
    )
    assert (taken[0].fabric.name, taken[0].transport, taken[0].seed) == ("demo", "mrc", 1)


@pytest.mark.parametrize(
    ("words", "old", "new", "line"),
    [
        (
            (),
            'at = "20us"',
            "step = 1",
            "own.toml: fault 'plane gone': step = 1: a program has no steps: say at = \"...\"",
        ),
        (
            (),
            'kind = "plane"\non = "p1"',
            'kind = "link"\non = "used-by-qp"',
            "makes its queue pairs by itself: name a link",
        ),
        (
            (),
            "[workload]",
            '[sweep]\n"workload.steps" = [1, 2]\n[workload]',
            "own.toml: a launch has one setting, and [sweep] makes 2",
        ),
        ((), "steps = 2", "stepz = 2", "did you mean 'steps'"),
        ((), '"verbs-error"', '"verbs-eror"', "fault[1].kind = 'verbs-eror'"),
        ((), 'status = "retry_exc_err"', "", "fault[1].status is missing"),
        ((), '"20us"', '"2s"', "lasts 2.00 s in the network, 11.1 hours of this machine's time"),
        (("-t", "tcp"), "", "", "fabric 'tiny-50Gbit-1p' has planes p0..p0"),
        (
            (),
            'name = "few"',
            'name = "few"\nfabric = "twin"',
            "own.toml: fault plane gone: denylist entry 'p1': fabric 'tiny-50Gbit-1p'",
        ),
        (
            ("-t", "tcp"),
            'kind = "plane"\non = "p1"',
            'kind = "plane"\non = "p0"',
            "--verbs needs a NIC, and tcp is a kernel's",
        ),
        (
            ("--world", "simulated"),
            "",
            "",
            (
                "fault 'verbs-error h1' is for programs of RDMA verbs, which the simulated world "
                "does not have"
            ),
        ),
    ],
)
def test_refusals(
    mrcbed: Said, built: None, words: tuple[str, ...], old: str, new: str, line: str
) -> None:
    assert not old or (FILE + VERBS).replace(old, new) != FILE + VERBS
    Path("own.toml").write_text((FILE + VERBS).replace(old, new) if old else FILE + VERBS)
    assert line in mrcbed.refused("launch", "--verbs", "--scenario", "own.toml", *words, "--", "sh")


def test_faults_of_verbs_need_verbs(mrcbed: Said) -> None:
    Path("own.toml").write_text(FILE + VERBS)
    assert "fault verbs-error is for programs of RDMA verbs: add --verbs" in mrcbed.refused(
        "launch", "--scenario", "own.toml", "--", "sh"
    )
    assert "verbs-lost is for programs" in mrcbed.refused(
        "launch", "--fabric", "tiny", "--fault", "verbs-lost h0", "--", "sh"
    )


def test_runs_refuse_them_and_name_the_command(mrcbed: Said) -> None:
    Path("own.toml").write_text(FILE + VERBS)
    Path("swept.toml").write_text(
        (FILE + VERBS).replace("at = 0", "at = 1") + '[sweep]\n"fault.1.at" = [0, 1]\n'
    )
    for more in ((), ("--world", "simulated"), ("--on", "a,b"), ("--on", "tls://127.0.0.1:1")):
        line = mrcbed.refused("run", "own.toml", *more)
        assert line.endswith(
            "and a run has none: mrcbed launch --verbs --scenario own.toml -- PROGRAM"
        ), more
    assert "--scenario swept.toml -- PROGRAM" in mrcbed.refused("run", "swept.toml")
    assert not Path("results").exists()


def test_check_says_what_it_is_for(mrcbed: Said) -> None:
    Path("own.toml").write_text(FILE + VERBS)
    said = " ".join(mrcbed("check", "own.toml").split())
    assert (
        "own.toml: ok, a scenario" in said
        and said.count("mrcbed launch --verbs --scenario own.toml -- PROGRAM") == 2
    )
    late = FILE + "".join(
        f'[[fault]]\nkind = "{name}"\non = "h0"\nat = 0\n{key}' for name, key in LATE
    )
    Path("own.toml").write_text(late)
    assert "by 40.0 µs" in mrcbed("check", "own.toml")


LATE = (("verbs-late", 'by = "40us"\n'), ("verbs-port", ""))


def test_a_program_under_a_scenarios_fault_in_virtual_time(mrcbed: Said) -> None:
    Path("own.toml").write_text(FILE)
    Path("own.py").write_text(
        "from mrcbed import Communicator\nc = Communicator.open()\nc.compute(1e-4)\nc.barrier()\n"
        "print(c.rank)\n"
    )
    said = mrcbed(
        "launch",
        "--world",
        "simulated",
        "--scenario",
        "own.toml",
        "-n",
        "2",
        "--log",
        "log",
        "--",
        "own.py",
    )
    assert sorted(said.split()) == ["0", "0:", "1", "1:"]
    rows = [
        line for line in Path("log/runner.jsonl").read_text().splitlines() if '"plane gone"' in line
    ]
    assert [
        f'"t": {t * US}, "kind": "fault"' in row for t, row in zip((20, 60), rows, strict=True)
    ] == [True, True]


def test_every_kind_of_verbs_is_in_the_table_of_keys(mrcbed: Said) -> None:
    said = mrcbed("explain", "fault.kind")
    assert all(name in said for name, kind in KINDS.items() if kind.programs)
