"""A simulated fabric with everything on it as one :class:`testbed.world.World`, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.kernel.options import KINDS as KERNEL_KINDS
from testbed.controller.denylist import OPERATOR
from testbed.dataplane.counters import Loads, far_ends
from testbed.errors import ClusterDied, UserError
from testbed.faults.injections import TakesFaults
from testbed.machine.stopping import go_on
from testbed.simulated.capture import Capture
from testbed.simulated.controller import SimulatedController
from testbed.simulated.faults import LinkFaults, SimulatedInjector
from testbed.simulated.hosts import SimulatedAgent, Steered
from testbed.simulated.network import Network
from testbed.simulated.packed_counters import Table, added, loads, rows
from testbed.simulated.programs import SimulatedPrograms
from testbed.simulated.split import Crew, Job, begin_host
from testbed.world import SIMULATED, Program, Started, VirtualClock
from topologies.clos import Fabric

EMULATED = "drop --world simulated to emulate it"


class SimulatedCluster(Started, TakesFaults):
    """``pcap_links`` are captured to files in ``pcap_dir``. ``split`` processes share the
    simulation; 1 where several cannot (split.why_not)."""

    name = SIMULATED

    def __init__(
        self, fabric: Fabric, *, progress: Callable[[str, float], None] | None = None,
        pcap_links: Sequence[str] = (), pcap_dir: Path | None = None, split: int = 1,
    ) -> None:  # fmt: skip
        self.fabric = fabric
        self.split = min(split, fabric.host_count)
        self.network = Network(fabric)
        self._far = far_ends(fabric)
        self.clock = VirtualClock(self.network)
        self.control = SimulatedController(fabric, self.network)
        self.agents: list[SimulatedAgent] = []
        self.captures = (
            [Capture(self.network, link, pcap_dir) for link in pcap_links]
            if pcap_dir is not None
            else []
        )
        self.controller_lost = False
        self._hosts: list[Steered] = []
        self.crew: Crew | None = None
        self._links = LinkFaults(fabric, self.network, self.control.link_changed, self._changed)
        self._injector = SimulatedInjector(
            fabric, self.network, self._links, self._host, self._changed
        )
        self._numbers = {port.name: port.number for port in fabric.ports}
        self._progress = progress or (lambda stage, share: None)

    def _host(self, number: int) -> Steered | None:
        return self._hosts[number] if 0 <= number < len(self._hosts) else None

    def _changed(self, method: str, *args: Any) -> None:
        if self.crew is not None:
            self.crew.change(method, *args)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        go_on()

    def stop(self) -> None:
        self.stop_agents()
        for capture in self.captures:
            capture.stop()

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
        """Raises :class:`UserError` for what cannot be simulated, or for bad options."""
        if self._hosts:
            raise RuntimeError("agents are running already: stop_agents comes first")
        if self.crew is not None:
            raise RuntimeError(
                "processes that share a simulation begin with an empty network: make another "
                "cluster"
            )
        if transport in KERNEL_KINDS:
            raise UserError(
                f"transport {transport!r} is the kernel's: the simulated world has no kernel; "
                f"{EMULATED}"
            )
        self.network.describe(self.fabric, seed)
        log_dir.mkdir(parents=True, exist_ok=True)
        job = Job(transport, options, seed, log_dir)
        try:
            self._begin_hosts(job)
            self.agents = [SimulatedAgent(host) for host in self._hosts]
            self.control.begin(self.agents, policy)
        except ValueError as error:
            self.stop_agents()
            raise UserError(str(error)) from None
        except BaseException:
            self.stop_agents()
            raise

    def _begin_hosts(self, job: Job) -> None:
        crew = self.crew = Crew(self.network, self.split) if self.split > 1 else None
        if crew is not None:
            crew.tell_all("start", job)
        for number in range(self.fabric.host_count):
            self._hosts.append(
                begin_host(self.network, number, job)
                if crew is None or crew.host_owner[number] == 0
                else crew.remote(number)
            )
            self._progress("starting agents", (number + 1) / self.fabric.host_count)
        if crew is not None:
            crew.finish()

    def stop_agents(self) -> None:
        self.control.end()
        for host in self._hosts:
            host.close()
        if self.crew is not None:
            self.crew.end()
        self._hosts, self.agents = [], []

    def reroute(self, dead_links: Sequence[str]) -> None:
        links = [self.fabric.link(name) for name in dead_links]
        self.network.reroute(links)
        self._changed("reroute", links)

    def background(self, stream: Any, stem: Path) -> Any:
        raise UserError(
            f"background traffic is iperf3's: the simulated world runs no programs; {EMULATED}"
        )

    def run_watch(self, interval: int) -> None:
        """Do nothing: the machine does not disturb virtual time."""

    def programs(self, program: Program, hosts: Sequence[int]) -> SimulatedPrograms:
        """Each rank is a thread whose computing takes no time. Raises :class:`UserError`."""
        if self.crew is not None:
            raise UserError("ranks of a program are threads of one process: drop --split")
        return SimulatedPrograms(
            self.network, [self.agents[host] for host in hosts], program, hosts
        )

    # --- what the controller does -----------------------------------------------------------------

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> bool:
        return self.control.deny(entry, reason, by)

    def allow(self, entry: str, by: str | None = None) -> bool:
        return self.control.allow(entry, by)

    def denied(self) -> list[dict[str, Any]]:
        return self.control.denied()

    def controller_journal(self, since_ps: int) -> Sequence[Mapping[str, object]]:
        return self.control.journal.since(since_ps)

    # --- faults and counters ----------------------------------------------------------------------

    @property
    def injections(self) -> SimulatedInjector:
        return self._injector

    def counters(self) -> list[dict[str, Any]]:
        return rows(self.fabric, self._table())

    def _table(self) -> Table:
        others = self.crew.figures() if self.crew is not None else []
        return added([self.network.figures(), *others])

    def processes(self) -> dict[str, int]:
        return {}

    def port_watch(self) -> None:
        """Return None: a model's ports need no watch."""

    def backlog(self, port: str) -> int:
        number = self._numbers[port]
        return int(sum(self._everywhere("backlog", number), self.network.data_backlog(number)))

    def hops(self) -> int:
        return int(sum(self._everywhere("hops"), self.network.hops))

    def loads(self) -> Loads:
        return loads(self._table(), self._far)

    def quiesce(self, timeout: int) -> bool:
        until = self.network.time + timeout
        step = max(1, self.fabric.base_rtt_ps // 8)
        while not self._quiet():
            if self.network.time >= until:
                return False
            self.network.run(min(until, self.network.time + step))
        return True

    def _quiet(self) -> bool:
        return self.network.quiet() and all(self._everywhere("quiet"))

    def _everywhere(self, question: str, *args: Any) -> list[Any]:
        return (
            self.crew.ask_all(question, *args) if self.crew is not None and self.crew.alive else []
        )

    def check(self) -> None:
        dead = next((host.number for host in self._hosts if host.over), None)
        if dead is not None:
            raise ClusterDied(
                f"the agent of h{dead} was killed: run again without a fault that kills it"
            )
