"""Keeps account of who holds cables and switches down and ports slow. A thing comes back when the
last holder releases it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from testbed.dataplane.layout import SWITCH_DEAD, SWITCH_SILENT, SWITCH_WORKS
from topologies.clos import Fabric, FabricError, Link
from topologies.theory import links_of_switch

BY_HAND = 0
"""The holder of set_link and set_switch; faults have numbers from 1 on."""


class _Hold(NamedTuple):
    links: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


class Holders:
    """``clock`` gives ps. A world implements :meth:`_switch`, :meth:`_close` and
    :meth:`_settle`."""

    def __init__(self, fabric: Fabric, clock: Callable[[], int]) -> None:
        self.fabric = fabric
        self._clock = clock
        self._switch_numbers = {name: i for i, name in enumerate(fabric.switches)}
        self._lock = threading.RLock()
        self._up = {link.name: True for link in fabric.links}  # the present state
        self._holds: dict[int, _Hold] = {}  # what each holder keeps down

    # --- what a world does ------------------------------------------------------------------------

    def _switch(self, name: str, state: int) -> None:
        """``state``: layout.SWITCH_WORKS, SWITCH_DEAD or SWITCH_SILENT. Called for every switch at
        each change."""
        raise NotImplementedError

    def _close(self, link: Link) -> None:
        """Let a cable accept no more frames: it is about to go down, together with others."""

    def _settle(self, link: Link, up: bool) -> None:
        raise NotImplementedError

    # --- what callers use -------------------------------------------------------------------------

    def hold(
        self,
        holder: int,
        links: Iterable[str] = (),
        dead: Iterable[str] = (),
        silent: Iterable[str] = (),
    ) -> tuple[int, tuple[str, ...]]:
        """Set everything that ``holder`` keeps down from now on; with nothing it releases all.
        Returns the time of the first change, and the cables that changed, in the fabric's order.
        Raises :class:`FabricError` for an unknown name, and then changes nothing."""
        hold = _Hold(
            frozenset(self.fabric.link(name).name for name in links),
            frozenset(dead),
            frozenset(silent),
        )
        for name in hold.dead | hold.silent:
            self._number(name)
        with self._lock:
            return self._change(holder, hold)

    def set_link(self, name: str, up: bool) -> int:
        """Return the time at which the world was told. A cable that a fault keeps down stays
        down."""
        link = self.fabric.link(name).name
        with self._lock:
            current = self._holds.get(BY_HAND, _Hold())
            return self._change(
                BY_HAND,
                current._replace(links=current.links - {link} if up else current.links | {link}),
                (link,),
            )[0]

    def set_switch(self, name: str, up: bool) -> int:
        self._number(name)
        with self._lock:
            current = self._holds.get(BY_HAND, _Hold())
            hold = current._replace(dead=current.dead - {name} if up else current.dead | {name})
            return self._change(BY_HAND, hold, links_of_switch(self.fabric, name))[0]

    def heal(self) -> None:
        with self._lock:
            self._holds.clear()
            self._apply(self._up)

    def link_states(self) -> dict[str, bool]:
        with self._lock:
            return dict(self._up)

    # --- how --------------------------------------------------------------------------------------

    def _number(self, switch: str) -> int:
        if switch not in self._switch_numbers:
            first, last = self.fabric.switches[0], self.fabric.switches[-1]
            raise FabricError(
                f"fabric {self.fabric.name!r} has no switch {switch!r}: they are {first}..{last}"
            )
        return self._switch_numbers[switch]

    def _change(
        self, holder: int, hold: _Hold, also: Iterable[str] = ()
    ) -> tuple[int, tuple[str, ...]]:
        before, was = dict(self._up), self._holds.get(holder, _Hold())
        if any(hold):
            self._holds[holder] = hold
        else:
            self._holds.pop(holder, None)
        switches = was.dead | hold.dead
        touched = (
            was.links
            | hold.links
            | {li.name for li in self.fabric.links if switches & {li.a.node, li.b.node}}
        )
        told_ps = self._clock()
        self._apply(touched.union(also))
        return told_ps, tuple(name for name, up in self._up.items() if up != before[name])

    def _apply(self, touched: Container[str]) -> None:
        """Carry changes out. Gates close first, so that all changes happen at one moment."""
        pulled = {name for hold in self._holds.values() for name in hold.links}
        dead = {name for hold in self._holds.values() for name in hold.dead}
        silent = {name for hold in self._holds.values() for name in hold.silent}
        for name in self._switch_numbers:
            self._switch(
                name,
                SWITCH_DEAD if name in dead else SWITCH_SILENT if name in silent else SWITCH_WORKS,
            )
        goal = {
            link.name: link.name not in pulled and not dead & {link.a.node, link.b.node}
            for link in self.fabric.links
        }
        changing = [
            link
            for link in self.fabric.links
            if link.name in touched and goal[link.name] != self._up[link.name]
        ]
        for link in changing:
            if not goal[link.name]:
                self._close(link)
        for link in changing:
            self._settle(link, goal[link.name])


class SlowPorts:
    """The slowest of several holders' rates counts. A world implements :meth:`_set`."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._built = {port.number: link.rate for link in fabric.links for port in (link.a, link.b)}
        self._shares: dict[int, dict[int, float]] = {}  # port -> holder -> share of the rate left

    def _set(self, rates: Iterable[tuple[int, int]]) -> None:
        """Set (port, bits/s) of each port that may have changed. Raises UserError."""
        raise NotImplementedError

    def slow(self, holder: int, ports: Iterable[int], share: float) -> None:
        changed = list(ports)
        for port in changed:
            self._shares.setdefault(port, {})[holder] = share
        self._write(changed)

    def drop(self, holder: int) -> None:
        changed = [
            port for port, shares in self._shares.items() if shares.pop(holder, None) is not None
        ]
        self._write(changed)
        for port in changed:
            if not self._shares[port]:
                del self._shares[port]

    def reset(self) -> None:
        changed = list(self._shares)
        for port in changed:
            self._shares[port].clear()
        self._write(changed)
        self._shares.clear()

    def _write(self, ports: Iterable[int]) -> None:
        self._set(
            [
                (
                    port,
                    max(
                        8, round(self._built[port] * min(self._shares[port].values(), default=1.0))
                    ),
                )
                for port in ports
            ]
        )
