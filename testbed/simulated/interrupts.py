"""Lets Ctrl-C and SIGTERM wait while compiled code runs, where an exception must not arise just
anywhere.

Python also looks for signals in the middle of a product of large integers; mypyc takes a product
that raises for lack of memory, and aborts the process (mypyc 2.4, ``CPyError_OutOfMemory``). A
handler that raises in the middle of an event, or of a message, would leave it half done. This
module is not compiled: compiled code does not look for signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ClassVar

_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Waiting:
    depth = 0  # of nested uninterrupted()
    came: ClassVar[list[tuple[_Waiting, int]]] = []  # those that wait

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _Waiting.depth:
            _Waiting.came.append((self, number))
        else:
            self.handler(number, frame)


def breathe() -> None:
    """Call the handlers that wait, where nothing is half done."""
    while _Waiting.came:
        waiting, number = _Waiting.came.pop(0)
        waiting.handler(number, None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Have handlers of SIGINT and SIGTERM wait for :func:`breathe`, or for the end."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in that one alone
        yield
        return
    for number in _STOPS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Waiting):
            signal.signal(number, _Waiting(handler))
    _Waiting.depth += 1
    try:
        yield
    finally:
        _Waiting.depth -= 1
        if not _Waiting.depth:
            breathe()
