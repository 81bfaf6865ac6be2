"""Faults in scenario files and on a run's timeline, played with numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scenarios.run.runner import Runner
from scenarios.run.timeline import NEVER, Timeline
from scenarios.schema.fault_tables import Fault
from scenarios.schema.scenario import ScenarioError, load_scenario
from testbed.errors import UserError
from testbed.faults.kinds import read_keys
from tests.scenarios.fakes import FakeCluster
from tests.scenarios.small import undrawn
from topologies import load_fabric
from topologies.units import US

TINY = load_fabric("tiny")
CABLE, OTHER = "p0-t0-0:p0-t1-0", "p0-t0-0:p0-t1-1"


@pytest.fixture(autouse=True, scope="module")
def _undrawn() -> Iterator[None]:
    with undrawn():
        yield


def fault(kind: str, on: str, at: int | None = 10, lasts: int | None = None, **more: Any) -> Fault:
    keys = {k: v for k, v in more.items() if k not in ("before", "step")}
    return Fault(
        f"{kind} {on}",
        kind,
        on,
        at,
        more.get("step"),
        lasts,
        before=more.get("before", False),
        keys=read_keys(kind, keys),
    )


def phases(timeline: Timeline, now: int) -> list[tuple[str, str]]:
    return [(action.phase, action.fault.name) for action in timeline.due(now)]


def test_faults_begin_and_end_when_they_are_due() -> None:
    timeline = Timeline(
        TINY, [fault("link", CABLE, 10, 5), fault("silent", "p0-t1-1", None, 7, step=2)]
    )
    assert timeline.next_ps() == NEVER and timeline.due(1 << 60) == []
    timeline.measured_step_began(0, 100)
    assert timeline.next_ps() == 110
    assert phases(timeline, 109) == []
    assert phases(timeline, 111) == [("begin", f"link {CABLE}")]
    assert timeline.next_ps() == 116
    timeline.measured_step_began(2, 112)
    assert (timeline.next_ps(), timeline.planned_ps()) == (112, 116), (
        "nobody could know before when the step would begin"
    )
    assert phases(timeline, 116) == [("begin", "silent p0-t1-1"), ("heal", f"link {CABLE}")]
    assert timeline.planned_ps() == 123
    assert phases(timeline, 200) == [("heal", "silent p0-t1-1")]
    assert timeline.next_ps() == NEVER and timeline.never_began() == []


def test_what_begins_with_the_first_step_is_not_planned_but_its_end_is() -> None:
    timeline = Timeline(TINY, [fault("link", CABLE, 0, 5)])
    timeline.measured_step_began(0, 100)
    assert (timeline.next_ps(), timeline.planned_ps()) == (100, NEVER)
    assert phases(timeline, 106) == [("begin", f"link {CABLE}")]
    assert timeline.planned_ps() == 111


def test_what_is_there_before_ends_by_the_first_step() -> None:
    timeline = Timeline(
        TINY,
        [
            fault("dead-paths", "fabric", None, 50, before=True, share=0.5),
            fault("plane", "p1", None, before=True),
        ],
    )
    assert [action.fault.kind for action in timeline.begin_before()] == ["dead-paths", "plane"]
    assert timeline.begin_before() == [] and timeline.due(1 << 60) == []
    timeline.measured_step_began(0, 1000)
    assert phases(timeline, 1049) == []
    assert phases(timeline, 1050) == [("heal", "dead-paths fabric")]
    assert timeline.next_ps() == NEVER


def test_a_fault_on_what_is_not_there_is_absent_and_the_others_go_on() -> None:
    timeline = Timeline(TINY, [fault("plane", "p3"), fault("kill", "controller")])
    assert len(timeline.absent) == 1 and "planes p0..p1" in timeline.absent[0]
    timeline.measured_step_began(0, 0)
    assert phases(timeline, 10) == [("begin", "kill controller")]
    assert timeline.next_ps() == NEVER, "a kill is not taken back"


def test_only_cables_that_carry_nothing_count_as_lost_capacity() -> None:
    faults = [
        fault("link", CABLE),
        fault("loss", OTHER, probability=0.1),
        fault("slow", OTHER, rate=0.5),
        fault("silent", "p1-t1-0"),
    ]
    assert Timeline(TINY, faults).all_links() == [CABLE, "p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"]


def test_draws_follow_the_runs_seed_unless_the_fault_has_one() -> None:
    drawn = {
        seed: Timeline(TINY, [fault("dead-paths", "fabric", share=0.25)], seed)
        .entries[0]
        .target.links
        for seed in range(8)
    }
    assert len(set(drawn.values())) > 2
    own = {
        Timeline(TINY, [fault("dead-paths", "fabric", share=0.25, seed=3)], seed)
        .entries[0]
        .target.links
        for seed in range(8)
    }
    assert own == {drawn[3]}


# --- as written -----------------------------------------------------------------------------------

RING = (
    'format = 3\nfabric = "tiny"\n[workload]\nkind = "ring-allreduce"\n'
    'message_bytes = "64KiB"\nsteps = 4\n'
)
HEAD = f'{RING}[[transport]]\nkind = "mrc"\n[[fault]]\n'


def read(tmp_path: Path, body: str) -> tuple[Fault, ...]:
    file = tmp_path / "mine.toml"
    file.write_text(HEAD + body)
    return load_scenario(str(file)).faults


def test_every_kind_can_be_written(tmp_path: Path) -> None:
    entries = [
        f'kind = "link"\non = "{CABLE}"\nat = "100us"',
        'kind = "port"\non = "h0-p1"\nat = "100us"\nfor = "200us"',
        (
            'kind = "flap"\non = "used-by-qp"\nat = "100us"\nfor = "200us"\nperiod = "20us"\n'
            "duty = 0.3"
        ),
        'kind = "transceiver"\non = "h0"\nat = "100us"\nlinks = 1\nperiod = "100us"\nduty = 0.5',
        'kind = "switch"\non = "p0-t1-0"\nstep = 2',
        'kind = "silent"\non = "p0-t1-0"\nat = "100us"\nfor = "200us"\nreboot = "50us"',
        'kind = "plane"\non = "p1"\nat = "100us"',
        'kind = "loss"\non = "h0-p1"\nat = "100us"\nprobability = 0.01\ndirection = "up"\nseed = 3',
        'kind = "corrupt"\non = "used-by-qp"\nat = "100us"\nprobability = 0.01',
        'kind = "path-loss"\non = "h0>h2@p0/1"\nat = "100us"\nprobability = 0.2',
        'kind = "destination-loss"\non = "p0-t1-0"\nat = "100us"\nto = "h3"',
        'kind = "slow"\non = "h0-p1"\nat = "100us"\nrate = 0.5',
        'kind = "dead-paths"\non = "fabric"\nbefore = true\nshare = 0.1',
        'kind = "straggler"\non = "h3"\nat = "100us"\nfor = "100us"\nshare = 0.5\nperiod = "5us"',
        'kind = "kill"\non = "controller"\nat = "100us"',
    ]
    faults = read(tmp_path, "\n[[fault]]\n".join(entries))
    assert len(faults) == 15 and faults[12].before and faults[12].keys == {"share": 0.1}
    assert faults[5].keys == {"reboot": 50 * US} and faults[7].name == "loss h0-p1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('kind = "los"\non = "h0-p0"\nat = "100us"', "fault[0].kind = 'los': there are link, port"),
        ('on = "h0-p0"\nat = "100us"', "fault[0].kind is missing"),
        (
            'kind = "loss"\non = "h0-p0"\nat = "100us"\nprobabilty = 1',
            "fault[0].probabilty is not a key: did you mean 'probability'?",
        ),
        ('kind = "loss"\non = "h0-p0"\nat = "100us"', "fault[0].probability is missing"),
        (
            'kind = "loss"\non = "h0-p0"\nat = "100us"\nprobability = 2',
            "fault[0].probability = 2 must be a number in 0..1",
        ),
        (
            'kind = "loss"\non = "h0-p7"\nat = "100us"\nprobability = 1',
            "fault[0].on : fabric 'tiny' has no NIC port",
        ),
        ('kind = "port"\non = "h0-p0"\nat = "100us"\nstep = 1', "and one of them"),
        ('kind = "port"\non = "h0-p0"\nbefore = true\nat = "100us"', "and one of them"),
        ('kind = "port"\non = "h0-p0"\nat = "100us"\nfor = 0', "fault[0].for = 0 must be longer"),
        (
            'kind = "port"\non = "used-by-qp"\nat = "100us"',
            "fault[0].on = 'used-by-qp' is for kinds link, flap,",
        ),
        ('kind = "link"\non = "used-by-qp"\nbefore = true', "fault[0].before is not for"),
        ('kind = "kill"\non = "h0"\nbefore = true', "fault[0].before is not for"),
        (
            'kind = "kill"\non = "h0"\nat = "100us"\nfor = "100us"',
            "fault[0].for is not for kind 'kill'",
        ),
        (
            'kind = "silent"\non = "p0-t1-0"\nat = "100us"\nreboot = "100us"',
            "needs 'for', the length of the silence",
        ),
        (
            (
                'kind = "port"\non = "h0-p0"\nat = "100us"\n[[fault]]\nkind = "port"\n'
                'on = "h0-p0"\nat = "200us"'
            ),
            "fault names are not unique",
        ),
        (
            'kind = "link"\non = "h0:p0-t0-0"\nranks = [0, 1]\nat = "100us"',
            "fault[0].ranks = [0, 1] must be",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path, body)
    assert (
        said in str(caught.value)
        and "mine.toml" in str(caught.value)
        and "\n" not in str(caught.value)
    )


# --- in a run -------------------------------------------------------------------------------------


def run(
    directory: Path, *faults: str, **kind: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], list[FakeCluster]]:
    """(summary, the journal's faults, clusters) of MRC on `tiny`."""
    clusters: list[FakeCluster] = []

    def factory(fabric: Any) -> FakeCluster:
        clusters.append(FakeCluster(fabric, **kind))
        return clusters[-1]

    given = ["workload.steps=12", "workload.message_bytes=40KiB", f"fault=[{', '.join(faults)}]"]
    scenario = load_scenario("link-failure", fabric="tiny", transports=["mrc"], overrides=given)
    try:
        summary = Runner(scenario, directory, factory).run()
    finally:
        lines = [
            json.loads(line)
            for path in directory.glob("raw/*/runner.jsonl")
            for line in path.read_text().splitlines()
        ]
    return summary, [line for line in lines if line["kind"] == "fault"], clusters


def test_faults_are_journalled_and_end_with_the_run(tmp_path: Path) -> None:
    summary, told, (cluster,) = run(
        tmp_path,
        '{kind = "dead-paths", on = "p1", before = true, share = 0.25}',
        '{kind = "loss", on = "h0-p0", at = "5us", for = "5us", probability = 0.1, direction = '
        '"up", seed = 7}',
    )
    assert [(line["fault"], line["phase"]) for line in told] == [
        ("dead-paths", "begin"), ("loss", "begin"), ("loss", "heal"), ("dead-paths", "end"),
    ]  # fmt: skip
    assert told[1]["keys"] == {"probability": 0.1, "direction": "up", "seed": 7} and told[1][
        "links"
    ] == ["h0:p0-t0-0"]
    assert told[2]["t"] > told[1]["t"]
    calls = [call[0] for call in cluster.calls]
    assert calls.index("inject") < calls.index("agents"), "before the agents"
    assert cluster.there == {} and cluster.down == set()
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("raw/*/run.json")]
    assert record["fault_links"] == told[0]["links"] == record["dead_at_end"]
    assert summary["runs"][0]["faults_missed"] == []


def test_a_run_that_dies_is_healed(tmp_path: Path) -> None:
    clusters: list[FakeCluster] = []

    class Dying(FakeCluster):
        def check(self) -> None:
            if self.there:
                raise RuntimeError("a bug")

    def factory(fabric: Any) -> FakeCluster:
        clusters.append(Dying(fabric))
        return clusters[-1]

    given = ["workload.steps=12", f'fault=[{{kind = "link", on = "{CABLE}", at = "2us"}}]']
    with pytest.raises(RuntimeError, match="a bug"):
        Runner(
            load_scenario("link-failure", fabric="tiny", transports=["mrc"], overrides=given),
            tmp_path,
            factory,
        ).run()
    assert clusters[0].there == {} and clusters[0].down == set()
    lines = [
        json.loads(line)
        for path in tmp_path.glob("raw/*/runner.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [line["phase"] for line in lines if line["kind"] == "fault"] == ["begin", "end"]


def test_a_killed_agent_ends_the_run_by_its_rank(tmp_path: Path) -> None:
    class Mortal(FakeCluster):
        def check(self) -> None:
            if self.die:
                raise UserError("the agent of h2 was killed by SIGKILL")

    def factory(fabric: Any) -> FakeCluster:
        return Mortal(fabric)

    given = ["workload.steps=40", 'fault=[{kind = "kill", on = "h2", at = "2us"}]']
    summary = Runner(
        load_scenario("link-failure", fabric="tiny", transports=["mrc"], overrides=given),
        tmp_path,
        factory,
    ).run()
    (entry,) = summary["runs"]
    assert entry["outcome"] == "failed" and entry["reason"].startswith("rank 1 (h2) is gone: ")
