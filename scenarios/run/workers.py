"""Carries out blocks on Dask's workers of other machines.

Disk is the truth: a run whose folder is in ``raw/`` is finished, any other is still to do. The
scheduler keeps nothing that is needed after a crash.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import os
import queue
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from distributed import Client, Security, get_worker
from distributed.scheduler import KilledWorker

from scenarios.figures.measure import Run
from scenarios.figures.writing import replacing
from scenarios.run import landing
from scenarios.run.fitting import ALIKE, COMMAND, Fitting, facts
from scenarios.run.one_run import Spec
from scenarios.run.resume import is_finished
from scenarios.run.runner import Entries, Landed, entry_of, run_block
from scenarios.schema.resolved import text_of
from scenarios.schema.scenario import scenario_of
from testbed.errors import ClusterDied, UserError, explain, first_line
from testbed.machine.exclusive import Measuring, refuse_if_measuring
from testbed.machine.slowness import patient
from testbed.results.reading import ResultsError, read_plain
from testbed.results.record import Record, read_record
from testbed.simulated.cluster import SimulatedCluster
from testbed.world import EMULATED, SIMULATED
from topologies.toml_files import STANDARD_INPUT, parse_toml, take_format

TRIES = 3
"""A block of which no run began goes elsewhere, twice."""
AHEAD = 2
"""Blocks of each worker: one carried out, one waiting [ours]. So a late worker gets some of the
rest."""
LOOK_S, REACH_S, START_S = 0.5, 5.0, 30.0
PATIENCE_S, UNLIKE_S = 30.0, 5.0
"""How long to go on without any worker, or without a fitting one [ours]."""
LOST_S = 2.0
"""A block that no worker has for so long is given away again: Dask forgets it if the last that fits
goes early [ours]."""
BUSY_S = 60.0  # of waiting for another emulated run of a worker's machine [ours]
GONE = "the scheduler is gone: start it again; --resume goes on"


# --- what a worker does ---------------------------------------------------------------------------


class Answer(NamedTuple):
    """``problem``: why other runs than ``entries`` are not finished, or "". ``began``: any run."""

    worker: str
    archive: bytes
    entries: Entries
    problem: str
    began: bool


def carry_out(specs: Sequence[Spec], world: str) -> Answer:
    """Dask calls it on a worker."""
    worker = get_worker()
    if os.geteuid() == 0:
        return Answer(
            worker.address, b"", {}, "its worker is root: start it as a user without rights", False
        )
    entries: Entries = {}
    problem = ""
    with tempfile.TemporaryDirectory(prefix="mrcbed-block-", dir=worker.local_directory) as folder:
        place = Path(folder)
        try:
            if world == SIMULATED:
                entries = run_block(SimulatedCluster, place, specs)
            else:
                place, problem = through_root(text_of_block(specs), place)
        except Exception as error:
            problem = explain(error)[0]
        finished = [spec for spec in specs if is_finished(place, spec)]
        for spec in finished:
            if world == EMULATED:
                _note(place / "raw" / spec.key / "run.json")
            if spec.key not in entries:
                entries |= entry_of(spec, Run(place / "raw" / spec.key))
        problem = problem if len(finished) < len(specs) else ""
        keys = [spec.key for spec in finished]
        return Answer(
            worker.address, landing.pack(place, keys), entries, problem, (place / "raw").exists()
        )


def _note(path: Path) -> None:
    record, here = read_plain(path, Record), facts()
    with replacing(path) as part:
        part.write_text(
            json.dumps({**record, "machine": {key: here[key] for key in ALIKE}}), encoding="utf-8"
        )


def text_of_block(specs: Sequence[Spec]) -> str:
    first = specs[0]
    scenario = first.scenario
    faults = tuple(
        replace(fault, on=first.used.get(number, fault.on))
        for number, fault in enumerate(scenario.faults)
    )
    return text_of(
        replace(
            scenario,
            seeds=(first.seed,),
            workload=replace(scenario.workload, placement=(first.placement,)),
            faults=faults,
            transports=tuple(spec.transport for spec in specs),
        ),
        first.settings,
    )


def through_root(text: str, place: Path) -> tuple[Path, str]:
    """Let root carry out a scenario. Return its results and its last line of complaint."""
    until = time.monotonic() + patient(BUSY_S)
    while time.monotonic() < until:  # one of a worker that was killed ends with it, but not at once
        try:
            refuse_if_measuring()
            break
        except Measuring:
            time.sleep(LOOK_S)
    done = subprocess.run(
        COMMAND,
        input=text,
        cwd=place,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = [
        line.removeprefix("mrcbed: ")
        for line in done.stderr.splitlines()
        if line.startswith(("mrcbed: ", "sudo: "))
    ]
    return next(place.glob("results/*"), place), (
        lines or [f"{' '.join(COMMAND)} ended with status {done.returncode}"]
    )[-1]


# --- what the client does -------------------------------------------------------------------------


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Yield a client with the certificates of Dask's configuration. Raises :class:`UserError`."""
    for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
        # what matters is said in one line of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not host.isascii() or not port:
        raise UserError(f"--on {address}: write it like tls://10.0.0.1:8786")
    security = Security(require_encryption=True)
    try:
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"--on {address}: Dask's certificates cannot be read ({first_line(error)}): see "
            "docs/how/sweeps.md"
        ) from None
    if context is None:
        need = ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
        names = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in need)
        raise UserError(
            f"--on {address}: Dask has no certificates here: set {names}, or the same in Dask's "
            "configuration"
        )
    try:
        with (
            socket.create_connection((host, port), patient(REACH_S)) as plain,
            context.wrap_socket(plain) as encrypted,
        ):
            # with TLS 1.3 a scheduler that refuses our certificate says so here at the earliest
            encrypted.recv(1)
        client = Client(
            address,
            security=security,
            set_as_default=False,
            timeout=patient(START_S),
            direct_to_workers=False,
        )
    except ssl.SSLError as error:
        raise UserError(
            f"--on {address}: certificates do not fit ({first_line(error)}): make both with one CA"
        ) from None
    except (OSError, ValueError) as error:  # the second for a name that no DNS can have
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(
            f"--on {address}: no scheduler answers ({reason}): start dask scheduler there, and "
            f"let port {port} through"
        ) from None
    with client:
        yield client


@dataclass
class _Task:
    specs: Sequence[Spec]
    tried: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        more = f" and {len(self.specs) - 1} more" if len(self.specs) > 1 else ""
        return f"{self.specs[0].key}{more}"


class OnWorkers:
    def __init__(
        self, client: Client, world: str, mixed: bool, tell: Callable[[str], None]
    ) -> None:
        self.client, self.world, self.tell = client, world, tell
        self.wanted = facts()
        self.session = f"mrcbed-{uuid.uuid4().hex}"
        self.alike = ALIKE if world == EMULATED and not mixed else ()
        self.resource = ""  # that blocks ask for: the first that a worker offers
        self.told: set[str] = set()
        self.failures: list[str] = []

    def __call__(self, directory: Path, blocks: Sequence[Sequence[Spec]]) -> Landed:
        """Raises :class:`UserError` at the end if blocks did not get into ``directory``/raw."""
        landing.clear(directory)
        if self.world == EMULATED:
            for block in {id(block[0].scenario): block for block in blocks}.values():
                _check(text_of_block(block))  # what root would refuse, before anything begins
            self.resource = self._former(directory)
        with suppress(Exception):  # of a worker that has no mrcbed, or another: it does not fit
            self.client.register_plugin(Fitting(self.session, self.wanted, self.world, self.alike))
        try:
            with _stoppable() as stopped:
                yield from self._carry(directory, [*map(_Task, blocks)], stopped)
        finally:
            with suppress(Exception):  # the scheduler may just be gone
                if self.client.status == "running":
                    self.client.unregister_worker_plugin(self.session)
        if self.failures:
            more = f" (and {len(self.failures) - 1} more blocks)" if len(self.failures) > 1 else ""
            raise ClusterDied(f"{self.failures[0]}{more}: --resume tries again")

    def _former(self, directory: Path) -> str:
        for path in (directory / "raw").glob("*/run.json") if self.alike else ():
            with suppress(ResultsError):
                if (machine := read_record(path).machine) is not None:
                    return self.session + json.dumps(machine)
        return ""

    def _carry(self, directory: Path, waiting: list[_Task], stopped: Callable[[], bool]) -> Landed:
        waiting.reverse()
        running: dict[str, tuple[_Task, Any]] = {}
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        seen_at = time.monotonic()
        lost: dict[str, float] = {}  # since when no worker has it
        while waiting or running:
            if stopped():
                raise KeyboardInterrupt
            now = time.monotonic()
            fitting, given = self._look(now - seen_at)
            seen_at = now if fitting else seen_at
            lost = {
                key: lost.get(key, now)
                for key, (_, future) in running.items()
                if key not in given and not future.done()
            }
            for key in [
                key for key, since in lost.items() if fitting and now - since > patient(LOST_S)
            ]:
                task, future = running.pop(key)
                future.cancel()
                waiting.append(task)
            while waiting and len(running) < AHEAD * len(fitting):
                task = waiting.pop()
                others = fitting - task.tried if task.tried else ()
                future = self.client.submit(
                    partial(carry_out, task.specs, self.world),
                    key=f"mrcbed-{uuid.uuid4().hex}",
                    pure=False,
                    resources={self.resource: 1},
                    workers=sorted(others) or None,
                )
                running[future.key] = task, future
                future.add_done_callback(partial(_fetch, ended))
            with suppress(queue.Empty):
                key, fetched = ended.get(timeout=LOOK_S)
                if key in running:
                    yield from self._take(directory, running.pop(key)[0], fetched, waiting)

    def _take(
        self,
        directory: Path,
        task: _Task,
        fetched: concurrent.futures.Future[Answer],
        waiting: list[_Task],
    ) -> Landed:
        try:
            answer = fetched.result()
            late = (
                landing.land(answer.archive, directory, [*answer.entries]) if answer.entries else []
            )
            landed = {key: entry for key, entry in answer.entries.items() if key not in late}
            if landed:
                yield [spec for spec in task.specs if spec.key in landed], landed
        except concurrent.futures.CancelledError:
            raise UserError(GONE) from None
        except KilledWorker:
            answer = Answer(
                "", b"", {}, "its workers were killed, again and again (out of memory?)", True
            )
        except UserError as error:
            answer = Answer("", b"", {}, str(error), True)
        if not answer.problem:
            return
        task.tried.add(answer.worker)
        if not answer.began and len(task.tried) < TRIES:
            self.tell(f"{task.name}: {answer.problem}: tried elsewhere")
            waiting.append(task)
        else:
            self.failures.append(f"{task.name}: {answer.problem}")
            self.tell(self.failures[-1])

    def _look(self, waited: float) -> tuple[set[str], set[str]]:
        """Return fitting workers, and the keys that workers have. Raises :class:`UserError` if none
        has fitted for long."""
        try:
            if (
                self.client.status != "running"
                # Dask would try for half a minute; but a scheduler that comes back has forgotten
                # our blocks
            ):
                raise UserError(GONE)
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            told = dict(event for _, event in self.client.get_events(self.session))
            given = {key for keys in self.client.processing().values() for key in keys}
        except (OSError, KeyError, ValueError):
            raise UserError(GONE) from None
        offers = {
            address: name
            for address, entry in workers.items()
            for name, count in entry.get("resources", {}).items()
            if name.startswith(self.session) and count
        }
        self.resource = self.resource or next(iter(offers.values()), "")
        reasons = {address: reason for address, reason in told.items() if address in workers}
        reasons |= {
            address: self._unlike(name) for address, name in offers.items() if name != self.resource
        }
        for address, reason in reasons.items():
            if address not in self.told:
                self.tell(f"worker {address} {reason}")
                self.told.add(address)
        fitting = {address for address, name in offers.items() if name == self.resource}
        if fitting or waited < patient(UNLIKE_S if workers else PATIENCE_S):
            return fitting, given
        reasons |= {
            address: "has no mrcbed of this version: install it there"
            for address in workers
            if address not in reasons
        }
        why = next(
            (f"{address} {reason}" for address, reason in reasons.items()),
            "there is none: start dask worker",
        )
        raise UserError(f"no worker fits: {why}; --resume goes on")

    def _unlike(self, name: str) -> str:
        there, here = (
            json.loads(text.removeprefix(self.session)) for text in (name, self.resource)
        )
        key = next(key for key in there if there[key] != here.get(key))
        return (
            f"has {key} {there[key]}, not {here.get(key)}: use equal machines, or --mixed, which "
            "adds columns"
        )


def _fetch(ended: queue.SimpleQueue[Any], future: Any) -> None:
    """Put a finished future's key and result into ``ended``. In a thread of its own: if the worker
    goes with the result, Dask waits until another carries the block out, which may be never
    (:data:`LOST_S`)."""

    def fetch() -> None:
        fetched: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        try:
            fetched.set_result(future.result())
        except BaseException as error:  # whoever takes it raises it
            fetched.set_exception(error)
        ended.put((future.key, fetched))

    threading.Thread(target=fetch, daemon=True).start()


def _check(text: str) -> None:
    """Raises :class:`scenarios.schema.values.ScenarioError` if ``mrcbed run -`` would refuse
    this."""
    data = parse_toml(text)
    take_format(data)
    scenario_of(STANDARD_INPUT, text, data)


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C or SIGTERM has come. Only the second raises at once, since Python drops
    what a handler raises in a destructor or in a callback of the garbage collector, and Dask has
    both."""
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
