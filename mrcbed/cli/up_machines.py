"""``mrcbed up --on``: a fabric on several machines, and a prompt on it. Only they need root."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

from testbed import terminal
from testbed.machines.reach import places
from topologies import Fabric


def run(fabric: Fabric, dilation: float, transport: str, seed: int, on: str, reach: str) -> int:
    """Raises :class:`testbed.errors.UserError`."""
    from mrcbed.cli.common import ProgressBar
    from mrcbed.prompt.machines import MachinesPrompt
    from scenarios.run.manifest import version
    from testbed.machines.world import Machines

    console = terminal.console()
    bar = ProgressBar()
    world = Machines(fabric, places(on, reach), version(), progress=bar.report, dilation=dilation)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # machines that hear nothing would end
    with tempfile.TemporaryDirectory(prefix="mrcbed-logs-") as logs:
        try:
            with bar:
                world.start()
                world.start_agents(transport, {}, Path(logs), seed)
            hosts = ", ".join(
                f"{channel.name} has h{part.hosts[0]} to h{part.hosts[-1]}"
                for channel, part in zip(world.channels, world.parts, strict=True)
            )
            cable = next(link.name for link in fabric.links if link.kind == "fabric")
            console.print(
                f"{fabric.name} is up in {world.booted_ns / 1e9:.2f} s on {len(world.channels)} "
                f"machines: {hosts}; one clock to {world.wall_unsure_ns / 1e3:.0f} µs. Try: "
                f"pingall, trace h0 h{fabric.host_count - 1} 0:0, allreduce, break {cable}, help",
                markup=False,
                highlight=False,
            )
            prompt = MachinesPrompt(world, console, transport)
            world.check()
        finally:
            world.stop()
    return prompt.status
