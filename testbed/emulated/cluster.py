"""A cluster that can be broken: fabric, controller and agents of one emulated run as one object,
inside the sandbox only.

When any but the controller dies, :meth:`Cluster.check` raises. If nobody tears the cluster down
within a second, the watcher does.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents.clock import WallClock
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.kernel.options import Options as KernelOptions
from agents.process.control import AgentClient, AgentError
from testbed.controller.denylist import OPERATOR
from testbed.controller.handle import ControllerHandle
from testbed.dataplane import layout, loader
from testbed.dataplane.counters import Loads
from testbed.emulated import bringup, management, netlink
from testbed.emulated.capture import Capture
from testbed.emulated.fabric import STEPS, FabricNet
from testbed.emulated.injector import Injector
from testbed.emulated.iperf_flows import Iperf
from testbed.emulated.kernel_paths import KernelPaths
from testbed.emulated.port_watch import PortWatch
from testbed.emulated.programs import GRACE_S, KILL_S, EmulatedPrograms
from testbed.emulated.rates import Rates
from testbed.emulated.trunk import Trunk
from testbed.errors import ClusterDied, UserError, advised
from testbed.faults.injections import TakesFaults
from testbed.faults.packet_faults import PacketFaults
from testbed.machine import running, sandbox
from testbed.machine.parent import Adopted, adopting
from testbed.machine.slowness import patient, remark
from testbed.machine.stopping import go_on
from testbed.world import EMULATED, Program, Started, Stream
from topologies.clos import Fabric
from topologies.parts import whole

CRASH_POINTS = (*STEPS, "controller", "captures", "started", "agents", "agents-started")
"""Points where MRCBED_CRASH_AT makes bring-up fail: ``<point>`` raises there, ``<point>:kill``
kills this process."""
MAX_HOSTS = 64
"""More hosts would take minutes to come up [ours]."""
MOST_DESCRIPTORS = 900
"""Descriptors of a process of several agents: select takes numbers below 1,024."""
CONTROLLER_S = 20.0
PAUSER_S = 20.0
AGENTS_S = 20.0
FLUSH_S = 0.4
KERNEL_DRAIN_S = 1.0
NOTICE_S, FORCE_S = 0.6, 1.2
"""Seconds after a death until the main thread is interrupted, and until everything is ended without
it."""
LAST_WORDS_S = GRACE_S + KILL_S + 1.0
DRAIN_S = 0.05
ROOT = Path(__file__).resolve().parents[2]
_AGENT = "the agent of "


class InjectedCrash(RuntimeError):
    """The failure that MRCBED_CRASH_AT asks for."""


class Cluster(Started, TakesFaults):
    """A cluster on this machine, or this machine's part of one with ``trunk``: :attr:`agents` then
    has that part's alone, in the order of ``part.hosts``. ``dilation`` is that of
    :class:`agents.clock.WallClock`. ``progress(stage, share)`` reports how far bring-up has come.
    Without ``controller`` the switches' tables are written without Ryu."""

    name = EMULATED

    def __init__(
        self,
        fabric: Fabric,
        *,
        dilation: float,
        controller: bool = True,
        switch: str = "ebpf",
        pcap_links: Sequence[str] = (),
        pcap_dir: Path | None = None,
        progress: Callable[[str, float], None] | None = None,
        trunk: Trunk | None = None,
    ) -> None:
        self.part = whole(fabric) if trunk is None else trunk.part
        if (
            len(self.part.hosts) > MAX_HOSTS
            or len(fabric.ports) > layout.MAX_PORTS
            or len(fabric.switches) > layout.MAX_SWITCHES
        ):
            raise UserError(
                f"fabric {fabric.name!r} has {fabric.host_count} hosts, {len(fabric.switches)} "
                f"switches and {len(fabric.ports)} ports: one machine emulates up to "
                f"{MAX_HOSTS}, {layout.MAX_SWITCHES} and {layout.MAX_PORTS}"
            )
        self.fabric = fabric
        self.clock = WallClock(dilation)
        self.agents: list[AgentClient] = []
        self.captures: list[Capture] = []
        self.booted_ns = 0
        self.teardown_ns = 0
        self.rest_url = ""
        for link in pcap_links:
            fabric.link(link)
        if pcap_links and pcap_dir is None:
            raise ValueError("pcap_links need a pcap_dir")
        self._pcap = (tuple(pcap_links), pcap_dir)
        self._progress = progress or (lambda stage, share: None)
        self._want_controller = controller
        self._controller: subprocess.Popen[bytes] | None = None
        self.control = ControllerHandle(fabric, self.clock)
        self._agents: list[Adopted] = []
        self._share = 1  # hosts of each
        self._agents_dir = Path()
        self._kernel_paths: KernelPaths | None = None
        # pidfd -> what, process
        self._watched: dict[int, tuple[str, subprocess.Popen[bytes] | Adopted]] = {}
        self._watch_lock = threading.Lock()
        self._died = ""
        self._noticed = threading.Event()
        self._stopping = threading.Event()
        self._wake, self._waker = -1, -1
        self._watcher: threading.Thread | None = None
        self._faults: Injector | None = None
        self._port_numbers = {port.name: port.number for port in fabric.ports}
        self._queues: netlink.QueueSocket | None = None
        self._pauser: subprocess.Popen[bytes] | None = None
        self.net = FabricNet(fabric, self.clock, self._reach, switch, trunk)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring everything but the agents up, or tear all down and raise; :class:`UserError` is for
        what people can fix."""
        go_on()
        started = time.monotonic_ns()
        try:
            self._wake, self._waker = os.pipe()
            self._watcher = threading.Thread(target=self._watch, name="mrcbed-watch", daemon=True)
            self._watcher.start()
            self.net.start()
            rates = Rates(self.fabric, self.clock, self.net.path_of, self.part)
            self._faults = Injector(
                self.fabric,
                self.clock,
                self.net.faults,
                PacketFaults(),
                rates,
                self._process_of,
                self._socket_of,
            )
            for host in self.net.hosts:
                self._guard(f"the shell of {host.name}", host.shell)
            for name, process in self.net.ovs.processes if self.net.ovs is not None else ():
                self._guard(name, process)
            if self.fabric.pfc:
                self._start_pauser()
            self._reach("controller")
            if self._want_controller:
                self._start_controller()
            else:
                self.net.program()
            self._reach("captures")
            links, directory = self._pcap
            for link in links:
                assert directory is not None
                self.captures.append(
                    Capture(
                        self.fabric, link, directory, self.net.switch_namespace, self.net.come_twice
                    )
                )
                self._guard(f"the capture of {link}", self.captures[-1].process)
            self._reach("started")
        except BaseException as error:
            ended = [
                host.name for host in self.net.hosts if host.shell and host.shell.poll() is not None
            ]
            self.stop()
            # its text names only what failed for want of the shell, and refers to the doctor
            if ended and isinstance(error, UserError):
                raise UserError(
                    f"the shell of {ended[0]} was ended from outside: start again"
                ) from error
            raise
        self.booted_ns = time.monotonic_ns() - started

    def stop(self) -> None:
        """Take everything down in under two seconds. Idempotent; no signal interrupts it."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        started = time.monotonic_ns()
        with _uninterrupted():
            if self._watcher is not None:
                os.write(self._waker, b"x")
                self._watcher.join()
            if self._faults is not None:
                self._faults.close()
            for agent in self.agents:
                agent.close()
            self.agents = []
            self._flush_agents()
            self.control.close()
            running.withdraw()
            for process in self._processes():
                if process.poll() is None:
                    process.kill()
            if self.captures:
                time.sleep(DRAIN_S)
            for capture in self.captures:
                capture.stop(0.5)
            if self._queues is not None:  # an open socket keeps the switches' namespace alive
                self._queues.close()
            self.net.stop()
            for process in self._processes():
                process.wait()
            for popen in (self._controller, self._pauser):
                if popen is not None and popen.stdout is not None:
                    popen.stdout.close()
            for fd in (self._wake, self._waker, *self._watched):
                if fd >= 0:
                    os.close(fd)
            self._watched.clear()
        self.teardown_ns = time.monotonic_ns() - started

    def _processes(self) -> list[subprocess.Popen[bytes] | Adopted]:
        return [
            *self._agents,
            *(process for process in (self._controller, self._pauser) if process is not None),
        ]

    def _flush_agents(self) -> None:
        running = [process for process in self._agents if process.poll() is None]
        for process in running:
            process.terminate()
        until = time.monotonic() + FLUSH_S
        while any(process.poll() is None for process in running) and time.monotonic() < until:
            time.sleep(0.005)

    def _reach(self, point: str) -> None:
        if point in CRASH_POINTS:
            self._progress(
                f"bringing up {self.fabric.name}: {point.replace('-', ' ')}",
                CRASH_POINTS.index(point) / len(CRASH_POINTS),
            )
        crash_point, _, mode = os.environ.get("MRCBED_CRASH_AT", "").partition(":")
        if crash_point and crash_point not in CRASH_POINTS:
            raise UserError(
                f"MRCBED_CRASH_AT={crash_point}: no such point; they are {', '.join(CRASH_POINTS)}"
            )
        if crash_point == point:
            if mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise InjectedCrash(f"crash injected at {point}")

    # --- PFC --------------------------------------------------------------------------------------

    def _start_pauser(self) -> None:
        config = json.dumps(
            {
                "fabric": self.fabric.to_dict(),
                "clock": self.clock.to_dict(),
                "namespaces": self.net.namespaces,
            }
        )
        log = Path(sandbox.RUN_DIR) / "pauser.log"
        with log.open("wb") as complaints:
            self._pauser = subprocess.Popen(
                [sys.executable, "-m", "testbed.emulated.pauser", config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=ROOT,
                env=environment(),
                pass_fds=tuple(self.net.namespaces.values()),
            )
        assert self._pauser.stdout is not None
        ready, _, _ = select.select([self._pauser.stdout], [], [], patient(PAUSER_S))
        if not ready or not self._pauser.stdout.readline():
            late = f"no answer within {patient(PAUSER_S):.0f} s{remark()}"
            raise UserError(
                f"what pauses ports (PFC) did not come up ({_last_line(log) or late}): see "
                "mrcbed doctor"
            )
        self._guard("the process that pauses ports", self._pauser)

    # --- controller -------------------------------------------------------------------------------

    def _start_controller(self) -> None:
        config, token = Path(sandbox.RUN_DIR) / "controller.json", secrets.token_hex(16)
        running.write_secret(
            config,
            json.dumps(
                {
                    "fabric": self.fabric.to_dict(),
                    "clock": self.clock.to_dict(),
                    "ports": {p.name: layout.PORT_BASE + p.number for p in self.fabric.ports},
                    "netns": self.net.switch_namespace,
                    "maps": str(loader.PINS),
                    "bridges": str(self.net.ovs.run) if self.net.ovs is not None else "",
                    "southbound": "ebpf" if self.net.ovs is None else "openflow",
                    "rest_host": "127.0.0.1",
                    "rest_port": 0,
                    "token": token,
                }
            ),
        )
        log = Path(sandbox.RUN_DIR) / "controller.log"
        with log.open("wb") as complaints, sandbox.child_apart():
            self._controller = subprocess.Popen(
                [sys.executable, "-m", "testbed.controller", "--config", str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=ROOT,
                env=environment(),
            )
        self.control = ControllerHandle(self.fabric, self.clock, self._controller, token)
        answer = self.control.line(patient(CONTROLLER_S))
        if not answer:
            late = f"no answer within {patient(CONTROLLER_S):.0f} s{remark()}"
            reason = _last_line(log) or ("it ended without a word" if self.control.over else late)
            raise UserError(f"the controller did not come up ({reason}): see mrcbed doctor")
        fields = answer.split()
        if len(fields) < 2 or fields[0] != "ready":
            raise UserError(
                f"the controller said {answer!r} instead of being ready: see mrcbed doctor"
            )
        self.rest_url = self.control.url = f"http://127.0.0.1:{int(fields[1])}"
        running.announce(self.rest_url, self.fabric.name, token)

    @property
    def controller_alive(self) -> bool:
        return self._controller is not None and self._controller.poll() is None

    @property
    def controller_lost(self) -> bool:
        return self._controller is not None and self._controller.poll() is not None

    @property
    def controller_pid(self) -> int:
        return self._controller.pid if self._controller is not None else 0

    # --- agents -----------------------------------------------------------------------------------

    def start_agents(
        self,
        transport: str,
        options: Mapping[str, object],
        log_dir: Path,
        seed: int,
        policy: str = "none",
        alone: bool = True,
    ) -> None:
        """Start one agent per host; returns when every control socket answers. Raises
        :class:`UserError`.

        ``policy`` chooses what the controller tells agents about link events
        (testbed/controller/steering.py). With ``alone`` each agent has a process, for faults that
        stop or kill one; otherwise they share one per core.
        """
        if self._agents:
            raise RuntimeError("agents are running already: stop_agents comes first")
        self._reach("agents")
        self.net.counters.forget_longest()
        if transport in KERNEL_KINDS:
            self._kernel_paths = self._install_kernel_paths(transport, options, seed)
        delayed = self._kernel_paths is not None and self._kernel_paths.delays
        # which packets a ramp marks follows the run's seed
        loader.describe(self.fabric, seed, self.net.switch_kind, delayed)
        directory = self._agents_dir = Path(tempfile.mkdtemp(prefix="agents-", dir=sandbox.RUN_DIR))
        log_dir.mkdir(parents=True, exist_ok=True)
        share = 1
        if not alone and transport not in KERNEL_KINDS:
            share = min(
                -(-len(self.part.hosts) // len(os.sched_getaffinity(0))),
                MOST_DESCRIPTORS // (self.fabric.planes + 5),
            )
        self._share = share
        own, processes = self.part.host_names, []
        for first in range(0, len(own), share):
            names = own[first : first + share]
            places = [
                {
                    "host": self.fabric.host_number(name),
                    "socket": str(directory / f"{name}.sock"),
                    "log": str((log_dir / f"{name}.jsonl").resolve()),
                    "netns": self.net.path_of(name),
                }
                for name in names
            ]
            processes.append(
                {"name": names[0], "user": sandbox.agent_uid(first // share), "hosts": places}
            )
        common = {
            "fabric": self.fabric.to_dict(),
            "clock": self.clock.to_dict(),
            "transport": transport,
            "options": options,
            "seed": seed,
        }
        (directory / "agents.json").write_text(json.dumps({**common, "processes": processes}))
        until = time.monotonic() + patient(AGENTS_S)
        try:
            # an interruption in the middle would leave processes of which nobody knows
            with _uninterrupted():
                pids = _host_processes(directory / "agents.json")
                self._agents = [Adopted(pids[name]) for name in own[::share]]
            for number, name in enumerate(own):
                process, complaint = (
                    self._agents[number // share],
                    directory / f"{own[number - number % share]}.err",
                )
                while not (directory / f"{name}.sock").exists():
                    if process.poll() is not None or time.monotonic() > until:
                        late = f"not within {patient(AGENTS_S):.0f} s{remark()}"
                        reason = _last_line(complaint) or (
                            late if process.poll() is None else f"exit status {process.returncode}"
                        )
                        raise UserError(f"the agent of {name} did not come up: {reason}")
                    time.sleep(0.005)
                try:
                    self.agents.append(
                        AgentClient(directory / f"{name}.sock", timeout=patient(10.0))
                    )
                    self.agents[-1].call("hello")
                except AgentError as error:
                    raise UserError(
                        f"the agent of {name} did not come up: {_last_line(complaint) or error}"
                    ) from None
                if number % share == 0:
                    self._guard(
                        _AGENT + name
                        if share == 1
                        else f"{_AGENT}{name} and its neighbours, of one process",
                        process,
                    )
                self._progress("starting agents", (number + 1) / len(own))
            self.control.begin(
                self.agents, {name: str(directory / f"{name}.sock") for name in own}, policy
            )
            self._reach("agents-started")
        except BaseException:
            self.stop_agents()
            raise

    def stop_agents(self, timeout: float = 2.0) -> None:
        """End all agents, including those that have already ended; they flush their logs."""
        self.control.end()
        for agent in self.agents:
            agent.close()
        self.agents = []
        with self._watch_lock:
            descriptors = [
                fd for fd, (_, process) in self._watched.items() if process in self._agents
            ]
            for fd in descriptors:
                del self._watched[fd]
        if descriptors and not self._stopping.is_set():
            os.write(self._waker, b"r")  # the watcher lets go of them first
        for process in self._agents:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + timeout
        for process in self._agents:
            try:
                process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._agents = []
        for fd in descriptors:
            os.close(fd)
        paths, self._kernel_paths = self._kernel_paths, None
        if paths is not None:
            loader.describe(self.fabric, 0, self.net.switch_kind)  # nobody reads the TUNs any more
            # the kernel's last frames leave by the routes they came by
            self.quiesce(self.clock.patience(patient(KERNEL_DRAIN_S)))
            paths.remove()

    def _install_kernel_paths(
        self, kind: str, options: Mapping[str, object], seed: int
    ) -> KernelPaths:
        try:
            parsed = KernelOptions(kind, self.fabric, options)
        except ValueError as error:
            raise UserError(f"{kind}: {error}") from None
        paths = KernelPaths(
            self.fabric,
            self.clock,
            self.net.namespaces,
            self.net.path_of,
            kind,
            parsed.congestion,
            seed,
        )
        paths.install()
        return paths

    def reroute(self, dead_links: Sequence[str]) -> None:
        if self._kernel_paths is not None:
            self._kernel_paths.reroute(dead_links)

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> bool:
        """Put an entry on the denylist for the fabric's life; returns whether it is new. It goes
        through the controller, or to the agents where there is none. Raises UserError or
        FabricError."""
        return self.control.deny(entry, reason, by)

    def allow(self, entry: str, by: str | None = None) -> bool:
        """Remove an entry, or with ``by`` only that party's denial; returns whether it was there.
        Raises as :meth:`deny`."""
        return self.control.allow(entry, by)

    def controller_journal(self, since_ps: int) -> Sequence[Mapping[str, object]]:
        """What the controller saw and did since a time; empty without a living controller."""
        return self.control.journal(since_ps)

    def denied(self) -> list[dict[str, Any]]:
        """``{"entry", "by", "reason", "since_ps"}``, one row per party that denies an entry."""
        return self.control.denied()

    def background(self, stream: Stream, stem: Path) -> Iperf:

        def popen(host: str, command: list[str], **keys: Any) -> subprocess.Popen[bytes]:
            process: subprocess.Popen[bytes] = self.net[host].popen(
                command, env=environment(), **keys
            )
            return process

        return Iperf(self.fabric, self.clock, stream, popen, self.net.path_of, stem)

    def management(self) -> None:
        if not self.net.managed:
            management.bring_up(self.net)
            self.net.managed = True

    def programs(self, program: Program, hosts: Sequence[int]) -> EmulatedPrograms:
        return EmulatedPrograms(self, program, hosts)

    # --- faults and counters ----------------------------------------------------------------------

    @property
    def injections(self) -> Injector:
        if self._faults is None:
            raise RuntimeError("the cluster is not up: start() comes first")
        return self._faults

    def _process_of(self, host: int) -> subprocess.Popen[bytes] | Adopted | None:
        if host < 0:
            return self._controller
        place = self.part.hosts.index(host) if host in self.part.hosts else len(self._agents)
        return self._agents[place] if self._share == 1 and place < len(self._agents) else None

    def _socket_of(self, host: int) -> str:
        place = self.part.hosts.index(host) if host in self.part.hosts else len(self.agents)
        return self.agents[place].path if place < len(self.agents) else ""

    def counters(self) -> list[dict[str, Any]]:
        """Return one row per port (testbed/dataplane/counters.py); pauses are network time."""
        return [
            {
                f"{key[:-3]}_ps" if key.endswith("_ns") else key: self.clock.span(value)
                if key.endswith("_ns")
                else value
                for key, value in row.items()
            }
            for row in self.net.counters.rows()
        ]

    def backlog(self, port: str) -> int:
        return self.net.counters.data_backlog(self._port_numbers[port])

    def loads(self) -> Loads:
        return self.net.counters.loads()

    def quiesce(self, timeout: int) -> bool:
        """Wait until no port has anything queued or on its way, at most ``timeout``; returns
        whether that happened."""
        until = self.clock.now() + timeout
        while not self.net.counters.quiet():
            if self.clock.now() > until:
                return False
            time.sleep(0.002)
        return True

    def processes(self) -> dict[str, int]:
        """Return name -> pid of the processes that work during a run; an agents' process has the
        name of its first host."""
        pids = {
            name: process.pid
            for name, process in zip(
                self.part.host_names[:: self._share], list(self._agents), strict=False
            )
        }
        pids |= {"pauser": self._pauser.pid} if self._pauser is not None else {}
        return (
            pids
            | ({"controller": self.controller_pid} if self.controller_alive else {})
            | {"runner": os.getpid()}
        )

    def port_watch(self) -> PortWatch:
        if self._queues is None:
            self._queues = netlink.QueueSocket(self.net.namespaces[""])
        queues = self._queues

        def queued(port: int) -> int | None:
            return queues.backlog(layout.PORT_BASE + port, bringup.DATA_QUEUE)

        return PortWatch(self.fabric, self.clock, self.net.counters.traffic, queued)

    @property
    def death(self) -> str:
        """Return which process died, and how; empty while all live."""
        return self._died

    def run_watch(self, interval: int) -> None:
        """Return None: the runner itself watches this machine."""

    # --- watching ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises :class:`ClusterDied` if a process that the cluster needs has died."""
        if not self._died:
            with self._watch_lock:
                for name, process in self._watched.values():
                    self._note(name, process)
        if self._died:
            self._noticed.set()
            raise ClusterDied(
                f"{self._died}: run again, and look into the kernel's log if nobody killed it"
            )

    def _guard(self, name: str, process: Any) -> None:
        with self._watch_lock:
            self._watched[os.pidfd_open(process.pid)] = (name, process)
        os.write(self._waker, b"r")

    def _note(self, name: str, process: subprocess.Popen[bytes] | Adopted) -> None:
        status = process.poll()
        # agents may be told to stop
        if status not in (None, 0) or (status == 0 and not name.startswith(_AGENT)):
            ended = (
                f"was killed by {signal.Signals(-status).name}"
                if status < 0
                else f"ended with status {status}"
            )
            host = name.removeprefix(_AGENT).partition(" ")[0]
            complaint = (
                _last_line(self._agents_dir / f"{host}.err") if name.startswith(_AGENT) else ""
            )
            self._died = self._died or f"{name} (process {process.pid}) {ended}" + (
                f", saying {complaint!r}" if complaint else ""
            )

    def _watch(self) -> None:
        while True:
            with self._watch_lock:
                live = dict(self._watched)
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            for fd, (_, process) in live.items():
                if process.poll() is None:
                    poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == self._wake:
                    if b"x" in os.read(self._wake, 4096):
                        return
                    continue
            with self._watch_lock:
                for name, process in self._watched.values():
                    self._note(name, process)
            if self._died:
                self._let_kernels_answer()
                self._force_shutdown()
                return

    def _let_kernels_answer(self) -> None:
        """Let kernels whose agent has died refuse what peers send to its connections, so that the
        peers learn of the loss."""
        for host, process in enumerate(
            list(self._agents) if self._kernel_paths is not None else ()
        ):
            if process.poll() is not None:
                loader.end_delay(self.fabric, host)

    def _force_shutdown(self) -> None:
        if self._stopping.wait(patient(NOTICE_S)) or (
            self._noticed.is_set() and self._stopping.wait(patient(LAST_WORDS_S))
        ):
            return
        print(f"mrcbed: {self._died}: ending the run", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        if self._stopping.wait(patient(FORCE_S - NOTICE_S)):
            return
        os._exit(70)  # with this process the sandbox ends, and with it everything of ours


@contextmanager
def _uninterrupted() -> Iterator[None]:
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _host_processes(config: Path) -> dict[str, int]:
    command = [
        sys.executable,
        "-m",
        "agents.process.host",
        "--config",
        str(config),
        "--parent",
        str(os.getpid()),
    ]
    complaint, limit = config.with_suffix(".err"), patient(AGENTS_S)
    try:
        with adopting(), complaint.open("wb") as err:
            made = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                check=False,
                timeout=limit,
                cwd=ROOT,
                env=environment(),
            )
    except subprocess.TimeoutExpired:
        raise UserError(f"the agents did not come up: not within {limit:.0f} s{remark()}") from None
    if made.returncode:
        raise UserError(
            "the agents did not come up: "
            f"{_last_line(complaint) or f'exit status {made.returncode}'}"
        )
    return dict(json.loads(made.stdout))


def environment() -> dict[str, str]:
    """Our environment, with the run's mark and the project's import path. NumPy starts no threads:
    an agent only adds and compares."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def _last_line(path: Path) -> str:
    try:
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return advised(lines[-1].strip()) if lines else ""
