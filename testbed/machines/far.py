"""The far side of one machine: ``mrcbed tools machine``. It brings a part of a fabric up by orders
on standard input.

Two processes read the channel one after the other. The first says hello, tells its clock, and takes
the order to begin. It makes a time namespace whose monotonic clock is the coordinator's, and starts
the sandbox there, whose worker goes on reading. When the channel closes, is silent, or this
machine's part dies, everything here ends.
"""

from __future__ import annotations

import ctypes
import os
import queue
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import msgspec

from agents.process.control import AgentClient, AgentError
from testbed.controller.config import Time
from testbed.emulated.cluster import Cluster
from testbed.emulated.trunk import Trunk
from testbed.errors import ClusterDied, UserError, explain
from testbed.machine import sandbox
from testbed.machine.exclusive import measuring
from testbed.machine.slowness import patient
from testbed.machines.channel import BEAT_S, LOGS_S, SILENCE_S
from testbed.machines.channel_coding import Order, Wire
from testbed.machines.orders import Orders, WatchFactory
from testbed.machines.reach import MOST_MACHINES
from topologies import Fabric, FabricError
from topologies.parts import divide

END_S = 5.0
MIDDLE_S = 1.0
LOOK_S = 0.1
_CLONE_NEWTIME = 0x80
_libc = ctypes.CDLL(None, use_errno=True)


class _Begin(msgspec.Struct):
    wall_offset_ns: Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
    clock: Time
    fabric: dict[str, object]
    machine: int
    addresses: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_MACHINES)]
    results: str


@dataclass(frozen=True)
class Begin:
    wall_offset_ns: int
    clock: Time  # the coordinator's, which is right here once the machine's is shifted
    fabric: Fabric
    machine: int
    addresses: tuple[str, ...]
    results: str  # of the run that measures, "" for none

    @classmethod
    def read(cls, message: dict[str, object]) -> Begin:
        order = msgspec.convert(message, _Begin)
        fabric = Fabric.from_dict(order.fabric)
        divide(fabric, len(order.addresses))
        if not 0 <= order.machine < len(order.addresses):
            raise ValueError(f"machine {order.machine} of {len(order.addresses)}")
        addresses = tuple(str(IPv4Address(text)) for text in order.addresses)
        return cls(
            order.wall_offset_ns, order.clock, fabric, order.machine, addresses, order.results
        )


def serve(facts: Mapping[str, object], watches: WatchFactory) -> int:
    if os.geteuid() != 0:
        raise UserError(
            "mrcbed tools machine needs root for network namespaces and eBPF: the command that "
            "reaches it must use sudo"
        )
    wire = Wire.standard()
    wire.say(event="hello", facts=facts)
    while (order := wire.read(SILENCE_S)) is not None and order.op != "begin":
        _tell_time(wire, order)
    if order is None:
        return 0
    try:
        begin = Begin.read(order.keys)
        shift_time(begin.wall_offset_ns)
        with measures(begin.results):
            return sandbox.run(lambda: FarSide(wire, begin, order.id, watches).run())
    except (ValueError, OSError, UserError) as error:
        sort = "fabric" if isinstance(error, FabricError) else "user"
        wire.say(id=order.id, error=str(error), sort=sort)
        return 2


def measures(results: str) -> AbstractContextManager[None]:
    """Keep this machine for a run that writes to the coordinator's ``results``. Raises
    :class:`UserError` if another has it."""
    return measuring(Path(results)) if results else nullcontext()


def shift_time(wall_offset_ns: int) -> None:
    """Let processes that this one starts from now on read a monotonic clock so far ahead of this
    one's. Raises UserError."""
    with open("/proc/self/timens_offsets") as file:
        match = re.search(r"^monotonic\s+(-?\d+)\s+(\d+)", file.read(), re.MULTILINE)
    already = int(match[1]) * 1_000_000_000 + int(match[2]) if match else 0
    if _libc.unshare(_CLONE_NEWTIME):
        reason = os.strerror(ctypes.get_errno())
        raise UserError(
            f"the kernel refused a time namespace ({reason}), by which machines share a clock: "
            "it needs CONFIG_TIME_NS"
        )
    seconds, ns = divmod(already + wall_offset_ns, 1_000_000_000)
    with open("/proc/self/timens_offsets", "w") as file:
        file.write(f"monotonic {seconds} {ns}\n")


def _tell_time(wire: Wire, order: Order) -> bool:
    if order.op == "clock":
        wire.say(id=order.id, ok={"theirs": time.monotonic_ns()})
        return True
    return order.op == "beat"


class FarSide:
    def __init__(self, wire: Wire, begin: Begin, serial: int, watches: WatchFactory) -> None:
        self.wire, self._serial = wire, serial
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._wake, self._waker = os.pipe()
        self._ending, self._over = threading.Event(), threading.Event()
        trunk = Trunk(divide(begin.fabric, len(begin.addresses)), begin.machine, begin.addresses)
        self.cluster = Cluster(
            begin.fabric,
            dilation=begin.clock.dilation,
            controller=False,
            trunk=trunk,
            progress=self._progress,
        )
        # all machines' time begins at the coordinator's 0
        self.cluster.clock.origin = begin.clock.origin
        self.orders = Orders(self.cluster, wire, watches)
        self._closed: set[int] = set()  # hosts whose agent has hung up

    def run(self) -> int:
        threading.Thread(target=self._read, name="mrcbed-orders", daemon=True).start()
        threading.Thread(target=self._beat, name="mrcbed-beat", daemon=True).start()
        try:
            self.cluster.start()
            self.wire.say(
                id=self._serial,
                ok={"booted_ns": self.cluster.booted_ns, "hosts": list(self.cluster.part.hosts)},
            )
            self._serve()
            return 0
        except BaseException as error:
            self._report(error)
            return 1
        finally:
            self._ending.set()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing interrupts tear-down and logs
            self.cluster.stop()
            self.orders.send_logs()
            self._over.set()

    def _report(self, error: BaseException) -> None:
        line = explain(error)[0]
        # SIGTERM: the cluster's watcher, or the end of the channel
        if isinstance(error, KeyboardInterrupt):
            line = self.cluster.death or line
        if not self.cluster.booted_ns:
            self.wire.say(id=self._serial, error=line, sort="user")
        self.wire.say(event="died", reason=line)
        print(f"mrcbed: {line}", file=sys.stderr, flush=True)

    def _progress(self, stage: str, share: float) -> None:
        self.wire.say(event="progress", stage=stage, share=share)

    # --- the channel ------------------------------------------------------------------------------

    def _read(self) -> None:
        while (order := self.wire.read(SILENCE_S)) is not None:
            if not _tell_time(self.wire, order):
                self._orders.put(order)
                os.write(self._waker, b"o")
        self._orders.put(Order("end"))
        os.write(self._waker, b"o")
        if not self._ending.wait(MIDDLE_S):
            os.kill(os.getpid(), signal.SIGTERM)
        self._over.wait(patient(LOGS_S))
        time.sleep(END_S)
        os._exit(1)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            self.wire.say(event="beat")

    # --- orders -----------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            agents = {
                agent.fileno(): (host, agent)
                for host, agent in self.orders.agents.items()
                if host not in self._closed
            }
            ready, _, _ = select.select([self._wake, *agents], [], [], LOOK_S)
            self.cluster.check()
            if self._wake in ready:
                os.read(self._wake, 1)
                if not self._carry_out(self._orders.get()):
                    return
            for host, agent in self.orders.agents.items():
                self._pass_on(host, agent)

    def _pass_on(self, host: int, agent: AgentClient) -> None:
        for note in agent.notifications():
            self.wire.say(event="note", host=host, note=note)
        if agent.closed and host not in self._closed:
            self._closed.add(host)
            self.wire.say(event="hung-up", host=host)

    def _carry_out(self, order: Order) -> bool:
        if order.op == "end":
            return False
        serial = order.id
        try:
            answer = self.orders.carry_out(order.op, order.keys)
        except ClusterDied:
            raise
        except AgentError as error:
            self.wire.say(id=serial, error=str(error), sort="agent")
        except FabricError as error:
            self.wire.say(id=serial, error=str(error), sort="fabric")
        except UserError as error:
            self.wire.say(id=serial, error=str(error), sort="user")
        except Exception as error:
            self.wire.say(id=serial, error=explain(error)[0], sort="internal")
        else:
            self.wire.say(id=serial, ok=answer)
            if order.op in ("start_agents", "stop_agents"):
                self._closed.clear()
        return True
