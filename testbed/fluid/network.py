"""A fabric in virtual time: which cables and switches work, and which paths the senders use, which is not the same.

A cable in the network dies unseen: senders use its paths until they have lost packets there, and use them again when probes came back. A
NIC port is seen by its host at once and by the others half an RTT later. :mod:`testbed.fluid.senders` has the times. Whoever has traffic
(the job of :mod:`testbed.fluid.traffic`) registers as ``user``, and learns of every change.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np

from testbed.dataplane.layout import SWITCH_SILENT, SWITCH_WORKS
from testbed.fluid.cluster import Cluster, State
from testbed.fluid.senders import Loss, Senders
from topologies import Fabric, Link

BEGIN_NS = 1_000_000_000
"""Virtual time at the start, as in the simulated world [ours]."""
Cable = tuple[int, int, int]
"""A T0-T1 link: plane, T0, uplink."""


class User(Protocol):
    """The traffic of a fabric."""

    def settle(self) -> None:
        """Account for the time until now: something is about to change."""

    def changed(self) -> None:
        """Something has changed."""

    def hit(self, cable: Cable) -> Loss | None:
        """What the senders lose over a cable that carries nothing, or None if they have no traffic there. Called once until they left
        it."""

    def left(self, cable: Cable) -> None:
        """The senders give up the paths over a cable; called before :attr:`Network.used` changes."""

    def returned(self, cable: Cable) -> None:
        """They use them again; called after it changed."""

    def port(self, plane: int, host: int, up: bool) -> None:
        """The plane of a NIC port closed or opened for the senders."""


@dataclass
class _Belief:
    """What senders make of one cable. ``since``: when it was given up or came back; ``turn`` tells apart what was planned for earlier
    changes."""

    used: bool = True
    leaving: bool = False
    flaps: int = 0
    given_up: int = 0
    came_back: int = 0
    turn: int = 0


class Network:
    """``works``: which links and ports deliver; ``used``: which the senders believe in. ``senders`` None: before agents start."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.cluster = Cluster.of_fabric(fabric)
        self.time = BEGIN_NS
        self.halted = False
        self.works = State.healthy(self.cluster)
        self.used = State.healthy(self.cluster)
        self.senders = Senders.of(fabric, {})
        self.user: User | None = None
        self._carrier = State.healthy(self.cluster)
        self._silent: set[str] = set()
        self._cables: dict[Cable, _Belief] = {}
        self._ports: dict[tuple[int, int], _Belief] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    # --- time ------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.time

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Schedule an action at a time, or now if that is past; of one time, in the order in which they were scheduled."""
        heapq.heappush(self._events, (max(when, self.time), next(self._numbers), action))

    def run(self, until: int) -> bool:
        """Let time pass up to and including ``until``; False if it was halted before."""
        self.halted = False
        while self._events and self._events[0][0] <= until:
            self.time, _, action = heapq.heappop(self._events)
            action()
            if self.halted:
                return False
        self.time = max(self.time, until)
        return True

    # --- what breaks -----------------------------------------------------------------------------------------

    def set_link(self, link: Link, up: bool) -> None:
        """A cable goes down or comes up, with the carrier at both of its ends."""
        self._carrier.set_cable(link, up)
        self._schedule_look()

    def set_switch(self, name: str, state: int) -> None:
        """``state`` as in layout: a silent switch forwards nothing; a dead one's cables are down, which the caller sets."""
        if (state == SWITCH_SILENT) != (name in self._silent):
            (self._silent.add if state == SWITCH_SILENT else self._silent.discard)(name)
            self._schedule_look()
        assert state in (SWITCH_WORKS, SWITCH_SILENT) or name not in self._silent

    def _schedule_look(self) -> None:
        """All changes of one moment count as one."""
        self.at(self.time, self._look)

    def _look(self) -> None:
        """See what works now; plan what senders will make of it."""
        works = self._carrier.copy()
        for name in self._silent:
            plane, tier, number = (int(part.lstrip("pt")) for part in name.split("-"))
            if tier:
                works.set_t1(plane, number)
            else:
                works.set_t0(plane, number)
        ups, ports = np.argwhere(works.up != self.works.up), np.argwhere(works.port != self.works.port)
        if not len(ups) and not len(ports):
            return
        self._settle()
        self.works = works
        for plane, host in ports.tolist():
            self._port_changed(plane, host, bool(works.port[plane, host]))
        for plane, t0, uplink in ups.tolist():
            self._cable_changed((plane, t0, uplink), bool(works.up[plane, t0, uplink]))
        self.meet()
        self._changed()

    def _settle(self) -> None:
        if self.user is not None:
            self.user.settle()

    def _changed(self) -> None:
        if self.user is not None:
            self.user.changed()

    # --- what senders make of it -----------------------------------------------------------------------------

    def meet(self) -> None:
        """Traffic meets what does not work; called by the user when its traffic begins or moves, too."""
        if self.user is None:
            return
        for cable, belief in list(self._cables.items()):
            if belief.used and not belief.leaving and not self.works.up[cable] and (loss := self.user.hit(cable)) is not None:
                belief.leaving = True
                self.at(self.time + loss.verdict_ns, partial(self._give_up, cable))

    def _cable_changed(self, cable: Cable, up: bool) -> None:
        belief = self._cables.setdefault(cable, _Belief())
        belief.turn += 1
        belief.came_back = self.time
        if up and not belief.used:
            self._plan_return(cable, belief)

    def _give_up(self, cable: Cable) -> None:
        belief = self._cables[cable]
        self._settle()
        if self.user is not None:
            self.user.left(cable)
        belief.used, belief.leaving, belief.given_up = False, False, self.time
        belief.flaps += 1
        self.used.up[cable] = False
        if self.works.up[cable]:
            self._plan_return(cable, belief)
        self._changed()

    def _plan_return(self, cable: Cable, belief: _Belief) -> None:
        plane, t0, _ = cable
        alone = not self.used.up[plane, t0].any()
        at = self.senders.readmitted_ns(belief.given_up, belief.came_back, belief.flaps, alone)
        turn = belief.turn
        self.at(at, lambda: self._readmit(cable, turn))

    def _readmit(self, cable: Cable, turn: int) -> None:
        belief = self._cables[cable]
        if belief.turn != turn or belief.used:
            return
        self._settle()
        belief.used = True
        self.used.up[cable] = True
        if self.user is not None:
            self.user.returned(cable)
        self.meet()  # at the path's other end, perhaps
        self._changed()

    def _port_changed(self, plane: int, host: int, up: bool) -> None:
        """Seen by carrier, and where the switch behind it is silent, like its cables, by losses."""
        belief = self._ports.setdefault((plane, host), _Belief())
        belief.turn += 1
        turn = belief.turn
        if up:
            delay = self.senders.port_back_ns(belief.flaps)
        elif self._carrier.port[plane, host]:
            delay = self.senders.loss(float(self.fabric.host_rate), self.senders.evs(1) * self.fabric.planes, 0.0).verdict_ns
        else:
            delay = self.senders.told_ns
        if self.user is None:
            delay = 0
        self.at(self.time + delay, lambda: self._open(plane, host, up, turn))

    def _open(self, plane: int, host: int, up: bool, turn: int) -> None:
        belief = self._ports[plane, host]
        if belief.turn != turn or belief.used == up:
            return
        self._settle()
        belief.used = up
        belief.flaps += not up
        self.used.port[plane, host] = up
        if self.user is not None:
            self.user.port(plane, host, up)
        self.meet()
        self._changed()
