"""NSCC here and in uet-htsim on the same traffic: the table of docs/why/congestion.md, whose rows
take one difference away at a time.

``python -m tests.simulated.beside_htsim --htsim FILE`` prints it; FILE is uet-htsim's
``htsim_uec``, and without it our rows alone are made. One plane of ``rack16``: both get the same
connections, packets of the same size in the same number, thresholds and delays. Classes below are
algorithms for the option ``congestion``: ours with some of uet-htsim's rules [40ccb05,
sim/uec.cpp].
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from agents.mrc.config import Config
from agents.mrc.sender.congestion.nscc import Nscc
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import scenario_of
from scenarios.show.simulators import htsim_ends, htsim_run
from tests.scenarios.small import undrawn
from topologies import load_fabric
from topologies.units import US, wire_time

PLANE = load_fabric("rack16").with_(name="plane", planes=1)
FABRICS = {
    "permutation": PLANE,
    "permutation, 2:1": PLANE.with_(t1_per_plane=PLANE.t1_per_plane // 2),
    "incast": PLANE,
    "all-to-all": PLANE,
}
"""By pattern; "2:1" has half of the uplinks, so that the congestion control decides."""
MSS = 4096
BYTES = {
    "permutation": 8 << 20,
    "permutation, 2:1": 4 << 20,
    "incast": 2 << 20,
    "all-to-all": 1 << 19,
}
"""Of each connection: 60 to 120 base RTTs at line rate."""
WEIGHT = 1 / 80
"""Of a sample in uet-htsim's moving average."""


def pairs(pattern: str, seed: int) -> list[tuple[int, int]]:
    """Connections, all from time 0: each host to one in the other rack and from one there; seven of
    a rack to one in the other; all."""
    hosts = list(range(PLANE.host_count))
    half = len(hosts) // 2
    if pattern == "incast":
        return [(half + k, 0) for k in range(7)]
    if pattern == "all-to-all":
        return [(a, b) for a in hosts for b in hosts if a != b]
    there, back = hosts[half:], hosts[:half]
    Random(seed).shuffle(there)
    Random(seed + 1000).shuffle(back)
    return list(zip(hosts, there + back, strict=True))


def ideal_us(pattern: str) -> float:
    """The busiest port's packets at line rate, and a base RTT."""
    busiest = {
        "permutation": 1,
        "permutation, 2:1": 2,
        "incast": 7,
        "all-to-all": PLANE.host_count - 1,
    }[pattern]
    sent = busiest * BYTES[pattern] // MSS * PLANE.frame_bytes
    return (wire_time(sent, PLANE.nic_rate) + PLANE.base_rtt_ps) / US


class Figures(NamedTuple):
    """Of one run."""

    share: float
    """Ideal time over that of the last connection."""
    first: float
    """Time of the first connection to end over that of the last: 1 is fair."""
    trimmed: float
    """Trims over data packets sent."""


# --- ours -----------------------------------------------------------------------------------------


class Like(Nscc):
    """NSCC with those of uet-htsim's rules that ``taken`` names."""

    taken: frozenset[str] = frozenset()

    def __init__(self, config: Config, path_rtt: int) -> None:
        self.marked = True  # a NACK's sample counts as a marked one's
        self.average = 0.0
        self.guessed = False
        super().__init__(config, path_rtt)

    def _scale(self) -> None:
        super()._scale()
        if "largest window" in self.taken:
            self.max_wnd -= self.config.sack_bytes
        if "no delay" in self.taken:
            self.no_delay = US

    def on_sack(
        self, now: int, news: int, in_flight: int, ecn: bool, rtt: int, penalty: int, restore: bool
    ) -> None:
        if rtt < 0 and "no sample" in self.taken:
            self.guessed, rtt = True, self.base_rtt + int(self.average)
        self.marked = ecn
        super().on_sack(now, news, in_flight, ecn, rtt, penalty, restore)
        self.marked, self.guessed = True, False

    def on_wrong_loss(self, now: int, size: int) -> None:
        if "wrong loss" not in self.taken:
            super().on_wrong_loss(now, size)

    def _average(self, now: int, d: int) -> float:
        if self.guessed:
            return self.average
        if "average" in self.taken:
            self.average += WEIGHT * (
                (d if self.marked or d <= self.target else self.base_rtt / 4) - self.average
            )
        else:
            self.average = super()._average(now, d)
        return self.average

    def _quick_adapt(self, now: int, in_flight: int, loss: bool, ecn: bool, d: int) -> bool:
        before = self.trimmed
        acted = super()._quick_adapt(now, in_flight, loss, ecn, d)
        if not acted and "trigger" in self.taken:
            self.trimmed = before
        return acted


RULES = {
    "Average": "average",
    "NoSample": "no sample",
    "WrongLoss": "wrong loss",
    "LargestWindow": "largest window",
    "NoDelay": "no delay",
    "Trigger": "trigger",
}
globals().update(
    {name: type(name, (Like,), {"taken": frozenset({rule})}) for name, rule in RULES.items()}
)
All = type("All", (Like,), {"taken": frozenset(RULES.values())})

UET: dict[str, Any] = {
    "fabric_options": {"last_hop_ecn": True, "trim_last_hop_bdp": 1.0},
    "options": {"receiver_penalty": 0},
}
"""As uet-htsim has it: every hop marks, trims alike, and receivers ask for nothing."""


def _uet(name: str, options: dict[str, Any] | None = None, **fabric: Any) -> dict[str, Any]:
    """A transport with UET's switches and an algorithm of this module."""
    chosen = {
        **UET["options"],
        "congestion": f"tests.simulated.beside_htsim:{name}",
        **(options or {}),
    }
    return {"options": chosen, "fabric_options": {**UET["fabric_options"], **fabric}}


OURS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "UET's switches, no penalty": UET,
    **{f"+ {rule}": _uet(name) for name, rule in RULES.items()},
    "all of these rules": _uet("All"),
    "and the whole line rate": _uet("All", {"pace": 1.0}),
    "and T1s by hash": _uet("All", {"pace": 1.0}, routing="ecmp"),
}
"""Rows of the table: the first two as they are, then one rule at a time, then more and more of
uet-htsim."""


def ours(
    pattern: str, rows: Sequence[str], seeds: Sequence[int], folder: Path
) -> dict[str, list[Figures]]:
    """A scenario with a transport for each row; one for each seed where that draws the
    connections."""
    made: dict[str, list[Figures]] = {row: [] for row in rows}
    keys = ("planes", "t0_per_plane", "t1_per_plane", "hosts_per_t0")
    (folder / "plane.toml").write_text(
        "\n".join(["format = 3", *(f"{key} = {getattr(FABRICS[pattern], key)}" for key in keys)])
    )
    names = {f"row{number}": row for number, row in enumerate(rows)}
    for seed in seeds:
        flows = [
            {"name": f"{a}-{b}", "src": f"h{a}", "dst": f"h{b}", "messages": 1}
            for a, b in pairs(pattern, seed)
        ]
        data = {
            "name": pattern,
            "description": f"{pattern} beside uet-htsim",
            "fabric": "plane.toml",
            "seeds": [seed],
            "timeout": "600s",
            "workload": {"kind": "flows", "message_bytes": BYTES[pattern], "flow": flows},
            "transport": [
                {"kind": "mrc", "name": name, **row}
                for name, row in zip(names, map(OURS.__getitem__, rows), strict=True)
            ],
        }
        there = folder / f"{pattern}-{seed}"
        there.mkdir()
        with undrawn():
            summary = simulate(scenario_of(folder / "made.toml", "", data), there)
        messages = pd.read_parquet(there / "messages.parquet")
        for run in summary["runs"]:
            ends = messages[messages["run"] == run["run"]]
            took = (ends["end_ns"] - ends["start_ns"].min()) / 1000
            sent = len(flows) * BYTES[pattern] // MSS + run["packets"]["retransmitted"]
            figures = Figures(
                ideal_us(pattern) / took.max(),
                took.min() / took.max(),
                run["packets"]["trimmed"] / sent,
            )
            made[names[run["transport"]]].append(figures)
    return made


# --- uet-htsim ------------------------------------------------------------------------------------

HTSIM: dict[str, list[str]] = {
    "uet-htsim": [], "uet-htsim, spraying without feedback": ["-load_balancing_algo", "oblivious"],
    "uet-htsim, base RTT not from NACKs": ["-disable_base_rtt_update_on_nack"],
}  # fmt: skip


def htsim(program: str, pattern: str, options: Sequence[str], seed: int) -> Figures:
    fabric = FABRICS[pattern]
    flows = pairs(pattern, seed)
    with tempfile.TemporaryDirectory() as folder:
        words = htsim_run(
            program, fabric, [[(a, b, BYTES[pattern]) for a, b in flows]], Path(folder), seed
        )
        out = subprocess.run(
            [*words, *options], cwd=folder, capture_output=True, text=True, timeout=300, check=True
        ).stdout
    took, sent = htsim_ends(out, len(flows))
    return Figures(
        ideal_us(pattern) / max(took),
        min(took) / max(took),
        sent["NACKs"] / (sent["New"] + sent["Rtx"]),
    )


# --- the table ------------------------------------------------------------------------------------

COLUMNS = (
    ("permutation", "share"),
    ("permutation, 2:1", "share"),
    ("permutation, 2:1", "first"),
    ("permutation, 2:1", "trimmed"),
    ("incast", "share"),
    ("incast", "first"),
    ("incast", "trimmed"),
    ("all-to-all", "share"),
)


def table(rows: dict[str, dict[str, list[Figures]]]) -> Iterator[str]:
    """Medians over the seeds, per cent, as Markdown; ``rows``: figures by row and pattern."""
    yield "| | " + " | ".join(f"{pattern}: {figure}" for pattern, figure in COLUMNS) + " |"
    yield "| --- " * (len(COLUMNS) + 1) + "|"
    widest = 0.0
    for row, found in rows.items():
        cells = [
            [100 * getattr(one, figure) for one in found[pattern]] for pattern, figure in COLUMNS
        ]
        widest = max(
            widest,
            *(
                max(cell) - min(cell)
                for (_, figure), cell in zip(COLUMNS, cells, strict=True)
                if figure != "first"
            ),
        )
        yield f"| {row} | " + " | ".join(f"{median(cell):.1f}" for cell in cells) + " |"
    yield (
        f"\nNo share and no part of trims differs by more than {widest:.1f} points between the "
        "seeds."
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--htsim", default="", help="uet-htsim's htsim_uec")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(words)
    seeds = range(1, given.seeds + 1)
    rows: dict[str, dict[str, list[Figures]]] = {
        row: {} for row in (*OURS, *(HTSIM if given.htsim else ()))
    }
    for pattern in BYTES:
        with tempfile.TemporaryDirectory() as folder:
            for row, found in ours(pattern, list(OURS), seeds, Path(folder)).items():
                rows[row][pattern] = found
        for row, options in HTSIM.items() if given.htsim else ():
            rows[row][pattern] = [htsim(given.htsim, pattern, options, seed) for seed in seeds]
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
