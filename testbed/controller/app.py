"""The Ryu application: static tables out, link events in. One green thread (``main``) reads port
reports and raises events."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

from testbed.controller import tables
from testbed.controller.agents import ANSWER_S
from testbed.controller.config import Config
from testbed.controller.confine import Doors
from testbed.controller.journal import Journal
from testbed.controller.links import FailedLinks, LinkChange, PortStates
from testbed.controller.owner import follow_owner
from testbed.controller.rest import Rest
from testbed.controller.ryu_base import EventBase, RyuApp, serve, set_ev_cls, spawn
from testbed.controller.southbound.base import Southbound
from testbed.controller.steering import Steering
from testbed.controller.views import Views
from testbed.machine.slowness import patient
from topologies.paths import static_tables


class _EventLink(EventBase):
    def __init__(self, change: LinkChange) -> None:
        super().__init__()
        self.change = change


class EventLinkDown(_EventLink):
    """A link failed: one of its ends went down or lost its carrier."""


class EventLinkUp(_EventLink):
    """A failed link is whole again."""


class FabricController(RyuApp):
    _EVENTS = [EventLinkDown, EventLinkUp]  # noqa: RUF012  (Ryu's own way)

    def __init__(
        self, config: Config, southbound: Southbound, doors: Doors, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.doors = doors
        self.southbound = southbound
        self.tables = static_tables(config.fabric)
        self.now = config.clock.clock().now
        self.links = FailedLinks(config.fabric, self.now())
        self.ports = PortStates(config.fabric)
        self.steering = Steering(config.fabric, self.links, Journal(), self.now)
        self.steering.after_push = self._after_push
        views = Views(
            config.fabric,
            self.tables,
            southbound.read,
            self.links,
            lambda: self.steering.denylist.entries,
            southbound.counts,
        )
        self.rest = Rest(views, self.steering, config.token)

    def main(self) -> None:
        """Print "ready" when the switches are programmed, and listen for ever. Raises UserError."""
        tables.program(self.southbound, self.tables)
        now = self.now()
        for port, up in self.southbound.port_states().items():
            self.observe(port, up, now)
        serve(self.rest, self.doors.listener)
        # eventlet's select never reports descriptor 0, which it treats as "none"
        owner_fd = os.dup(0)
        spawn(lambda: follow_owner(self.steering, spawn, owner_fd))
        # a full collection walks all of Ryu and holds an event up for 25-45 ms, measured
        gc.freeze()
        print(f"ready {self.doors.port}", flush=True)
        for report in self.southbound.port_reports():
            self.observe(report.port, report.up, report.heard_ps)
        sys.exit("the southbound's reports ended")

    def observe(self, port: str, up: bool, heard_ps: int) -> None:
        change = self.ports.report(port, up, heard_ps)
        if change is not None:
            self.send_event_to_observers(
                EventLinkUp(change) if change.up else EventLinkDown(change)
            )

    @set_ev_cls(_EVENTS)
    def link_changed(self, event: _EventLink) -> None:
        self.links.apply(event.change, self.now())
        self.steering.link_changed(event.change)

    def _after_push(self) -> None:
        pushed_ps = self.now()

        def expire() -> None:
            time.sleep(patient(ANSWER_S))
            self.steering.agents.expire(pushed_ps)

        spawn(expire)
