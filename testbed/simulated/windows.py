"""Lets time pass in a simulated network: in windows, in one process or in several.

A *window* is no longer than :attr:`Windows.reach`, the delay that a frame has before a host sees
it. What happens in a window reaches no host in the same window. So all hosts with their NIC ports
(the *edge*) act for a window, then all switches (the *core*), whose planes meet in hosts only. Each
host and plane sees its own events in the order of their times, and those of one time in an order
that it can compute itself (:class:`testbed.simulated.frame.Event`). So the same seed gives the same
bytes in any number of processes. Whoever steers the network acts between windows.

Where a window begins and ends is the same in all processes, since it depends on the next event of
any of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from agents.transport import NEVER
from testbed.simulated.exchange import Peers, Steering
from testbed.simulated.frame import (
    WAKE,
    Alarm,
    Calendar,
    Call,
    Event,
    Fifo,
    Frame,
    Sleeper,
    in_order,
)
from testbed.simulated.interrupts import breathe, uninterrupted
from topologies.clos import Fabric

BEGIN: Final = 0


def reach_of(fabric: Fabric) -> int:
    """What happens in a switch, be it a frame or a pause, reaches a host no sooner."""
    return max(
        1, min(fabric.local_delay_ps, fabric.pfc_ps) if fabric.pfc else fabric.local_delay_ps
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class Windows:
    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.time: i64 = BEGIN
        self.halted = False
        """Set it to make :meth:`run` return after the current window, or the steerer's current
        action."""
        self.reach: i64 = reach_of(fabric)
        """With 1 an event at a host ends its window, so that whoever steers reacts at once."""
        self.peers: Peers | None = None
        self.steering: Steering | None = None
        self._control = Calendar()  # actions of whoever steers
        self._edge = Calendar()  # what happens at hosts
        self._core = Calendar()  # and in switches
        self._next_order: i64 = 0
        self._in_window = False
        self._up = Fifo()  # frames that left NIC ports in this window, for the core
        self._down = Fifo()  # and that left the core, for hosts
        self._events: i64 = 0

    # --- what happens in a window -----------------------------------------------------------------

    def _land(self, frame: Frame) -> None:
        raise NotImplementedError

    def _free(self, port: Event) -> None:
        raise NotImplementedError

    def _cross(self, frame: Frame) -> None:
        raise NotImplementedError

    def _arrive(self, frame: Frame) -> None:
        raise NotImplementedError

    def _deliver(self, frames: Fifo) -> None:
        raise NotImplementedError

    # --- time -------------------------------------------------------------------------------------

    def now(self) -> int:
        """Virtual time, ps, stands still while anything is done."""
        return self.time

    def at(
        self, when: int, action: Callable[[Any, Any], None], a: Any = None, b: Any = None
    ) -> None:
        """Schedule ``action(a, b)`` of whoever steers, now if ``when`` is past, before all else of
        that time. Hosts have :meth:`wake`."""
        if self._in_window:
            raise RuntimeError(
                "a host or switch cannot steer the network: its window may be past that time"
            )
        self._control.enter(Call(action, a, b), when, self._next_order)
        self._next_order += 1

    def wake(
        self, host: int, when: int, action: Callable[[Any, Any], None], a: Any = None, b: Any = None
    ) -> None:
        """Schedule ``action(a, b)`` of a host, not in the past, after all else that happens to the
        host then."""
        self._edge.enter(Call(action, a, b), when, WAKE | host)

    def alarm(self, host: int, when: int, sleeper: Sleeper) -> None:
        """As :meth:`wake`, for what happens most often."""
        self._edge.enter(Alarm(sleeper), when, WAKE | host)

    def run(self, until: int) -> bool:
        """Process events up to and including ``until``; False if halted before."""
        collects = gc.isenabled()
        gc.disable()  # nothing here makes cycles
        try:
            with uninterrupted():
                return self._run(until)
        finally:
            if collects:
                gc.enable()

    def _run(self, end: i64) -> bool:
        self.halted = False
        while True:
            due = self._control.first_at()
            if due > end:
                return self._steered(end)
            if not self._steered(due - 1):
                return False
            event = self._control.take()
            if event.at > self.time:
                self.time = event.at
            if isinstance(event, Call):
                event.action(event.a, event.b)
            if self.halted:
                return False

    def _steered(self, end: i64) -> bool:
        steering = self.steering
        if steering is None or self.peers is None:
            return self.advance(end)
        if end < self.time:
            return True
        try:
            steering.begin(end)
            went = self.advance(end)
        except BaseException:
            steering.failed()
            raise
        steering.finish()
        return went

    def advance(self, until: int) -> bool:
        end: i64 = until
        self.halted = False
        peers = self.peers
        up = in_order(self._up)  # what hosts have sent since the last window
        self._core.follow(up if peers is None else peers.swap(up, self._first(), False, False))
        while True:
            first = self._first() if peers is None else peers.first
            if first > end:
                break
            last = first + self.reach - 1
            if last > end:
                last = end
            self._in_window = True
            try:
                self._pass(self._edge, last)
                self._core.follow(
                    in_order(self._up)
                    if peers is None
                    else peers.swap(in_order(self._up), NEVER, False, False)
                )
                self._pass(self._core, last)
                if peers is None:
                    self._deliver(self._down)
                else:
                    self._deliver(peers.swap(self._down, self._first(), self.halted, True))
                    self.halted = peers.halted
            finally:
                self._in_window = False
            if self.halted:
                self.time = last
                return False
        if end > self.time:
            self.time = end
        return True

    def _first(self) -> i64:
        edge, core = self._edge.first_at(), self._core.first_at()
        return edge if edge < core else core

    def _pass(self, calendar: Calendar, last: i64) -> None:
        while calendar.first_at() <= last:
            event = calendar.take()
            self.time = event.at
            if isinstance(event, Frame):
                if not event.landed:
                    self._land(event)
                elif calendar is self._edge:
                    self._arrive(event)
                else:
                    self._cross(event)
            elif isinstance(event, Alarm):
                event.sleeper.woken(event.at)
            elif isinstance(event, Call):
                event.action(event.a, event.b)
            else:
                self._free(event)
            self._events += 1
            if self._events & 0xFF == 0:
                breathe()
