"""The link that is named is the link that was broken: every link of a fabric, in either direction,
lossy or dead."""

from __future__ import annotations

from itertools import product
from statistics import median

import pytest

from agents.clustermapper import probes
from agents.clustermapper.localise import CLEAR_STATE, DEAD, LOSSY, WINDOWS, Localiser
from agents.clustermapper.options import Options
from tests.agents.clustermapper.model import Model
from topologies import load_fabric
from topologies.clos import t0_name, t1_name

DEMO = load_fabric("demo")
SMALL = load_fabric("tiny")


WAYS = list(product([0.05, 0.2, 1.0], [True, False]))
"""How a link is broken: its rate of loss, and whether away from the hosts."""


def test_every_link_of_a_fabric_is_named_and_no_other() -> None:
    """Each in one of the ways here, each in all of them in ``make soak``."""
    every_link_is_named(0)


def every_link_is_named(shift: int) -> None:
    missed, wrong = [], []
    for number, link in enumerate(DEMO.links):
        rate, upwards = WAYS[(number + shift) % len(WAYS)]
        model = Model(DEMO, Options(), number)
        model.run(8)
        model.rate[link.name] = (rate, 0.0) if upwards else (0.0, rate)
        changed = model.run(
            400, lambda changed, name=link.name: any(v.link == name for v in changed)
        )  # type: ignore[misc]
        changed += model.run(20)
        if link.name not in {v.link for v in changed}:
            missed.append(link.name)
        wrong += [(link.name, v.link) for v in changed if v.link != link.name]
        state = model.localiser.verdicts[link.name].state
        assert state == DEAD if rate == 1.0 else state in (LOSSY, CLEAR_STATE)
        assert [f.name for f in model.localiser.findings()] in (
            [link.name],
            [] if rate < 1 else None,
        )
    assert missed == [] and wrong == []


@pytest.mark.parametrize(
    ("rate", "middle", "most"),
    [(0.02, 800, 2400), (0.05, 240, 800), (0.2, 56, 120), (0.5, 24, 48), (1.0, 12, 16)],
)
def test_detection_time_against_loss_rate(rate: float, middle: float, most: float) -> None:
    """docs/why/clustermapper.md states these figures: base RTTs from the onset to the verdict,
    deadline not included."""
    times: dict[str, list[float]] = {"nic": [], "fabric": []}
    links = [DEMO.links[k] for k in (0, 9, 30, 33, 40, 63)]
    for k, link in enumerate(links * 2):
        model = Model(DEMO, Options(), 100 + k)
        model.run(4)
        model.rate[link.name] = (rate, 0.0)
        before = model.bucket
        model.run(900, lambda changed, name=link.name: any(v.link == name for v in changed))  # type: ignore[misc]
        times[link.kind].append(model.rtts(model.bucket - before))
    assert all(median(t) <= middle and max(t) <= most for t in times.values()), times


def test_a_healthy_fabric_is_never_blamed() -> None:
    model = Model(DEMO, Options(), 1)
    assert model.run(500) == []


def test_single_losses_now_and_then_are_nobodys_fault() -> None:
    model = Model(DEMO, Options(), 7)
    model.rate = {link.name: (0.0008, 0.0008) for link in DEMO.links}
    assert model.run(200) == []
    assert sum(int(lost.sum()) for lost in model.lost.values()) > 20


def test_a_link_is_cleared_when_it_is_whole_again_and_blamed_anew_when_it_is_not() -> None:
    for link, rate in (("p1-t0-1:p1-t1-2", 0.2), ("h0:p0-t0-0", 0.05), ("h0:p2-t0-0", 1.0)):
        model = Model(DEMO, Options(), 5)
        model.run(20)
        spans = []
        for _ in range(2 if rate == 0.2 else 1):
            model.rate[link] = (0.0, rate)
            model.run(300, lambda changed: bool(changed))
            assert model.localiser.verdicts[link].state != CLEAR_STATE
            model.run(60)
            assert model.localiser.verdicts[link].state != CLEAR_STATE, (
                "it lasts as long as the fault does"
            )
            model.rate.clear()
            begun = model.bucket
            changed = model.run(300, lambda changed: any(v.state == CLEAR_STATE for v in changed))
            assert [(v.link, v.state) for v in changed][-1] == (link, CLEAR_STATE)
            spans.append(model.rtts(model.bucket - begun))
            assert model.run(40) == [] and model.localiser.findings() == []
        assert max(spans) < {0.05: 800, 0.2: 400, 1.0: 150}[rate], (link, spans)


def test_the_rate_is_estimated() -> None:
    for rate in (0.05, 0.2):
        model = Model(DEMO, Options(), 3)
        model.rate["h3:p1-t0-0"] = (rate, 0.0)
        model.run(120)
        assert rate / 1.6 <= model.localiser.verdicts["h3:p1-t0-0"].rate <= rate * 1.6


@pytest.mark.parametrize(
    "gone, up_too",
    [
        ([t0_name(2, 0)], True),
        ([t0_name(2, 1)], True),
        ([t1_name(2, 0), t1_name(2, 3)], True),
        ([t1_name(1, j) for j in range(4)], False),
    ],
    ids=["a T0", "another T0", "two T1s", "all T1s of a plane"],
)
def test_a_dead_switch_is_named_as_such_and_no_link_of_a_host(
    gone: list[str], up_too: bool
) -> None:
    model = Model(DEMO, Options(), 2)
    model.run(20)
    for link in DEMO.links:
        if link.a.node in gone or link.b.node in gone:
            model.rate[link.name] = (1.0, float(up_too))
    model.run(60)
    assert sorted((f.name, f.state) for f in model.localiser.findings()) == [
        (name, DEAD) for name in gone
    ]


def test_several_faults_at_once_are_told_apart() -> None:
    bad = {
        "h3:p1-t0-0": 0.3,
        "h1:p1-t0-0": 1.0,
        "p1-t0-0:p1-t1-2": 0.3,
        "p1-t0-0:p1-t1-1": 1.0,
        "h6:p0-t0-1": 0.2,
    }
    for seed in range(2):
        model = Model(DEMO, Options(), seed)
        model.run(20)
        model.rate = {link: (rate, 0.0) for link, rate in bad.items()}
        changed = model.run(120)
        assert {v.link for v in changed} == set(bad)
        assert {f.name: f.state for f in model.localiser.findings()} == {
            n: DEAD if r == 1.0 else LOSSY for n, r in bad.items()
        }


def test_one_host_alone_names_its_links_too() -> None:
    for link in ("h5:p1-t0-1", "p1-t0-1:p1-t1-0"):
        model = Model(DEMO, Options(), 4, hosts=[5])
        model.run(20)
        model.rate[link] = (0.2, 0.2)
        assert {v.link for v in model.run(300)} == {link}


def test_a_port_without_carrier_is_dead_at_once_and_its_upper_links_are_not_blamed() -> None:
    model = Model(DEMO, Options(), 4)
    model.run(20)
    model.carrier[3][1] = False
    assert [(v.link, v.state, v.carrier) for v in model.step()] == [("h3:p1-t0-0", DEAD, False)]
    assert model.run(50) == []
    model.carrier[3][1] = True
    assert [(v.link, v.state) for v in model.run(10)] == [("h3:p1-t0-0", CLEAR_STATE)]


def test_a_probe_that_comes_late_takes_its_loss_back() -> None:
    judge = Localiser(SMALL, Options(), [0])
    cells = probes.cells(SMALL)
    judge.add(0, 1, [5] * cells, [0] * cells)
    judge.add(0, 2, [10] * cells, [2] + [0] * (cells - 1))
    judge.add(0, 3, [15] * cells, [0] * cells)
    judge.add(0, 3, [15] * cells, [9] * cells)  # said before: ignored
    assert judge.judge(1) == [] and judge.table() == []


def test_the_threshold_is_the_least_rate_that_counts() -> None:
    for threshold, blamed in ((0.01, True), (0.2, False)):
        model = Model(DEMO, Options(threshold=threshold), 3)
        model.rate["h3:p1-t0-0"] = (0.04, 0.0)
        assert bool(model.run(400 if blamed else 120, bool)) == blamed


def test_a_window_begins_at_the_newest_bucket_that_is_old_enough() -> None:
    """Also where buckets are missing, as after a host was stopped for a while."""
    judge = Localiser(SMALL, Options(), [0])
    cells = probes.cells(SMALL)
    told = [*range(3, 40), 41, 45, 46, *range(60, 100), 400, *range(1500, 1503)]
    past = [2]
    for bucket in told:
        judge.add(0, bucket, [10 * bucket] * cells, [bucket] * cells)
        past.append(bucket)
        starts, counts = judge.windows[0]
        wanted = []
        for w in WINDOWS:
            wanted.append(max((b for b in past if b <= bucket - w), default=past[0]))
            if wanted[-1] == past[0]:
                break
        assert starts == wanted
        # Before the first bucket nothing had been counted.
        assert [int(c) for c in counts[:, 1, 0]] == [
            bucket - (0 if start == past[0] else start) for start in wanted
        ]
