"""Processes for blocks, each with a Dask worker: one that ends is started again as long as somebody wants it.

Dask has a Nanny for that, but it gives a process up that is killed while it starts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from scenarios.run.processes import sigint_blocked
from testbed.errors import UserError, advised, first_line
from testbed.machine.parent import die_with_parent
from testbed.machine.slowness import patient

STARTS = 3
"""A process that has ended so often before it worked, is given up [ours]."""
KILLED = "is there memory for it?"
END_S = 10.0

Work = Callable[[Any, Callable[[], None]], None]
"""``work(task, ready)``: calls ``ready()`` once it is at work, and returns when there is nothing to do any more. Picklable, as ``task``."""


def keep(
    work: Work, task: Any, count: int, stop: Connection | None = None, ready: Callable[[], None] = lambda: None,
    ended: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Keep ``count`` processes at work until ``stop`` ends. They die with the thread that calls this, and hear no Ctrl-C.

    ``ready()`` after each start; ``ended()`` after each end, which may wait until another start has a chance, and says whether it did.
    Raises :class:`UserError` if one does not start.
    """
    context = get_context("spawn")
    running: dict[Connection, Any] = {}
    failures, why = 0, KILLED
    try:
        while True:
            while len(running) < count:
                try:
                    here, there = context.Pipe(duplex=False)
                    process = context.Process(target=_at_work, args=(work, task, there, os.getpid()), daemon=True)
                    with sigint_blocked():
                        process.start()
                except OSError as error:
                    raise UserError(f"no process for blocks can be started: {advised(str(error.strerror))}") from None
                there.close()
                running[here] = process
            for connection in wait([*running, *([stop] if stop else [])]):
                if connection is stop:
                    return
                assert isinstance(connection, Connection)
                try:
                    problem = connection.recv()
                except (EOFError, ConnectionResetError):
                    running.pop(connection).join()
                    connection.close()
                    failures = 0 if ended() else failures + 1
                    if failures == STARTS:
                        raise UserError(f"no process for blocks starts, {STARTS} tries: {why}") from None
                    continue
                if problem is not None:
                    why = problem
                    continue
                failures, why = 0, KILLED
                ready()
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join(patient(END_S))
            process.kill()
            process.join()


def _at_work(work: Work, task: Any, connection: Connection, parent: int) -> None:
    die_with_parent(parent)
    try:
        work(task, lambda: connection.send(None))
    except Exception as error:  # whoever keeps us tells it
        cause = error.__cause__ or error  # of what Dask wraps
        connection.send(f"{type(cause).__name__}: {first_line(cause)}")


@contextmanager
def kept(work: Work, task: Any, count: int) -> Iterator[Callable[[], str]]:
    """:func:`keep`, beside what is done here. Yields what tells why there are no processes any more; "" while there are."""
    why: list[str] = []
    here, there = get_context("spawn").Pipe()

    def run() -> None:
        try:
            keep(work, task, count, there)
        except UserError as error:
            why.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    with sigint_blocked():
        thread.start()
    try:
        yield lambda: why[0] if why else ""
    finally:
        here.close()
        thread.join()
