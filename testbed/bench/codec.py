"""How many packets a second one core builds and understands, without any I/O."""

from __future__ import annotations

import time
from typing import Any

from agents.mrc.endpoint import Endpoint
from topologies import load_fabric


def codec_rates(seconds: float = 1.0) -> dict[str, Any]:
    """Packets/s of a whole transfer between two engines in memory: every data packet built, checked (iCRC), placed and SACKed."""
    fabric = load_fabric("demo")
    # Nothing is delayed here: NSCC would take the window for far too large.
    ends = [Endpoint(fabric, h, {"congestion": "fixed", "window_bdp": 20.0}, 1) for h in (0, 4)]
    a, b = ends[0].create_qp(4), ends[1].create_qp(0)
    ends[0].connect_qp(1, a["qpn"], b)
    ends[1].connect_qp(1, b["qpn"], a)
    memory = bytearray(1 << 22)
    region = ends[1].register(memory)
    data = memoryview(bytes(1 << 22))
    build = check = 0.0
    packets = control = 0
    now = 1_000_000
    clock = time.perf_counter
    started = clock()
    while clock() - started < seconds:
        ends[0].post_write(a["qpn"], 1, data, region.va, region.rkey, -1)
        open_write = True
        while open_write:
            now += 500_000
            for me in (0, 1):
                other = ends[1 - me]
                ends[me].timer(now)
                frames = []
                t = clock()
                while (port := ends[me].transmit(now)) >= 0:
                    frames.append(
                        (
                            port,
                            bytearray(b"".join((ends[me].tx_frame[: ends[me].tx_length], ends[me].tx_payload or b"", ends[me].tx_trailer))),
                        )
                    )
                u = clock()
                build += u - t
                for port, frame in frames:
                    other.receive(now, port, frame, 0, len(frame))
                check += clock() - u
                if me == 0:
                    packets += len(frames)
                else:
                    control += len(frames)
            open_write = not ends[0].completions()
    import agents.mrc.endpoint as module

    return {
        "compiled": not str(module.__file__).endswith(".py"),
        "payload_bytes": fabric.mtu,
        "data_packets": packets,
        "control_packets": control,
        "build_per_s": (packets + control) / build,
        "check_per_s": (packets + control) / check,
        "both_per_s": packets / (build + check),
    }
