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
from scenarios.figures.stored import AGAIN, read_json
from testbed.fluid.cluster import Cluster, State
from testbed.fluid.rates import flow_rates, ring_ns
from topologies import Fabric
from topologies.theory import ring_edges

BOUND = 0.05
"""Largest relative difference of median step times [ours]."""


@dataclass(frozen=True)
class Compared:
    """Median step times in ns of the network, or the reason why there is no figure of the model."""

    run: str
    hosts: int
    dead_links: int
    measured_ns: float
    fluid_ns: float | None
    left_out: str

    @property
    def difference(self) -> float | None:
        """Of the model from the measurement, as a share of the latter."""
        return None if self.fluid_ns is None else self.fluid_ns / self.measured_ns - 1


def compare(directory: Path) -> list[Compared]:
    """Every run with steps. Raises :class:`scenarios.figures.stored.ResultsError` if files are missing or damaged."""
    frame = results.load(directory)
    scenario = read_json(directory / "manifest.json", AGAIN)["scenario"]
    compared = []
    for run in frame.summary["runs"]:
        times = frame.step_times.query("run == @run['run']")["time_ns"]
        if not len(times):
            continue
        record = read_json(directory / "raw" / run["run"] / "run.json", AGAIN)
        record["fabric"] = Fabric.from_dict({**record["fabric"], "dilation": run["dilation"]}).real
        why = _why_not(run, scenario)
        fluid_ns = None if why else _fluid_ns(record, int(scenario["workload"]["slices"]))
        compared.append(Compared(run["run"], len(record["ranks"]), len(record["fault_links"]), float(times.median()), fluid_ns, why))
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


def _fluid_ns(record: Mapping[str, Any], slices: int) -> float:
    fabric: Fabric = record["fabric"]
    state = State.healthy(Cluster.of_fabric(fabric))
    for name in record["fault_links"]:
        state.cut(fabric.link(name))
    senders, receivers = np.array(ring_edges(record["ranks"])).T
    rate = float(flow_rates(state, senders, receivers).min())
    return ring_ns(state.cluster, len(record["ranks"]), int(record["message_bytes"]), slices, rate)
