"""Carries a timeline's faults out on a living world, journals them, and takes them back."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.run.timeline import NEVER, Action, Timeline
from testbed.faults.kinds import KINDS
from testbed.faults.targets import Injected
from testbed.world import World


class Breaking:
    """``journal(t, kind, **fields)`` writes a line; ``changed(t)`` hears of what may have changed
    cables. Times are ps of the network."""

    def __init__(
        self,
        world: World,
        timeline: Timeline,
        journal: Callable[..., None],
        changed: Callable[[int], None] = lambda t: None,
    ) -> None:
        self.world, self.timeline, self.journal, self.changed = world, timeline, journal, changed
        self.injected: dict[int, Injected] = {}  # by the fault's place in the scenario

    @property
    def killed_hosts(self) -> list[int]:
        return [
            fault.target.host
            for fault in self.injected.values()
            if fault.target.host >= 0 and not KINDS[fault.target.kind].heals
        ]

    def begin_before(self) -> None:
        """Raises as :meth:`testbed.world.World.strike`."""
        self.world.fault_events()  # discard those of others
        self._apply(self.timeline.begin_before())

    def start(self) -> None:
        """Count times from now, where nothing has steps."""
        now = self.world.clock.now()
        self.timeline.measured_step_began(0, now)
        self.journal(now, "start")

    def act(self, now: int) -> int | None:
        """Inject and take back what is due; return the time to the next, or None. Raises as
        :meth:`testbed.world.World.strike`."""
        self._apply(self.timeline.due(now))
        due = self.timeline.next_ps()
        return None if due == NEVER else max(0, due - now)

    def _apply(self, actions: list[Action]) -> None:
        for action in actions:
            self.change(action)
        self.tell()

    def change(self, action: Action) -> None:
        """Inject a fault, or take it back unless somebody else has. Raises as
        :meth:`testbed.world.World.strike`."""
        if action.phase == "begin":
            self.injected[action.number] = self.world.strike(action.target)
        elif (number := self.injected[action.number].number) in [
            fault.number for fault in self.world.faults()
        ]:
            self.world.clear(number)

    def tell(self, over: bool = False) -> None:
        by_number = {injected.number: number for number, injected in self.injected.items()}
        for event in self.world.fault_events():
            if event.number not in by_number:
                continue  # a fault that is not of this run
            number = by_number[event.number]
            fault, target = self.timeline.faults[number], self.injected[number].target
            self.journal(
                event.t,
                "fault",
                name=fault.name,
                fault=fault.kind,
                on=target.on,
                phase="end" if over else event.phase,
                links=list(event.links),
                keys=target.keys,
            )
            self.changed(event.t)

    def heal(self, first: Callable[[], None] = lambda: None) -> None:
        """Take every fault back, after ``first``. Those still there end in phase "end"."""
        try:
            first()
            self.tell()
            self.world.heal()
            self.tell(over=True)
        except Exception as error:
            # the world is breaking down: it is removed as a whole, and the fault with it
            self.journal(
                self.world.clock.now(), "unhealed", reason=f"{type(error).__name__}: {error}"
            )
