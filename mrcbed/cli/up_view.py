"""Keeps the record of a fabric that is up, and its living view."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scenarios.run.living import Living, Ticking
from scenarios.run.runner import results_directory
from scenarios.show.replay_page import look, replay
from testbed.machine import sandbox
from testbed.view.live import LiveView
from testbed.view.read import BEGUN
from testbed.world import World


@contextmanager
def record_folder(
    out: str | None, transport: str, directory: str | None = None
) -> Iterator[tuple[Path, Path]]:
    """Yield (results directory, where the agents log). With ``out`` it is kept, with a replay; else
    it is temporary in ``directory``. Raises :class:`testbed.errors.UserError`."""
    if out is not None:
        root = results_directory("up", out, False)
        logs = root / "raw" / transport
        logs.mkdir(parents=True)
        try:
            yield root, logs
        finally:
            if (logs / BEGUN).is_file():
                (logs / BEGUN).rename(logs / "run.json")
                print(f"replay: {replay(root)}")
        return
    with tempfile.TemporaryDirectory(prefix="agents-", dir=directory) as temporary:
        logs = root = Path(temporary)
        (root / "raw").mkdir()
        if sandbox.unprivileged_uid() >= 0:
            root.chmod(0o755)  # the server of the view is another user
        (root / "raw" / transport).symlink_to("..")
        yield root, logs


class ViewOfUp:
    """``folder``: of :func:`record_folder`. ``url``: of the page. Raises
    :class:`testbed.errors.UserError`."""

    def __init__(
        self,
        world: World,
        transport: str,
        seed: int,
        folder: tuple[Path, Path],
        port: int,
        control: bool,
    ) -> None:
        root, logs = folder
        self.view = LiveView(
            world.fabric.name,
            root,
            {transport: look(transport)},
            sandbox.unprivileged_uid(),
            port,
            control,
        )
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
