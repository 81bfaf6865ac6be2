"""Measured steps of a results directory beside the fluid model's: ``mrcbed fluid --against DIR``.

Compared are ring all-reduces under MRC whose failures, if any, begin before the run and last: in one state of the network, as the model
has them. Other runs are left out, each with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures import results
from testbed.fluid.calibration import ROUNDS, Calibration, Measured, Shape
from testbed.fluid.cluster import Cluster, State
from testbed.fluid.rates import flow_rates, port_rates
from testbed.view.declared import MANIFEST, read, read_record
from testbed.world import FLUID
from topologies import Fabric
from topologies.theory import ring_edges

BOUND = 0.05
"""Largest relative difference of median step times [ours]."""


@dataclass(frozen=True)
class Compared:
    """A run: what was measured, or the reason why the model has no figure for it."""

    run: str
    measured: Measured | None
    left_out: str = ""

    def fluid_ns(self, calibration: Calibration) -> float | None:
        run = self.measured
        return None if run is None else calibration.step_ns(run.shape, run.rate, run.port_rate)

    def difference(self, calibration: Calibration) -> float | None:
        """Of the model from the measurement, as a share of the latter."""
        fluid_ns = self.fluid_ns(calibration)
        return None if self.measured is None or fluid_ns is None else fluid_ns / self.measured.measured_ns - 1


def compare(directory: Path) -> list[Compared]:
    """Every run with steps. Raises :class:`scenarios.figures.stored.ResultsError` if files are missing or damaged."""
    frame = results.load(directory)
    scenario = read(directory / "manifest.json", MANIFEST)["scenario"]
    compared = []
    for run in frame.summary["runs"]:
        times = frame.step_times.query("run == @run['run']")["time_ns"]
        if not len(times):
            continue
        why = _why_not(run, scenario)
        if why:
            compared.append(Compared(run["run"], None, why))
            continue
        record = read_record(directory / "raw" / run["run"] / "run.json")
        fabric = Fabric.from_dict({**record["fabric"], "dilation": run["dilation"]}).real
        slices = int(run["settings"].get("workload.slices", scenario["workload"]["slices"]))
        compared.append(Compared(run["run"], measured(run["run"], fabric, record, slices, float(times.median()))))
    return compared


def _why_not(run: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    if run.get("world") == FLUID:
        return "it is the model's own: give runs with packets"
    if run["kind"] != "mrc":
        return f"{run['kind']}: the model knows MRC alone"
    if run["workload"] not in ROUNDS:
        return f"{run['workload']}: the model knows {', '.join(ROUNDS)}"
    if any(not fault["before"] or fault["for_ns"] is not None for fault in scenario["faults"]):
        return "its faults come and go during the run"
    if any(fault["kind"] not in ("link", "port", "dead-paths") for fault in scenario["faults"]):
        return "it has faults other than links, ports and dead paths"
    return ""


def measured(name: str, fabric: Fabric, record: Mapping[str, Any], slices: int, median_ns: float) -> Measured:
    """A run whose state of the network did not change. ``record``: its run.json."""
    cluster, ranks = Cluster.of_fabric(fabric), record["ranks"]
    state = State.healthy(cluster)
    for link in record["fault_links"]:
        state.set_cable(fabric.link(link))
    edges = tuple(np.array(ring_edges(ranks)).T)
    across = float((cluster.t0_of(edges[0]) != cluster.t0_of(edges[1])).mean())
    shape = Shape(fabric, len(ranks), int(record["message_bytes"]), slices, ROUNDS[record["workload"]], across)
    rate, port_rate = (float(rates(state, *edges).min()) for rates in (flow_rates, port_rates))
    return Measured(name, shape, len(record["fault_links"]), rate, port_rate, median_ns)
