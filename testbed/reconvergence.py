"""A network that re-routes: some time after a cable has changed, flows are hashed over the cables
that live.

For transports whose paths the switches choose (RoCE, TCP, MPTCP, and MRC over ECMP).
"""

from __future__ import annotations

from testbed.world import World
from topologies.cables import t0_name
from topologies.clos import SOURCE
from topologies.units import US

RECONVERGENCE = 40 * US


class Reconvergence:
    """``repair_ps`` after a cable has changed, the T0 at its end hashes over its other uplinks. All
    others do so after ``delay_ps``, and that T0 too if ``repair_ps`` is None."""

    def __init__(self, world: World, delay_ps: int, repair_ps: int | None = None) -> None:
        self.world, self.delay_ps, self.repair_ps = world, delay_ps, repair_ps
        self.down: list[str] = []
        self.repaired: list[str] = []  # the cables that the T0s at their ends leave out
        self.known: list[str] = []  # those that all others leave out
        # when, whether to all, and which cables will be known to be down
        self.coming: list[tuple[int, bool, list[str]]] = []

    def due(self) -> list[int]:
        planned = [
            fault.due_ps
            for fault in self.world.faults()
            if fault.due_ps is not None and fault.target.links
        ]
        return planned + [t for t, *_ in self.coming]

    def changed(self, t: int) -> None:
        down = [name for name, up in self.world.link_states().items() if not up]
        if down != self.down:
            self.down = down
            self.coming.append((t + self.delay_ps, True, down))
            if self.repair_ps is not None:
                self.coming.append((t + self.repair_ps, False, down))
            self.coming.sort()

    def act(self, now: int) -> list[list[str]]:
        acted = []
        while self.coming and self.coming[0][0] <= now:
            _, told, dead = self.coming.pop(0)
            self._reroute(dead, told)
            if told:
                acted.append(dead)
        return acted

    def settle(self) -> None:
        self.changed(0)
        self.coming.clear()
        self.repaired = self.down
        self._reroute(self.down)

    def look(self) -> int | None:
        now = self.world.clock.now()
        self.changed(now)
        self.act(now)
        due = self.due()
        return max(0, min(due) - now) if due else None

    def _reroute(self, dead: list[str], told: bool = True) -> None:
        if told:
            self.known = dead
            self.world.reroute(dead)  # in the routes of the hosts' kernels
        if not told or self.repair_ps is None:
            self.repaired = dead
        changed = dict.fromkeys((*self.known, *self.repaired))
        for host, agent in enumerate(self.world.agents):
            if not getattr(agent, "closed", False):  # a host whose agent was killed
                left_out = [
                    name
                    for name in changed
                    if name in (self.repaired if self._is_own(name, host) else self.known)
                ]
                agent.call("reroute", dead_links=left_out)

    def _is_own(self, name: str, host: int) -> bool:
        fabric, link = self.world.fabric, self.world.fabric.link(name)
        return link.kind == "fabric" and link.a.node == t0_name(link.plane, fabric.t0_of(host))


def usual(
    world: World, transport: str, delay_ps: int = RECONVERGENCE, repair_ps: int | None = None
) -> Reconvergence | None:
    """Return None where sources route. It knows what is down now."""
    if transport == "mrc" and world.fabric.routing == SOURCE:
        return None
    network = Reconvergence(world, delay_ps, repair_ps)
    network.settle()
    return network
