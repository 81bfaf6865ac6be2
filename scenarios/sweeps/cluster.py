"""Dask, and nothing of scenarios: a cluster of this machine's processes, or a client of a head that runs elsewhere.

The only module that imports ``distributed``, which the extra ``sweep`` brings. docs/sweeps.md says who talks to whom.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import queue
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scenarios.run.processes import sigint_blocked
from scenarios.sweeps.keeping import keep, kept
from scenarios.sweeps.machines import ALIKE, Facts, difference, facts, offered, offers, resource
from scenarios.sweeps.tls import CA, CERTIFICATE, KEY, Identity, make_certificates, reach
from scenarios.sweeps.work import Answer, answer
from testbed.crowd import BACKLOG, MOST_IN_TURNS, Crowd
from testbed.errors import UserError, first_line
from testbed.machine.limits import check_room
from testbed.machine.slowness import patient

LOOPBACK = "127.0.0.1"
GONE = "the head is gone: start it again; --resume goes on"
START_S = 30.0
TASKS = 6
"""Processes and threads of one job, and of the scheduler: with two jobs 14 are too few for Dask [measured]."""
SETTINGS = {
    "distributed.scheduler.allowed-failures": 2,
    "distributed.comm.require-encryption": True,
    "distributed.comm.socket-backlog": BACKLOG,
    "distributed.admin.tick.limit": "1h",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}
"""A block whose worker has died three times is given up. A run may take all memory there is, as it may without Dask. A compiled run may
hold Python's lock for long; Dask would call that a problem of its event loop."""


def require() -> None:
    """Check that Dask is installed. Raises :class:`UserError`."""
    if importlib.util.find_spec("distributed") is None:
        raise UserError("sweeps need Dask: .venv/bin/pip install -r requirements-sweep.txt (of a wheel: pip install 'mrcbed[sweep]')")


def _configure() -> None:
    import dask
    from distributed.comm.tcp import TLSBackend, TLSListener  # whose import sets levels of its own
    from distributed.node import ServerNode

    class Listener(TLSListener):  # type: ignore[misc]
        """Counts a connection as one of a crowd until it has shown a certificate."""

        def __init__(self, *args: Any, **keys: Any) -> None:
            super().__init__(*args, **keys)
            self.crowd: Crowd[Any] = Crowd(asyncio.get_running_loop().call_later, lambda stream: stream.close(), most=MOST_IN_TURNS)

        async def _prepare_stream(self, stream: Any, address: str) -> Any:
            self.crowd.join(stream)
            try:
                return await super()._prepare_stream(stream, address)
            finally:
                self.crowd.leave(stream)

    TLSBackend._listener_class = Listener
    ServerNode.start_http_server = lambda *_, **__: None  # pages for everybody, with stacks and logs, that no setting switches off
    dask.config.set(SETTINGS)
    for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said in one line of ours


def _security(identity: Identity) -> Any:
    from distributed import Security

    identity.context()
    ca, certificate, key = (identity.file(name) for name in (CA, CERTIFICATE, KEY))
    ends = {f"tls_{end}_{kind}": file for end in ("client", "scheduler", "worker") for kind, file in (("cert", certificate), ("key", key))}
    return Security(tls_ca_file=ca, require_encryption=True, **ends)


def _on_worker(text: str) -> Answer:
    """What Dask calls on a worker. Temporary files are in Dask's own folder, which its next start clears after a crash."""
    from distributed import get_worker

    worker = get_worker()
    return {**answer(text, worker.local_directory), "worker": worker.address}


class Workers:
    """What a head sees of its workers, and how it gives them blocks."""

    def __init__(
        self, client: Any, wanted: Facts, mixed: bool = False, settled: bool = False, why_none: Callable[[], str] = lambda: ""
    ) -> None:  # fmt: skip
        """``wanted``: the facts that a worker must have. Those of ALIKE do not count if ``mixed``, and unless they are ``settled``, the
        first worker settles them. ``why_none`` says why no worker will come; "" if one may."""
        self.client, self.wanted, self.mixed, self.settled = client, wanted, mixed, settled
        self.why_none = why_none
        self.told: set[str] = set()
        self.reasons: list[str] = []
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def settle(self, alike: Facts) -> None:
        """Demand these values of ALIKE from every worker."""
        self.wanted, self.settled = {**self.wanted, **{key: alike.get(key) for key in ALIKE}}, True

    def fitting(self) -> dict[str, Facts]:
        """Return the workers that fit, by address."""
        seen = self._seen()
        if not self.settled:
            first = next((these for these in seen.values() if these and not difference(these, self.wanted, mixed=True)), None)
            if first is not None:
                self.settle(first)
        return {address: these for address, these in seen.items() if these and not difference(these, self.wanted, self.mixed)}

    def unlike(self) -> list[str]:
        """Return one line for each worker that does not fit and of which nothing was said yet. ``reasons`` holds those of all."""
        reasons = {address: difference(these, self.wanted, self.mixed) for address, these in self._seen().items()}
        unlike = {address: f"worker {address} {reason}" for address, reason in reasons.items() if reason}
        self.reasons = list(unlike.values())
        lines = [line for address, line in unlike.items() if address not in self.told]
        self.told |= unlike.keys()
        return lines

    def submit(self, text: str, name: str, elsewhere_than: Sequence[str] = ()) -> Any:
        """Give a block to a worker, which is none of ``elsewhere_than`` if there are others. :meth:`next` returns the future."""
        others = [address for address in self.fitting() if address not in elsewhere_than] if elsewhere_than else []
        asked = {resource(self.wanted, self.mixed): 1}
        future = self.client.submit(_on_worker, text, key=name, pure=False, resources=asked, workers=others or None)
        future.add_done_callback(self.ended.put)
        return future

    def next(self, seconds: float) -> Any:
        """Return the next future that is done, None after some seconds."""
        try:
            return self.ended.get(timeout=seconds)
        except queue.Empty:
            return None

    def result(self, future: Any) -> tuple[Answer, str]:
        """(the answer of a future that is done, its worker's address). A block whose workers died has a problem as its answer.

        Raises :class:`UserError` if the head is gone.
        """
        from distributed.scheduler import KilledWorker

        try:
            found: Answer = future.result()
        except CancelledError:
            raise UserError(GONE) from None
        except KilledWorker:
            return {"problem": "its worker was killed three times (out of memory?)", "bring_up": False}, ""
        except Exception as error:
            return {"problem": f"{type(error).__name__}: {first_line(error)}", "bring_up": False}, ""
        return found, str(found.get("worker", ""))

    def _seen(self) -> dict[str, Facts | None]:
        if why := self.why_none():
            raise UserError(why)
        try:
            if self.client.status != "running":  # Dask would try for half a minute; but a head that comes back has forgotten our blocks
                raise UserError(GONE)
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, KeyError, ValueError):
            raise UserError(GONE) from None
        return {address: offered(entry.get("resources", {})) for address, entry in workers.items()}


@contextmanager
def local(jobs: int, world: str, folder: Path) -> Iterator[Workers]:
    """Yield the workers of a cluster of ``jobs`` processes on this machine. Their certificates and temporary files are in ``folder``."""
    require()
    _configure()
    from distributed import Client, LocalCluster

    check_room(jobs, TASKS, 0)
    wanted = facts(world)
    (made,) = make_certificates(folder / "tls", ["local"])
    identity = Identity(made)
    security = _security(identity)
    with sigint_blocked():  # for its thread
        cluster = LocalCluster(
            n_workers=0, host=LOOPBACK, protocol="tls", security=security, dashboard_address=None, silence_logs=logging.CRITICAL
        )
    with cluster, Client(cluster, security=security, set_as_default=False) as client:
        post = Post(cluster.scheduler_address, identity, LOOPBACK, offers(wanted), str(folder))
        with kept(_work, post, jobs) as why_none:
            yield Workers(client, wanted, settled=True, why_none=why_none)


@contextmanager
def remote(address: str, identity: Identity, world: str, mixed: bool) -> Iterator[Workers]:
    """Yield the workers of the head at ``address``. Raises :class:`UserError` if it cannot be reached."""
    require()
    _configure()
    from distributed import Client

    try:
        client = Client(address, security=_security(identity), set_as_default=False, timeout=patient(START_S), direct_to_workers=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--on {address}: no head of mrcbed answers there ({first_line(error)}): start mrcbed head there") from None
    with client:
        yield Workers(client, facts(world), mixed)


def serve_head(host: str, port: int, identity: Identity, ready: Callable[[str], None]) -> None:
    """Run a head until it is stopped; ``ready(address)`` once it listens. Raises :class:`UserError`."""
    require()
    _configure()
    security = _security(identity)

    async def serve() -> None:
        from distributed import Scheduler

        place = f"[{host}]" if ":" in host else host
        try:
            head = await Scheduler(host=place, port=port, protocol="tls", security=security, dashboard=False)
        except (OSError, RuntimeError, ValueError) as error:  # Dask wraps the first in the second
            cause = error.__cause__ or error
            why = getattr(cause, "strerror", None) or first_line(cause)
            raise UserError(f"--listen {place}:{port}: {why}: give an address of this machine and a free port") from None
        async with head:
            ready(head.address)
            await head.finished()

    asyncio.run(serve())


def serve_worker(address: str, identity: Identity, world: str, tell: Callable[[str], None]) -> None:
    """Work for the head at ``address`` until we are stopped, and wait for it when it is gone. Raises :class:`UserError`."""
    require()
    own = reach(address, identity, "worker")

    def wait_for_head() -> bool:
        if _answers(address, identity):
            return False
        tell(f"{address} is gone: waits for it")
        while not _answers(address, identity):
            time.sleep(patient(1.0))
        return True

    post = Post(address, identity, own, offers(facts(world)), None)
    keep(_work, post, 1, ready=lambda: tell(f"works for {address}, in the {world} world"), ended=wait_for_head)


def _answers(address: str, identity: Identity) -> bool:
    try:
        reach(address, identity, "worker")
    except UserError:
        return False
    return True


class Post(NamedTuple):
    """Where a process for blocks works. ``host``: its own address. ``folder``: for temporary files; None: Dask's own."""

    address: str
    identity: Identity
    host: str
    resources: dict[str, float]
    folder: str | None


def _work(post: Post, ready: Callable[[], None]) -> None:
    """What a process for blocks does, until its head is gone or SIGTERM ends it."""
    _configure()
    security = _security(post.identity)

    async def work() -> None:
        from distributed import Worker

        async with Worker(
            post.address, nthreads=1, host=post.host, security=security, resources=post.resources, local_directory=post.folder,
            memory_limit=None, dashboard=False, silence_logs=logging.CRITICAL,
        ) as worker:  # fmt: skip

            def end() -> None:
                shutil.rmtree(worker.local_directory, ignore_errors=True)
                os._exit(0)  # a block that is under way does not matter any more

            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
            ready()
            await worker.finished()

    asyncio.run(work())
