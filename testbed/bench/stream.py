"""One end of a one-way stream of WRITEs, run in a host's namespace: ``python -m
testbed.bench.stream CONFIG``.

In JSON lines it writes its queue pair, reads the peer's, runs, and writes what it did.
"""

from __future__ import annotations

import gc
import json
import sys
import time

from agents.clock import WallClock
from agents.nic.device import Device
from topologies.clos import Fabric

POLL_S = 0.05


def main() -> int:
    config = json.loads(sys.argv[1])
    fabric = Fabric.from_dict(config["fabric"])
    clock = WallClock(**config["clock"])
    device = Device(
        fabric, config["host"], clock, config.get("transport", "mrc"), config.get("options", {}), 1
    )
    memory = bytearray(config["bytes"])
    region = device.register(memory)
    own_qp = device.create_qp(config["peer"])
    print(json.dumps({**own_qp, "region": list(region)}), flush=True)
    peer_qp = json.loads(sys.stdin.readline())
    device.connect_qp(own_qp["qpn"], peer_qp)
    va, rkey, _ = peer_qp["region"]
    gc.freeze()
    gc.disable()
    started = time.monotonic()
    end = started + config["seconds"]
    view = memoryview(memory)
    messages = 0
    if config["role"] == "send":
        for k in range(config["posted"]):
            device.post_write(own_qp["qpn"], k, view, va, rkey)
        while time.monotonic() < end:
            for c in device.poll(clock.patience(POLL_S)):
                messages += 1
                if c.status:
                    print(json.dumps({"error": f"write failed with status {c.status}"}), flush=True)
                    return 1
                device.post_write(own_qp["qpn"], c.wr_id, view, va, rkey)
    else:
        while time.monotonic() < end + 0.2:
            device.poll(clock.patience(POLL_S))
    counters = device.counters()
    print(
        json.dumps(
            {
                "messages": messages,
                "seconds": time.monotonic() - started,
                "cpu": time.process_time(),
                "counters": counters,
            }
        ),
        flush=True,
    )
    device.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
