"""PFC (802.1Qbb) of an emulated fabric: stops a port's data class while the switch at its cable's
other end holds too much from it (docs/why/dataplane.md). It is a process of its own, so that
nothing else makes a pause late."""

from __future__ import annotations

import heapq
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.clock import WallClock
from testbed.dataplane import layout
from testbed.dataplane.loader import PINS
from testbed.dataplane.maps import BpfMap
from testbed.emulated import bringup, netlink
from topologies.clos import Fabric, Port
from topologies.units import wire_time

LOOKS = 8
"""Looks while a pause is on its way [ours]: each is noticed long before it is due."""
SHORTEST_WAIT_NS = 500_000
_H = {name: i for i, name in enumerate(layout.HELD_WORDS)}
_P = {name: i for i, name in enumerate(layout.PAUSE_WORDS)}

Words = NDArray[np.uint64]


class Ports(Protocol):
    def pause(self, port: Port) -> None: ...
    def go_on(self, port: Port) -> None: ...


class Pauser:
    """``held``, ``pauses`` and ``gates`` are the maps of those names, a row per port. ``now`` and
    all times are this machine's monotonic ns."""

    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        held: Words,
        pauses: Words,
        gates: Words,
        ports: Ports,
        now: Callable[[], int],
    ) -> None:
        self.fabric = fabric
        self._pfc_ns = clock.wall_ns(fabric.pfc_ps)
        self._held, self._pauses, self._gates = held, pauses, gates
        self._ports, self._now = ports, now
        self._xoff, self._xon = fabric.pfc_bytes
        into_switches = [
            (end, other, link)
            for link in fabric.links
            for end, other in ((link.a, link.b), (link.b, link.a))
            if end.node not in fabric.hosts
        ]
        self._ingress = np.array([end.number for end, _, _ in into_switches])
        self._egress = np.array([other.number for _, other, _ in into_switches])
        self._senders = [other for _, other, _ in into_switches]
        # One frame more leaves after a pause (netlink.PauseSocket), so it is put into effect so
        # much earlier.
        self._early = [
            min(clock.wall_ns(wire_time(fabric.frame_bytes, link.rate)), self._pfc_ns)
            for _, _, link in into_switches
        ]
        self.stops = np.zeros(len(into_switches), dtype=bool)
        self._seen_over = held[self._ingress, _H["over_ns"]].copy()
        self._seen_under = held[self._ingress, _H["under_ns"]].copy()
        # when, which ingress, whether to stop, and since when it is asked
        self._due: list[tuple[int, int, bool, int]] = []

    def turn(self) -> int:
        """Do what is due; returns when to look again, ns."""
        self._look(self._now())
        while self._due and self._due[0][0] <= self._now():
            _, place, stop, since = heapq.heappop(self._due)
            if self.stops[place] == stop:
                self._act(place, stop, since)
        soon = self._now() + max(self._pfc_ns // LOOKS, SHORTEST_WAIT_NS)
        return min(soon, self._due[0][0]) if self._due else soon

    def _look(self, now: int) -> None:
        rows = self._held[self._ingress]
        lost = self._pauses[self._ingress, _P["lost_bytes"]]
        holds = (rows[:, _H["taken_bytes"]] - rows[:, _H["released_bytes"]] - lost).astype(np.int64)
        over, under = rows[:, _H["over_ns"]], rows[:, _H["under_ns"]]
        down = (self._gates[self._ingress] | self._gates[self._egress]) != 0
        rose = over != self._seen_over  # it may have fallen below XOFF again, but not to XON
        too_much = ~self.stops & ~down & ((holds > self._xoff) | (rose & (holds > self._xon)))
        enough = self.stops & ~down & (holds <= self._xon)
        for place in np.flatnonzero(too_much):
            since = int(over[place]) if rose[place] else now
            heapq.heappush(
                self._due, (since + self._pfc_ns - self._early[place], int(place), True, since)
            )
        for place in np.flatnonzero(enough):
            since = int(under[place]) if under[place] != self._seen_under[place] else now
            heapq.heappush(self._due, (since + self._pfc_ns, int(place), False, since))
        self.stops = (self.stops | too_much) & ~enough & ~down
        for place in np.flatnonzero(down):
            self._act(int(place), False, now)
        self._seen_over, self._seen_under = over, under

    def _act(self, place: int, stop: bool, since: int) -> None:
        port = self._senders[place]
        words = self._pauses[port.number]
        if stop == bool(words[_P["since_ns"]]):
            return
        if stop:
            self._ports.pause(port)
            now = self._now()
            reaction = np.uint64(max(0, now - since))
            words[_P["since_ns"]] = now
            words[_P["pauses"]] += np.uint64(1)
            words[_P["reaction_ns"]] += reaction
            words[_P["longest_reaction_ns"]] = max(words[_P["longest_reaction_ns"]], reaction)
            return
        self._ports.go_on(port)
        lasted = np.uint64(self._now()) - words[_P["since_ns"]]
        words[_P["paused_ns"]] += lasted
        words[_P["longest_ns"]] = max(words[_P["longest_ns"]], lasted)
        words[_P["since_ns"]] = 0


class KernelPorts:
    def __init__(self, fabric: Fabric, namespaces: dict[str, int]) -> None:
        frame = bringup.link_mtu(fabric) + 14
        self._sockets = {
            node: netlink.PauseSocket(
                fd, bringup.DATA_QUEUE << 16, bringup.DATA_CLASS, frame, bringup.LOSSLESS_LIMIT
            )
            for node, fd in namespaces.items()
        }

    def _of(self, port: Port) -> netlink.PauseSocket:
        return self._sockets.get(port.node) or self._sockets[""]

    def pause(self, port: Port) -> None:
        self._of(port).pause(layout.PORT_BASE + port.number)

    def go_on(self, port: Port) -> None:
        self._of(port).go_on(layout.PORT_BASE + port.number, port.name)


def rows_of(name: str, words: int) -> Words:
    bpf_map = BpfMap(PINS / name)
    try:
        rows = np.frombuffer(bpf_map.memory().cast("Q"), dtype=np.uint64).reshape(-1)
    finally:
        bpf_map.close()
    return rows[: layout.MAX_PORTS * words].reshape(layout.MAX_PORTS, words)


def _before_others() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:  # a container may forbid real-time scheduling
        os.setpriority(os.PRIO_PROCESS, 0, -15)


def main(config: dict[str, Any]) -> None:
    fabric = Fabric.from_dict(config["fabric"])
    _before_others()
    pauser = Pauser(
        fabric,
        WallClock(**config["clock"]),
        rows_of("port_held", len(layout.HELD_WORDS)),
        rows_of("port_pause", len(layout.PAUSE_WORDS)),
        rows_of("port_gate", 1)[:, 0],
        KernelPorts(fabric, config["namespaces"]),
        time.monotonic_ns,
    )
    print("ready", flush=True)
    while True:
        wake = pauser.turn()
        time.sleep(max(0, wake - time.monotonic_ns()) / 1e9)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
