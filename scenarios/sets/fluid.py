"""Measured steps of a results directory beside the fluid model's: ``mrcbed fluid --against DIR``.

Compared are ring all-reduces under MRC whose failures, if any, begin before the run and last: in one state of the network, as the model
has them. Other runs are left out, each with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures import results
from scenarios.figures.stored import AGAIN, read_json
from testbed.fluid.calibration import Calibration, Ring
from testbed.fluid.cluster import Cluster, State
from testbed.fluid.rates import flow_rates
from topologies import Fabric
from topologies.theory import ring_edges

BOUND = 0.05
"""Largest relative difference of median step times [ours]."""


@dataclass(frozen=True)
class Compared:
    """A run: its ring with the measured median step, or the reason why the model has no figure for it."""

    run: str
    ring: Ring | None
    left_out: str = ""

    def fluid_ns(self, calibration: Calibration) -> float | None:
        ring = self.ring
        return None if ring is None else calibration.ring_ns(ring.fabric, ring.ranks, ring.message_bytes, ring.slices, ring.rate)

    def difference(self, calibration: Calibration) -> float | None:
        """Of the model from the measurement, as a share of the latter."""
        fluid_ns = self.fluid_ns(calibration)
        return None if self.ring is None or fluid_ns is None else fluid_ns / self.ring.measured_ns - 1


def compare(directory: Path) -> list[Compared]:
    """Every run with steps. Raises :class:`scenarios.figures.stored.ResultsError` if files are missing or damaged."""
    frame = results.load(directory)
    scenario = read_json(directory / "manifest.json", AGAIN)["scenario"]
    compared = []
    for run in frame.summary["runs"]:
        times = frame.step_times.query("run == @run['run']")["time_ns"]
        if not len(times):
            continue
        why = _why_not(run, scenario)
        if why:
            compared.append(Compared(run["run"], None, why))
            continue
        record = read_json(directory / "raw" / run["run"] / "run.json", AGAIN)
        fabric = Fabric.from_dict({**record["fabric"], "dilation": run["dilation"]}).real
        rate = _rate(fabric, record["ranks"], record["fault_links"])
        slices, dead = int(scenario["workload"]["slices"]), len(record["fault_links"])
        ring = Ring(run["run"], fabric, len(record["ranks"]), int(record["message_bytes"]), slices, dead, rate, float(times.median()))
        compared.append(Compared(run["run"], ring))
    return compared


def _why_not(run: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    if run["kind"] != "mrc":
        return f"{run['kind']}: the model knows MRC alone"
    if run["workload"] != "ring-allreduce":
        return f"{run['workload']}: the model knows ring all-reduces alone"
    if any(not fault["before"] or fault["for_ns"] is not None for fault in scenario["faults"]):
        return "its faults come and go during the run"
    if any(fault["kind"] not in ("link", "port", "dead-paths") for fault in scenario["faults"]):
        return "it has faults other than links, ports and dead paths"
    return ""


def _rate(fabric: Fabric, ranks: Sequence[int], dead: Sequence[str]) -> float:
    """Bits/s on the wire of the ring's slowest flow."""
    state = State.healthy(Cluster.of_fabric(fabric))
    for name in dead:
        state.cut(fabric.link(name))
    senders, receivers = np.array(ring_edges(ranks)).T
    return float(flow_rates(state, senders, receivers).min())
