"""Builds the emulated fabric: a Mininet network in batches, inside the sandbox only. Nothing
appears in the machine's own network namespace, and no sysctl of the machine changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mininet.log import error, output
from mininet.net import Mininet

from agents.clock import WallClock
from testbed.dataplane import layout, loader
from testbed.dataplane.counters import Counters
from testbed.emulated import bringup, netlink
from testbed.emulated.faults import Faults
from testbed.emulated.links import FabricIntf, FabricLink
from testbed.emulated.nodes import FabricHost, FabricSwitch
from testbed.emulated.ovs import OpenVSwitch
from testbed.emulated.trunk import Trunk
from testbed.emulated.trunk import make as make_trunk
from testbed.errors import UserError
from testbed.machine import sandbox
from testbed.machine.limits import raise_open_files
from testbed.machine.slowness import patient, remark
from topologies import addressing
from topologies.clos import Fabric
from topologies.parts import whole

Step = Callable[[str], None]
CARRIERS_S = 5.0
STEPS = (
    "data-plane",
    "switch-namespace",
    "hosts",
    "cables",
    "bridges",
    "queues",
    "routes",
    "links-up",
    "settle",
)


class FabricNet(Mininet):
    """``step`` gets the name of each stage of bring-up (:data:`STEPS`) before it begins.
    ``switch_namespace`` is a path for nsenter and setns; ``namespaces`` has a descriptor for each
    node, "" for all switches. Raises :class:`UserError` on what the machine lacks."""

    def __init__(
        self, fabric: Fabric, clock: WallClock, step: Step, switch: str, trunk: Trunk | None
    ) -> None:
        if not sandbox.inside():
            raise UserError(
                "a fabric is built inside the sandbox only: use mrcbed, or python -m "
                "testbed.machine.sandbox -- COMMAND"
            )
        self.fabric, self.clock = fabric, clock
        self.trunk = trunk
        self.part = whole(fabric) if trunk is None else trunk.part
        self.namespaces: dict[str, int] = {}
        self.switch_namespace = ""
        self.ovs = OpenVSwitch(fabric) if switch == "ovs" else None
        self.switch_kind = layout.KIND_SWITCH
        if self.ovs is not None:
            self.switch_kind = (
                layout.KIND_TAPPED if self.ovs.datapath == "netdev" else layout.KIND_BRIDGE
            )
        self.managed = False  # whether the management network is up
        self._step = step
        self._stopped = False
        # its init(), called on this very class, would raise sysctls of the machine and leave them
        # so
        Mininet.inited = True
        raise_open_files()
        super().__init__(
            topo=None,
            switch=FabricSwitch,
            host=FabricHost,
            controller=None,
            link=FabricLink,
            build=False,
        )

    # --- building ---------------------------------------------------------------------------------

    def build(self) -> None:
        if shutil.which("mnexec") is None:
            raise UserError("mnexec is missing: install it with apt-get install mininet")
        fabric, part, step = self.fabric, self.part, self._step
        step("data-plane")
        scratch = Path(sandbox.RUN_DIR)
        loader.load(scratch, fabric.udp_port)
        loader.describe(fabric, switch_kind=self.switch_kind)
        step("switch-namespace")
        self.namespaces[""] = netlink.new_namespace()
        self.switch_namespace = f"/proc/{os.getpid()}/fd/{self.namespaces['']}"
        netlink.write_sysctls(self.namespaces[""], bringup.SWITCH_SYSCTLS)
        for number, name in enumerate(fabric.switches):
            if name in part.switches:
                self.addSwitch(name, number=number, net=self)
        step("hosts")
        for number, name in zip(part.hosts, part.host_names, strict=True):
            host = self.addHost(
                name,
                number=number,
                address=addressing.text(addressing.inner_address(number)),
                ip=None,
            )
            self.namespaces[name] = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            netlink.write_sysctls(self.namespaces[name], bringup.HOST_SYSCTLS)
        step("cables")
        pids = {name: str(self[name].pid) for name in part.host_names}
        bringup.run_batch("ip", bringup.veth_lines(fabric, pids, part.links), self.switch_namespace)
        self._adopt_cables()
        for node, fd in self.namespaces.items():
            netlink.offloads_off(
                fd,
                [
                    p.name
                    for p in part.ports
                    if p.node == node or (not node and p.node not in fabric.hosts)
                ],
            )
        step("bridges")
        if self.ovs is not None:
            self.ovs.start(self.switch_namespace)
        # after the bridges: Open vSwitch removes what hangs at a port's ingress when it takes the
        # port
        step("queues")
        self._queues()
        step("routes")
        own = zip(part.hosts, part.host_names, strict=True)
        bringup.run_batches(
            "ip", ((bringup.host_lines(fabric, number), self.path_of(name)) for number, name in own)
        )
        step("links-up")
        bringup.run_batch(
            "ip",
            [f"link set {p.name} up" for p in part.ports if p.node not in fabric.hosts],
            self.switch_namespace,
        )
        self.counters = Counters(fabric, self.ovs.accounts if self.ovs is not None else None, part)
        self.faults = Faults(fabric, self.clock, self.counters, self.namespaces, part)
        if self.trunk is not None:
            make_trunk(self.trunk, self.switch_namespace, self.namespaces[""])
        step("settle")
        self._wait_for_carriers()
        self.built = True

    def path_of(self, node: str) -> str:
        return f"/proc/{os.getpid()}/fd/{self.namespaces[node]}"

    def _adopt_cables(self) -> None:
        for cable in self.part.links:
            ends = []
            for port in (cable.a, cable.b):
                node = self[port.node]
                ends.append(
                    FabricIntf(
                        port.name,
                        node=node,
                        fabric_port=port,
                        ifindex=layout.PORT_BASE + port.number,
                        port=node.newPort(),
                    )
                )
            self.links.append(
                FabricLink(
                    ends[0].node, ends[1].node, cable=cable, intfs=(ends[0], ends[1]), net=self
                )
            )

    def _queues(self) -> None:
        rated: dict[str, list[tuple[Any, int]]] = {node: [] for node in self.namespaces}
        for link in self.part.links:
            for port in (link.a, link.b):
                rated[port.node if port.node in rated else ""].append((port, link.rate))
        bringup.run_batches(
            "tc",
            (
                (bringup.queue_lines(self.fabric, self.clock, ports), self.path_of(node))
                for node, ports in rated.items()
            ),
        )

    def _wait_for_carriers(self) -> None:
        until = time.monotonic() + patient(CARRIERS_S)
        for node, fd in self.namespaces.items():
            sock = netlink.LinkSocket(fd)
            try:
                while waiting := [
                    s
                    for s in sock.dump().values()
                    if s.ifindex >= layout.PORT_BASE and s.operstate != netlink.OPER_UP
                ]:
                    if time.monotonic() > until:
                        owner = node or "the switches"
                        late = f"{patient(CARRIERS_S):.0f} s{remark()}"
                        raise UserError(
                            f"{len(waiting)} ports of {owner} got no carrier within {late}: use "
                            "a smaller fabric"
                        )
                    time.sleep(0.001)
            finally:
                sock.close()

    def start(self) -> None:
        if not self.built:
            self.build()

    @property
    def switches_are(self) -> str:
        if self.ovs is None:
            return "eBPF programs"
        place = "in user space" if self.ovs.datapath == "netdev" else "in the kernel"
        return (
            f"Open vSwitch bridges, forwarding {place}; ovs-vsctl "
            f"--db=unix:{self.ovs.run}/db.sock show"
        )

    @property
    def come_twice(self) -> bool:
        return self.switch_kind == layout.KIND_TAPPED

    def program(self) -> None:
        if self.ovs is not None:
            self.ovs.program()
        else:
            loader.program_fabric(self.fabric)

    # --- removing ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Remove everything: processes in the hosts, namespaces, pins. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        if hasattr(self, "faults"):
            self.faults.close()
        for term in self.terms:
            term.kill()
        if self.ovs is not None:
            self.ovs.close()
        end_processes_in({os.fstat(fd).st_ino for fd in self.namespaces.values()})
        for node in [*self.hosts, *self.switches]:
            node.terminate()
        for fd in self.namespaces.values():
            os.close(fd)
        self.namespaces.clear()
        loader.unload()

    # --- Mininet's API where its own would not do -------------------------------------------------

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        if status not in ("up", "down"):
            error(f"status must be up or down, not {status}\n")
            return
        for name in (src, dst):
            if name not in self.nameToNode:
                error(f"{name} not in network\n")
                return
        cables = [link.cable for link in self.linksBetween(self[src], self[dst])]
        if not cables:
            error(f"{src} and {dst} are not connected\n")
        for cable in cables:
            self.faults.set_link(cable.name, status == "up")

    def iperf(
        self,
        hosts: Any = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: Any = None,
        seconds: int = 5,
        port: int = 5201,
    ) -> list[str]:
        """Return [server, client] rates, as Mininet's iperf does."""
        client, server = hosts or [self.hosts[0], self.hosts[-1]]
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        daemon = server.popen(["iperf3", "-s", "-1", "-p", str(port)])
        try:
            command = ["iperf3", "-J", "-c", server.IP(), "-p", str(port), "-t", str(seconds)]
            command += ["-u", "-b", udpBw] if l4Type == "UDP" else []
            for _ in range(20):  # until the server listens
                text = client.pexec(command)[0]
                report = json.loads(text or "{}")
                if "unable to connect" not in str(report.get("error", "")):
                    break
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.communicate()
        if "error" in report or "end" not in report:
            error(f"iperf3 failed: {report.get('error', text)}\n")
            return ["", ""]
        end = report["end"]
        rates = [
            end.get(k, end.get("sum", {})).get("bits_per_second", 0.0)
            for k in ("sum_received", "sum_sent")
        ]
        result = [f"{rate / 1e6:.2f} Mbits/sec" for rate in rates]
        output(f"*** Results: {result}\n")
        return [udpBw, *result] if l4Type == "UDP" else result

    def interact(self) -> Any:
        raise NotImplementedError("use mrcbed up")


def end_processes_in(namespaces: set[int]) -> None:
    own = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == own:
            continue
        try:
            if os.stat(f"/proc/{entry}/ns/net").st_ino in namespaces:
                os.kill(int(entry), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
