"""Makes tables from the raw files of a run, which only this module reads.

The directory of a run holds ``run.json`` and ``runner.jsonl`` (scenarios.run.one_run) and one
``h<i>.jsonl`` per agent. Everything else in a results directory is computed from these files, so
that a later version can compute it again. They are in this machine's time; all that leaves this
module is in the network's. docs/reference/tables.md describes the columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from scenarios.figures.books import PortRow, port_rows
from scenarios.figures.stats import slowest, whole_steps
from scenarios.figures.writing import replacing
from testbed.results import log
from testbed.results.log import L, Line, Lines
from testbed.results.record import Flow, Job, Record, read_record
from testbed.view.clock import PLACES, in_ns
from testbed.view.fold import MOST_LINE
from topologies import Fabric
from topologies.files import opened
from topologies.units import NS, S

_EVENTS = (
    log.PathChange,
    log.PlaneChange,
    log.Loss,
    log.Rtx,
    log.Redelivered,
    log.Rto,
    log.Spurious,
    log.Qp,
    log.Reroute,
    log.Fault,
    log.Resolved,
    log.Reconverged,
    log.Failed,
    log.Controller,
    log.Hint,
    log.Deny,
    log.Allow,
    log.Kept,
    log.Mapper,
    log.Background,
    log.Subflow,
    log.QuickAdapt,
    log.Cutoff,
)
# columns that are fields of lines
_OTHERS = ("from", "to", "cause", "psn", "count", "name", "on", "phase")
_COLUMNS = ("t", "kind", "host", "peer", "ev", *_OTHERS)

_PORTION = 1 << 20  # bytes read at once
_TRANSFERS = b'"kind":"transfers"'
_COUNTERS = b'"kind":"counters"'

TABLES = {
    "steps": "run transport fabric placement seed rank step warmup start_ns end_ns ok",
    "transfers": "run step stage slice src dst start_ns end_ns",
    "events": (
        "run t_ns host kind peer ev plane uplink from to cause psn count name on phase detail"
    ),
    "counters": "run port",
    "goodput": "run host t_ns bin_ns plane tx_bytes rx_bytes",
    "agents": "run host counter value",
    "flows": "run host flow t_ns bin_ns rx_bytes",
    "messages": "run host flow number bytes start_ns end_ns",
    "queues": "run t_ns port bytes",
    "evs": "run host peer t_ns bin_ns ev plane uplink tx_packets",
    "cwnd": "run host flow t_ns peer qpn cwnd_bytes in_flight_bytes srtt_ns rate_bps",
}
"""Table of a results directory -> its columns; of ``counters`` the first ones. What a row is:
docstrings of :class:`Run`."""


def raw_lines(path: Path, transfers: bool = False) -> Iterator[list[tuple[int, bytes]]]:
    """Yield portions of (number, line) of a JSONL file, but not an incomplete last line (its writer
    was killed). ``transfers``: only these, the bulk of a long run; otherwise all others. Raises
    :class:`FileError`."""
    if not os.path.lexists(path):  # a link to nowhere is damage
        return
    number, rest = 1, b""
    with opened(path) as file:
        while portion := file.read(_PORTION):
            *lines, rest = (rest + portion).split(b"\n")
            if len(rest) >= MOST_LINE:
                lines, rest = [*lines, rest], b""
            yield [
                (n, line)
                for n, line in enumerate(lines, number)
                if (line.find(_TRANSFERS, 0, 80) >= 0) == transfers
            ]
            number += len(lines)


@dataclass
class Run:
    directory: Path

    @cached_property
    def record(self) -> Record:
        return read_record(self.directory / "run.json")

    @property
    def fabric(self) -> Fabric:
        return self.record.fabric

    @property
    def base_rtt_ns(self) -> float:
        return self.fabric.base_rtt_ps / NS

    @cached_property
    def key(self) -> str:
        return self.directory.name

    @cached_property
    def lines(self) -> list[Line]:
        """The lines of all agents' logs and the runner's journal, by time, without transfers."""
        lines = [
            line
            for path in (self.directory / "runner.jsonl", *self._logs)
            for line in self.checked(path)
        ]
        lines.sort(key=lambda line: line.t)
        return lines

    @property
    def _logs(self) -> list[Path]:
        return [
            path for path in sorted(self.directory.glob("h*.jsonl")) if path.stem[1:].isdecimal()
        ]

    def checked(self, path: Path, transfers: bool = False) -> Iterator[Line]:
        lines, queues = (
            Lines(self.fabric, len(self.record.ranks), len(self.record.flows)),
            path.name == "queues.jsonl",
        )
        for portion in raw_lines(path, transfers):
            found = lines.read_all([line for _, line in portion], queues)
            yield from (
                found
                if found is not None
                else (lines.read(line, path, number, queues) for number, line in portion)
            )

    @cached_property
    def _by_kind(self) -> dict[type[Line], list[Line]]:
        found: dict[type[Line], list[Line]] = {}
        for line in self.lines:
            found.setdefault(type(line), []).append(line)
        return found

    def of(self, kind: type[L]) -> list[L]:
        return [line for line in self._by_kind.get(kind, ()) if isinstance(line, kind)]

    def of_any(self, *kinds: type[Line]) -> list[Line]:
        return [line for line in self.lines if type(line) in kinds]

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row per rank and step. Measured steps count from 0, warm-up steps are negative."""
        record, warm = self.record, self.record.warmup_steps
        if self.jobs:
            return self._job_steps(warm)
        rows = [
            (
                self.key,
                record.transport,
                self.fabric.name,
                record.placement,
                record.seed,
                line.rank,
                line.step - warm,
                line.step < warm,
                line.start_ns,
                line.end_ns,
                line.ok,
            )
            for line in self.of(log.Step)
        ]
        return pd.DataFrame(rows, columns=TABLES["steps"].split())

    @property
    def jobs(self) -> list[Job]:
        return self.record.jobs

    @cached_property
    def passes(self) -> pd.DataFrame:
        """A row per rank and step: phase, step in it, rank, start_ns, end_ns, late_ns, wrong (so
        far)."""
        rank_of = {host: rank for rank, host in enumerate(self.record.ranks)}
        rows = []
        for line in self.of(log.Told):
            if line.note.step is not None:
                phase, number, *seconds, wrong = line.note.step
                rows.append(
                    (
                        phase,
                        number,
                        rank_of[line.host],
                        *(round(time * (S // NS), PLACES) for time in seconds),
                        wrong,
                    )
                )
        return pd.DataFrame(
            rows, columns=["phase", "step", "rank", "start_ns", "end_ns", "late_ns", "wrong"]
        )

    def _job_steps(self, warm: int) -> pd.DataFrame:
        last = self.passes[self.passes["phase"] == self.passes["phase"].max()].sort_values(
            ["end_ns", "rank"]
        )
        own = {
            "run": self.key,
            "transport": self.record.transport,
            "fabric": self.fabric.name,
            "placement": self.record.placement,
            "seed": self.record.seed,
            "rank": last["rank"],
            "step": last["step"] - warm,
            "warmup": last["step"] < warm,
            "start_ns": last["start_ns"],
            "end_ns": last["end_ns"],
            "ok": last["wrong"] == 0,
        }
        return pd.DataFrame(own).reset_index(drop=True)

    @cached_property
    def whole_steps(self) -> pd.DataFrame:
        """Rows of measured steps that all ranks finished; of several jobs, the first job's."""
        return self._with_warm_up[~self._with_warm_up["warmup"].astype(bool)]

    @cached_property
    def _with_warm_up(self) -> pd.DataFrame:
        return whole_steps(
            self.steps, self.jobs[0].ranks if self.jobs else range(len(self.record.ranks))
        )

    @cached_property
    def warm_ns(self) -> float | None:
        ends = self._with_warm_up.loc[self._with_warm_up["step"] == -1, "end_ns"]
        return float(ends.max()) if len(ends) else None

    @cached_property
    def step_times(self) -> pd.Series[Any]:
        return slowest(self.whole_steps).astype(float)

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """A row per slice that a rank sent another, in measured steps that all ranks finished.
        ``start_ns``: its sender posted it; ``end_ns``: the program of its receiver saw it
        complete."""
        warm, steps = self.record.warmup_steps, set(self.step_times.index)
        keys = ["step", "stage", "slice", "src", "dst"]
        lists: dict[str, list[np.ndarray[Any, Any]]] = {"posted": [], "arrived": []}
        for line in (
            (line for path in self._logs for line in self.checked(path, transfers=True))
            if steps
            else ()
        ):
            if isinstance(line, log.Transfers) and line.step - warm in steps:
                for name, found in (("posted", line.posted), ("arrived", line.arrived)):
                    peer, stage, number, ps = np.array(found, float).reshape(-1, 4).T
                    own, step = np.full_like(peer, line.rank), np.full_like(peer, line.step - warm)
                    src, dst = (own, peer) if name == "posted" else (peer, own)
                    lists[name].append(
                        np.stack(
                            [
                                step,
                                stage,
                                number,
                                src,
                                dst,
                                np.round(ps / NS + line.start_ps / NS, PLACES),
                            ]
                        )
                    )
        times = {"posted": "start_ns", "arrived": "end_ns"}
        posted, arrived = (
            pd.DataFrame(
                np.concatenate(lists[name], axis=1).T if lists[name] else [],
                columns=[*keys, column],
                dtype=float,
            )
            for name, column in times.items()
        )
        frame = posted.merge(arrived, on=keys).astype(dict.fromkeys(keys, "int64"))
        frame.insert(0, "run", self.key)
        return frame

    @cached_property
    def window(self) -> tuple[float, float]:
        """Begin of the first measured step and end of the last, ns; without steps, the window of
        ``run.json``."""
        frame = self.steps[~self.steps["warmup"].astype(bool)]
        if frame.empty:
            return self.record.window_ns
        ends = [
            frame["end_ns"].max(),
            *(self.record.window_ns[1:] if self.record.outcome != "done" else ()),
        ]
        return float(frame["start_ns"].min()), float(max(ends))

    @cached_property
    def events(self) -> pd.DataFrame:
        """Faults, state changes of EVs and planes, losses and retransmissions, by time. Host -1 is
        the runner. Rare fields are JSON in ``detail``; docs/reference/results.md has the kinds,
        under logs."""
        rows = []
        for event in self.of_any(*_EVENTS):
            line = {"host": event.host, **msgspec.to_builtins(event)}
            ev, plane = line.get("ev"), line.pop("plane", None)
            detail = in_ns({key: value for key, value in line.items() if key not in _COLUMNS})
            rows.append(
                (
                    self.key,
                    event.t_ns,
                    event.host,
                    event.kind,
                    line.get("peer"),
                    ev,
                    plane if ev is None else ev >> 16,
                    None if ev is None else ev & 0xFFFF,
                    *map(line.get, _OTHERS),
                    json.dumps(detail) if detail else None,
                )
            )
        frame = pd.DataFrame(rows, columns=TABLES["events"].split())
        for column in ("peer", "ev", "plane", "uplink", "psn", "count"):
            frame[column] = frame[column].astype("Int64")
        for column in ("kind", "from", "to", "cause", "name", "on", "phase", "detail"):
            frame[column] = frame[column].astype("string")
        return frame

    @cached_property
    def goodput(self) -> pd.DataFrame:
        """Payload bytes per host, bin and plane. ``t_ns`` is the begin of the bin."""
        lines, planes = self.of(log.Goodput), self.fabric.planes
        host, t_ns, bin_ns = (
            np.repeat(column, planes) for column in ([line.host for line in lines], *_bins(lines))
        )
        tx, rx = [n for line in lines for n in line.tx], [n for line in lines for n in line.rx]
        return self._frame(
            "goodput", host, t_ns, bin_ns, np.tile(np.arange(planes), len(lines)), tx, rx
        )

    # --- of flows ---------------------------------------------------------------------------------

    @property
    def named_flows(self) -> list[Flow]:
        return self.record.flows

    def _named(self, lines: Sequence[log.Flow | log.Message | log.Cwnd]) -> list[str | None]:
        names: dict[int | None, str | None] = {
            number: flow.name for number, flow in enumerate(self.named_flows)
        }
        return [names[line.flow] if line.flow is not None else None for line in lines]

    def _frame(self, name: str, *columns: Sequence[Any] | np.ndarray[Any, Any]) -> pd.DataFrame:
        """A table of columns as :data:`TABLES` has them, but for the run's."""
        names = TABLES[name].split()
        if not len(columns[0]):
            return pd.DataFrame(columns=names)
        return pd.DataFrame({names[0]: self.key, **dict(zip(names[1:], columns, strict=True))})

    @cached_property
    def flows(self) -> pd.DataFrame:
        """Payload bytes placed per flow and bin, as the receiver counted."""
        lines = self.of(log.Flow)
        return self._frame(
            "flows",
            [line.host for line in lines],
            self._named(lines),
            *_bins(lines),
            [line.rx for line in lines],
        )

    @cached_property
    def messages(self) -> pd.DataFrame:
        """A row per message of a flow."""
        lines = self.of(log.Message)
        rest = (
            [getattr(line, name) for line in lines]
            for name in ("number", "bytes", "start_ns", "end_ns")
        )
        return self._frame("messages", [line.host for line in lines], self._named(lines), *rest)

    @cached_property
    def queues(self) -> pd.DataFrame:
        """The data backlog of the last hops worth watching, such as an incast's target, every base
        RTT / 8, and at least 5 ms of wall time apart."""
        lines = self.checked(self.directory / "queues.jsonl")
        rows = [
            (self.key, line.t_ns, line.port, line.bytes)
            for line in lines
            if isinstance(line, log.Queue)
        ]
        return pd.DataFrame(rows, columns=TABLES["queues"].split())

    @cached_property
    def evs(self) -> pd.DataFrame:
        """Data packets per peer, EV and bin, of hosts of up to 2,048 paths. A bin without packets
        has no row."""
        lines = self.of(log.Evs)
        counts = [len(line.tx) for line in lines]
        host, peer, t_ns, bin_ns = (
            np.repeat(column, counts)
            for column in (
                [line.host for line in lines],
                [line.peer for line in lines],
                *_bins(lines),
            )
        )
        evs = np.array([ev for line in lines for ev in line.tx], "int64")
        packets = [packets for line in lines for packets in line.tx.values()]
        return self._frame("evs", host, peer, t_ns, bin_ns, evs, evs >> 16, evs & 0xFFFF, packets)

    @cached_property
    def cwnd(self) -> pd.DataFrame:
        """Per bin and queue pair that sent. A ``rate_bps`` of 0 is the port's rate. ``flow`` is
        null for collectives and jobs."""
        lines = self.of(log.Cwnd)
        rest = (
            [getattr(line, name) for line in lines]
            for name in ("t_ns", "peer", "qpn", "cwnd", "in_flight", "srtt_ns", "rate_bps")
        )
        types = dict.fromkeys(
            ("peer", "qpn", "cwnd_bytes", "in_flight_bytes"), "Int64"
        ) | dict.fromkeys(("srtt_ns", "rate_bps"), "Float64")
        return self._frame("cwnd", [line.host for line in lines], self._named(lines), *rest).astype(
            types
        )

    # --- counters ---------------------------------------------------------------------------------

    @cached_property
    def ports(self) -> list[PortRow]:
        return port_rows(self.record)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """A row per port: its counters (docs/why/dataplane.md) over this run. Backlogs are those at
        the end; ``backlog_mean_bytes`` is the mean that this run's packets met. Peaks count since
        the fabric was built; ``raised_peak_bytes`` is null unless this run raised them."""
        frame = pd.DataFrame([row.written for row in self.ports])
        frame.insert(0, "run", self.key)
        return frame

    @cached_property
    def agent_counters(self) -> dict[str, dict[str, int]]:
        """Read at the end, else the last that the agent logged itself."""
        if self.record.agent_counters is not None:
            return self.record.agent_counters
        logged = (
            line
            for path in self._logs
            for portion in raw_lines(path)
            for _, line in portion
            if _COUNTERS in line[:80]
        )
        lines = sorted(
            (msgspec.json.decode(line, type=dict[str, int | str]) for line in logged),
            key=lambda values: values["t"],
        )
        skip = ("t", "host")
        return {
            str(line["host"]): {
                key: n for key, n in line.items() if key not in skip and isinstance(n, int)
            }
            for line in lines
        }

    @cached_property
    def agents(self) -> pd.DataFrame:
        """Every engine counter per host."""
        rows = [
            (self.key, int(host), name, n)
            for host, counters in self.agent_counters.items()
            for name, n in in_ns(counters).items()
        ]
        return pd.DataFrame(rows, columns=TABLES["agents"].split())


def _bins(lines: Sequence[log.Flow | log.Goodput | log.Evs]) -> tuple[list[float], list[float]]:
    return [line.t / NS for line in lines], [line.bin_ps / NS for line in lines]


def load_runs(directory: Path) -> list[Run]:
    """Return runs in their order; simulated ones, which all begin at one time, by name. Nothing
    read of them stays in memory: of 512 hosts, a run's record takes 270 MB."""

    def order(place: Path) -> tuple[int, str]:
        return read_record(place / "run.json").window[0], place.name

    places = [path.parent for path in (directory / "raw").glob("*/run.json")]
    return [Run(place) for place in (sorted(places, key=order) if len(places) > 1 else places)]


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    return {name: getattr(run, name) for name in TABLES}


def write_tables(runs: list[Run], directory: Path) -> None:
    """Empties ``runs``, so that log lines of one are in memory at a time."""
    per_run = [tables_of(runs.pop(0)) for _ in range(len(runs))]
    for name in TABLES:
        all_frames = [tables.pop(name) for tables in per_run]
        frames = [frame for frame in all_frames if not frame.empty]
        table = (
            pd.concat(frames, ignore_index=True)
            if frames
            else all_frames[0]
            if all_frames
            else pd.DataFrame()
        )
        with replacing(directory / f"{name}.parquet") as part:
            table.to_parquet(part, index=False)
