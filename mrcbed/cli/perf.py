"""``mrcbed perf OPERATION``: bandwidth and latency of a fabric."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from mrcbed.cli.common import ProgressBar, carry_out, say, session_options
from mrcbed.perf.measure import Failed
from mrcbed.perf.options import OPTIONS, Measurement, request_of
from mrcbed.perf.run import OPERATIONS, check_request, perf
from scenarios.run.watch import Doubts
from testbed.options import argument, option
from testbed.session import Session


@click.command(name="perf", cls=Measurement)
@argument("operation")
@session_options(argument("fabric", default="demo"))
@option("--json", "as_json", is_flag=True, help="Print figures as JSON instead of a table.")
def command(operation: str, session: Session, twin: str, as_json: bool, **given: Any) -> None:
    """Measure OPERATION on FABRIC (a file or a name; demo). See docs/how/jobs.md.

    Exit status 0, 1 if an element was wrong or a rank was lost, or 130 after Ctrl-C; the rows
    before are there.
    """
    request = request_of(operation, given, session.seed)
    check_request(request, session.fabric)

    def work() -> int:
        try:
            with (
                session.up(bar=ProgressBar()) as cluster,
                Doubts(cluster, session.stalled) as doubts,
            ):
                sys.stderr.write(twin)
                out = (lambda text: None) if as_json else (lambda text: print(text, flush=True))
                figures: dict[str, object] = perf(
                    cluster, request, session.transport, out, say, doubts.look
                )
                reasons = figures["doubtful"] = doubts.reasons()
            for reason in reasons:
                say(f"doubtful: {reason}")
            status = 1 if figures["wrong"] else 0
        except Failed as error:
            say(f"{operation}: {error}")
            figures, status = {**(error.figures or {}), "failed": str(error)}, error.status
        if as_json:
            faults = click.get_current_context().params["faults"]
            print(json.dumps({**figures, "faults": list(faults)}, indent=2))
        return status

    sys.exit(carry_out(session.world, work))


command.params += OPTIONS
command.params[0].metavar = "|".join(OPERATIONS)
