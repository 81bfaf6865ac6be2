"""Gives one results directory as pandas frames, for notebooks, lessons and scripts of your own:
``results.load(directory)``.

Reads what ``mrcbed run`` wrote, and writes nothing. docs/how/python.md shows it at work.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pandas as pd
from msgspec import to_builtins

from scenarios.figures.stored import Stored
from testbed.results.reading import ResultsError
from testbed.results.summary import Run, Summary


class Results:
    """The tables of a results directory, each read when it is first asked for.

    Times are in ns of the network, counted in each run from the begin of its first measured step
    (of flows: from their begin). Rates are in bit/s of the network, sizes in bytes. Each frame has
    ``run``, ``transport`` and ``seed``. docs/how/results.md explains the columns. Every table
    raises :class:`ResultsError`, which names the file, if that is missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stored = Stored(directory)

    def __repr__(self) -> str:
        return f"results.load({str(self.directory)!r})"

    @property
    def summary(self) -> Summary:
        """``summary.json``: figures and checks."""
        return self._stored.summary

    @property
    def seeds(self) -> set[int]:
        return {run.seed for run in self.summary.runs}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row per run, with its figures: ``step_time_ns.max``, ``packets.trimmed`` and so on."""
        return self._read("runs").assign(run=[run.run for run in self.summary.runs])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row per rank and measured step: ``rank``, ``step``, ``start_ns``, ``end_ns``,
        ``ok``."""
        frame = self._table("steps")
        return frame[~frame["warmup"].astype(bool)].reset_index(drop=True)

    @cached_property
    def step_times(self) -> pd.DataFrame:
        """A row per step that all ranks finished: ``time_ns`` is the time of its slowest rank. Of
        several jobs, a row per ``job`` (else that is empty) and step that it made beside the
        others."""
        frames = [
            times.rename("time_ns").reset_index().assign(job=job, run=run.run)
            for run in self._runs for job, times in self._stored.step_times(run).items()
        ]  # fmt: skip
        return self._named(
            pd.concat(frames, ignore_index=True)
            if frames
            else pd.DataFrame(columns=["run", "job", "step", "time_ns"])
        )

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """A row per slice that a rank sent another: ``src``, ``dst``, ``start_ns``, ``end_ns``."""
        return self._table("transfers")

    @cached_property
    def events(self) -> pd.DataFrame:
        """What happened: ``t_ns``, ``host``, ``kind`` (docs/reference/results.md lists the kinds),
        and what belongs to that kind."""
        return self._table("events")

    @cached_property
    def paths(self) -> pd.DataFrame:
        """A row per change of a path's state: ``t_ns``, ``host``, ``peer``, ``plane``, ``uplink``,
        ``from``, ``to``, ``cause``."""
        rows = self.events[self.events["kind"] == "ev"]
        columns = [
            "run",
            "transport",
            "seed",
            "t_ns",
            "host",
            "peer",
            "ev",
            "plane",
            "uplink",
            "from",
            "to",
            "cause",
        ]
        return rows[columns].reset_index(drop=True)

    @cached_property
    def faults(self) -> pd.DataFrame:
        """A row per run and fault: ``fault``, ``kind``, ``on``, ``at_ns``, ``healed_ns``, and what
        it cost."""
        frames = [
            pd.DataFrame(to_builtins(run.failovers)).assign(run=run.run)
            for run in self._runs
            if run.failovers
        ]
        columns = [
            "run",
            "fault",
            "kind",
            "on",
            "at_ns",
            "healed_ns",
            "lost",
            "last_on_dead_path_ns",
            "detected_ns",
        ]
        frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
        # a list, whose times would be the only ones not from the begin
        frame = frame.drop(columns="outages_ns", errors="ignore")
        return self._named(self._from_begin(frame))

    @cached_property
    def goodput(self) -> pd.DataFrame:
        """Payload bytes per host, time bin and plane: ``t_ns``, ``bin_ns``, ``tx_bytes``,
        ``rx_bytes``."""
        return self._table("goodput")

    @cached_property
    def flows(self) -> pd.DataFrame:
        """Payload bytes of each flow per time bin: ``host``, ``flow``, ``t_ns``, ``bin_ns``,
        ``rx_bytes``."""
        return self._table("flows")

    @cached_property
    def messages(self) -> pd.DataFrame:
        """A row per message of a flow: ``flow``, ``number``, ``bytes``, ``start_ns``,
        ``end_ns``."""
        return self._table("messages")

    @cached_property
    def queues(self) -> pd.DataFrame:
        """Samples of queues on last hops: ``t_ns``, ``port``, ``bytes``."""
        return self._table("queues")

    @cached_property
    def evs(self) -> pd.DataFrame:
        """Data packets that a flow's host sent per EV and time bin: ``host``, ``peer``, ``plane``,
        ``uplink``, ``tx_packets``."""
        return self._table("evs")

    @cached_property
    def windows(self) -> pd.DataFrame:
        """Windows of sending queue pairs over time: ``flow``, ``t_ns``, ``cwnd_bytes``,
        ``in_flight_bytes``, ``srtt_ns``."""
        return self._table("cwnd")

    @cached_property
    def counters(self) -> pd.DataFrame:
        """A row per run and port: packets sent, ``marked``, ``trimmed``, dropped by cause, and
        queues."""
        return self._table("counters")

    def run(self, transport: str, seed: int | None = None) -> Run:
        """Return the entry in ``summary`` of a transport's run, of the first seed if none is given.
        Raises :class:`ResultsError`."""
        for run in self._runs:
            if run.transport == transport and seed in (None, run.seed):
                return run
        there = (
            ", ".join(f"{run.transport} (seed {run.seed})" for run in self._runs)
            or "no runs at all"
        )
        asked = transport if seed is None else f"{transport} with seed {seed}"
        raise ResultsError(f"{self.directory} has no run of {asked}: it has {there}")

    @property
    def _runs(self) -> list[Run]:
        return self._stored.runs

    def _read(self, name: str) -> pd.DataFrame:
        path = self.directory / f"{name}.parquet"
        if not path.is_file():
            raise ResultsError(
                f"{path} is missing: mrcbed results plot --tables {self.directory} makes it "
                "again from raw/"
            )
        return self._stored.table(name)

    def _table(self, name: str) -> pd.DataFrame:
        return self._named(self._from_begin(self._read(name)))

    def _from_begin(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Count moments of a frame from each run's begin; lengths (``bin_ns``, ``cost_ns``)
        stay."""
        begins = {run.run: self._stored.begin_ns(run) or 0.0 for run in self._runs}
        begin = frame["run"].map(begins).astype(float)
        return frame.assign(**{name: frame[name] - begin for name in _MOMENTS if name in frame})

    def _named(self, frame: pd.DataFrame) -> pd.DataFrame:
        by_run = {run.run: run for run in self._runs}
        names = {
            key: frame["run"].map({run: getattr(entry, key) for run, entry in by_run.items()})
            for key in ("transport", "seed")
        }
        return frame.assign(**names)


_MOMENTS = (
    "t_ns",
    "start_ns",
    "end_ns",
    "at_ns",
    "healed_ns",
    "last_on_dead_path_ns",
    "detected_ns",
    "delivered_ns",
)


def load(directory: str | Path) -> Results:
    """Open the results directory that ``mrcbed run`` wrote, of any world. Raises
    :class:`ResultsError` for any other directory."""
    results = Results(Path(directory))
    results.summary  # noqa: B018  # whether it is one is said here, not at the first table
    return results
