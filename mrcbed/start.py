"""The console script ``mrcbed``: takes care of Ctrl-C before anything large is imported."""

import gc

from testbed.machine.stopping import leave_at_once

leave_at_once()
# imports and figures leave next to no cycles; collections by the default took a tenth of a run's
# time
gc.set_threshold(50_000, 20, 20)


def main() -> None:
    from mrcbed.cli import main as command_line

    command_line()
