"""``mrcbed run --on HOST,HOST``: a scenario on a fabric that several machines carry. Only they need
root."""

from __future__ import annotations

import signal
import sys

from scenarios.schema.scenario import Scenario
from testbed.errors import UserError
from testbed.machines.reach import places
from testbed.results.manifest import Stretched
from topologies import FabricError


def run(
    scenario: Scenario,
    out: str | None,
    on: str,
    reach: str,
    *,
    resume: bool,
    dilation: float | None,
    **shown: bool,
) -> int:
    """Return the exit status. ``dilation`` None: the fabric's own, since nobody has measured what
    these machines carry together. ``shown``: ``figures``, ``as_json`` and ``everything``. Raises
    :class:`UserError`."""
    from mrcbed.cli.common import ProgressBar, conclude
    from scenarios.run.machines import check_on_machines, run_on_machines
    from scenarios.run.resume import holds_run
    from scenarios.run.runner import results_directory
    from scenarios.schema.dilation import at_dilation, check_emulable
    from scenarios.sets.dilation import given, read_manifest, recorded

    machines = places(on, reach)
    try:
        chosen = given(scenario, dilation or scenario.dilation)
        check_on_machines(scenario, machines)
        directory = results_directory(scenario.name, out, resume)
        if resume and holds_run(directory) and (former := read_manifest(directory).dilation):
            chosen = recorded(former, dilation)
        check_emulable(scenario, chosen.value)
    except FabricError as error:
        raise UserError(str(error)) from None
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # machines that hear nothing would end
    # what was run is written, as after Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ProgressBar() as progress:
        summary = run_on_machines(
            at_dilation(scenario, chosen.value), directory, machines, progress=progress,
            command_line=["mrcbed", *sys.argv[1:]], resume=resume,
            stretched=Stretched(dilation=chosen), figures=shown["figures"],
        )  # fmt: skip
    return conclude(scenario, summary, directory, shown["as_json"], shown["everything"])
