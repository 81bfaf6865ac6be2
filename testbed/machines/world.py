"""One emulated fabric on several machines, as one :class:`testbed.world.World`: each machine has a
part, and all are steered from here, without root. When a machine is gone, :meth:`Machines.check`
raises and names it."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.clock import WallClock
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.process.control import is_message
from testbed.controller.denylist import OPERATOR
from testbed.controller.handle import ControllerHandle
from testbed.dataplane import layout
from testbed.dataplane.counters import Loads
from testbed.dataplane.trunk import lost
from testbed.emulated.trace import Hop, first_hop, frame_of
from testbed.errors import ClusterDied, UserError
from testbed.faults.injections import TakesFaults
from testbed.machine.slowness import patient
from testbed.machine.stopping import go_on
from testbed.machines.agent import RemoteAgent
from testbed.machines.channel import LOGS_S, Channel, Message, answers_of, ask_all, whole
from testbed.machines.channel_coding import unpacked
from testbed.machines.clocks import Offset, wall_unsure_ns
from testbed.machines.parted_faults import MachineFaults
from testbed.machines.reach import Place
from testbed.machines.watch import MachineWatch
from testbed.world import EMULATED, Background, Program, Programs, Started, Stream
from topologies import Fabric
from topologies.parts import divide

START_S = 60.0
STILL_S = 0.02
"""The trunk is empty if its counters do not change for so long: a frame crosses within a
millisecond [ours]."""
PING_S = 2.0
LOADS_S = 0.004
"""An answer about queues is good for further ports for so long [ours]."""


class Machines(Started, TakesFaults):
    """The far ends must have mrcbed ``version``. ``results`` is where a run that measures writes
    to, or "". ``dilation`` is that of
    :class:`agents.clock.WallClock`."""

    name = EMULATED

    def __init__(
        self, fabric: Fabric, places: Sequence[Place], version: str, results: str = "",
        progress: Callable[[str, float], None] | None = None, *, dilation: float,
    ) -> None:  # fmt: skip
        self.fabric = fabric
        self.places = tuple(places)
        self.parts = divide(fabric, len(places))
        if fabric.pfc:
            raise UserError(
                f"fabric {fabric.name!r}: pfc = true holds packets in switches, which no machine "
                "has as a whole: leave it or --on out"
            )
        self.clock = WallClock(dilation)
        self.channels: list[Channel] = []
        self.captures: list[Any] = []
        self.booted_ns = 0
        self.offsets: list[Offset] = []
        self.wall_unsure_ns = 0
        self.control = ControllerHandle(fabric, self.clock)
        self.controller_alive = self.controller_lost = False
        self._version, self._results = version, results
        self._progress = progress or (lambda stage, share: None)
        self._agents: list[RemoteAgent] = []
        self._logs: Path | None = None
        self._machine_of_host = {host: part.machine for part in self.parts for host in part.hosts}
        self._faults: MachineFaults | None = None
        self._stopped = False
        self._loads: tuple[int, Loads | None] = (0, None)
        self._port_numbers = {port.name: port.number for port in fabric.ports}
        self._lock = threading.Lock()

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring all up: machines get one clock, and frames must cross. After an error nothing stays
        anywhere."""
        go_on()
        started = time.monotonic_ns()
        try:
            self._progress("reaching machines", 0.0)
            for place in self.places:
                self.channels.append(Channel(place, self._on_event))
            for channel in self.channels:
                channel.hello(self._version)
            self._progress("setting clocks", 0.1)
            shifts = [channel.offset().wall_ns for channel in self.channels]
            addresses = [place.address for place in self.places]
            common = {
                "fabric": self.fabric.to_dict(),
                "clock": self.clock.to_dict(),
                "addresses": addresses,
                "results": self._results,
            }
            asked = [
                (channel, channel.begin("begin", wall_offset_ns=shift, machine=number, **common))
                for number, (channel, shift) in enumerate(zip(self.channels, shifts, strict=True))
            ]
            answers_of(asked, START_S)
            self.offsets = [channel.offset() for channel in self.channels]
            self.wall_unsure_ns = max(wall_unsure_ns(found, found) for found in self.offsets)
            self._progress("looking whether machines reach each other", 0.9)
            self._check_trunk()
            self._faults = MachineFaults(self.fabric, self.parts, self.channels)
        except BaseException:
            self.stop()
            raise
        self.booted_ns = time.monotonic_ns() - started

    def _check_trunk(self) -> None:
        first = [part.hosts[0] for part in self.parts]
        asked = [
            (
                c,
                c.begin(
                    "ping",
                    src=first[n],
                    dsts=[h for h in first if h != first[n]],
                    seconds=PING_S,
                    again=True,
                ),
            )
            for n, c in enumerate(self.channels)
        ]
        for number, arrived in enumerate(answers_of(asked)):
            others = [channel.name for n, channel in enumerate(self.channels) if n != number]
            # one that was not told of did not come
            for other, well in itertools.zip_longest(others, arrived[: len(others)]):
                if not well:
                    from testbed.emulated.trunk import UDP_PORT

                    raise UserError(
                        f"no frame came from {self.channels[number].name} to {other} and back: "
                        f"let UDP port {UDP_PORT} pass between them"
                    )

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        closers = [threading.Thread(target=channel.close) for channel in self.channels]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        self._close_agents()

    def check(self) -> None:
        for channel in self.channels:
            if channel.ended:
                raise ClusterDied(channel.death())

    def _on_event(self, channel: Channel, event: Message) -> None:
        with self._lock:
            match event.event:
                case "note" if self._agents and is_message(event.note):
                    self._agents[event.host].hear(event.note)
                case "hung-up" if self._agents:
                    self._agents[event.host].hang_up()
                case "gone":
                    for agent in self._agents:
                        if agent.channel is channel:
                            agent.hang_up()
                case "log" if self._logs is not None:
                    if not re.fullmatch(r"[\w-]{1,40}\.jsonl", event.name):
                        raise ValueError(f"{event.name[:80]!r} is no log's name")
                    with (self._logs / event.name).open("ab") as file:
                        file.write(unpacked(event.data))
                case "progress":
                    self._progress(f"{channel.name}: {event.stage}", 0.1 + 0.8 * event.share)

    # --- agents -----------------------------------------------------------------------------------

    @property
    def agents(self) -> Sequence[RemoteAgent]:
        return self._agents

    def start_agents(
        self,
        transport: str,
        options: Mapping[str, object],
        log_dir: Path,
        seed: int,
        policy: str = "none",
        alone: bool = True,
    ) -> None:
        if transport in KERNEL_KINDS:
            raise UserError(
                f"transport {transport} is the kernel's, whose delay and routes one machine "
                "keeps: use mrc or roce, or drop --on"
            )
        if policy != "none":
            raise UserError(
                f"controller = {policy!r}: no controller sees the links of several machines: use "
                "none, or drop --on"
            )
        log_dir.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._logs = log_dir
            owners = [
                self.channels[self._machine_of_host[host]] for host in range(self.fabric.host_count)
            ]
            self._agents = [RemoteAgent(channel, host) for host, channel in enumerate(owners)]
        ask_all(
            self.channels,
            "start_agents",
            START_S,
            transport=transport,
            options=options,
            seed=seed,
            alone=alone,
        )
        self.control.begin(self._agents, {}, policy)

    def stop_agents(self) -> None:
        self.control.end()
        try:
            ask_all(
                [channel for channel in self.channels if not channel.ended], "stop_agents", LOGS_S
            )
        except ClusterDied:
            pass  # check() says so
        self._close_agents()

    def _close_agents(self) -> None:
        with self._lock:
            agents, self._agents = self._agents, []
            for agent in agents:
                agent.close()

    def controller_journal(self, since_ps: int) -> Sequence[Mapping[str, object]]:
        return []

    def reroute(self, dead_links: Sequence[str]) -> None:
        """Do nothing: only hosts' kernels would need it."""

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> bool:
        return self.control.deny(entry, reason, by)

    def allow(self, entry: str, by: str | None = None) -> bool:
        return self.control.allow(entry, by)

    def denied(self) -> list[dict[str, Any]]:
        return self.control.denied()

    # --- faults -----------------------------------------------------------------------------------

    @property
    def injections(self) -> MachineFaults:
        if self._faults is None:
            raise RuntimeError("the machines are not up: start() comes first")
        return self._faults

    # --- counters ---------------------------------------------------------------------------------

    def lost_on_trunk(self) -> dict[int, int]:
        """Return lost packets by egress port. Receivers' counters are read first, so what is on its
        way counts as lost, never as found."""
        received = self._carried()
        sent = self._carried()
        with whole(self.channels):
            return lost(
                [{port: [0, 0, *words[2:]] for port, words in one.items()} for one in received]
                + [
                    {port: [*words[:2], *[0] * len(words[2:])] for port, words in one.items()}
                    for one in sent
                ]
            )

    def _carried(self) -> list[dict[int, list[int]]]:
        answers = ask_all(self.channels, "trunk")
        return [
            {int(port): words for port, words in answer["carried"].items()} for answer in answers
        ]

    def counters(self) -> list[dict[str, Any]]:
        """One row per port, with what the trunk lost on the way to it (``drop_trunk``)."""
        rows = {row["port"]: row for answer in ask_all(self.channels, "counters") for row in answer}
        missing = self.lost_on_trunk()
        with whole(self.channels):
            return [
                {**rows[port.name], "drop_trunk": missing.get(port.number, 0)}
                for port in self.fabric.ports
            ]

    def loads(self) -> Loads:
        rows = {
            int(port): row
            for answer in ask_all(self.channels, "loads")
            for port, row in answer.items()
        }
        with whole(self.channels):
            loads = np.array([rows[port.number] for port in self.fabric.ports], dtype=np.int64)
        self._loads = (self.clock.now(), loads)
        return loads

    def backlog(self, port: str) -> int:
        number = self._port_numbers[port]
        at, loads = self._loads
        if loads is None or self.clock.now() - at > self.clock.patience(LOADS_S):
            loads = self.loads()
        return int(loads[number, 1])

    def quiesce(self, timeout: int) -> bool:
        until = self.clock.now() + timeout
        while True:
            before = self._carried()
            left = max(0, until - self.clock.now())
            quiet = all(
                ask_all(self.channels, "quiesce", self.clock.wall_s(left) + START_S, most_ps=left)
            )
            time.sleep(STILL_S)
            if quiet and self._carried() == before:
                return True
            if self.clock.now() > until:
                return False

    # --- watching ---------------------------------------------------------------------------------

    def processes(self) -> dict[str, int]:
        return {}

    def port_watch(self) -> None:
        return None

    def run_watch(self, interval: int) -> MachineWatch:
        return MachineWatch(self.clock, self.channels, interval, self.trunk)

    def trunk(self) -> dict[str, int]:
        answers = ask_all(self.channels, "trunk")
        with whole(self.channels):
            sums = {
                word: sum(words[n] for one in answers for words in one["carried"].values())
                for n, word in enumerate(layout.TRUNK_WORDS)
            }
        return {**sums, "strays": sum(one["strays"] for one in answers)}

    # --- what one machine alone can do ------------------------------------------------------------

    def programs(self, program: Program, hosts: Sequence[int]) -> Programs:
        raise UserError("programs and jobs run on one machine's hosts: drop --on")

    def background(self, stream: Stream, stem: Path) -> Background:
        raise UserError(
            "background traffic runs on one machine's hosts: leave [[background]] or --on out"
        )

    # --- the prompt -------------------------------------------------------------------------------

    def channel_of(self, host: int) -> Channel:
        return self.channels[self._machine_of_host[host]]

    def ping(self, src: int, dsts: Sequence[int], seconds: float) -> list[bool]:
        answer: list[bool] = self.channel_of(src).ask(
            "ping", patient(seconds) + START_S, src=src, dsts=list(dsts), seconds=seconds
        )
        return answer

    def trace(self, src: int, dst: int, ev: int, wait: float = 1.0) -> list[Hop]:
        mark = os.urandom(16)
        frame = frame_of(self.fabric, src, dst, ev, mark)
        begin, end = self.channel_of(src), self.channel_of(dst)
        ask_all(self.channels, "trace_open", dst=dst)
        try:
            hops = [first_hop(self.fabric, src, dst, ev)]
            at, taken = begin.ask("trace_send", host=src, port=hops[0].port, frame=frame.hex())
            for channel, seconds in (
                ((begin, 0.0), (end, wait)) if begin is not end else ((end, wait),)
            ):
                seen = (
                    channel.ask(
                        "trace_follow", mark=mark.hex(), wall_started_ns=at, seconds=seconds
                    )
                    if taken
                    else []
                )
                hops += [Hop(**hop) for hop in seen]
            return hops
        finally:
            ask_all(self.channels, "trace_close")

    def command(self, host: int, line: str) -> str:
        return str(self.channel_of(host).ask("command", 2 * START_S, host=host, line=line))
