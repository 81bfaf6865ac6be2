"""Was the machine up to it? Samples the CPU while a run goes, and judges afterwards what the figures are worth.

The runner starts a :class:`Watch` around each run; :func:`verdict` is pure. A run that this finds wanting is *not trustworthy*: its
figures may be the machine's, not the transport's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

BUSY = 0.90
"""A machine busier than this shapes what it measures [our own choice]."""
BUSY_SHARE = 0.10
"""... if it is so for longer than this share of the run, and than a second [our own choice]."""
STALL_RTTS, STALL_NS = 6, 40_000_000
"""An agent that could not run for longer than so many base RTTs, and than so long at all, shows in what is measured [our own choice]."""
SAMPLE_S = 0.2
BAD_CHECKSUM = "rx_bad_icrc"
"""The agents' counter of frames refused for their checksum."""


def read_cpu() -> tuple[float, float]:
    """(busy, total) of the whole machine since boot, in clock ticks; steal counts as busy: it was not ours."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(x) for x in stat.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


class Watch(threading.Thread):
    """Samples (monotonic ns, busy share) until stopped. ``delay_max_ns``: the latest it woke, a sign of a starved machine."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="fidelity")
        self.samples: list[tuple[int, float]] = []
        self.delay_max_ns = 0
        self._over = threading.Event()

    def run(self) -> None:
        busy, total = read_cpu()
        while True:
            before = time.monotonic_ns()
            if self._over.wait(SAMPLE_S):
                return
            now = time.monotonic_ns()
            self.delay_max_ns = max(self.delay_max_ns, now - before - int(SAMPLE_S * 1e9))
            new_busy, new_total = read_cpu()
            if new_total > total:
                self.samples.append((now, (new_busy - busy) / (new_total - total)))
            busy, total = new_busy, new_total

    def stop(self) -> None:
        self._over.set()
        self.join(2)


def cpu_percent(samples: Sequence[Sequence[float]], begin_ns: int, end_ns: int) -> float | None:
    """Mean busy share of the whole machine in the window, percent; None without a sample."""
    inside = [share for t, share in samples if begin_ns <= t <= end_ns + SAMPLE_S * 1e9]
    return round(100 * sum(inside) / len(inside), 1) if inside else None


def reasons(
    samples: Sequence[Sequence[float]],
    window: tuple[int, int],
    loops: Sequence[Mapping[str, Any]],
    causes: Mapping[str, int],
    unexplained: int | None,
    base_rtt_ns: int,
    rejected: Mapping[str, int],
    cables: Sequence[Mapping[str, Any]],
    corrupted: int = 0,
    gone: int = 0,
    stragglers: Collection[int] = (),
) -> list[str]:
    """Why a run cannot be trusted, in words; empty if it can.

    ``corrupted``: frames that faults changed on their way, which agents must have refused unless they are among the ``gone``, lost or
    trimmed later.
    ``stragglers``: hosts whose agents a fault kept from running.
    """
    found = []
    loops = [loop for loop in loops if loop.get("host") not in stragglers]
    refused = rejected.get(BAD_CHECKSUM, 0)
    if refused <= corrupted:
        rejected = {name: n for name, n in rejected.items() if name != BAD_CHECKSUM}
    if corrupted - refused > gone:
        found.append(f"{corrupted - refused} of {corrupted} frames that a fault corrupted were neither refused nor lost: taken for good")
    inside = [share for t, share in samples if window[0] <= t <= window[1] + SAMPLE_S * 1e9]
    busy_s = sum(share > BUSY for share in inside) * SAMPLE_S
    if busy_s > max(1.0, BUSY_SHARE * (window[1] - window[0]) / 1e9):
        found.append(f"the machine was more than {BUSY:.0%} busy for {busy_s:.1f} s: lower the fabric's rates or free the machine")
    lag = max((int(loop.get("lag_p99_ns", 0)) for loop in loops), default=0)
    if lag > base_rtt_ns:
        found.append(f"agents woke up to {lag / 1e6:.1f} ms late (p99), more than a base RTT ({base_rtt_ns / 1e6:.1f} ms)")
    for loop in loops:
        stall = int(loop.get("lag_max_ns", 0))
        if stall > max(STALL_RTTS * base_rtt_ns, STALL_NS):
            found.append(f"the agent of h{loop['host']} did not get to run for {stall / 1e6:.0f} ms, {stall / base_rtt_ns:.0f} base RTTs")
    if unexplained is None:
        found.append("the packets could not be counted to the end")
    elif unexplained:
        found.append(f"{abs(unexplained)} packets {'vanished' if unexplained > 0 else 'appeared'} without a cause")
    found += [f"agents refused {n} frames that arrived ({name})" for name, n in rejected.items()]
    found += [f"the books of {gap['where']} do not balance: {gap['packets']} packets, {gap['bytes']} bytes" for gap in cables]
    if late := causes.get("drop_bridge", 0):
        found.append(f"Open vSwitch dropped {late} packets that came faster than it took them: lower the fabric's rates, or use eBPF")
    if ring := sum(n for cause, n in causes.items() if "ring" in cause):
        found.append(f"receive sockets dropped {ring} packets: agents were too slow")
    return found
