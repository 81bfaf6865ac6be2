"""Runs in which something broke, written by hand line by line: what the runner and the agents would
have logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scenarios.figures.measure import Run
from scenarios.schema.workloads import Flow
from tests.fabrics import near
from topologies import Fabric, load_fabric
from topologies.units import NS, US

S = 100 * US
"""What stories count in: a "second" of ten base RTTs of a shipped fabric."""
MS = S // 1000
T0 = 100 * S
TINY = near(load_fabric("tiny"))
"""2 planes of 2 T0s and 2 T1s, 2 hosts under each T0: h0 and h1, h2 and h3."""
RTT = TINY.base_rtt_ps
LINE = TINY.host_rate * TINY.payload_share * S / 10**12
"""Bits of payload in an S."""
NET_S, NET_MS, NET_RTT = (time / NS for time in (S, MS, RTT))
"""The same in ns, as what is read of a run."""


def at(seconds: float) -> int:
    """The time so many S after the traffic began."""
    return T0 + round(seconds * S)


def net_at(seconds: float) -> float:
    """The same moment in ns."""
    return at(seconds) / NS


def fault(
    name: str, kind: str, on: str, links: Sequence[str], *phases: tuple[str, float], **keys: Any
) -> list[dict[str, Any]]:
    """The journal's lines of one fault: (phase, seconds) each."""
    made = [
        {
            "t": at(t),
            "kind": "fault",
            "name": name,
            "fault": kind,
            "on": on,
            "phase": p,
            "links": list(links),
            "keys": keys,
        }
        for p, t in phases
    ]
    return sorted(made, key=lambda line: int(str(line["t"])))


def verdict(
    host: int, peer: int, ev: int, t: float, last: float, to: str = "ASSUMED_BAD", **more: Any
) -> dict[str, Any]:
    """A change of an EV's state."""
    was = "GOOD" if to == "ASSUMED_BAD" else "ASSUMED_BAD"
    said = {
        "peer": peer,
        "ev": ev,
        "from": was,
        "to": to,
        "cause": "time",
        "last_data_ps": at(last),
    }
    return {"t": at(t), "kind": "ev", "host": host, **said, **more}


def loss(
    host: int, peer: int, ev: int, t: float, sent: float, rule: str = "time"
) -> dict[str, Any]:
    """A packet that its sender found lost."""
    return {
        "t": at(t),
        "kind": "loss",
        "host": host,
        "peer": peer,
        "ev": ev,
        "psn": 1,
        "rule": rule,
        "sent_ps": at(sent),
    }


def steps(spans: Sequence[tuple[float, float]], ranks: int = 4) -> list[dict[str, Any]]:
    """Every rank's steps: (begin, end) in seconds."""
    return [
        {
            "t": at(b),
            "kind": "step",
            "host": r,
            "rank": r,
            "step": i,
            "start_ps": at(a),
            "end_ps": at(b),
            "ok": True,
        }
        for i, (a, b) in enumerate(spans)
        for r in range(ranks)
    ]


def goodput(
    host: int, t: float, tx: Sequence[int], rx: Sequence[int], bin_ps: int = 100 * MS
) -> dict[str, Any]:
    """One bin of a host, bytes per plane."""
    return {
        "t": at(t),
        "kind": "goodput",
        "host": host,
        "bin_ps": bin_ps,
        "tx": list(tx),
        "rx": list(rx),
    }


def write(
    directory: Path,
    journal: Sequence[dict[str, Any]],
    lines: Sequence[dict[str, Any]],
    *,
    fabric: Fabric = TINY,
    flows: Sequence[Flow] = (),
    ranks: Sequence[int] = (0, 1, 2, 3),
    end: float = 20.0,
    **record: Any,
) -> Run:
    """A run of ring all-reduces, or of flows if there are some."""
    directory.mkdir(parents=True, exist_ok=True)
    start = [{"t": T0, "kind": "start", "key": "x"}]
    (directory / "runner.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*start, *journal])
    )
    for host in ranks:
        mine = [line for line in lines if line["host"] == host]
        # as agents do
        (directory / f"h{host}.jsonl").write_text(
            "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in mine)
        )
    told = {
        "key": "mrc-tiny-packed-s1",
        "transport": "mrc",
        "kind": "mrc",
        "fabric": fabric.to_dict(),
        "placement": "packed",
        "seed": 1,
        "ranks": list(ranks),
        "workload": "flows" if flows else "ring-allreduce",
        "message_bytes": 1 << 20,
        "dtype": "int32",
        "steps": len({line["step"] for line in lines if line["kind"] == "step"}),
        "warmup_steps": 0,
        "reconvergence_ps": None,
        "qps": 1,
        "options": {},
        "outcome": "done",
        "reason": "",
        "window": [T0, at(end)],
        "fault_links": [],
        "faults_missed": [],
        "flows": [asdict(flow) for flow in flows],
        **({"t0": T0} if flows else {}),
        "controller": "none",
    }
    (directory / "run.json").write_text(json.dumps(told | record))
    return Run(directory)
