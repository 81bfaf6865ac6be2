"""The console script ``mrcbed``: takes care of Ctrl-C before anything large is imported."""

from testbed.machine.stopping import leave_at_once

leave_at_once()


def main() -> None:
    from mrcbed.cli import main as command_line

    command_line()
