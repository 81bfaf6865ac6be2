"""Measures what library and agent cost a program of RDMA verbs, beside the engine alone on the same
paths."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from testbed.bench.fabric import BENCH, DILATION, ENGINE_OPTIONS, stream
from testbed.emulated.cluster import Cluster
from testbed.emulated.verbs_words import preloading
from testbed.errors import UserError
from testbed.machine import sandbox
from testbed.machine.load import read_work
from testbed.machine.slowness import patient
from testbed.verbs.build import library

SHAPES = {"8 B": (8, 128), "64 KiB": (64 << 10, 32)}
FIXED = {**ENGINE_OPTIONS, "congestion": "fixed"}


def program_stream(
    cluster: Cluster, program: Path, seconds: float, size: int, depth: int
) -> dict[str, float]:
    pids = {name: pid for name, pid in cluster.processes().items() if name in ("h0", "h1")}

    def agents_us() -> dict[str, float]:
        return {
            name: work.cpu_ns / 1e3
            for name, pid in pids.items()
            if (work := read_work(pid)) is not None
        }

    command = [*preloading(library()), str(program), str(seconds), str(size), str(depth)]
    pipe = subprocess.PIPE
    ends = [
        cluster.net[host].popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for host in ("h0", "h1")
    ]
    lines = [end.stdout.readline().strip() for end in ends]
    before = agents_us()
    for sends, end, peer in ((1, ends[0], lines[1]), (0, ends[1], lines[0])):
        end.stdin.write(f"{peer} {sends}\n")
        end.stdin.flush()
    said = ends[0].stdout.readline().split()
    after = agents_us()
    for end in ends:
        errors = end.communicate(timeout=patient(30))[1]
        if end.returncode or len(said) != 5:
            raise UserError(f"the stream of verbs failed: {errors.strip()[-200:] or lines}")
    messages, wall_ns, posting, polling, all_of_it = map(int, said)
    return {
        "writes_per_second": messages / wall_ns * 1e9,
        "post_us": posting / messages / 1e3,
        "poll_us": polling / messages / 1e3,
        "program_us": all_of_it / messages / 1e3,
        "sender_us": (after["h0"] - before["h0"]) / messages,
        "receiver_us": (after["h1"] - before["h1"]) / messages,
    }


def verbs_cost(
    rounds: int, seconds: float, progress: Callable[[str, float], None]
) -> dict[str, object]:
    """Return medians of ``rounds`` by the size of a WRITE. ``on_top`` is what verbs add, us of CPU
    time a WRITE: all of the program, and what its agent takes beyond the engine alone."""
    found: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {
        name: [] for name in SHAPES
    }
    with (
        tempfile.TemporaryDirectory(dir=sandbox.RUN_DIR) as scratch,
        tempfile.TemporaryDirectory(prefix="mrcbed-bench-") as logs,
        Cluster(BENCH, dilation=DILATION, controller=False) as cluster,
    ):
        program = Path(scratch, "verbs_stream")
        source = str(Path(__file__).with_suffix("")) + "_stream.c"
        subprocess.run(["gcc", "-O2", "-o", str(program), source, "-libverbs"], check=True)
        for k in range(rounds):
            for n, (name, (size, depth)) in enumerate(SHAPES.items()):
                progress(
                    f"WRITEs of {name} through verbs, round {k + 1} of {rounds}",
                    (k + n / len(SHAPES)) / rounds,
                )
                alone = stream(cluster, seconds, "fixed", size, depth)
                cluster.start_agents("mrc", FIXED, Path(logs), 1)
                verbs = program_stream(cluster, program, seconds, size, depth)
                cluster.stop_agents()
                found[name].append((alone, verbs))
    result: dict[str, object] = {}
    for name, pairs in found.items():
        engine, verbs = (
            {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            for rows in zip(*pairs, strict=True)
        )
        on_top = [v["program_us"] + v["sender_us"] - e["sender_us"] for e, v in pairs]
        result[name] = {
            "bytes": SHAPES[name][0],
            "engine": engine,
            "verbs": verbs,
            "on_top_us": statistics.median(on_top),
        }
    return result
