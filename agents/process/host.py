"""The host process: the MRC (or baseline) endpoint of one host or several, on raw sockets, each
steered over a Unix socket.

``python -m agents.process.host --config FILE --parent PID`` imports everything once, forks the host
processes that FILE describes, prints their ids as one JSON object (name -> id) and ends. PID, a
subreaper meanwhile (testbed/machine/parent.py), adopts them. A host process is named agent-NAME,
writes errors to NAME.err beside FILE, and lives in its first host's network namespace. Once
everything that needs root is open, root is dropped for good. It dies with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from agents.clock import WallClock
from agents.collectives.data import StepData
from agents.collectives.registry import collectives
from agents.nic.device import TRANSPORTS, check_options, make_device
from agents.nic.packet_io import drop_root
from agents.process.loop import Host, Place, share
from agents.verbs.server import listen
from topologies.clos import Fabric, FabricError

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_TIMERSLACK = 29
CLONE_NEWNET = 0x40000000
AT_ONCE = 32
"""Most hosts whose sockets are opened or closed at once: each waits for an RCU grace period, which
they share."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Raises OSError."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _enter(f"/proc/self/fd/{own}")
    finally:
        os.close(own)


def _enter(namespace: str) -> None:
    fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    finally:
        os.close(fd)


class Process(TypedDict):
    name: str
    user: int
    hosts: list[Place]


class Config(TypedDict):
    fabric: dict[str, object]
    clock: dict[str, float]
    transport: str
    options: dict[str, object]
    seed: int
    processes: list[Process]


def open_host(config: Config, fabric: Fabric, place: Place) -> Host:
    """Raises OSError, ValueError or KeyError."""
    clock = WallClock(config["clock"]["dilation"], int(config["clock"]["origin"]))
    with inside(place["netns"]):
        device = make_device(
            fabric,
            place["host"],
            clock,
            config["transport"],
            config.get("options", {}),
            config.get("seed", 0),
        )
        listener = listen() if config["transport"] in TRANSPORTS else None
    return Host(fabric, place["host"], device, place, clock, listener)


def main() -> int:
    parser = argparse.ArgumentParser(description="mrcbed host processes")
    parser.add_argument("--config", required=True, type=Path, help="JSON file")
    parser.add_argument("--parent", required=True, type=int, help="process that adopts them")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that steers us
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # which holds signals back while it starts us
    # Modules imported on first use must be imported before root is dropped: the clone may be in a
    # home that only root may read.
    zeros = np.zeros(4, np.float32)
    StepData(zeros, zeros, 1).wrong(0, zeros)
    collectives()
    try:
        config: Config = json.loads(args.config.read_text(encoding="utf-8"))
        fabric = Fabric.from_dict(config["fabric"])
        # Before there are threads: msgspec makes what it needs of a type at its first use, and
        # threads that meet there crash in it (0.22).
        check_options(config["transport"], fabric, config.get("options", {}))
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(error, file=sys.stderr)
        return 2
    gc.collect()
    gc.freeze()  # no collection of a host process touches what it shares with the others
    ours, made = os.getpid(), {}
    wait, go = os.pipe()
    for process in config["processes"]:
        pid = os.fork()
        if not pid:
            os.close(go)
            # nothing where the process that forked was killed: nobody has heard of this one
            told = os.read(wait, 1)
            os.close(wait)
            if not told or not _adopted(ours, args.parent):
                return 0
            _detach(process["name"], args.config.parent)
            return host_process(config, fabric, process, args.parent)
        made[process["name"]] = pid
    print(json.dumps(made), flush=True)
    os.write(go, b"x" * len(made))
    return 0


def _adopted(before: int, parent: int) -> bool:
    while (now := os.getppid()) == before:
        time.sleep(0.001)
    return now == parent


def _detach(name: str, folder: Path) -> None:
    os.setsid()
    _LIBC.prctl(PR_SET_NAME, f"agent-{name}".encode(), 0, 0, 0)
    complaints = os.open(
        folder / f"{name}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
    )
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd, standard in ((nothing, 0), (nothing, 1), (complaints, 2)):
        os.dup2(fd, standard)
    os.close(nothing)
    os.close(complaints)


def host_process(config: Config, fabric: Fabric, process: Process, parent: int) -> int:
    """Runs until told to stop or ``parent`` dies. Returns an exit status."""
    try:
        # for good: what the kernel's transports open later, they open there
        _enter(process["hosts"][0]["netns"])
        with ThreadPoolExecutor(AT_ONCE) as openers:
            hosts = list(openers.map(partial(open_host, config, fabric), process["hosts"]))
        user = int(process["user"])
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    drop_root(user, user)
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dropping root clears it, so only now
    _LIBC.prctl(PR_SET_TIMERSLACK, 1000)
    if os.getppid() != parent:
        return 0

    def stop(*_: Any) -> None:
        for host in hosts:
            host.running = False
            host.server.end_wait()

    signal.signal(signal.SIGTERM, stop)
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing in the loop makes cycles; a collection would pause it
    try:
        if len(hosts) == 1:
            hosts[0].loop()
        else:
            share(hosts)
    except Exception:  # a bug: it must not vanish with the process
        traceback.print_exc()
        return 70
    finally:
        for host in hosts:
            host.end(time.process_time_ns() // len(hosts))
        with ThreadPoolExecutor(AT_ONCE) as closers:
            list(closers.map(Host.close, hosts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
