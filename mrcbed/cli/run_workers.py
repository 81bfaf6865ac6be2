"""``mrcbed run --on tls://HOST:PORT``: whole runs on Dask's workers. Only they need root."""

from __future__ import annotations

import importlib.util
import signal
import sys
from typing import Any

from mrcbed.cli.sets import tell
from scenarios.schema.scenario import Scenario
from testbed.errors import UserError
from testbed.results.manifest import Stretched
from testbed.world import EMULATED, SIMULATED
from topologies import FabricError


def run(
    scenario: Scenario,
    out: str | None,
    address: str,
    world: str,
    *,
    resume: bool,
    dilation: float | None,
    mixed: bool,
    **shown: bool,
) -> int:
    """As :func:`mrcbed.cli.run_machines.run`; ``dilation`` None: the fabric's own, for all
    machines."""
    if importlib.util.find_spec("distributed") is None:
        raise UserError(
            f"--on {address} needs Dask: .venv/bin/pip install -r requirements/sweep.txt (wheel: "
            "pip install 'mrcbed[sweep]')"
        )
    from mrcbed.cli.common import ProgressBar, conclude
    from scenarios.run.resume import holds_run
    from scenarios.run.runner import Runner, RunOptions, results_directory
    from scenarios.run.workers import OnWorkers, connected
    from scenarios.schema.dilation import at_dilation, check_emulable
    from scenarios.sets.dilation import given, read_manifest, recorded

    def no_world(fabric: Any) -> Any:
        raise AssertionError("no world is built here")

    # what was run is written, as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with connected(address) as client, ProgressBar() as progress:
        directory = results_directory(scenario.name, out, resume)
        stretched = None
        if world == EMULATED:
            try:
                chosen = given(scenario, dilation or scenario.dilation)
                if (
                    resume
                    and holds_run(directory)
                    and (former := read_manifest(directory).dilation)
                ):
                    chosen = recorded(former, dilation)
                check_emulable(scenario, chosen.value)
            except FabricError as error:
                raise UserError(str(error)) from None
            scenario, stretched = at_dilation(scenario, chosen.value), Stretched(dilation=chosen)
        options = RunOptions(
            progress,
            ["mrcbed", *sys.argv[1:]],
            SIMULATED if world == SIMULATED else "ebpf",
            resume=resume,
            world=world,
            carrier=OnWorkers(client, world, mixed, tell),
            figures=shown["figures"],
            stretched=stretched,
        )
        summary = Runner(scenario, directory, no_world, options).run()
    return conclude(scenario, summary, directory, shown["as_json"], shown["everything"])
