"""Measures what a data packet costs on this machine, and keeps it. A run chooses its dilation by it
(docs/why/time.md)."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from testbed.machine.load import read_cpu
from testbed.machine.quota import quota_cores

FILE = Path("/var/cache/mrcbed/calibration.json")
PLACE = "MRCBED_CALIBRATION"
MAX_AGE_S, MAX_AGE_BUSY_S = 86_400, 600
"""Seconds for which a calibration holds, and where others took more than :data:`BUSY_CORES` [ours].
On shared cores a packet costs up to four times as much [measured]; that must not stretch a day's
runs."""
BUSY_CORES = 0.5
ROUNDS, SECONDS = 1, 3.0
"""Measured rings, and the least length of each, s. In a shorter ring a packet costs up to half as
much again [measured]."""
LOOKS, LOOK_S = 3, 0.4


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cpu_us``: CPU time of the whole machine per data packet placed, in a ring on `demo`;
    ``measured_s``: since the epoch; ``others_cores``: cores that others took just before."""

    cpu_us: float
    measured_s: float
    others_cores: float
    machine: dict[str, str | int]


def calibration(progress: Callable[[str, float], None], renew: bool = False) -> Calibration:
    kept = None if renew else read()
    if kept is not None:
        return kept
    from testbed.bench.cluster import cluster_cost

    progress("calibrating: what a packet costs on this machine", 0.0)
    others = others_cores()
    began = time.monotonic(), _busy_us()
    cost = cluster_cost(ROUNDS, SECONDS, lambda what, share: None)
    used = (_busy_us() - began[1]) / (time.monotonic() - began[0]) / 1e6  # cores, on the average
    own_share = max(0.0, 1 - others / used) if used > 0 else 1.0
    cpu_us = max(cost["agents_cpu_us_per_data_packet"], cost["cpu_us_per_data_packet"] * own_share)
    made = Calibration(cpu_us, time.time(), others, machine())
    place = file()
    place.parent.mkdir(parents=True, exist_ok=True)
    # another run may calibrate at this moment
    part = place.with_suffix(f".{os.urandom(4).hex()}.part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")
    part.replace(place)
    return made


def read() -> Calibration | None:
    try:
        kept = msgspec.json.decode(file().read_bytes(), type=Calibration)
    except (OSError, msgspec.MsgspecError):
        return None
    return (
        kept
        if kept.machine == machine() and 0 <= time.time() - kept.measured_s < keeps_s(kept)
        else None
    )


def keeps_s(made: Calibration) -> int:
    return MAX_AGE_S if made.others_cores <= BUSY_CORES else MAX_AGE_BUSY_S


def file() -> Path:
    return Path(os.environ.get(PLACE) or FILE)


def machine() -> dict[str, str | int]:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            platform.machine(),
        )
    import agents.process.loop  # compiled, or source: it costs accordingly

    made = int(os.stat(agents.process.loop.__file__).st_mtime)
    quota = f"{quota_cores():.2g}"  # a packet costs more where a run is stopped again and again
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "quota": quota,
        "kernel": platform.release(),
        "engine": made,
    }


def others_cores() -> float:
    seen = []
    for _ in range(LOOKS):
        before = time.monotonic(), _busy_us()
        time.sleep(LOOK_S)
        seen.append((_busy_us() - before[1]) / (time.monotonic() - before[0]) / 1e6)
    return statistics.median(seen)


def _busy_us() -> float:
    return read_cpu().busy * 1e6 / os.sysconf("SC_CLK_TCK")
