"""Makes tables from the raw files of a run. Only this module reads the agents' logs; it never uses a network.

The directory of a run holds ``run.json`` and ``runner.jsonl`` (scenarios.run.one_run) and one ``h<i>.jsonl`` per agent. Everything else in
a results directory is computed from these files, so that a later version can compute it again. They are in this machine's time; all that
leaves this module is in the network's. docs/results.md describes the columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from scenarios.figures.books import port_rows
from scenarios.figures.stats import slowest, whole_steps
from scenarios.figures.writing import replacing
from testbed.view.clock import PLACES, in_ns
from testbed.view.declared import Lines, read_record
from testbed.view.fold import MOST_LINE
from topologies import Fabric
from topologies.addressing import ev_fields
from topologies.files import FileError, opened
from topologies.units import NS

_EVENT_KINDS = frozenset((
    "ev", "loss", "rtx", "redelivered", "rto", "spurious", "qp", "reroute", "fault", "resolved", "reconverged", "failed", "controller",
    "hint", "deny", "allow", "kept", "mapper", "background", "subflow", "quick_adapt", "cut-off",
))  # fmt: skip
_COLUMNS = ("t", "kind", "host", "peer", "ev", "from", "to", "cause", "psn", "count", "name", "on", "phase")

_TRANSFERS = b'"kind":"transfers"'


def read_lines(path: Path, transfers: bool = False, **more: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (file and number of the line, object) of a JSONL file, with ``more`` where a line does not say it; an incomplete last line (its
    writer was killed) is dropped. Raises :class:`FileError`. ``transfers``: those of kind transfers, which are the bulk of a long run;
    otherwise all others."""
    if not os.path.lexists(path):  # a link to nowhere is damage
        return
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with opened(path) as file:
        for number in count(1):
            line = file.readline(MOST_LINE)
            if not line.endswith(b"\n") and len(line) < MOST_LINE:
                return
            if (_TRANSFERS in line[:80]) != transfers:
                continue
            where = path.with_name(f"{path.name}, line {number}")
            try:
                yield where, {**more, **decode(line)}
            except (ValueError, RecursionError) as error:
                raise FileError(f"damaged: {where} ({error}): take it from a copy, or run the scenario again") from None


@dataclass
class Run:
    """One run, read from its files."""

    directory: Path

    @cached_property
    def record(self) -> dict[str, Any]:
        return dict(in_ns(read_record(self.directory / "run.json")))

    @cached_property
    def fabric(self) -> Fabric:
        return Fabric.from_dict(self.record["fabric"])

    @property
    def base_rtt_ns(self) -> float:
        return self.fabric.base_rtt_ps / NS

    @property
    def key(self) -> str:
        return self.directory.name

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of all agents' logs and of the runner's journal, by time, without those of transfers. ``host`` -1 is the runner."""
        lines = list(self.checked(self.directory / "runner.jsonl", host=-1))
        for path in self._logs:
            lines += self.checked(path, host=int(path.stem[1:]))
        lines.sort(key=lambda line: float(line.get("t", 0)))
        return lines

    @property
    def _logs(self) -> list[Path]:
        return [path for path in sorted(self.directory.glob("h*.jsonl")) if path.stem[1:].isdecimal()]

    def checked(self, path: Path, kind: str = "", **more: Any) -> Iterator[dict[str, Any]]:
        """Yield the lines of a log of this run, checked against what is declared. Raises :class:`FileError`."""
        lines = Lines(self.fabric, len(self.record["ranks"]), len(self.named_flows))
        for where, line in read_lines(path, kind == "transfers", **more):
            lines.check(line, where, kind)
            yield in_ns(line)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Kind -> the places of its lines in :attr:`lines`."""
        places: dict[str, list[int]] = {}
        for place, line in enumerate(self.lines):
            places.setdefault(line.get("kind", ""), []).append(place)
        return places

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [self.lines[place] for place in sorted(place for kind in set(kinds) for place in self._places.get(kind, ()))]

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per rank and step; ``step`` counts measured ones from 0, warm-up steps are negative."""
        warm = int(self.record["warmup_steps"])
        if self.jobs:
            return self._job_steps(warm)
        rows = [
            {
                "run": self.key, "transport": self.record["transport"], "fabric": self.fabric.name, "placement": self.record["placement"],
                "seed": self.record["seed"], "rank": line["rank"], "step": line["step"] - warm, "warmup": line["step"] < warm,
                "start_ns": line["start_ns"], "end_ns": line["end_ns"], "ok": bool(line["ok"]),
            }
            for line in self.of("step")
        ]  # fmt: skip
        columns = ["run", "transport", "fabric", "placement", "seed", "rank", "step", "warmup", "start_ns", "end_ns", "ok"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The run's jobs, if it has any: name, ranks, compute_ns, estimate_ns of each."""
        return list(self.record.get("jobs", ()))

    @cached_property
    def passes(self) -> pd.DataFrame:
        """The steps of a run of jobs, one row per rank and step: phase, step in it, rank, start_ns, end_ns, late_ns, wrong (so far)."""
        rank_of = {host: rank for rank, host in enumerate(self.record["ranks"])}
        rows = []
        for line in self.of("told"):
            if "step" in line.get("note", {}):
                phase, number, begin, end, late, wrong = line["note"]["step"]
                rows.append((int(phase), int(number), rank_of[line["host"]], begin, end, late, int(wrong)))
        return pd.DataFrame(rows, columns=["phase", "step", "rank", "start_ns", "end_ns", "late_ns", "wrong"])

    def _job_steps(self, warm: int) -> pd.DataFrame:
        """Return the steps of the last phase, in which all jobs run."""
        last = self.passes[self.passes["phase"] == self.passes["phase"].max()].sort_values(["end_ns", "rank"])
        own = {
            "run": self.key, "transport": self.record["transport"], "fabric": self.fabric.name, "placement": self.record["placement"],
            "seed": self.record["seed"], "rank": last["rank"], "step": last["step"] - warm, "warmup": last["step"] < warm,
            "start_ns": last["start_ns"], "end_ns": last["end_ns"], "ok": last["wrong"] == 0,
        }  # fmt: skip
        return pd.DataFrame(own).reset_index(drop=True)

    @cached_property
    def whole_steps(self) -> pd.DataFrame:
        """The rows of :attr:`steps` of measured steps that all ranks finished; of several jobs, the first one's."""
        return self._with_warm_up[~self._with_warm_up["warmup"].astype(bool)]

    @cached_property
    def _with_warm_up(self) -> pd.DataFrame:
        """The rows of :attr:`steps` of measured and warm-up steps that all ranks finished; of several jobs, the first one's."""
        return whole_steps(self.steps, self.jobs[0]["ranks"] if self.jobs else range(len(self.record["ranks"])))

    @cached_property
    def warm_ns(self) -> float | None:
        """The time at which the last of these ranks ended the last step to warm up; None without one."""
        ends = self._with_warm_up.loc[self._with_warm_up["step"] == -1, "end_ns"]
        return float(ends.max()) if len(ends) else None

    @cached_property
    def step_times(self) -> pd.Series[Any]:
        """The time of the slowest rank, ns, for each step of :attr:`whole_steps`."""
        return slowest(self.whole_steps).astype(float)

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """One row per slice that a rank sent another in a measured step that all ranks finished. ``start_ns``: its sender posted it;
        ``end_ns``: the program of its receiver saw it complete."""
        warm, steps = int(self.record["warmup_steps"]), set(self.step_times.index)
        keys = ["step", "stage", "slice", "src", "dst"]
        lists: dict[str, list[np.ndarray[Any, Any]]] = {"posted": [], "arrived": []}
        for path in self._logs:
            for line in self.checked(path, "transfers", host=int(path.stem[1:])):
                if line["step"] - warm in steps:
                    for name, arrays in lists.items():
                        peer, stage, number, ns = np.array(line[name], float).reshape(-1, 4).T
                        own, step = np.full_like(peer, line["rank"]), np.full_like(peer, line["step"] - warm)
                        src, dst = (own, peer) if name == "posted" else (peer, own)
                        arrays.append(np.stack([step, stage, number, src, dst, np.round(ns + line["start_ns"], PLACES)]))
        times = {"posted": "start_ns", "arrived": "end_ns"}
        posted, arrived = (
            pd.DataFrame(np.concatenate(lists[name], axis=1).T if lists[name] else [], columns=[*keys, column], dtype=float)
            for name, column in times.items()
        )
        frame = posted.merge(arrived, on=keys).astype(dict.fromkeys(keys, "int64"))
        frame.insert(0, "run", self.key)
        return frame

    @cached_property
    def window(self) -> tuple[float, float]:
        """Begin of the first measured step and end of the last, ns; the window of ``run.json`` if there are no steps."""
        frame = self.steps[~self.steps["warmup"].astype(bool)]
        if frame.empty:
            begin, end = self.record["window"]
            return begin, end
        ends = [frame["end_ns"].max(), *(self.record["window"][1:] if self.record["outcome"] != "done" else ())]
        return float(frame["start_ns"].min()), float(max(ends))

    @cached_property
    def events(self) -> pd.DataFrame:
        """Faults, EV state changes, losses and retransmissions on one monotonic clock; rare fields as JSON in ``detail``."""
        rows = []
        for line in self.of(*_EVENT_KINDS):
            detail = {k: v for k, v in line.items() if k not in _COLUMNS}
            ev = line.get("ev")
            rows.append(
                {
                    "run": self.key, "t_ns": line["t"], "host": line["host"], **{k: line.get(k) for k in _COLUMNS if k not in ("t", "host")},  # noqa: E501
                    "plane": None if ev is None else ev >> 16, "uplink": None if ev is None else ev & 0xFFFF,
                    "detail": json.dumps(detail) if detail else None,
                }
            )  # fmt: skip
        columns = "run t_ns host kind peer ev plane uplink from to cause psn count name on phase detail".split()
        frame = pd.DataFrame(rows, columns=columns)
        for column in ("peer", "ev", "plane", "uplink", "psn", "count"):
            frame[column] = frame[column].astype("Int64")
        for column in ("kind", "from", "to", "cause", "name", "on", "phase", "detail"):
            frame[column] = frame[column].astype("string")
        return frame

    @cached_property
    def goodput(self) -> pd.DataFrame:
        """Payload bytes per host, bin and plane: ``t_ns`` (bin start), ``bin_ns``, ``tx_bytes``, ``rx_bytes``."""
        rows = [
            {
                "run": self.key,
                "host": line["host"],
                "t_ns": line["t"],
                "bin_ns": line["bin_ns"],
                "plane": plane,
                "tx_bytes": tx,
                "rx_bytes": rx,
            }
            for line in self.of("goodput")
            for plane, (tx, rx) in enumerate(zip(line["tx"], line["rx"], strict=True))
        ]
        return pd.DataFrame(rows, columns=["run", "host", "t_ns", "bin_ns", "plane", "tx_bytes", "rx_bytes"])

    # --- of flows --------------------------------------------------------------------------------------------

    @property
    def named_flows(self) -> list[dict[str, Any]]:
        """The run's flows as resolved: name, group, src and dst (ranks), start_ns, for_ns, messages, evs."""
        return list(self.record.get("flows", []))

    @cached_property
    def flows(self) -> pd.DataFrame:
        """Payload bytes per flow and bin, as counted by the receiver: ``t_ns`` (bin start), ``bin_ns``, ``rx_bytes``."""
        names = [flow["name"] for flow in self.named_flows]
        rows = [
            (self.key, line["host"], names[line["flow"]] if "flow" in line else None, line["t"], line["bin_ns"], line["rx"])
            for line in self.of("flow")
        ]
        return pd.DataFrame(rows, columns=["run", "host", "flow", "t_ns", "bin_ns", "rx_bytes"])

    @cached_property
    def messages(self) -> pd.DataFrame:
        """One row per message, which its sender wrote when the message was complete."""
        names = [flow["name"] for flow in self.named_flows]
        keys = ("number", "bytes", "start_ns", "end_ns")
        rows = [(self.key, line["host"], names[line["flow"]], *(line[k] for k in keys)) for line in self.of("message")]
        return pd.DataFrame(rows, columns=["run", "host", "flow", *keys])

    @cached_property
    def queues(self) -> pd.DataFrame:
        """Samples of the backlog of the watched ports, bytes of the data class."""
        rows = [
            (self.key, line["t"], line["port"], line["bytes"]) for line in self.checked(self.directory / "queues.jsonl", "queues", host=-1)
        ]
        return pd.DataFrame(rows, columns=["run", "t_ns", "port", "bytes"])

    @cached_property
    def evs(self) -> pd.DataFrame:
        """Packets per EV and bin, as counted by the sender; there is no row for an EV without packets in a bin."""
        rows = [
            (self.key, line["host"], line["peer"], line["t"], line["bin_ns"], int(ev), *ev_fields(int(ev)), packets)
            for line in self.of("evs")
            for ev, packets in line["tx"].items()
        ]
        return pd.DataFrame(rows, columns=["run", "host", "peer", "t_ns", "bin_ns", "ev", "plane", "uplink", "tx_packets"])

    @cached_property
    def cwnd(self) -> pd.DataFrame:
        """Window, bytes in flight and smoothed RTT per sending queue pair and bin; ``rate_bps`` for queue pairs with a rate."""
        names = [flow["name"] for flow in self.named_flows]
        keys = ("peer", "qpn", "cwnd", "in_flight", "srtt_ns", "rate_bps")
        rows = [
            (self.key, line["host"], names[line["flow"]] if "flow" in line else None, line["t"], *(line.get(k) for k in keys))
            for line in self.of("cwnd")
        ]
        types = dict.fromkeys(("peer", "qpn", "cwnd_bytes", "in_flight_bytes"), "Int64") | dict.fromkeys(("srtt_ns", "rate_bps"), "Float64")
        return pd.DataFrame(rows, columns=["run", "host", "flow", "t_ns", *types]).astype(types)

    # --- counters --------------------------------------------------------------------------------------------

    @cached_property
    def counters(self) -> pd.DataFrame:
        """Counters of all ports over this run (gauges: their values at its end)."""
        frame = pd.DataFrame(port_rows(self.record))
        frame.insert(0, "run", self.key)
        return frame

    @cached_property
    def agents(self) -> pd.DataFrame:
        """Engine counters at the end of the run: run, host, counter, value."""
        rows = [{"run": self.key, "host": int(h), "counter": k, "value": v} for h, c in agent_counters(self).items() for k, v in c.items()]
        return pd.DataFrame(rows, columns=["run", "host", "counter", "value"])


def agent_counters(run: Run) -> dict[str, dict[str, Any]]:
    """Engine counters by host: the values read at the end, else the last values that the agent logged itself."""
    if "agent_counters" in run.record:
        return dict(run.record["agent_counters"])
    skip = ("t", "kind", "host")
    return {
        str(line["host"]): {k: v for k, v in line.items() if k not in skip and isinstance(v, (int, float))} for line in run.of("counters")
    }


def load_runs(directory: Path) -> list[Run]:
    """The runs of a results directory, in the order in which they ran; simulated ones, which all begin at one time, by name. Nothing that
    was read of them stays in memory: of 512 hosts, a run's record takes 270 MB."""

    def order(place: Path) -> tuple[int, str]:
        return int(read_record(place / "run.json")["window"][0]), place.name

    return [Run(place) for place in sorted((path.parent for path in (directory / "raw").glob("*/run.json")), key=order)]


TABLES = ("steps", "transfers", "events", "counters", "goodput", "agents", "flows", "messages", "queues", "evs", "cwnd")


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    """All tables of a run, by name; the log lines that were read for them are released."""
    fresh = Run(run.directory)
    return {name: getattr(fresh, name) for name in TABLES}


def write_tables(runs: list[Run], directory: Path) -> None:
    """Write all tables as Parquet. Only one run's log is in memory at a time, beside the tables of all runs."""
    per_run = [tables_of(run) for run in runs]
    for name in TABLES:
        all_frames = [tables.pop(name) for tables in per_run]
        frames = [frame for frame in all_frames if not frame.empty]
        table = pd.concat(frames, ignore_index=True) if frames else all_frames[0] if all_frames else pd.DataFrame()
        with replacing(directory / f"{name}.parquet") as part:
            table.to_parquet(part, index=False)
