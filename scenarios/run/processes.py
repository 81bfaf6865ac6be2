"""Independent tasks over several processes of this machine. Used by the runner for simulated runs and by many_schedules.

Each process has a pool of its own, so that the task of one that dies is known. Whatever ends the caller ends the processes, in the middle
of their tasks: a task leaves nothing that a second try does not replace.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TypeVar

from testbed.errors import ClusterDied

Task = TypeVar("Task")
Result = TypeVar("Result")
_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def at_once(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, name: Callable[[Task], str] = str
) -> Iterator[tuple[int, Result]]:
    """(index of a task, its result) as they come; with one job in this process, one task after the other.

    ``work`` and the tasks must be picklable. Raises what ``work`` raises, and :class:`ClusterDied` with ``name`` of the task if its process
    was killed; the other tasks end with it.
    """
    if jobs == 1:
        for number, task in enumerate(tasks):
            yield number, work(task)
        return
    not_ours = set(active_children())
    begin = get_context("spawn")
    pools = [ProcessPoolExecutor(1, begin, _die_with, (os.getpid(),)) for _ in range(min(jobs, len(tasks)))]
    left = iter(enumerate(tasks))
    running: dict[Future[Result], tuple[int, ProcessPoolExecutor]] = {}

    def give(pool: ProcessPoolExecutor) -> None:
        for number, task in left:
            with _deaf():
                running[pool.submit(work, task)] = number, pool
            return

    try:
        for pool in pools:
            give(pool)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, pool = running[future]
                try:
                    result = future.result()
                except BrokenProcessPool:
                    raise ClusterDied(
                        f"{name(tasks[number])}: its process was killed (out of memory?): use fewer --jobs; --resume goes on"
                    ) from None
                del running[future]
                give(pool)
                yield number, result
    finally:
        if running:
            for process in set(active_children()) - not_ours:
                process.terminate()
        for pool in pools:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """A process begun in here never hears Ctrl-C: that is for whoever began it, who ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with(parent: int) -> None:
    """Called first in each process: it is not to outlive the one that began it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
