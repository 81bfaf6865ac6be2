"""Orders the runs of a scenario, and groups those that belong together."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.run.one_run import Spec
from scenarios.run.timeline import check_used_edge
from scenarios.schema.scenario import SINGLE_PATH, USED_BY_QP, Scenario, ScenarioError, Transport
from scenarios.schema.workloads import edges_of
from testbed.world import SIMULATED
from topologies.theory import place_ranks

MAX_KEY = 200
"""A run's name is part of file names, which may have 255 bytes (NAME_MAX) [ours]."""


def plan(scenario: Scenario) -> list[Spec]:
    """Return all runs by seed, setting, placement, fabric and transport: a drift of the machine
    hits all transports alike.

    Fabrics come in reverse order every other time, so that the one that is up is used first.
    Transports take turns in being first, seed by seed. On each fabric a transport that can say
    which cable its QP uses runs before those that lose the same cable.
    """
    for variant in scenario.variants:
        check_used_edges(variant.scenario)
    specs: list[Spec] = []
    cases = [
        (variant, placement)
        for variant in scenario.variants
        for placement in variant.scenario.workload.placement
    ]
    blocks = ((turn, seed, *case) for turn, seed in enumerate(scenario.seeds) for case in cases)
    for number, (turn, seed, variant, placement) in enumerate(blocks):
        follows_qp = any(fault.on == USED_BY_QP for fault in variant.scenario.faults)
        fabrics = list(dict.fromkeys(t.fabric for t in variant.scenario.transports))
        for fabric in reversed(fabrics) if number % 2 else fabrics:
            transports = [t for t in variant.scenario.transports if t.fabric == fabric]
            transports = rotate(transports, turn, follows_qp)
            used: dict[int, str] = {}
            specs += [
                Spec(variant.scenario, transport, placement, seed, used, variant.settings)
                for transport in transports
            ]
    longest = max((spec.key.encode() for spec in specs), key=len)
    if len(longest) > MAX_KEY:
        problem = f"a run's name would have {len(longest)} bytes, more than {MAX_KEY}"
        raise ScenarioError(f"{scenario.file}: {problem}: shorten names or swept values")
    return specs


def rotate(transports: Sequence[Transport], turn: int, follows_qp: bool) -> list[Transport]:
    """If a fault follows a QP, the same transport always names the cable."""
    if not follows_qp:
        offset = turn % len(transports)
        return [*transports[offset:], *transports[:offset]]
    single_path = [t for t in transports if t.kind in SINGLE_PATH]
    multipath = [t for t in transports if t.kind not in SINGLE_PATH]
    return single_path[:1] + [
        t for group in (single_path[1:], multipath) if group for t in rotate(group, turn, False)
    ]


def check_used_edges(scenario: Scenario) -> None:
    """Raise :class:`ScenarioError` unless every "used-by-qp" fault has a pair with a QP, wherever
    the scenario runs."""
    for fault in scenario.faults:
        if fault.on == USED_BY_QP:
            for fabric in dict.fromkeys(t.fabric for t in scenario.transports):
                for placement in scenario.workload.placement:
                    hosts = place_ranks(fabric, placement)
                    for seed in scenario.seeds:
                        check_used_edge(
                            fabric, hosts, fault, edges_of(scenario.workload, fabric, hosts, seed)
                        )


def blocks_of(specs: Sequence[Spec], world: str) -> list[list[Spec]]:
    """Group runs into *blocks*: what one process carries out, one run after the other.

    A block has all transports of a seed, setting, placement and fabric: a drift of the machine hits
    all, and a fault may hit the path that an earlier one used. Where no fault does, each simulated
    run is a block of its own.
    """
    blocks: dict[int, list[Spec]] = {}
    for spec in specs:
        together = world != SIMULATED or any(
            fault.on == USED_BY_QP for fault in spec.scenario.faults
        )
        blocks.setdefault(id(spec.used if together else spec), []).append(spec)
    return list(blocks.values())
