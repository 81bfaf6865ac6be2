"""``mrcbed tools calibrate``: a packet's cost on this machine, by which runs choose their
dilation."""

from __future__ import annotations

import json
import os
import sys

import click
import msgspec

from testbed import terminal
from testbed.errors import UserError
from testbed.machine.exclusive import refuse_if_measuring
from testbed.options import option


@click.command(name="calibrate")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Measure what a packet costs on this machine, keep it for a day, and print which dilation each
    fabric would get now."""
    from mrcbed.cli.common import ProgressBar
    from scenarios.schema.scenario import load_scenario
    from scenarios.sets.dilation import automatic
    from testbed.bench.calibration import MAX_AGE_S, calibration, file, keeps_s
    from testbed.machine import sandbox
    from testbed.machine.quota import quota_cores
    from topologies import named_fabrics
    from topologies.structs import plain

    if os.geteuid() != 0:
        raise UserError(
            "mrcbed tools calibrate needs root for network namespaces and eBPF: use sudo"
        )
    refuse_if_measuring()

    def work() -> int:
        with ProgressBar() as progress:
            made = calibration(progress, renew=True)
        full = {
            name: load_scenario("healthy", fabric=name, transports=["mrc"])
            for name in named_fabrics()
        }
        chosen = {
            name: automatic(scenario, made.cpu_us, made.others_cores)
            for name, scenario in full.items()
        }
        if as_json:
            fabrics = {name: plain(dilation) for name, dilation in chosen.items()}
            print(json.dumps({**msgspec.to_builtins(made), "fabrics": fabrics}, indent=2))
            return 0
        rows = [
            [name, f"{d.value:,.0f}", "its own" if d.factor == 1 else f"{d.factor:g} times its own"]
            for name, d in chosen.items()
        ]
        limit = quota_cores()
        quota = (
            f", a CPU quota of {limit:.2g} of them" if limit < len(os.sched_getaffinity(0)) else ""
        )
        cores = (
            f"{made.machine['cores']} cores, {made.others_cores:.1f} of them busy with other "
            f"work{quota}"
        )
        title = f"{made.cpu_us:.0f} us of CPU time a data packet, {cores}"
        terminal.console().print(
            terminal.table(("fabric", "dilation", ""), rows, title=title, words=("fabric", ""))
        )
        kept = "a day" if keeps_s(made) == MAX_AGE_S else "ten minutes, as the machine was busy"
        print(f"All hosts sending. Kept in {file()} for {kept}.")
        return 0

    sys.exit(sandbox.run(work))
