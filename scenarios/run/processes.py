"""Runs independent tasks in several processes of this machine.

Each process has its own pool, so that the task of one that dies is known. Whatever ends the caller
ends the processes in the middle of their tasks. So a task must leave only files that a second try
replaces.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import TypeVar

from testbed.errors import ClusterDied
from testbed.machine.limits import check_room
from testbed.machine.parent import die_with_parent
from testbed.machine.quota import usable_cores

TASKS = 4
"""A job's process, a thread of Arrow's there, and two threads of its pool here."""
Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Return at least one, and a part of a core as one."""
    return max(1, math.ceil(usable_cores()))


def at_once(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    jobs: int,
    name: Callable[[Task], str] = str,
) -> Generator[tuple[int, Result], None, None]:
    """Yield (index of a task, its result) as tasks end. With one job, tasks run in this process.

    ``work`` and the tasks must be picklable. Raises what ``work`` raises, and :class:`ClusterDied`
    with ``name`` of the task if its process was killed; the other tasks end, too.
    """
    if jobs == 1:
        for number, task in enumerate(tasks):
            yield number, work(task)
        return
    jobs = min(jobs, len(tasks))
    check_room(jobs, TASKS, 1)
    other_children = set(active_children())
    context = get_context("spawn")
    pools = [ProcessPoolExecutor(1, context, die_with_parent, (os.getpid(),)) for _ in range(jobs)]
    remaining = iter(enumerate(tasks))
    running: dict[Future[Result], tuple[int, ProcessPoolExecutor]] = {}

    def submit_next(pool: ProcessPoolExecutor) -> None:
        for number, task in remaining:
            with sigint_blocked():
                running[pool.submit(work, task)] = number, pool
            return

    try:
        for pool in pools:
            submit_next(pool)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, pool = running[future]
                try:
                    result = future.result()
                except BrokenProcessPool:
                    raise ClusterDied(
                        f"{name(tasks[number])}: its process was killed (out of memory?): use "
                        "fewer --jobs; --resume goes on"
                    ) from None
                del running[future]
                submit_next(pool)
                yield number, result
    finally:
        if running:
            for process in set(active_children()) - other_children:
                process.terminate()
        for pool in pools:
            pool.shutdown(cancel_futures=True)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block Ctrl-C in processes that start here: who started them receives it and ends them."""
    resource_tracker.ensure_running()  # its start, with the first process, would unblock the signal
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
