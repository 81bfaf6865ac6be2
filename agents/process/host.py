"""The host process: the MRC (or baseline) endpoint of one host or several, on raw sockets, each steered over a Unix socket.

Started as ``python -m agents.process.host --config FILE``; it opens each host's sockets in that host's network namespace. One event loop
(:mod:`agents.process.loop`), no busy wait. Everything that needs root is opened first; then root is dropped for good and the process dies
with its parent.
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
from typing import Any

import numpy as np

from agents.collectives.data import StepData
from agents.collectives.registry import collectives
from agents.nic.device import check_options, make_device
from agents.nic.packet_io import drop_root
from agents.process.loop import Host, share
from topologies.clos import Fabric, FabricError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
CLONE_NEWNET = 0x40000000
AT_ONCE = 32
"""Hosts whose sockets are opened or closed at once: the kernel lets each wait for an RCU grace period, and those that wait share one."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in a network namespace, by its path; "": where it is. Raises OSError."""
    if not namespace:
        yield
        return
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


def open_host(config: dict[str, Any], fabric: Fabric, place: dict[str, Any]) -> Host:
    """One agent. ``place``: what its process's other agents do not share with it. Raises OSError, ValueError or KeyError."""
    with inside(place.get("netns", "")):
        device = make_device(fabric, place["host"], config["transport"], config.get("options", {}), config.get("seed", 0))
    return Host(fabric, place["host"], device, place)


def main() -> int:
    """Entry point. Exit status 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="an mrcbed host process")
    parser.add_argument("--config", required=True, help="JSON file")
    args = parser.parse_args()
    os.closerange(3, 1024)  # mnexec leaves the namespaces that it entered open
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that steers us
    try:
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
        fabric = Fabric.from_dict(config["fabric"])
        # On this thread first: msgspec makes what it needs of a type at its first use, and threads that meet there crash in it (0.22).
        check_options(config["transport"], fabric, config.get("options", {}))
        with ThreadPoolExecutor(AT_ONCE) as openers:
            hosts = list(openers.map(partial(open_host, config, fabric), config["hosts"]))
        user = int(config["user"])
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    # Modules imported on first use must be imported before root is dropped: the clone may be in a home that only root may read.
    zeros = np.zeros(4, np.float32)
    StepData(zeros, zeros, 1).wrong(0, zeros)
    collectives()
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
