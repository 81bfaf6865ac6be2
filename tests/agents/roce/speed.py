"""Packets/s of two RoCE endpoints joined back to back in one process: ``python -m tests.agents.roce.speed``. No test.

Each packet is built, its parts joined into one buffer as a kernel would, taken in, checked, placed and acknowledged.
"""

from __future__ import annotations

import sys
import time

from agents.roce import endpoint
from agents.roce.endpoint import Endpoint
from topologies import load_fabric


def measure(payload_bytes: int, seconds: float = 2.0, **options: object) -> float:
    """Data packets/s with an MTU of ``payload_bytes``, both ends and the ACKs included."""
    fabric = load_fabric("demo-1p").with_(mtu=payload_bytes)
    a, b = (Endpoint(fabric, host, dict(options), 1) for host in (0, 4))
    pa, pb = a.create_qp(4), b.create_qp(0)
    a.connect_qp(0, pa["qpn"], pb)
    b.connect_qp(0, pb["qpn"], pa)
    message = payload_bytes * 1024
    region = b.register(bytearray(message))
    data = memoryview(bytes(message))
    buffer = bytearray(16_384)
    view = memoryview(buffer)
    step = fabric.frame_bytes * 8_000_000_000 // fabric.nic_rate
    now, began, sent = 0, time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        a.post_write(pa["qpn"], 1, data, region.va, region.rkey, -1)
        while not a._completions:
            now += step
            for tx, rx in ((a, b), (b, a)):
                tx.timer(now)
                while (port := tx.transmit(now)) >= 0:
                    n = len(tx.tx_frame)
                    view[:n] = tx.tx_frame
                    if tx.tx_payload is not None:
                        end = n + len(tx.tx_payload)
                        view[n:end] = tx.tx_payload
                        n = end + len(tx.tx_trailer)
                        view[end:n] = tx.tx_trailer
                    rx.receive(now, port, view, 0, n)
                    tx.sent(now, port, True)
        a.completions()
        sent += 1024
    taken = time.perf_counter() - began
    counted = a.counters()
    if counted["retransmitted"] or counted["data_tx"] != sent:
        raise SystemExit(f"not a clean run: {counted}")
    return sent / taken


if __name__ == "__main__":
    kind = "interpreted" if (endpoint.__file__ or "").endswith(".py") else "compiled"
    for size in (256, 4096):
        print(f"{kind}: {size} B payload: {measure(size):,.0f} data packets/s", file=sys.stdout)
