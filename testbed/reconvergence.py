"""A network that re-routes: some time after a cable has changed, flows are hashed over the cables that live.

For transports whose paths the switches choose (RoCE, TCP, MPTCP, and MRC over ECMP). A source-routed MRC needs none of it. In the emulated
world a host's own kernel or engine hashes its flows, so the hosts are told; nobody waits for the controller.
"""

from __future__ import annotations

from testbed.world import World
from topologies.clos import SOURCE
from topologies.units import US

RECONVERGENCE = 40 * US
"""Time from a cable's change until flows are re-routed, where a scenario does not say otherwise [ours]; docs/scenarios.md."""


class Reconvergence:
    """Reconvergence of a world whose agents run."""

    def __init__(self, world: World, delay_ps: int) -> None:
        self.world, self.delay_ps = world, delay_ps
        self.down: list[str] = []
        self.coming: list[tuple[int, list[str]]] = []  # when, and which cables will be known to be down

    def due(self) -> list[int]:
        """Return when there will be something to do: its own times, and changes of cables that faults have planned."""
        planned = [fault.due_ps for fault in self.world.faults() if fault.due_ps is not None and fault.target.links]
        return planned + [t for t, _ in self.coming]

    def changed(self, t: int) -> None:
        """Note that cables may have changed at ``t``."""
        down = [name for name, up in self.world.link_states().items() if not up]
        if down != self.down:
            self.down = down
            self.coming.append((t + self.delay_ps, down))

    def act(self, now: int) -> list[list[str]]:
        """Re-route as far as it is due; returns the cables that were down, for each time."""
        acted = []
        while self.coming and self.coming[0][0] <= now:
            dead = self.coming.pop(0)[1]
            self._reroute(dead)
            acted.append(dead)
        return acted

    def settle(self) -> None:
        """Know at once what is down now, as if it broke long ago."""
        self.changed(0)
        self.coming.clear()
        self._reroute(self.down)

    def look(self) -> int | None:
        """Follow the cables, for who looks now and then; returns after what time to look again."""
        now = self.world.clock.now()
        self.changed(now)
        self.act(now)
        due = self.due()
        return max(0, min(due) - now) if due else None

    def _reroute(self, dead: list[str]) -> None:
        self.world.reroute(dead)  # in the routes of the hosts' kernels
        for agent in self.world.agents:
            if not getattr(agent, "closed", False):  # a host whose agent was killed
                agent.call("reroute", dead_links=dead)


def usual(world: World, transport: str, delay_ps: int = RECONVERGENCE) -> Reconvergence | None:
    """Make the usual reconvergence of a transport: None where sources route. It knows already what is down now."""
    if transport == "mrc" and world.fabric.routing == SOURCE:
        return None
    network = Reconvergence(world, delay_ps)
    network.settle()
    return network
