"""Reads a results directory for plots and the report.

A :class:`Stored` has all runs, or with ``settings`` those of one variant of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.columns import read_table
from scenarios.figures.network_time import FORMAT
from scenarios.figures.outages import ENDLESS, Outage
from scenarios.figures.stats import beside, slowest
from scenarios.schema.sweep import short_keys, suffix
from testbed.errors import first_line, refusal
from testbed.results.manifest import Manifest
from testbed.results.reading import AGAIN, ResultsError, read
from testbed.results.summary import Format, Run, Summary
from testbed.results.values import Setting, known
from topologies import Fabric, FabricError
from topologies.files import FileError
from topologies.units import NS

SEEDS_SHOWN = 2  # Of more, figures of single runs show the first [ours].
FAR_OFF = 100
"""Bins lie within so many lengths of a run, and that squared in base RTTs [ours]."""
OF_FIGURES = ("runs", "comparison")
RUN_TABLES = ("steps", "events", "counters", "goodput", "agents")


@dataclass
class Stored:
    directory: Path
    settings: dict[str, Setting] | None = None
    whole: Stored | None = None

    @cached_property
    def summary(self) -> Summary:
        if self.whole is not None:
            return self.whole.summary
        path = self.directory / "summary.json"
        try:
            summary = read(path, Summary)
        except ResultsError:
            self._check_format(read(path, Format))  # another format has other keys
            raise
        self._check_format(summary)
        return summary

    def _check_format(self, found: Format) -> None:
        if found.format != FORMAT:
            raise self.fail(
                "summary.json",
                f"has format {found.format}, this mrcbed reads {FORMAT}: run the scenario again",
            )

    @cached_property
    def manifest(self) -> Manifest:
        if self.whole is not None:
            return self.whole.manifest
        return read(self.directory / "manifest.json", Manifest)

    def table(self, name: str) -> pd.DataFrame:
        """Return rows that fit the summary's runs; none without the file. Raises
        :class:`ResultsError`."""
        return self._fitting(name, self.unjudged_table(name))

    def unjudged_table(self, name: str) -> pd.DataFrame:
        path = self.directory / f"{name}.parquet"
        if not path.is_file():
            return pd.DataFrame()
        again = f"mrcbed results plot --tables {self.directory} makes it again from raw/"
        try:
            return read_table(path)
        except FileError as error:
            raise ResultsError(f"{error}: {again}") from None
        except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of these
            if refusal(error) is not None:
                raise
            raise ResultsError(f"{path} cannot be read ({first_line(error)}): {again}") from None

    def _fitting(self, name: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Raise :class:`ResultsError` unless rows fit the summary's runs, their fabrics' hosts and
        planes, and their times."""
        if name in (*OF_FIGURES, "counters") or "run" not in frame:
            return frame
        runs = {run.run: run for run in self.summary.runs}
        for key, rows in ((str(key), rows) for key, rows in frame.groupby("run", sort=False)):
            if key not in runs:
                raise self.fail(
                    f"{name}.parquet",
                    f"has rows of run {key}, which is not in summary.json: {AGAIN}",
                )
            fabric = self.fabric(runs[key])
            for column, most in (
                ("host", fabric.host_count),
                ("peer", fabric.host_count),
                ("plane", fabric.planes),
                ("rank", runs[key].ranks),
            ):
                if column in rows and (rows[column] >= most).any():
                    raise self.fail(
                        f"{name}.parquet",
                        f"has a {column} beyond {most}, which run {key} has: {AGAIN}",
                    )
            # what is drawn over time has a place for each bin from the first to the last
            if "bin_ns" in rows:
                reach = FAR_OFF * runs[key].measured_ns + FAR_OFF**2 * fabric.base_rtt_ps / NS
                begin = known(runs[key].t0_ns)
                begin = rows["t_ns"].min() if begin is None else begin
                if (abs(rows["t_ns"] - begin) > reach).any():
                    raise self.fail(
                        f"{name}.parquet", f"has times that are not of run {key}: {AGAIN}"
                    )
        return frame

    def judge(self) -> None:
        runs = self.summary.runs
        if self.manifest.fidelity is None:
            raise self.fail(
                "manifest.json",
                "has no fidelity verdicts: the run did not end, mrcbed run --resume --out goes "
                "on with it",
            )
        for name in RUN_TABLES if runs else ():
            if not (self.directory / f"{name}.parquet").is_file():
                raise self.fail(
                    f"{name}.parquet",
                    f"is missing: mrcbed results plot --tables {self.directory} makes it again "
                    "from raw/",
                )
            self.table(name)
        for run in runs:
            self._judge(run)

    def _judge(self, run: Run) -> None:
        key = run.run
        trust = (self.manifest.fidelity or {}).get(key)
        if trust is None:
            problem = (
                f"has no fidelity verdict of run {key}, so nobody can say what its figures are "
                "worth"
            )
            raise self.fail("manifest.json", f"{problem}: run it again")
        if trust.verdict != run.verdict:
            unlike = f"says {trust.verdict!r} of run {key}, summary.json {run.verdict!r}"
            raise self.fail("manifest.json", f"{unlike}: take both from one copy")
        self.fabric(run)
        if run.fabric not in self.summary.fabrics:
            raise self.fail(
                "summary.json", f"does not know the fabric {run.fabric!r} of run {key}: {AGAIN}"
            )
        if run.steps:
            self.judge_rows("steps", run)

    def judge_rows(self, name: str, run: Run) -> None:
        if not len(self.rows(name, run)):
            fix = f"mrcbed results plot --tables {self.directory} makes it again from raw/"
            raise self.fail(
                f"{name}.parquet", f"has no rows of run {run.run}, which summary.json has: {fix}"
            )

    def fail(self, name: str, problem: str) -> ResultsError:
        return ResultsError(f"{self.directory / name} {problem}")

    # --- variants ---------------------------------------------------------------------------------

    @cached_property
    def variants(self) -> list[Stored]:
        """One object per setting; only this one if the scenario sweeps nothing."""
        settings: list[dict[str, Setting]] = []
        for run in self.summary.runs:
            if run.settings not in settings:
                settings.append(run.settings)
        return (
            [Stored(self.directory, values, self) for values in settings]
            if any(settings)
            else [self]
        )

    @property
    def tag(self) -> str:
        return suffix(self.settings or {})

    @cached_property
    def steps(self) -> pd.DataFrame:
        if self.whole is not None:
            return self.whole.steps
        frame = self.table("steps")
        return frame[~frame["warmup"].astype(bool)] if len(frame) else frame

    def rows(self, name: str, run: Run) -> pd.DataFrame:
        if name not in self._tables:
            self._tables[name] = self.table(name)
        frame = self._tables[name]
        return frame[frame["run"] == run.run] if "run" in frame else frame.iloc[:0]

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        return self.whole._tables if self.whole else {}

    @property
    def runs(self) -> list[Run]:
        return [
            r for r in self.summary.runs if self.settings is None or r.settings == self.settings
        ]

    @property
    def shown_runs(self) -> list[Run]:
        keys = {
            (placement, seed)
            for placement, seeds in self.groups()
            for seed in self.shown_seeds(seeds)
        }
        return [r for r in self.runs if (r.placement, r.seed) in keys]

    @staticmethod
    def shown_seeds(seeds: list[int]) -> list[int]:
        return seeds if len(seeds) <= SEEDS_SHOWN else seeds[:1]

    def seed_words(self, seed: int) -> str:
        count = len({r.seed for r in self.runs})
        label = f", seed {seed}" if count <= SEEDS_SHOWN else f"\nseed {seed}, one of {count}"
        return f"{label}{self.settings_words}"

    @property
    def settings_words(self) -> str:
        names = short_keys(list(self.settings or {}))
        return "".join(f"\n{short} = {(self.settings or {})[key]}" for key, short in names.items())

    def groups(self) -> list[tuple[str, list[int]]]:
        return [
            (p, list(dict.fromkeys(r.seed for r in self.runs if r.placement == p)))
            for p in dict.fromkeys(r.placement for r in self.runs)
        ]

    def ordered(self, placement: str, seed: int | None = None) -> list[Run]:
        names = [t.name for t in self.manifest.scenario.transports]
        runs = [r for r in self.runs if r.placement == placement and seed in (None, r.seed)]
        return sorted(
            runs,
            key=lambda r: (
                names.index(r.transport) if r.transport in names else len(names),
                r.seed,
            ),
        )

    @cached_property
    def fabrics(self) -> dict[str, Fabric]:
        if self.whole is not None:
            return self.whole.fabrics
        try:
            written = self.manifest.fabrics.items()
            return {
                name: Fabric.from_dict(
                    {k: v for k, v in keys.items() if k in Fabric.__struct_fields__}
                )
                for name, keys in written
            }
        except FabricError as error:
            raise ResultsError(
                f"damaged: fabrics in {self.directory / 'manifest.json'}: {error}: {AGAIN}"
            ) from None

    def fabric(self, run: Run) -> Fabric:
        if run.fabric not in self.fabrics:
            raise self.fail(
                "manifest.json",
                f"does not know the fabric {run.fabric!r} of run {run.run}: {AGAIN}",
            )
        return self.fabrics[run.fabric]

    def begin_ns(self, run: Run) -> float | None:
        """Return when the first measured step began; for flows, their t0."""
        if (t0_ns := known(run.t0_ns)) is not None:
            return t0_ns
        steps = self.steps[self.steps["run"] == run.run] if len(self.steps) else self.steps
        return float(steps["start_ns"].min()) if len(steps) else None

    @staticmethod
    def since(run: Run) -> str:
        return f"time since the first {'flow began' if run.flows else 'measured step'} [µs]"

    def step_times(self, run: Run) -> dict[str, pd.Series[Any]]:
        """Return the slowest rank's times, ns, by whole step: one series, named "", or one per job
        of steps beside the others."""
        counts = {name: job.ranks for name, job in run.jobs.items()} or {"": run.ranks}
        ends = list(accumulate(counts.values()))
        ranks = {job: range(end - counts[job], end) for job, end in zip(counts, ends, strict=True)}
        found = beside(self.steps[self.steps["run"] == run.run], list(ranks.values()))
        return {job: slowest(rows) for job, rows in zip(ranks, found, strict=True)}

    def transfer_times(self, run: Run) -> dict[str, pd.Series[Any]]:
        """Return one series, ns, named ""; none in results of versions without transfers."""
        transfers = self.rows("transfers", run)
        return {
            "": transfers["end_ns"] - transfers["start_ns"]
            if len(transfers)
            else pd.Series(dtype=float)
        }

    def outages(self, run: Run) -> list[Outage]:
        found = [
            Outage(
                f.fault,
                f.kind,
                f.on,
                begin,
                ENDLESS if end is None else end,
                tuple(f.links),
                f.to,
                f.probability,
                f.direction,
            )
            for f in run.failovers
            for begin, end in f.outages_ns
        ]
        return sorted(found, key=lambda outage: outage.begin)


def by_transport(runs: Iterable[Run]) -> dict[str, list[Run]]:
    of: dict[str, list[Run]] = {}
    for run in runs:
        of.setdefault(run.transport, []).append(run)
    return of
