"""Records of runs of flows, made by hand: what agents and runner would have written had the network
behaved as a function says.

``make`` writes a results directory for a scenario, ``Play`` says how each transport plays its part.
No clock, no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scenarios.figures.measure import Run, load_runs, write_tables
from scenarios.figures.summary import summarise
from scenarios.run.manifest import make_manifest
from scenarios.run.planning import plan
from scenarios.schema.scenario import Scenario
from scenarios.schema.workloads import Flow, resolve_flows, watched_ports
from testbed.results.summary import Summary
from topologies import Fabric
from topologies.paths import path_evs
from topologies.structs import plain
from topologies.theory import place_ranks
from topologies.units import BYTE, US

BEAT = 50 * US
"""What plays count in."""
T0 = 10 * BEAT


def _line(flow: Flow, fabric: Fabric, t: float) -> float:
    return fabric.host_rate * fabric.payload_share


@dataclass
class Play:
    """How a run goes; ``t`` is beats from t0."""

    rate: Callable[[Flow, Fabric, float], float] = _line  # bits/s of payload while a flow sends
    # bytes, by port and group
    queue: Callable[[str, str, Fabric, float], int] = lambda port, group, fabric, t: 0
    # (flow, place of the EV among its own, t) -> packets in a bin
    packets: Callable[[Flow, int, float], int] | None = None
    cwnd: Callable[[Flow, Fabric, float], int] | None = None  # bytes
    losses: list[str] = field(default_factory=list)  # rules of loss events
    rtos: int = 0
    ports: dict[str, int] = field(default_factory=dict)  # counters of every watched port
    wrong: int = 0


def evs_of(flow: Flow, fabric: Fabric, hosts: list[int]) -> list[int]:
    """The EVs that a flow's queue pair uses: all, or the last few of each plane."""
    evs = path_evs(fabric, hosts[flow.src], hosts[flow.dst])
    per_plane = len(evs) // fabric.planes
    return [ev for i, ev in enumerate(evs) if not flow.evs or per_plane - i % per_plane <= flow.evs]


def write_run(directory: Path, scenario: Scenario, spec: Any, play: Play) -> Run:
    """One run's raw files."""
    fabric, work, transport = spec.transport.fabric, scenario.workload, spec.transport
    hosts = place_ranks(fabric, spec.placement)
    flows = resolve_flows(work, fabric, hosts, spec.seed)
    ports = watched_ports(flows, fabric, hosts)
    where = directory / "raw" / spec.key
    where.mkdir(parents=True)
    bin_ps = 2 * fabric.base_rtt_ps
    logs: dict[int, list[dict[str, Any]]] = {}
    end = T0
    for number, flow in enumerate(flows):
        begin, size, number_of, left = T0 + flow.start_ps, work.message_bytes, 0, flow.messages
        t, owed = begin, 0.0
        while t < begin + flow.for_ps if flow.for_ps is not None else left:
            at = (t - T0) / BEAT
            got = play.rate(flow, fabric, at) * bin_ps / BYTE
            logs.setdefault(hosts[flow.dst], []).append(
                {"t": t, "kind": "flow", "flow": number, "bin_ps": bin_ps, "rx": round(got)}
            )
            owed += got
            while owed >= size and (left is None or left):
                owed -= size
                posted = max(begin, t - 4 * bin_ps) if number_of else begin
                said = {
                    "number": number_of,
                    "bytes": size,
                    "start_ps": posted,
                    "end_ps": t + bin_ps,
                }
                logs.setdefault(hosts[flow.src], []).append(
                    {"t": t + bin_ps, "kind": "message", "flow": number, **said}
                )
                number_of += 1
                left = None if left is None else left - 1
            sender = logs.setdefault(hosts[flow.src], [])
            if play.packets is not None:
                tx = {
                    str(ev): play.packets(flow, i, at)
                    for i, ev in enumerate(evs_of(flow, fabric, hosts))
                }
                tx = {ev: n for ev, n in tx.items() if n}
                sender.append(
                    {"t": t, "kind": "evs", "peer": hosts[flow.dst], "bin_ps": bin_ps, "tx": tx}
                )
            if play.cwnd is not None:
                window = play.cwnd(flow, fabric, at)
                seen = {
                    "cwnd": window,
                    "in_flight": window * 9 // 10,
                    "srtt_ps": fabric.base_rtt_ps,
                }
                sender.append(
                    {
                        "t": t,
                        "kind": "cwnd",
                        "flow": number,
                        "peer": hosts[flow.dst],
                        "qpn": 7 + number,
                        **seen,
                    }
                )
            t += bin_ps
        end = max(end, t)
    first = logs.setdefault(0, [])
    first += [
        {"t": T0 + 2, "kind": "loss", "peer": 1, "ev": 0, "psn": 1, "rule": rule, "sent_ps": T0}
        for rule in play.losses
    ]
    first += [{"t": T0 + 3, "kind": "rto", "peer": 1, "psn": 1, "firing": 1}] * play.rtos
    for host, lines in logs.items():
        (where / f"h{host}.jsonl").write_text(
            "".join(json.dumps({**line, "host": host}) + "\n" for line in lines)
        )
    sample_ps = fabric.base_rtt_ps // 8
    samples = [
        {"t": t, "port": port, "bytes": play.queue(port, group, fabric, (t - T0) / BEAT)}
        for t in range(T0, end, sample_ps)
        for port, group in ports.items()
    ]
    (where / "queues.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    (where / "runner.jsonl").write_text(
        json.dumps({"t": T0, "kind": "start", "key": spec.key}) + "\n"
    )
    paths: dict[str, list[dict[str, Any]]] = {}
    for flow in flows:
        used = evs_of(flow, fabric, hosts)
        for ev in path_evs(fabric, hosts[flow.src], hosts[flow.dst]):
            paths.setdefault(str(hosts[flow.src]), []).append(
                {"peer": hosts[flow.dst], "ev": ev, "active": ev in used}
            )
    notes = [
        {"flow": i, "rank": f.src, "wrong": play.wrong if i == 0 else 0}
        for i, f in enumerate(flows)
    ]
    record = {
        "key": spec.key,
        "transport": transport.name,
        "kind": transport.kind,
        "fabric": fabric.to_dict(),
        "placement": spec.placement,
        "settings": spec.settings,
        "seed": spec.seed,
        "ranks": hosts,
        "workload": work.kind,
        "message_bytes": work.message_bytes,
        "dtype": work.dtype,
        "steps": work.steps,
        "warmup_steps": work.warmup_steps,
        "settle_ps": work.settle_ps,
        "reconvergence_ps": transport.reconvergence_ps,
        "qps": transport.qps,
        "options": transport.options,
        "outcome": "done",
        "reason": "",
        "window": [T0, end],
        "fault_links": [],
        "faults_missed": [],
        "flows": [asdict(flow) for flow in flows],
        "t0": T0,
        "queue_ports": ports,
        "flow_notes": notes,
        "paths": paths,
        "wrong": {"0": play.wrong},
        "agent_counters": {"0": {"tx_packets": 9, "rx_packets": 9}},
        "counters_before": [{"port": port, "backlog_peak_bytes": 0} for port in ports]
        or [{"port": "h0-p0"}],
        "counters_after": [{"port": port, "node": "p0-t0-0", **play.ports} for port in ports]
        or [{"port": "h0-p0", "node": "h0"}],
    }
    (where / "run.json").write_text(json.dumps(record))
    return Run(where)


def make(directory: Path, scenario: Scenario, plays: dict[str, Play]) -> Summary:
    """A whole results directory, a play per transport's name; returns its summary."""
    for spec in plan(scenario):
        write_run(directory, spec.scenario, spec, plays.get(spec.transport.name, Play()))
    runs = load_runs(directory)
    summary = summarise(scenario, runs)
    (directory / "summary.json").write_text(json.dumps(plain(summary)))
    write_manifest(directory, scenario, summary)
    write_tables(runs, directory)
    return summary


def write_manifest(directory: Path, scenario: Scenario, summary: Summary) -> None:
    """As the runner leaves it at a run's end."""
    fidelity = {run.run: {"verdict": run.verdict} for run in summary.runs}
    (directory / "manifest.json").write_text(
        json.dumps({**make_manifest(scenario, []), "fidelity": fidelity}, default=str)
    )
