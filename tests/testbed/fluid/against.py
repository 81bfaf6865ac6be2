"""Measured steps of results directories beside the fluid model's: ``python -m
tests.testbed.fluid.against DIR... [--calibrate FILE]``.

Compared are ring all-reduces under MRC whose failures, if any, begin before the run and last: in
one state of the network, as the model has them. Other runs are left out, each with its reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.figures import results
from testbed.fluid.calibration import ROUNDS, Calibration, Shape, stored
from testbed.fluid.live_links import Cluster, State
from testbed.fluid.rates import flow_rates, port_rates
from testbed.results.manifest import Manifest
from testbed.results.reading import read_plain
from testbed.results.record import Record, read_record
from topologies.theory import ring_edges

BOUND = 0.05
"""Largest relative difference of median step times [ours]."""


@dataclass(frozen=True)
class Measured:
    """A measured collective. ``rate`` and ``port_rate``: of its slowest flow, by the model, bits/s
    on the wire, with all other flows and with its own ports alone; ``measured_ns``: its median
    step."""

    run: str
    shape: Shape
    dead_links: int
    rate: float
    port_rate: float
    measured_ns: float


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
        return (
            None
            if self.measured is None or fluid_ns is None
            else fluid_ns / self.measured.measured_ns - 1
        )


def compare(directory: Path) -> list[Compared]:
    """Every run with steps. Raises :class:`scenarios.figures.stored.ResultsError` if files are
    missing or damaged."""
    frame = results.load(directory)
    scenario = read_plain(directory / "manifest.json", Manifest)["scenario"]
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
        slices = int(run["settings"].get("workload.slices", scenario["workload"]["slices"]))
        compared.append(
            Compared(run["run"], measured(run["run"], record, slices, float(times.median())))
        )
    return compared


def _why_not(run: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    if run["kind"] != "mrc":
        return f"{run['kind']}: the model knows MRC alone"
    if run["workload"] not in ROUNDS:
        return f"{run['workload']}: the model knows {', '.join(ROUNDS)}"
    if any(not fault["before"] or fault.get("for_ns") is not None for fault in scenario["faults"]):
        return "its faults come and go during the run"
    if any(fault["kind"] not in ("link", "port", "dead-paths") for fault in scenario["faults"]):
        return "it has faults other than links, ports and dead paths"
    return ""


def measured(name: str, record: Record, slices: int, median_ns: float) -> Measured:
    """A run whose state of the network did not change. ``record``: its run.json."""
    fabric, ranks = record.fabric, record.ranks
    cluster = Cluster.of_fabric(fabric)
    state = State.healthy(cluster)
    for link in record.fault_links:
        state.set_cable(fabric.link(link))
    edges = tuple(np.array(ring_edges(ranks)).T)
    across = float((cluster.t0_of(edges[0]) != cluster.t0_of(edges[1])).mean())
    shape = Shape(fabric, len(ranks), record.message_bytes, slices, ROUNDS[record.workload], across)
    rate, port_rate = (float(rates(state, *edges).min()) for rates in (flow_rates, port_rates))
    return Measured(name, shape, len(record.fault_links), rate, port_rate, median_ns)


def fit(runs: Sequence[Measured]) -> Calibration:
    """Least squares of the relative differences. Raises ValueError unless there are runs that wait
    and runs that send without pause."""
    from scipy.optimize import least_squares

    bounds = [run.shape.bounds_ns(run.rate, run.port_rate) for run in runs]
    if len(runs) < 3 or all(a > b for a, b in bounds) or all(a < b for a, b in bounds):
        raise ValueError(
            "a calibration needs three rings or more, with large and with small messages: see "
            "ring.toml"
        )

    def differences(numbers: Sequence[float]) -> list[float]:
        calibration = Calibration(*numbers)
        return [
            calibration.step_ns(run.shape, run.rate, run.port_rate) / run.measured_ns - 1
            for run in runs
        ]

    solved = least_squares(
        differences, (0.98, 1.5, 20.0), bounds=((0.5, 0.0, 2.0), (1.0, 20.0, 100.0))
    )
    return Calibration(*(float(number) for number in solved.x))


def written(calibration: Calibration, runs: Sequence[Measured]) -> str:
    """The file's text: the numbers, and the runs that they come from."""
    lines = [
        (
            "# Written by python -m tests.testbed.fluid.against, from runs of ring.toml and "
            "dead.toml there (docs/why/fluid.md)."
        ),
        f"efficiency = {calibration.efficiency:.4f}",
        f"wait_packets = {calibration.wait_packets:.3f}",
        f"sharpness = {calibration.sharpness:.1f}",
    ]
    for run in runs:
        shape = run.shape
        lines += [
            "",
            "[[ring]]",
            f'fabric = "{shape.fabric.name}"',
            f"hosts = {shape.ranks}",
            f"message_bytes = {shape.message_bytes}",
            f"slices = {shape.slices}",
            f"dead_links = {run.dead_links}",
            f"rate_bps = {run.rate:.0f}",
            f"port_rate_bps = {run.port_rate:.0f}",
            f"measured_ns = {run.measured_ns:.0f}",
        ]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Print each run beside the model, and fit the model to them first where that is asked. Exit
    status 1 beyond the bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="+", type=Path)
    parser.add_argument(
        "--calibrate", type=Path, metavar="FILE", help="fit the model to those runs, and write FILE"
    )
    given = parser.parse_args(words)
    rows = [row for directory in given.directory for row in compare(directory)]
    runs = [row.measured for row in rows if row.measured is not None]
    calibration = stored() if given.calibrate is None else fit(runs)
    if given.calibrate is not None:
        given.calibrate.write_text(written(calibration, runs), encoding="utf-8")
    off = False
    for row in rows:
        if row.measured is None:
            print(f"{row.run}: left out: {row.left_out}")
            continue
        packets, fluid, difference = (
            row.measured.measured_ns,
            row.fluid_ns(calibration),
            row.difference(calibration),
        )
        assert fluid is not None and difference is not None
        print(
            f"{row.run}: packets {packets / 1e3:.1f} us, fluid {fluid / 1e3:.1f} us, "
            f"{100 * difference:+.1f} %"
        )
        off = off or abs(difference) > BOUND
    raise SystemExit(int(off or not runs))


if __name__ == "__main__":
    main()
