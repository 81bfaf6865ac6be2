"""Measures how many packets a second one core builds and understands, without any I/O. It is
compiled with the engine, so that its own loop costs little."""

from __future__ import annotations

import ctypes
import os
import sys
import time

from agents.mrc.endpoint import Endpoint
from agents.verbs.memory import ProcessMemory
from topologies import load_fabric
from topologies.units import NS

MESSAGE = 1 << 22
TURN = 40 * NS


def codec_rates(seconds: float = 1.0, foreign: bool = False) -> dict[str, bool | int | float]:
    """Return packets/s of a transfer between two engines in memory: built, checked (iCRC), placed
    and SACKed. With ``foreign``, memories are reached by system calls, as those of an RDMA program
    are."""
    fabric = load_fabric("demo")
    # Nothing is delayed here: NSCC would take the window for far too large.
    options = {"congestion": "fixed", "window_bdp": 20.0}
    one, two = Endpoint(fabric, 0, options, 1), Endpoint(fabric, 4, options, 1)
    a, b = one.create_qp(4), two.create_qp(0)
    one.connect_qp(1, a["qpn"], b)
    two.connect_qp(1, b["qpn"], a)
    memory, source = bytearray(MESSAGE), bytearray(MESSAGE)
    own = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC) if foreign else -1
    region = two.register(process_memory(own, memory) if foreign else memory)
    data = process_memory(own, source) if foreign else memoryview(bytes(MESSAGE))
    packets = control = 0
    now = 0
    started = time.perf_counter()
    took = 0.0
    while took < seconds:
        one.post_write(a["qpn"], 1, data, region.va, region.rkey, -1)
        while not one.completed():
            now += TURN
            packets += carry(now, one, two)
            control += carry(now, two, one)
        one.completions()
        took = time.perf_counter() - started
    assert len(memory) == len(source)  # both are still there
    if foreign:
        os.close(own)
    return {
        "compiled": not str(sys.modules["agents.mrc.endpoint"].__file__).endswith(".py"),
        "payload_bytes": fabric.mtu,
        "data_packets": packets,
        "control_packets": control,
        "packets_per_second": packets / took,
    }


def process_memory(fd: int, memory: bytearray) -> ProcessMemory:
    return ProcessMemory(fd, ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory))


def carry(now: int, sender: Endpoint, receiver: Endpoint) -> int:
    sender.timer(now)
    frames: list[tuple[int, bytes]] = []
    port = sender.transmit(now)
    while port >= 0:
        frames.append(
            (port, b"".join((sender.tx_frame, sender.tx_payload or b"", sender.tx_trailer)))
        )
        port = sender.transmit(now)
    for port, frame in frames:
        receiver.receive(now, port, memoryview(frame), 0, len(frame))
    return len(frames)
