"""The paper's figures: the registry is whole, every scenario loads in both forms, and each verdict
can be reached on summaries by hand."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scenarios.run.planning import plan
from scenarios.schema.scenario import named_scenarios
from scenarios.sets import estimate
from scenarios.sets.paper import collectives, nic_ports, page
from scenarios.sets.paper.claims import (
    AGREES,
    AT_THRESHOLD,
    CANNOT,
    COMPUTED,
    DIFFERS,
    NO_DATA,
    Evidence,
    Row,
    bus_share,
    overall,
    value_of,
)
from scenarios.sets.paper.figure import HERE
from scenarios.sets.paper.figures import FIGURES, chosen, read_figures
from scenarios.sets.paper.lossless import SENDERS
from scenarios.sets.paper.operations import SPANS
from scenarios.sets.paper.plots import DRAW
from scenarios.sets.paper.registry import CLAIMS
from scenarios.sets.paper.series import by_claim, counts
from scenarios.sets.paper.statement import OF_PARTS, OF_RUNS, Statement
from scenarios.show.plots.style import looks
from testbed.errors import UserError
from testbed.results.summary import Run, Summary
from tests.made import made
from tests.scenarios import plays, synthetic
from topologies.structs import Refused

TEXTS = (HERE / "figures.toml").read_text(encoding="utf-8")
PARTS = [(figure, part) for figure in FIGURES for part in figure.parts]
IDS = [f"{figure.id}-{part.name}" for figure, part in PARTS]
SIZE, LOSS = collectives.SIZE, collectives.LOSS


# --- registry and scenarios -----------------------------------------------------------------------


def test_every_figure_of_the_paper_is_there_once() -> None:
    wanted = {
        "4",
        "5-7",
        "8",
        "9a",
        "9b",
        "9c",
        "9d",
        *(str(number) for number in range(10, 23)),
        "5.2.1",
    }
    wanted |= {"sizing", "endpoint", "ecmp", "planes", "operations"}
    assert {figure.id for figure in FIGURES} == wanted and len(FIGURES) == len(wanted)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], [figure.id for figure in FIGURES]),
        (["16"], ["16"]),
        (["18", "4"], ["4", "18"]),
        (["9"], ["9a", "9b", "9c", "9d"]),
        (["6"], ["5-7"]),
        (["Fig9B", "fig. 12"], ["9b", "12"]),
        (["5.2.1", "SIZING"], ["sizing", "5.2.1"]),
    ],
)
def test_figures_are_named_as_people_do(asked: list[str], found: list[str]) -> None:
    assert [figure.id for figure in chosen(asked)] == found


@pytest.mark.parametrize("asked", ["23", "9e", "", "5.2", "sizes"])
def test_a_figure_that_is_not_there_is_one_line(asked: str) -> None:
    with pytest.raises(UserError, match="there is no figure"):
        chosen([asked])


def test_scenarios_of_figures_are_run_by_their_file_only_and_say_what_they_show() -> None:
    # not fabrics
    files = {
        path.stem: data
        for path in HERE.glob("*.toml")
        if "workload" in (data := tomllib.loads(path.read_text()))
    }
    used = {
        part.scenario.removesuffix(".toml") for _, part in PARTS if part.scenario.endswith(".toml")
    }
    assert set(files) == used and not used & set(named_scenarios())
    assert all(data["description"] and data["expect"] for data in files.values())


@pytest.mark.parametrize(("figure", "part"), PARTS, ids=IDS)
def test_both_forms_load_and_run_the_same_things(figure: Any, part: Any) -> None:
    """The short form has less of the same: transports, options, fabrics, workload and kinds of
    faults are those of the full one."""
    full, quick = part.load(False), part.load(True)
    assert len(quick.seeds) == 1 < len(full.seeds)
    assert [(t.name, t.kind, t.options, t.qps, t.fabric) for t in full.transports] == [
        (t.name, t.kind, t.options, t.qps, t.fabric) for t in quick.transports
    ]
    assert full.workload.kind == quick.workload.kind and set(quick.workload.placement) <= set(
        full.workload.placement
    )
    kinds = [
        [
            (f.name, f.kind, f.on, {k: v for k, v in f.keys.items() if k != "probability"})
            for f in s.faults
        ]
        for s in (full, quick)
    ]
    assert kinds[0] == kinds[1]
    assert {v.settings.get(LOSS) for v in full.variants} == {
        v.settings.get(LOSS) for v in quick.variants
    }
    assert 0 < len(plan(quick)) < len(plan(full))
    colours = {colour for colour, _ in looks([(t.name, t.kind) for t in full.transports]).values()}
    assert len(colours) == len(full.transports)


def test_seeds_can_be_given() -> None:
    assert chosen(["18"])[0].parts[0].load(True, (7, 8)).seeds == (7, 8)


def test_the_full_set_fits_two_hours_and_the_short_one_twenty_minutes() -> None:
    full, quick = (estimate.seconds(FIGURES, form) for form in (False, True))
    assert 0 < sum(quick.values()) < 20 * 60 < sum(full.values()) < 2 * 3600
    # Fig 13 looks at Fig 12's runs
    assert full["13"] == estimate.FIGURE_S < full["12"] and full["sizing"] == 0
    assert estimate.seconds(chosen(["13"]), True)["13"] > 2 * estimate.FIGURE_S
    assert estimate.seconds(chosen(["9a"]), False, (1,))["9a"] < full["9a"] / 2


def test_an_estimate_follows_what_is_run() -> None:
    specs = plan(chosen(["16"])[0].parts[-1].load(False))
    worst = {
        (s.transport.name, s.settings[SIZE], s.settings[LOSS]): estimate.run_seconds(s, 12_500)
        for s in specs
    }
    assert worst["mrc", "4MiB", 0.0] < worst["mrc", "4MiB", 0.01] <= 180 + estimate.COLLECTIVE_S
    assert worst["mrc", "256KiB", 0.0] < worst["mrc", "4MiB", 0.0]
    (spec, *_) = plan(chosen(["9a"])[0].parts[0].load(True))
    assert estimate.run_seconds(spec, spec.scenario.dilation) == 36 + estimate.FLOWS_S


# --- verdicts -------------------------------------------------------------------------------------

RUN: dict[str, Any] = {
    "outcome": "done",
    "reason": "",
    "verdict": "ok",
    "distrust": [],
    "wrong": 0,
    "failed_steps": 0,
    "steps": 4,
    "qp_errors": 0,
    "placement": "interleaved",
    "seed": 1,
    "ranks": 8,
    "base_rtt_ns": 3_200,
    "dilation": 12_500.0,
    "untrimmed_loss": 0,
    "settings": {},
    "busbw_bps": 95.0,
    "ideal_busbw_bps": 100.0,
    "beside_background_busbw_bps": 97.0,
    "failovers": [
        {
            "last_on_dead_rtts": 2.0,
            "srtt_ns": 6_400,
            "losses_per_ev": 3,
            "lost": 12,
            "left_queue_pairs": 8,
            "outages_ns": [(0, 9_000)],
            "at_ns": 0,
            "detected_ns": 30_000,
            "delivered_ns": 40_000,
        },
    ],
    "last_on_dead_rtts": 0.5,
    "ev_loss_excess": 0,
    "outside_busbw_share": 0.98,
    "whole_busbw_share": 0.96,
    "outside_busbw": [{"theory_bps": 75.0}],
    "step_p99_over_theory": 1.1,
    "failure_cost": {
        "extra_ns": 2e9,
        "ideal_extra_ns": 2e9 - 20e3,
        "healthy_step_ns": 4e9,
        "steps": 4,
        "extra_percent": 12.5,
        "slowdown": 1.08,
        "before_bps": 100.0,
        "during_bps": 75.0,
    },
    "flaps": [{"n": 4, "back": 4, "out_ns": 320e3}, {"n": 4, "back": 1, "out_ns": 640e3}],
    "ports": [{"phase": "down", "live": 3, "expected": 0.75, "share": 0.74, "error": 0.01}],
    "port_down_error": 0.01,
    "port_down_rtts": 4.0,
    "port_back_rtts": 9.0,
    "plane_deviation": 0.001,
    "rotation": {
        "sent_packets": [1_000, 1_005],
        "apart": 0.005,
        "apart_allowed": 0.005,
        "repeats": 0.0,
    },
    "expectations": {"evs_least": 32, "evs_most": 32, "evs_in_turn": 1.0},
    "dead_at_start": {
        "evs": 16,
        "found": 16,
        "missed": 0,
        "found_ns": 16_000,
        "lost": 8,
        "lost_again": 0,
        "ev_loss_excess": 0,
    },
    "kept_during": 0.995,
    "kept_late": 0.995,
    "kept_after": 0.995,
    "lossy_paths": [
        {"used_after_loss_ns": 0, "losses_before_inactive": 1, "other_plane": 0, "replaced_by": [3]}
    ],
    "groups": {
        "flows": {"min_share": 0.985, "of_line": 0.998, "message_ns": {"p50": 2_400}},
        "incast": {"of_line": 0.99, "jain": 0.99},
        "victim": {"kept": 0.99, "of_line": 0.97},
    },
    "separations": [{"separated_rtts": 12.0, "after": 0.6}],
}


def run(
    transport: str = "mrc", settings: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {**copy.deepcopy(RUN), "transport": transport, "settings": settings or {}, **more}


def kept(value: float) -> dict[str, Any]:
    return {**copy.deepcopy(RUN["groups"]), "victim": {"kept": value}}


def sweep(shares: dict[tuple[str, float], tuple[float, float]]) -> list[dict[str, Any]]:
    """(transport, loss) -> shares of ideal at the smallest and the largest size."""
    return [
        run(transport, {SIZE: size, LOSS: loss}, busbw_bps=100 * share)
        for (transport, loss), pair in shares.items()
        for size, share in zip(("256KiB", "4MiB"), pair, strict=True)
    ]


GOOD_RING = {
    ("mrc", 0.0): (0.6, 0.96),
    ("mrc", 0.001): (0.4, 0.92),
    ("mrc", 0.01): (0.2, 0.35),
    ("roce-1p", 0.0): (0.5, 0.5),
    ("roce-1p", 0.001): (0.2, 0.3),
    ("roce-1p", 0.01): (0.02, 0.05),
    ("roce-16", 0.0): (0.6, 0.8),
    ("roce-16", 0.001): (0.3, 0.5),
    ("roce-16", 0.01): (0.03, 0.06),
    ("roce-8", 0.0): (0.6, 0.75),
}
BAD_RING = {
    ("mrc", 0.0): (0.5, 0.7),
    ("mrc", 0.001): (0.5, 0.4),
    ("mrc", 0.01): (0.4, 0.6),
    ("roce-1p", 0.0): (0.9, 0.7),
    ("roce-1p", 0.001): (0.6, 0.7),
    ("roce-1p", 0.01): (0.6, 0.7),
    ("roce-16", 0.0): (0.6, 0.8),
    ("roce-16", 0.001): (0.6, 0.8),
    ("roce-16", 0.01): (0.6, 0.8),
    ("roce-8", 0.0): (0.6, 0.6),
}
GOOD_ALL = {
    ("mrc", 0.0): (0.6, 0.9), ("mrc", 0.001): (0.55, 0.88), ("mrc", 0.01): (0.3, 0.6),
    ("roce-1p", 0.0): (0.5, 0.8), ("roce-1p", 0.001): (0.2, 0.76), ("roce-1p", 0.01): (0.1, 0.2),
    ("roce-16", 0.0): (0.5, 0.78),
}  # fmt: skip
BAD_ALL = {
    ("mrc", 0.0): (0.6, 0.9), ("mrc", 0.001): (0.3, 0.88), ("mrc", 0.01): (0.3, 0.6),
    ("roce-1p", 0.0): (0.5, 0.5), ("roce-1p", 0.001): (0.5, 0.3), ("roce-1p", 0.01): (0.4, 0.4),
    ("roce-16", 0.0): (0.5, 0.9),
}  # fmt: skip

BAD: dict[str, Any] = {
    "wrong": 1,
    "failovers": [
        {
            "last_on_dead_rtts": 20.0,
            "srtt_ns": 6_400,
            "losses_per_ev": 9,
            "lost": 99,
            "left_queue_pairs": 30,
            "outages_ns": [(0, 9_000)],
            "at_ns": 0,
            "detected_ns": 130_000,
            "delivered_ns": None,
        },
    ],
    "last_on_dead_rtts": 2.0,
    "ev_loss_excess": 4,
    "outside_busbw_share": 0.6,
    "whole_busbw_share": 0.6,
    "step_p99_over_theory": 2.0,
    "flaps": [{"n": 4, "back": 0, "out_ns": None}],
    "port_down_error": 0.2,
    "port_down_rtts": 99.0,
    "port_back_rtts": 99.0,
    "plane_deviation": 0.2,
    "untrimmed_loss": 800,
    "rotation": {"sent_packets": [100, 105], "apart": 0.5, "apart_allowed": 0.005, "repeats": 0.1},
    "expectations": {"evs_least": 20, "evs_most": 40, "evs_in_turn": 0.5},
    "beside_background_busbw_bps": 50.0,
    "dead_at_start": {
        "evs": 16,
        "found": 15,
        "missed": 1,
        "found_ns": 16_000_000,
        "lost": 0,
        "lost_again": 3,
        "ev_loss_excess": 4,
    },
    "kept_during": 0.8,
    "kept_late": 0.8,
    "kept_after": 0.8,
    "lossy_paths": [
        {"used_after_loss_ns": 7, "losses_before_inactive": 3, "other_plane": 1, "replaced_by": []}
    ],
    "groups": {
        "flows": {"min_share": 0.5, "of_line": 0.6, "message_ns": {"p50": 7_200}},
        "incast": {"of_line": 0.5, "jain": 0.5},
        "victim": {"kept": 0.5, "of_line": 0.5},
    },
    "separations": [{"separated_rtts": 99.0, "after": 1.0}],
    "failure_cost": {
        **RUN["failure_cost"],
        "extra_ns": 6e9,
        "extra_percent": 37.5,
        "slowdown": 1.3,
        "during_bps": 50.0,
    },
}


def both(parts: tuple[str, ...]) -> dict[bool, dict[str, list[dict[str, Any]]]]:
    """good -> part -> runs of MRC at both placements."""
    return {
        good: {
            part: [
                run(placement=place, **({} if good else BAD)) for place in ("packed", "interleaved")
            ]
            for part in parts
        }
        for good in (True, False)
    }


def full_load(**shares: tuple[float, float]) -> list[dict[str, Any]]:
    """Transport -> (least flow, mean)."""
    return [
        run(_name(name), groups={"flows": {"min_share": least, "of_line": mean}})
        for name, (least, mean) in shares.items()
    ]


def victims(jain: float, **shares: float) -> list[dict[str, Any]]:
    """Transport -> what its victim keeps."""
    incast = {"jain": jain, "of_line": jain}
    made = {**shares, "mrc_no_penalty": 1.0}
    return [
        run(_name(name), groups={"incast": incast, "victim": {"kept": share, "of_line": share}})
        for name, share in made.items()
    ]


def one_by_one(fabric: str, *kept: float) -> list[dict[str, Any]]:
    """Two of four uplinks, one inside the time of the other, then two at once: what is kept during
    each of the three faults."""
    ms = 1_000_000
    faults = [(10, 110, ["a"]), (60, 80, ["b"]), (200, 300, ["a", "b"])]
    failovers = [
        {"at_ns": begin * ms, "healed_ns": end * ms, "links": links, "kept_during": share}
        for (begin, end, links), share in zip(faults, kept, strict=True)
    ]
    return [run(settings={"fabric": fabric}, failovers=failovers)]


def spread(share: float) -> dict[str, Any]:
    return {"permutation": {"of_line": share}}


def _name(key: str) -> str:
    return key.replace("_", "-") if key.startswith("mrc") else f"roce-{key.replace('_', '-')}"


ENDS = [{"workload.flow.pair.dst": "h1"}, {"workload.flow.pair.dst": "h2"}]
CASES: dict[str, dict[bool, dict[str, list[dict[str, Any]]]]] = {
    "4": both(("main", "cable")),
    **{id: both(("main",)) for id in ("9b", "13")},
    **{id: both(("main", "pair")) for id in ("9c", "9d", "11")},
    "9a": both(("main", "pair", "job")),
    "5-7": both(("t0-t1", "wide", "optic", "pair", "technician")),
    "8": both(("main", "reboots", "pair")),
    "10": {
        good: {
            **both(("main",))[good],
            "pair": [run(kept_during=share, kept_after=share + 0.1, wrong=0 if good else 1)],
        }
        for good, share in ((True, 0.87), (False, 0.8))
    },
    "12": {
        good: {
            **both(("main",))[good],
            "pair": [run(settings={LOSS: rate}, **({} if good else BAD)) for rate in (0.01, 0.2)],
        }
        for good in (True, False)
    },
    "14": {
        good: {
            **both(("marks",))[good],
            "main": [run(**{**({} if good else BAD), "separations": [{"after": after}]})],
        }
        for good, after in ((True, 0.02), (False, 0.4))
    },
    "5.2.1": {
        good: {
            "latency": [
                run(settings=end, groups={"flows": {"message_ns": {"p50": p50}}})
                for end, p50 in zip(ENDS, times, strict=True)
            ],
            "bandwidth": [run(settings=end, **({} if good else BAD)) for end in ENDS],
        }
        for good, times in ((True, (5_090, 6_540)), (False, (5_090, 5_100)))
    },
    "15": {
        good: {
            "main": [
                run(settings={SIZE: s}, busbw_bps=b) for s, b in (("64KiB", low), ("4MiB", high))
            ]
        }
        for good, low, high in ((True, 30.0, 96.0), (False, 95.0, 90.0))
    },
    "16": {
        good: {part: sweep(shares) for part in ("main", "eight")}
        for good, shares in ((True, GOOD_RING), (False, BAD_RING))
    },
    "17": {
        good: {
            "main": sweep(shares),
            "pod": [run("mrc", {SIZE: "4MiB"}), run("roce-1p", {SIZE: "4MiB"}, busbw_bps=roce)],
        }
        for good, shares, roce in ((True, GOOD_ALL, 90.0), (False, BAD_ALL, 99.0))
    },
    "19": {
        True: {
            "pair": [
                *one_by_one("cluster-d", 0.99, 0.98, 1.0),
                *one_by_one("cluster-d-100.toml", 0.69, 0.49, 0.5),
            ]
        },
        False: {
            "pair": [
                *one_by_one("cluster-d", 0.99, 0.7, 1.0),
                *one_by_one("cluster-d-100.toml", 0.63, 0.3, 0.5),
            ]
        },
    },
    "22": {
        good: {
            "main": [
                run(
                    name,
                    {SENDERS: count},
                    groups={"incast": {"of_line": used, "queue_mean_bytes": queue}},
                    pfc={"pauses": pauses},
                )
                for name, used in zip(("default", "nvidia", "often"), shares, strict=True)
                for count, pauses in ((2, few), (15, many))
            ]
        }
        for good, shares, queue, few, many in (
            (True, (0.99, 0.9, 0.8), 3e5, 0, 40),
            (False, (0.9, 0.9, 0.8), 3e6, 7, 0),
        )
    },
    "endpoint": {
        good: {
            "evs": [run(**({} if good else BAD))],
            "incast": [
                run(
                    "mrc",
                    untrimmed_loss=bad,
                    false_bad=bad,
                    packets={"trimmed": 9 - bad},
                    hops={"last_hop": {"marked": bad, "trimmed": 9 - bad}},
                ),
                run("mrc-no-trim", untrimmed_loss=9 - bad, false_bad=9 - bad),
            ],
            "reverse": [
                run("mrc", packets={"lost": 90}),
                run("mrc-no-probes", packets={"lost": 900 if good else 90}),
            ],
        }
        for good, bad in ((True, 0), (False, 9))
    },
    "ecmp": {
        good: {
            "load": [run("mrc", groups=spread(srv6)), run("mrc-ecmp", groups=spread(hashed))],
            "main": [
                run(name, step_time_ns={"max": ns})
                for name, ns in zip(("mrc", "mrc-ecmp", "mrc-ecmp-static"), slowest, strict=True)
            ],
            "moved": [
                run(name, step_time_ns={"max": ns})
                for name, ns in zip(
                    ("mrc-ecmp-resilient", "mrc-ecmp", "mrc-ecmp-static"), slowest, strict=True
                )
            ],
        }
        for good, srv6, hashed, slowest in (
            (True, 0.97, 0.93, (200e3, 260e3, 250e3)),
            (False, 0.5, 0.3, (200e3, 180e3, 190e3)),
        )
    },
    "planes": {
        good: {
            "main": [
                run("mrc", **more),
                run("mrc-strict", outside_busbw_share=share, degraded_busbw_bps=50.0),
            ],
            "all-to-all": [run(**more)],
            "beside": [run(**more)],
        }
        for good, more, share in ((True, {}, 0.99), (False, BAD, 1.1))
    },
    "operations": {
        good: {
            "nic": [
                *(
                    run(name, packets={"lost": lost}, kept_late=0.75)
                    for name in ("mrc", "mrc-strict")
                ),
                run(
                    "mrc-mapped",
                    packets={"lost": 100},
                    kept_late=late,
                    mapper={
                        "faults": [{"named": bool(named), "named_ns": 2e5 if named else None}],
                        "wrong": wrong,
                    },
                ),
            ],
            "millisecond": [
                run(
                    "mrc-mapped-1ms",
                    mapper={"faults": [{"named_ns": 1.2e7 if good else 5e7}], "wrong": wrong},
                )
            ],
            "transceiver": [
                run(settings={"fault.0.for": span}, qp_errors=errors) for span in SPANS
            ],
            "start": [
                run("mrc", untrimmed_loss=50 if good else 0),
                run(
                    "mrc-mapped",
                    untrimmed_loss=0 if good else 7,
                    mapper={"denied_at_start": 1 + named, "wrong": wrong},
                ),
            ],
            "down": [
                run(
                    "mrc-mapped",
                    mapper={"faults": [{"named_ns": 1e4 if good else None}], "wrong": wrong},
                )
            ],
        }
        for good, lost, late, named, wrong, errors in (
            (True, 500, 0.75, 1, 0, 2),
            (False, 120, 0.5, 0, 1, 0),
        )
    },
    "18": {
        good: {
            "main": [
                run(name, **({} if good else BAD)) for name in ("mrc", "mrc-no-penalty", "mrc-1p")
            ]
        }
        for good in (True, False)
    },
    "20": {
        True: {
            "main": full_load(
                mrc=(0.998, 0.999),
                pfc=(0.33, 0.6),
                pfc_8=(0.6, 0.7),
                dcqcn=(0.4, 0.6),
                dcqcn_8=(0.6, 0.8),
            )
        },
        False: {
            "main": full_load(
                mrc=(0.7, 0.9),
                pfc=(0.8, 0.9),
                pfc_8=(0.6, 0.7),
                dcqcn=(0.1, 0.6),
                dcqcn_8=(0.6, 0.6),
            )
        },
    },
    "21": {
        True: {"main": victims(0.99, mrc=1.0, mrc_8=0.99, pfc=0.2, dcqcn=0.75, dcqcn_8=0.9)},
        False: {"main": victims(0.9, mrc=0.8, mrc_8=1.2, pfc=0.8, dcqcn=0.95, dcqcn_8=0.9)},
    },
}


def evidence(parts: dict[str, list[dict[str, Any]]]) -> Evidence:
    return Evidence({name: made(Summary, runs=runs) for name, runs in parts.items()})


def judged(claim: int, ok: bool | None) -> Row:
    numbers = {"value": "mrc flap_growth" if ok is None else "mrc seed"}
    return Statement(
        claim, "text", seen="seen", numbers=numbers, holds=f"value == {int(ok or 0)}"
    ).judged(evidence({"main": [run()]}))


def test_what_dcqcn_has_not_settled_is_said_beside_the_figure() -> None:
    level, moving = (
        {"dcqcn": {"settled_ns": 2e6, "waited_ns": 3e6, "level": so}} for so in (True, False)
    )
    runs = [
        run("roce", run="a", **level),
        run("roce", run="b", seed=2, **moving),
        run("other", run="c", **moving),
        run("mrc", run="d", seed=4),
    ]
    seen = {
        name: Statement(
            1, "text", seen="{value}", numbers={"value": f"{name} seed"}, holds="value > 0"
        )
        .judged(evidence({"main": runs}))
        .seen
        for name in ("mrc", "roce")
    }
    assert seen == {"mrc": "4.0", "roce": "1.5; DCQCN unsettled in 1 of 2 runs"}


def verdicts(id: str, parts: dict[str, list[dict[str, Any]]]) -> list[Row]:
    return [row for row in chosen([id])[0].evaluate(evidence(parts)) if row.verdict != CANNOT]


@pytest.mark.parametrize("id", CASES)
def test_agrees_where_it_agrees(id: str) -> None:
    rows = verdicts(id, CASES[id][True])
    assert rows and {row.verdict for row in rows} == {AGREES}, [
        (r.claim, r.seen, r.verdict) for r in rows if r.verdict != AGREES
    ]
    assert all(row.why == "" and row.seen and row.asked for row in rows)


@pytest.mark.parametrize("id", CASES)
def test_differs_where_it_differs_and_says_why(id: str) -> None:
    rows = verdicts(id, CASES[id][False])
    assert {row.verdict for row in rows} == {DIFFERS}, [
        (r.claim, r.seen, r.verdict) for r in rows if r.verdict != DIFFERS
    ]
    assert all(row.why for row in rows)


@pytest.mark.parametrize("id", CASES)
def test_each_number_that_is_judged_can_fail(id: str) -> None:
    for name, statement in chosen([id])[0].statements.items():
        for left in {
            condition.split()[0]
            for condition in statement.holds.split(", ")
            if not statement.cannot
        }:
            only = ", ".join(
                condition
                for condition in statement.holds.split(", ")
                if condition.split()[0] == left
            )
            assert (
                replace(statement, holds=only).judged(evidence(CASES[id][False])).verdict == DIFFERS
            ), f"{id}.{name}: {only}"


def test_near_its_bound_is_no_verdict() -> None:
    def of(kept: list[float], holds: str = "value >= 0.98", seeds: int = 1) -> Row:
        runs = [
            run(seed=seed + 10 * i, kept_after=value)
            for i in range(seeds)
            for seed, value in enumerate(kept)
        ]
        it = Statement(
            seen="{value:.2f}",
            why="it was so",
            numbers={"value": "mrc kept_after", "seed": "mrc seed"},
            holds=holds,
        )
        return it.judged(evidence({"main": runs}))

    assert (row := of([0.99, 0.97, 0.995])).verdict == AT_THRESHOLD and (
        row.low,
        row.high,
        row.n,
    ) == (0.97, 0.995, 3)
    assert (
        row.why.startswith("the range over seeds lies on both sides of the bound")
        and "it was so" in row.why
    )
    assert of([0.99, 0.97, 0.96]).verdict == AT_THRESHOLD  # whatever the median
    assert of([0.99, 0.98, 0.995]).verdict == AGREES and of([0.97, 0.96]).verdict == DIFFERS
    assert of([0.99]).verdict == AGREES and of([0.99]).low is None
    nine = [0.99, 0.99, 0.99, 0.99, 0.99, 0.99, 0.99, 0.99, 0.97]
    assert of(nine).verdict == AGREES  # the 95 % interval leaves the least and the largest out
    assert of(nine, "value >= 0.98, seed > 9").verdict == DIFFERS  # one that clearly fails decides
    assert of([0.99, 0.97], "value == 0.97").verdict == DIFFERS  # of a count nothing is near
    assert (
        overall([AGREES, AT_THRESHOLD, COMPUTED, CANNOT]) == AT_THRESHOLD
        and overall([COMPUTED]) == COMPUTED
    )


@pytest.mark.parametrize("id", CASES)
def test_without_runs_nothing_is_claimed(id: str) -> None:
    assert {row.verdict for row in verdicts(id, {})} == {NO_DATA}
    failed = {
        part: [{**r, "outcome": "died", "busbw_bps": None} for r in runs]
        for part, runs in CASES[id][True].items()
    }
    # of runs that died nothing is to be concluded
    assert AGREES not in {row.verdict for row in verdicts(id, failed)}


@pytest.mark.parametrize(
    ("id", "more", "text"),
    [
        (
            "9a",
            {
                "port_back_rtts": None,
                "ports": [{"phase": "up", "live": 4, "expected": 1.0, "share": 0.5}],
            },
            "never",
        ),
        (
            "13",
            {
                "lossy_paths": [
                    {
                        "used_after_loss_ns": None,
                        "losses": 9,
                        "losses_before_inactive": 9,
                        "other_plane": 0,
                        "replaced_by": [3],
                    }
                ]
            },
            "packets to the end",
        ),
    ],
)
def test_what_never_came_differs(id: str, more: dict[str, Any], text: str) -> None:
    (row,) = [
        row
        for row in verdicts(id, {part: [run(**more)] for part in ("main", "marks")})
        if text in row.seen
    ]
    assert row.verdict == DIFFERS and row.to_dict()["value"] is None  # JSON has no infinity


def test_a_lossy_path_that_is_never_left_differs_at_any_rate() -> None:
    paths = [
        {
            "used_after_loss_ns": None,
            "losses": 9,
            "losses_before_inactive": 9,
            "other_plane": 0,
            "replaced_by": [],
        }
    ]
    runs = [run(settings={LOSS: 0.01}), run(settings={LOSS: 0.5}, lossy_paths=paths)]
    (row,) = [row for row in verdicts("12", {"pair": runs}) if row.verdict == DIFFERS]
    assert (
        row.claim.endswith("the lossy EV is inactive at once")
        and row.seen == "never ns in the worst of 2 runs"
    )


def test_of_runs_that_were_stopped_nothing_is_concluded() -> None:
    stopped, late = (
        verdicts("10", {part: [run(outcome=outcome)] for part in ("main", "pair")})
        for outcome in ("interrupted", "timeout")
    )
    assert {row.verdict for row in stopped} == {NO_DATA}
    assert late[0].verdict == DIFFERS and "1 wrong, failed or in error" in late[0].seen


def test_every_claim_of_the_paper_is_there_once_and_has_evidence_or_a_reason() -> None:
    assert [claim.number for claim in CLAIMS] == list(range(1, 38)) and all(
        claim.source and claim.text.endswith(".") for claim in CLAIMS
    )
    statements = [statement for figure in FIGURES for statement in figure.statements.values()]
    assert {statement.claim for statement in statements} == set(range(1, 38))
    assert all(
        it.text and bool(it.cannot) != bool(it.asked and it.seen and it.unit) for it in statements
    )


def test_texts_are_used_and_no_other_is_asked_for() -> None:
    for figure in FIGURES:
        rows = figure.evaluate(Evidence())  # every name in a text or a condition has a number
        assert [row.claim for row in rows] == [
            statement.text for statement in figure.statements.values()
        ]
        # what is computed needs no run
        assert figure.parts or {row.verdict for row in rows} == {COMPUTED}
        statements = figure.statements.values()
        assert all(bool(it.holds) != bool(it.cannot) for it in statements)
        assert {it.part for it in statements} <= {"", *(part.name for part in figure.parts)}
    words, shared, figures = (tomllib.loads(TEXTS)[key] for key in ("words", "shared", "figure"))
    assert set(shared) <= {
        table.get("like") for figure in figures.values() for table in figure["says"].values()
    }
    assert all(f"{{{word}}}" in TEXTS for word in words)
    every = [statement for figure in FIGURES for statement in figure.statements.values()]
    assert {it.by for it in every} == {"", *OF_PARTS}
    assert set(OF_RUNS) <= {
        words.split()[1] for it in every for words in it.numbers.values() if " " in words
    }


@pytest.mark.parametrize(
    ("holds", "kept", "verdict"),
    [
        ("value >= 0.5, value <= 3/4", 0.75, AGREES),
        ("value >= 0.5, value <= 3/4", 0.76, DIFFERS),
        ("value < seed, value > 0", 0.5, AGREES),
        ("value < seed, value > 0", 1, DIFFERS),
        ("value == 1, seed == 1", None, NO_DATA),
        ("value == 1, seed == 2", None, DIFFERS),  # whatever is not known
    ],
)
def test_conditions(holds: str, kept: float | None, verdict: str) -> None:
    it = Statement(
        seen="{value:at .0% of it}{seed:+.0f}",
        numbers={"value": "mrc kept_after", "seed": "mrc seed"},
        holds=holds,
    )
    row = it.judged(evidence({"main": [run(kept_after=kept)]}))
    assert (
        row.verdict == verdict
        and row.seen == ("+1" if kept is None else f"at {100 * kept:.0f} % of it+1")
        and row.value == kept
    )


def test_numbers_are_of_a_part_its_settings_and_of_each_other() -> None:
    numbers = {
        "a": "roce kept_after size=1",
        "b": "roce kept_after placement=packed",
        "value": "a / b",
        "less": "a - b",
        "both": "a + b",
        "none": "c / b",
    }
    runs = [
        run("roce", {"size": size}, kept_after=kept, placement=place)
        for size, kept, place in (("1", 6, "interleaved"), ("2", 3, "packed"))
    ]
    it = Statement(
        part="x",
        seen="{value} {less} {both} {none:.0f}",
        numbers={"c": "mrc kept_after", **numbers},
        holds="value > 0",
    )
    assert it.judged(evidence({"x": runs})).seen == "2.0 3.0 9.0 –"
    with pytest.raises(KeyError):
        Statement(seen="{value}", numbers={"value": "nothing"}).judged(Evidence())


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("unit = ", "unti = ", "shared.rides.unti is not a key: did you mean 'unit'?"),
        ('draw = "loads"', 'draw = "load"', "figure.ecmp.draw = 'load': there are"),
        ('like = "rides"', 'like = "ride"', "figure.4.says.rides.like = 'ride': there are"),
        ('by = "ride"', 'by = "rides"', "shared.rides.by = 'rides': there are"),
        (
            'holds = "value == 0"',
            'holds = "value = 0"',
            "shared.rides.holds = 'value = 0' must be conditions like",
        ),
    ],
)
def test_texts_are_checked(right: str, wrong: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        read_figures(TEXTS.replace(right, wrong, 1))
    assert str(refused.value).startswith(f"figures.toml: {said}")


def test_claims_gather_their_evidence_from_all_figures() -> None:
    def figure(id: str, rows: list[Row], doubtful: int = 0) -> dict[str, Any]:
        return {
            "id": id,
            "rows": [row.to_dict() for row in rows],
            "parts": [{"not_trustworthy": doubtful}],
        }

    first = figure("8", [judged(7, True), judged(19, False)])
    second = figure("9c", [judged(7, True)], doubtful=1)
    by_number = {claim["number"]: claim for claim in by_claim([first, second])}
    assert len(by_number) == 37 and [row["figure"] for row in by_number[7]["evidence"]] == [
        "8",
        "9c",
    ]
    assert [row["doubtful"] for row in by_number[7]["evidence"]] == [False, True]
    assert [by_number[number]["verdict"] for number in (7, 19, 20)] == [AGREES, DIFFERS, NO_DATA]
    assert by_number[20]["why"] and not by_number[7]["why"]
    assert counts([first, second]) == {AGREES: 1, DIFFERS: 1, NO_DATA: 35}


def test_what_ran_out_of_time_counts_with_what_it_did() -> None:
    late = run("roce-16", {SIZE: "4MiB", LOSS: 0.01}, outcome="timeout", busbw_bps=None)
    main = [
        r
        for r in sweep(GOOD_RING)
        if (r["transport"], r["settings"]) != ("roce-16", late["settings"])
    ]
    (row,) = [
        r
        for r in verdicts("16", {"main": [*main, late]})
        if r.claim == "at 1 % loss RoCE is unusable"
    ]
    assert row.verdict == AGREES and "1 of 1 runs out of time" in row.seen and row.value == 0
    assert (
        bus_share(made(Run, **{**late, "outcome": "died"})) is None
        and bus_share(made(Run, **run(busbw_bps=50.0))) == 0.5
    )


def test_figures_of_runs_by_key() -> None:
    one = made(Run, failovers=[{"lost": 2}], groups={"victim": {"kept": 0.5}}, seed=3, delayed=True)
    assert value_of(one, "failovers.0.lost") == 2 and value_of(one, "groups.victim.kept") == 0.5
    for key in (
        "failovers.1.lost",
        "failovers.first",
        "groups.incast.kept",
        "busbw_bps",
        "delayed",
        "t0_ns",
        "groups",
        "no_such_key",
    ):
        assert value_of(one, key) is None
    assert value_of(one, lambda r: r.seed + 1) == 4


def test_medians_are_over_the_runs_asked_for() -> None:
    e = evidence(
        {
            "m": [
                run(settings={SIZE: s}, seed=n, busbw_bps=b)
                for s, n, b in (("a", 1, 10.0), ("a", 2, 30.0), ("b", 1, 90.0))
            ]
        }
    )
    assert (
        e.median("m", "mrc", "busbw_bps", {SIZE: "a"}) == 20
        and e.median("m", "mrc", "busbw_bps") == 30
    )
    assert (
        e.settings("m", SIZE) == ["a", "b"]
        and e.median("m", "roce", "busbw_bps") is None
        and e.median("x", "mrc", "busbw_bps") is None
    )


def test_overall() -> None:
    verdicts = [
        [judged(1, ok).verdict for ok in oks]
        for oks in ((True, True), (True, False, None), (True, None), ())
    ]
    assert [overall(v) for v in verdicts] == [AGREES, DIFFERS, NO_DATA, NO_DATA]


def test_an_incast_from_records_to_verdict(tmp_path: Path) -> None:
    """Through the real summary: the evaluation reads what the runner writes."""
    scenario = (figure := chosen(["18"])[0]).parts[0].load(True)
    shares = dict.fromkeys(("mrc", "mrc-no-penalty", "mrc-1p"), (0.95, 0.99))
    summary = synthetic.make(
        tmp_path,
        scenario,
        {name: plays.incast(fair, 1.2, left, 1) for name, (fair, left) in shares.items()},
    )
    assert [row.verdict for row in figure.evaluate(Evidence({"main": summary}))] == [AGREES] * 2 + [
        CANNOT
    ]
    from scenarios.figures.stored import Stored

    files = DRAW[figure.draw]({"main": Stored(tmp_path)}, tmp_path, "fig-18")
    assert [path.name for path in files] == ["fig-18.png", "fig-18.svg"] and all(
        path.stat().st_size > 5000 for path in files
    )


def test_a_ladder_shows_the_direction_that_is_farthest_off() -> None:
    phases = [
        ("down", 3, 0.74, 0.013),
        ("down", 3, 0.7, 0.06),
        ("down", 2, 0.5, 0.0),
        ("up", 3, 0.1, 0.9),
    ]
    ports = [
        {"phase": at, "live": live, "expected": 0.75, "share": share, "error": error}
        for at, live, share, error in phases
    ]
    shown = nic_ports.ladder(
        evidence({"main": [run(ports=ports), run(ports=ports[2:], seed=2)]}), "main"
    )
    assert shown == {
        "ladder": "3 ports: 70.0 %, 2 ports: 50.0 %",
        "expected": "3 ports: 75.0 %, 2 ports: 75.0 %",
    }


def test_a_page_shows_the_seeds_beside_a_number() -> None:
    row = judged(7, True).to_dict() | {"seen": "4 us", "unit": "us"}
    assert [text for text, _ in page._seen({**row, "low": 3.0, "high": 4.25, "n": 10})] == [
        "4 us",
        "\n3 to 4.25 us, 10 seeds",
        "",
    ]
    assert [text for text, _ in page._seen({**row, "low": None, "why": "so"})] == [
        "4 us",
        "",
        "\nso",
    ]
