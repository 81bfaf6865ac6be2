"""The host process: one MRC (or baseline) endpoint on raw sockets, steered over a Unix socket.

Started in a host's network namespace as ``python -m agents.process.host --config FILE``. One event loop, no busy wait. Everything that
needs root is opened first; then root is dropped for good and the process dies with its parent.
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
from typing import Any

import numpy as np

from agents.collectives.data import StepData
from agents.collectives.registry import collectives
from agents.nic.device import make_device
from agents.nic.packet_io import drop_root
from agents.process.agent import Agent
from agents.process.control import AgentServer
from agents.transport import LONG_AGO
from topologies.clos import Fabric, FabricError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
HOUSEKEEPING = 100_000_000


class Host(Agent):
    """One agent as a process: device, control channel, log file."""

    def __init__(self, config: dict[str, Any]) -> None:
        fabric = Fabric.from_dict(config["fabric"])
        self.file = open(config["log"], "ab", buffering=1 << 16)
        device = make_device(fabric, config["host"], config["transport"], config.get("options", {}), config.get("seed", 0))
        # Modules imported on first use must be imported before root is dropped: the clone may be in a home that only root may read.
        zeros = np.zeros(4, np.float32)
        StepData(zeros, zeros, 1).wrong(0, zeros)
        collectives()
        self.server = AgentServer(config["socket"])
        super().__init__(fabric, config["host"], device, self.file.write, self.server.notify, time.monotonic_ns)
        self.housekeeping_at = LONG_AGO

    def serve(self) -> None:
        """Answer requests."""
        for client, request in self.server.requests():
            self.server.answer(client, self.answer(request))

    def op_hello(self) -> dict[str, Any]:
        """Identify the host."""
        module = sys.modules[type(self.device.engine).__module__]
        return {"host": self.name, "pid": os.getpid(), "uid": os.geteuid(), "compiled": not str(module.__file__).endswith(".py")}

    def loop(self) -> None:
        """Run until told to stop."""
        while self.running:
            now = time.monotonic_ns()
            readers = self.device.turn(self.wake_at(now), self.server.readers())
            if readers:
                self.serve()
            self.advance()
            now = time.monotonic_ns()
            if now >= self.bin_end:
                self.record(now)
            if now >= self.housekeeping_at:
                self.housekeeping_at = now + HOUSEKEEPING
                self.device.housekeeping()
                self.file.flush()

    def close(self) -> None:
        """Write all measurements to the log."""
        self.write_final_log(time.process_time_ns())
        self.file.close()
        self.server.close()
        self.device.close()


def main() -> int:
    """Entry point. Exit status 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(description="an mrcbed host process")
    parser.add_argument("--config", required=True, help="JSON file")
    args = parser.parse_args()
    os.closerange(3, 1024)  # mnexec leaves the namespaces that it entered open
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that steers us
    try:
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
        host, user = Host(config), int(config["user"])
    except (OSError, ValueError, KeyError, FabricError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    drop_root(user, user)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dropping root clears it, so only now
    libc.prctl(PR_SET_TIMERSLACK, 1000)
    if os.getppid() != parent:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: setattr(host, "running", False))
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing in the loop makes cycles; a collection would pause it
    try:
        host.loop()
    except Exception:  # a bug: it must not vanish with the process
        traceback.print_exc()
        return 70
    finally:
        host.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
