"""What failures cost, on runs written by hand: every number here can be worked out on paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scenarios.figures import cost
from scenarios.figures.costs import costs
from scenarios.figures.outages import Failures
from scenarios.schema.workloads import Flow
from scenarios.show.cost_table import columns, footnotes
from testbed.results.summary import Cost
from testbed.results.summary import Run as Entry
from tests.made import made
from tests.scenarios.broken import MS, NET_MS, NET_RTT, NET_S, RTT, S, at, fault, steps, write

CUT = "p0-t0-0:p0-t1-0"
HALF = "h1:p0-t0-0"
"""A NIC cable: of two planes one is left."""


def near(value: float, rel: float = 1e-6) -> Any:
    return pytest.approx(value, rel=rel)


def took(
    directory: Path, journal: list[dict[str, Any]], spans: list[tuple[float, float]], **record: Any
) -> Cost:
    run = write(directory, journal, steps(spans), end=spans[-1][1], **{"wrong": {}, **record})
    found = cost.figures(Failures(run))
    assert found is not None
    return found


def chain(*lasting: float) -> list[tuple[float, float]]:
    """Steps one after the other."""
    ends = [sum(lasting[: i + 1]) for i in range(len(lasting))]
    return list(zip([0.0, *ends], ends, strict=False))


def test_time_lost_against_the_steps_before(tmp_path: Path) -> None:
    """Five steps of 1 s, then the port of h1 is down for 2 s: two steps of 2.5 s and one of 1 s
    follow: 6 s for 3 s of work."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 5.0), ("heal", 7.0))
    seen = took(tmp_path, journal, chain(1, 1, 1, 1, 0.999, 2.501, 2.5, 1))
    assert (
        seen.healthy_from == "before"
        and seen.healthy_steps == 5
        and seen.healthy_step_ns == NET_S
        and seen.unknown is None
    )
    assert seen.extra_ns == near(6.0 * NET_S + 1 * NET_MS - 3 * NET_S)
    assert seen.extra_steps == near(3.001) and seen.extra_rtts == near(3001 * NET_MS / NET_RTT)
    assert seen.extra_percent == near(3.001 / 8 * 100)
    assert seen.worst_step_ns == near(2.501 * NET_S)
    # a healthy step was 1 ms off their median, three steps since
    assert seen.noise_ns == near(1 * NET_MS * 3)
    assert seen.noise_share == near(1e-3) and seen.slowdown == near(2.501)
    assert seen.goodput_kept is None, "no agent counted any payload"
    # Half the pace for the 2 s of the outage: one step's work is lost.
    assert seen.ideal_extra_ns == near(1.0 * NET_S)


def payload(rates: list[tuple[float, float, int]], bin_ps: int = 100 * MS) -> list[dict[str, Any]]:
    """(from, to, bytes per bin) of all a host received, over two planes."""
    return [
        {
            "t": at(0) + i * bin_ps,
            "kind": "goodput",
            "host": 1,
            "bin_ps": bin_ps,
            "tx": [0, 0],
            "rx": [rx // 2, rx // 2],
        }
        for a, b, rx in rates
        for i in range(round(a * S / bin_ps), round(b * S / bin_ps))
    ]


def test_goodput_kept_is_of_the_time_in_which_something_was_broken(tmp_path: Path) -> None:
    """1000 B a bin when healthy. Broken from 5 to 7 and from 6 to 8 s, which is 3 s: 200 B for 2 of
    them, 800 B for one."""
    journal = [
        *fault("f", "port", "h1-p0", [HALF], ("begin", 5.0), ("heal", 7.0)),
        *fault("g", "link", CUT, [CUT], ("begin", 6.0), ("heal", 8.0)),
    ]
    lines = [
        *steps(chain(1, 1, 1, 1, 0.999, 3.001, 1)),
        *payload([(0, 5, 1000), (5, 7, 200), (7, 8, 800), (8, 9, 900)]),
    ]
    seen = cost.figures(Failures(write(tmp_path, journal, lines, end=9, wrong={})))
    assert (
        seen is not None
        and seen.goodput_kept == near((2 * 0.2 + 0.8) / 3)
        and seen.slowdown == near(3.001)
    )
    healthy = 1000 * 8e9 / (0.1 * NET_S) / 4  # bit/s: a bin of 100 ms, four hosts
    assert (seen.before_bps, seen.during_bps, seen.after_bps) == (
        near(healthy),
        near(0.4 * healthy),
        near(0.9 * healthy),
    )
    early = [
        *fault("f", "port", "h1-p0", [HALF], ("begin", 0.5), ("heal", 1.5)),
        *steps(chain(3, 1, 1, 1, 1, 1)),
    ]
    after = cost.figures(
        Failures(
            write(
                tmp_path / "early",
                early[:2],
                [*early[2:], *payload([(0, 3, 300), (3, 8, 1000)])],
                end=8,
                wrong={},
            )
        )
    )
    assert after is not None and after.healthy_from == "after" and after.goodput_kept == near(0.3)
    assert (after.before_bps, after.during_bps) == (None, near(0.3 * healthy))


def test_without_a_healthy_step_before_those_after_count(tmp_path: Path) -> None:
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 1.0), ("heal", 2.0))
    seen = took(tmp_path, journal, chain(5, 4, 4.5, 3.9, 4, 4.1))
    assert (seen.healthy_from, seen.healthy_steps, seen.healthy_step_ns) == (
        "after",
        5,
        4.0 * NET_S,
    )
    assert seen.extra_ns == near(1.5 * NET_S) and seen.ideal_extra_ns == near(0.5 * NET_S)


def test_of_too_few_healthy_steps_there_is_no_cost_but_a_reason(tmp_path: Path) -> None:
    """Two steps that happen to be alike say nothing of how uneven a pace is."""
    for few in (2, cost.FEWEST_HEALTHY - 1):
        journal = fault("f", "port", "h1-p0", [HALF], ("begin", few + 0.5))
        seen = took(tmp_path / str(few), journal, chain(*[1.0] * few, 2, 1))
        assert (
            seen.unknown == f"{few} of 5 healthy steps"
            and seen.healthy_step_ns == NET_S
            and seen.finished
        )
        assert {
            getattr(seen, key)
            for key in ("extra_ns", "extra_steps", "extra_rtts", "extra_percent", "noise_ns")
        } == {None}
        assert seen.ideal_extra_ns is not None


def test_a_pace_that_was_not_settled_is_noise_and_never_a_gain(tmp_path: Path) -> None:
    """Healthy steps within 124 ms of each other, and quicker ones after the failure: within noise,
    and no gain."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 12.4), ("heal", 13.0))
    seen = took(tmp_path, journal, chain(2.5, 2.5, 2.376, 2.5, 2.5, 2.0, 1.7, 1.5, 1.4))
    assert seen.extra_ns == near(-3.4 * NET_S + 0.0) and seen.healthy_steps == 5
    assert seen.noise_ns == near(1.1 * NET_S * 4)
    (row,) = costs([made(Entry, transport="roce", failure_cost=seen)])
    assert dict(columns([row]))["extra time"](row) == "within noise\n(±440 µs)"


def test_a_stall_that_two_steps_share_counts_once(tmp_path: Path) -> None:
    """Rank 0 is a step ahead: the same second lengthens its third step and the others' second."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 5.2), ("heal", 5.3))
    ahead = steps([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 7), (7, 8)], 1)
    behind = [
        line
        for line in steps(
            [(0, 1.1), (1.1, 2.1), (2.1, 3.1), (3.1, 4.1), (4.1, 5.1), (5.1, 7.1), (7.1, 8.1)]
        )
        if line["rank"]
    ]
    run = write(tmp_path, journal, [*ahead, *behind], end=8.1)
    seen = cost.figures(Failures(run))
    assert seen is not None and seen.extra_ns == near(
        8.1 * NET_S - 5.1 * NET_S - 2 * seen.healthy_step_ns
    )


def test_the_first_step_begins_when_all_ranks_are_warm(tmp_path: Path) -> None:
    """Rank 0 is half a step ahead from the first: the measured steps take 1 s each, however early
    it began them."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 6.6), ("heal", 6.7))
    ahead = steps([(k, k + 1) for k in range(8)], 1)
    behind = [line for line in steps([(k + 0.5, k + 1.5) for k in range(8)]) if line["rank"]]
    seen = cost.figures(
        Failures(write(tmp_path, journal, [*ahead, *behind], end=8.5, warmup_steps=1, steps=7))
    )
    assert seen is not None and (seen.healthy_steps, seen.healthy_step_ns) == (5, NET_S)
    assert (seen.extra_ns, seen.noise_ns, seen.slowdown) == (0, 0, 1)


def test_of_several_jobs_the_first_has_a_cost(tmp_path: Path) -> None:
    """Steps of 1 s, but 1.5 s in the outage, beside steps of 2 s. Theory knows nothing of what they
    compute."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 5.2), ("heal", 5.3))
    spans = {0: chain(1, 1, 1, 1, 1, 1.5, 1), 2: chain(2, 2, 2, 2)}
    lines = [
        {
            "t": at(b),
            "kind": "told",
            "host": host,
            "note": {"step": [0, k, at(a) / 10**12, at(b) / 10**12, 0, 0]},
        }
        for first, each in spans.items()
        for host in (first, first + 1)
        for k, (a, b) in enumerate(each)
    ]
    jobs = [
        {"name": name, "ranks": ranks, "compute_ps": 0, "estimate_ps": 0}
        for name, ranks in (("quick", [0, 1]), ("slow", [2, 3]))
    ]
    run = write(
        tmp_path,
        journal,
        [*lines, *payload([(0, 8, 1000)])],
        end=8.0,
        workload="job",
        jobs=jobs,
        steps=7,
    )
    seen = cost.figures(Failures(run))
    assert seen is not None and (seen.healthy_steps, seen.healthy_step_ns, seen.steps) == (
        5,
        NET_S,
        7,
    )
    assert seen.extra_ns == near(0.5 * NET_S) and seen.slowdown == near(1.5) and seen.noise_ns == 0
    assert (seen.ideal_extra_ns, seen.goodput_kept) == (None, None)
    (row,) = costs(
        [made(Entry, transport="mrc", failure_cost=seen, jobs={"quick": {}, "slow": {}})]
    )
    heads = [head for head, _ in columns([row])]
    assert "theory" not in heads and not any("Theory" in note for note in footnotes([row]))
    assert "Of several jobs, the first: quick." in footnotes([row])


def test_unknown_is_none(tmp_path: Path) -> None:
    """Never healed and nothing before: no pace to compare with. Ended early: no cost, and said so.
    A slow link: no theory."""
    lasting = fault("f", "port", "h1-p0", [HALF], ("begin", 0.5))
    seen = took(tmp_path / "a", lasting, chain(1, 1))
    assert seen.healthy_from is None and seen.extra_ns is None and seen.finished
    begun = fault("f", "port", "h1-p0", [HALF], ("begin", 1.5))
    ended = took(tmp_path / "b", begun, chain(1, 1, 1), outcome="failed")
    assert not ended["finished"] and ended["healthy_step_ns"] == NET_S and ended["extra_ns"] is None
    short = took(tmp_path / "c", begun, chain(1, 1, 1), steps=9)
    assert (
        not short["finished"]
        and short["extra_ns"] is None
        and short["unknown"] == "it did not finish"
    )
    slow = took(
        tmp_path / "d", fault("f", "slow", CUT, [CUT], ("begin", 5.5)), chain(1, 1, 1, 1, 1, 1, 2)
    )
    assert slow["extra_ns"] == near(1 * NET_S) and slow["ideal_extra_ns"] is None


def test_without_faults_there_is_no_cost(tmp_path: Path) -> None:
    assert cost.figures(Failures(write(tmp_path / "a", [], steps(chain(1, 1)), end=2))) is None
    late = fault("f", "port", "h1-p0", [HALF], ("begin", 30.0))
    assert cost.figures(Failures(write(tmp_path / "b", late, steps(chain(1, 1)), end=2))) is None
    assert costs([made(Entry, failure_cost=None)]) == []


@pytest.mark.parametrize(
    ("work", "begin", "marks", "paces", "took_ns"),
    [
        (100, 0, [], [1.0], 100),
        (100, 0, [50], [1.0, 0.5], 150),
        (100, 0, [50, 90], [1.0, 0.5, 1.0], 120),
        (100, 60, [50, 90], [9.0, 1.0, 0.5], 170),
        (100, 0, [50, 80], [1.0, 0.0, 1.0], 130),
        (100, 0, [50], [1.0, 0.0], None),
    ],
)
def test_paced(
    work: float, begin: int, marks: list[int], paces: list[float], took_ns: float | None
) -> None:
    assert (
        cost.duration_at_pace(work, begin, marks, lambda t: paces[sum(t >= mark for mark in marks)])
        == took_ns
    )


# --- flows ----------------------------------------------------------------------------------------

STREAM = Flow("s", "flows", 1, 2, 0, 20 * S, None, 0)


def flow_bins(
    rates: list[tuple[float, float, float]], bin_ps: int = 100 * MS
) -> list[dict[str, Any]]:
    """(from, to, bytes per bin)."""
    return [
        {"t": at(0) + i * bin_ps, "kind": "flow", "host": 2, "flow": 0, "bin_ps": bin_ps, "rx": rx}
        for a, b, rx in rates
        for i in range(round(a * S / bin_ps), round(b * S / bin_ps))
    ]


def test_bytes_not_delivered_and_when_the_flow_was_back(tmp_path: Path) -> None:
    """10 kB/s before; nothing for 3 s, half until the port is back at 15 s, which is all that
    theory leaves it, then all."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 10), ("heal", 15))
    run = write(
        tmp_path,
        journal,
        flow_bins([(0, 10, 1000), (10, 13, 0), (13, 15, 500), (15, 20, 1000)]),
        flows=[STREAM],
    )
    seen = cost.figures(Failures(run))
    assert seen is not None and seen.flows == 1
    assert (
        seen.undelivered_bytes == 30_000 + 10_000
        and seen.extra_ns == near(4 * NET_S)
        and seen.extra_percent == near(40)
    )
    assert seen.ideal_extra_ns == near(2.5 * NET_S)
    assert seen.goodput_kept == near(0.2), "500 B in 2 of 5 s" and seen.noise_ns == near(0)
    before = 1000 * 8e9 / (0.1 * NET_S)
    assert (seen.before_bps, seen.during_bps, seen.after_bps) == (
        near(before),
        near(0.2 * before),
        near(before),
    )
    # the window may begin up to a tenth of itself early, and one step late
    width = cost.BACK_RTTS * NET_RTT
    assert 3 * NET_S - 0.1 * width <= seen.back_ns <= 3 * NET_S + 0.1 * width


def test_how_uneven_a_flow_was_before_is_its_noise(tmp_path: Path) -> None:
    """1000 B a bin on average before, in parts of 2 s 900 at the least: 10 % of the 10 s since are
    1 s, more than the 0.5 s it lost."""
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 10), ("heal", 15))
    before = [(2.0 * i, 2.0 * i + 2, rx) for i, rx in enumerate((900, 1050, 1000, 1050, 1000))]
    seen = cost.figures(
        Failures(write(tmp_path, journal, flow_bins([*before, (10, 20, 950)]), flows=[STREAM]))
    )
    assert seen is not None

    def rate(begin: float, end: float) -> float:
        return sum(rx * max(0.0, min(b, end) - max(a, begin)) for a, b, rx in before) / (
            end - begin
        )

    settled = 20 * RTT / S  # the first base RTTs are left out, and the rest is cut into five
    edges = [settled + i * (10 - settled) / 5 for i in range(6)]
    off = max(abs(rate(a, b) / rate(settled, 10) - 1) for a, b in pairwise(edges))
    assert seen.noise_share == near(off, 1e-4) and seen.noise_ns == near(10 * NET_S * off, 1e-4)
    (row,) = costs([made(Entry, transport="x", failure_cost=seen)])
    heads = dict(columns([row]))
    assert (
        row.within_noise
        and heads["extra time"](row).startswith("within noise\n(±")
        and heads["not delivered"](row) == "–"
    )


def test_a_flow_that_never_comes_back(tmp_path: Path) -> None:
    journal = fault("f", "port", "h1-p0", [HALF], ("begin", 10))
    seen = cost.figures(
        Failures(
            write(tmp_path, journal, flow_bins([(0, 10, 1000), (10, 20, 400)]), flows=[STREAM])
        )
    )
    assert (
        seen is not None
        and seen.back_ns is None
        and seen.undelivered_bytes == 60_000
        and seen.after_bps is None
    )
    (row,) = costs([made(Entry, transport="x", failure_cost=seen)] * 2)
    assert row.back_ns is None and row.of_flows and row.n == 2
