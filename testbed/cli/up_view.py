"""The living view of a fabric that is up, beside its prompt."""

from __future__ import annotations

from pathlib import Path

from scenarios.run.living import Living, Ticking
from scenarios.show.replay import look
from testbed.machine import sandbox
from testbed.view.live import LiveView
from testbed.world import World


class ViewOfUp:
    """``logs``: where the agents of ``world`` write. ``url``: where the page is. Raises :class:`testbed.errors.UserError`."""

    def __init__(self, world: World, transport: str, seed: int, logs: Path, port: int, control: bool) -> None:
        self.view = LiveView(world.fabric.name, logs, {transport: look(transport)}, sandbox.unprivileged_uid(), port, control)
        self.url = self.view.url
        self.living = Living(world, transport, seed, logs, self.view.commands)
        self.ticking: Ticking | None = None

    def tick_beside(self) -> None:
        """Tick in a thread, for a world in real time."""
        self.ticking = Ticking(self.living)
        self.ticking.start()

    def end(self) -> None:
        """End the page's server and the thread. Idempotent."""
        if self.ticking is not None:
            self.ticking.end()
        self.living.close()
        self.view.end()
