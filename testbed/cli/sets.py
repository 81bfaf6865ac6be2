"""How commands that run a set of scenarios run each: in a sandbox of its own where it is emulated. Shared by ``paper`` and ``validate``.

What reads tables runs in a process of its own, too: nothing that has threads is to be loaded in the front before it forks again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenarios.series import INTERRUPTED
from testbed.cli.run import ProgressBar
from testbed.errors import UserError
from testbed.exclusive import measuring
from testbed.simulated import SIMULATED


def run_one(scenario: Any, where: Path, resume: bool, world: str = "emulated", apart: bool = True) -> int:
    """Run it into ``where``; the exit status, 130 if the user stopped it. ``apart``: in a sandbox, for which it takes root."""
    from testbed import sandbox

    def work() -> int:
        from scenarios.runner import run_scenario
        from scenarios.simulate import simulate

        with ProgressBar() as progress:
            words = ["mrcbed", *sys.argv[1:]]
            how = simulate if world == SIMULATED else run_scenario
            summary = how(scenario, where, progress=progress, command_line=words, resume=resume)
        return INTERRUPTED if summary["verdict"] == "interrupted" else 0

    if not apart:
        return work()
    with measuring(where):
        return sandbox.run(work)


def conclude_apart(conclude: Callable[[Any, Path], Any]) -> Callable[[Any, Path], None]:
    """The same, in a sandbox if that can be had."""
    from testbed import sandbox

    def apart(item: Any, out: Path) -> None:
        def work() -> int:
            conclude(item, out)
            return 0

        if os.geteuid() != 0:
            work()
        elif sandbox.run(work):
            raise UserError("could not be concluded")

    return apart


def tell(line: str) -> None:
    """On stderr, at once."""
    print(line, file=sys.stderr, flush=True)
