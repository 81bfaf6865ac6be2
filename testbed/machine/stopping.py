"""Ctrl-C from a command's first moment on.

A handler raises KeyboardInterrupt and remembers it, since the import of an extension may swallow an
exception. So code that takes long or leaves something behind calls :func:`go_on` first. Must stay
free of heavy imports.
"""

from __future__ import annotations

# signal itself takes milliseconds, in which Ctrl-C prints a traceback
import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

STATUS = 130
_came = False


def leave_at_once() -> None:
    """A process that is to ignore Ctrl-C still does, as a shell's background jobs."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def started() -> None:
    if signal.getsignal(signal.SIGINT) is _leave:
        raise_from_now_on()


def raise_from_now_on() -> None:
    signal.signal(signal.SIGINT, _raise)


def go_on() -> None:
    """Raise KeyboardInterrupt if one has come and got lost."""
    if _came:
        raise KeyboardInterrupt


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"mrcbed: interrupted\n")
    os._exit(STATUS)


def _raise(_number: int, _frame: FrameType | None) -> None:
    global _came
    _came = True
    raise KeyboardInterrupt
