"""What the plots read: summary, manifest and the Parquet tables of a results directory, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.outages import ENDLESS, Outage
from topologies import Fabric


@dataclass
class Stored:
    """A results directory."""

    directory: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "summary.json").read_text(encoding="utf-8")))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "manifest.json").read_text(encoding="utf-8")))

    def table(self, name: str) -> pd.DataFrame:
        """A Parquet table; empty if it is not there."""
        path = self.directory / f"{name}.parquet"
        return pd.read_parquet(path) if path.is_file() else pd.DataFrame()

    @cached_property
    def steps(self) -> pd.DataFrame:
        frame = self.table("steps")
        return frame[~frame["warmup"].astype(bool)] if len(frame) else frame

    @cached_property
    def events(self) -> pd.DataFrame:
        return self.table("events")

    @cached_property
    def goodput(self) -> pd.DataFrame:
        return self.table("goodput")

    def rows(self, name: str, run: dict[str, Any]) -> pd.DataFrame:
        """One run's rows of a table."""
        if name not in self._tables:
            self._tables[name] = self.table(name)
        frame = self._tables[name]
        return frame[frame["run"] == run["run"]] if len(frame) else frame

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return {}

    @property
    def runs(self) -> list[dict[str, Any]]:
        return list(self.summary["runs"])

    def groups(self) -> list[tuple[str, list[int]]]:
        """(placement, its seeds) in order."""
        return [
            (p, list(dict.fromkeys(r["seed"] for r in self.runs if r["placement"] == p)))
            for p in dict.fromkeys(r["placement"] for r in self.runs)
        ]

    def ordered(self, placement: str, seed: int | None = None) -> list[dict[str, Any]]:
        """Runs of a placement in the scenario's order of transports."""
        names = [t["name"] for t in self.manifest["scenario"]["transports"]]
        found = [r for r in self.runs if r["placement"] == placement and seed in (None, r["seed"])]
        return sorted(found, key=lambda r: (names.index(r["transport"]) if r["transport"] in names else len(names), r["seed"]))

    def per_seed(self, wanted: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
        """(placement, seed, its runs for which ``wanted`` holds) in order; those without any are left out."""
        for placement, seeds in self.groups():
            for seed in seeds:
                runs = [run for run in self.ordered(placement, seed) if wanted(run)]
                if runs:
                    yield placement, seed, runs

    def fabric(self, run: dict[str, Any]) -> Fabric:
        derived = self.manifest["fabrics"][run["fabric"]]
        return Fabric.from_dict({k: v for k, v in derived.items() if k in Fabric.__dataclass_fields__})

    def begin_ns(self, run: dict[str, Any]) -> int | None:
        """When the run's first measured step began; of flows, their t0."""
        if run.get("t0_ns") is not None:
            return int(run["t0_ns"])
        mine = self.steps[self.steps["run"] == run["run"]] if len(self.steps) else self.steps
        return int(mine["start_ns"].min()) if len(mine) else None

    def step_times(self, run: dict[str, Any]) -> pd.Series[Any]:
        """Slowest rank's time per step that all ranks finished, ns."""
        mine = self.steps[self.steps["run"] == run["run"]]
        took = (mine["end_ns"] - mine["start_ns"]).groupby(mine["step"]).agg(["max", "count"])
        times: pd.Series[Any] = took.loc[took["count"] == run["ranks"], "max"]
        return times

    def faults(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        """[{name, on, begin, heal}] in ns; heal None if it lasted."""
        return [{"name": f["fault"], "on": f["on"], "begin": f["at_ns"], "heal": f["healed_ns"]} for f in run["failovers"]]

    def outages(self, run: dict[str, Any]) -> list[Outage]:
        """As scenarios.outages found them; of results written before those were stored, one per fault."""
        found = []
        for f in run["failovers"]:
            links = tuple(f.get("links", [f["on"]] if ":" in f["on"] else []))
            more = (f.get("to", ""), f.get("probability", 1.0), f.get("direction", "both"))
            for begin, end in f.get("outages_ns", [[f["at_ns"], f["healed_ns"]]]):
                found.append(Outage(f["fault"], f.get("kind", "link"), f["on"], begin, ENDLESS if end is None else end, links, *more))
        return sorted(found, key=lambda outage: outage.begin)
