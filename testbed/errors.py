"""The one exception that people see: a single line with what is wrong, where, and the fix.

Raised anywhere in the testbed; the command line prints it without a traceback and exits with its ``status``.
"""

from __future__ import annotations


class UserError(Exception):
    """Bad input, or something the machine lacks. The message is one line that ends in the fix."""

    status = 2


class ClusterDied(UserError):
    """A process that the cluster needs has died. One line: which, how, and what to do."""

    status = 1  # neither the input's fault nor the machine's


def internal(error: BaseException) -> str:
    """The line for a bug of ours."""
    first = (str(error).splitlines() or [""])[0]
    return f"internal error (please report): {type(error).__name__}: {first} (MRCBED_DEBUG=1 shows the traceback)"
