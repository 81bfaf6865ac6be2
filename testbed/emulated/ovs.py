"""Runs Open vSwitch as the switches (docs/how/openvswitch.md): a private instance, one bridge per
switch, in the namespace of the switches' ports.

Queues, marking, trimming, counters and faults stay with the eBPF programs on the same ports. In
user space Open vSwitch forwards through packet sockets, which hear a frame before the ingress
program does. That program therefore counts and judges the frame first, marks it as handed over and
lets it come in again; the daemon's sockets take only marked frames.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.emulated import packet_sockets
from testbed.errors import UserError
from testbed.machine import probes, sandbox
from testbed.machine.probes import PATH
from testbed.machine.slowness import patient
from topologies.addressing import BLOCK, switch_usid
from topologies.clos import Fabric, Port
from topologies.paths import static_tables

SWITCHES = ("ebpf", "ovs")
TOOLS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl")
SCHEMAS = (
    Path("/usr/share/openvswitch/vswitch.ovsschema"),
    Path("/usr/local/share/openvswitch/vswitch.ovsschema"),
)
MODULE = Path("/sys/module/openvswitch")
START_S = 5.0
BRIDGES_S = 60.0
"""The kernel makes every packet socket of a bridge wait for a grace period: `wide` with its 144
switches takes 5 to 20 s."""
BUFFER = 1 << 28
"""Bytes of each of the daemon's packet sockets, doubled by the kernel [ours]. The one that sends
for every port must hold all that a fabric can, or one full port starves the rest. A lagging daemon
shall delay frames rather than lose them: a loss would read as a dead path."""
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 24)}
"""ovs-vswitchd otherwise takes and returns memory for every port it looks at: three switches and
back took 2 to 3 times as long [measured]."""
REVALIDATE_MS = 100
USERSPACE_LIMIT = 45_000
"""Packets/s with under 1 % loss over three hops, on the machine of docs/why/architecture.md."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_ROUTED = re.compile(r"^table_id=1, .*n_packets=(\d+),.*actions=output:(\d+)", re.MULTILINE)


def installed() -> str:
    lacking = [tool for tool in TOOLS if not shutil.which(tool, path=PATH)]
    return ", ".join(lacking) or (
        "" if any(path.exists() for path in SCHEMAS) else "vswitch.ovsschema"
    )


def require() -> None:
    if lacking := installed():
        raise UserError(
            f"Open vSwitch is not here ({lacking}): apt-get install openvswitch-switch, or use "
            "--switch ebpf"
        )


def datapath() -> str:
    return "system" if MODULE.exists() else "netdev"


def loadable() -> bool:
    """Say whether the kernel's module could be loaded, but is not: a run loads none."""
    return not MODULE.exists() and probes.run(f"modprobe -n -q {MODULE.name}") == ""


def limits(kind: str) -> str:
    if kind == "system":
        return ""
    here = loadable()
    reason = (
        "the openvswitch kernel module is not loaded" if here else "no openvswitch kernel module"
    )
    return (
        f"Open vSwitch forwards in user space here ({reason}): about {USERSPACE_LIMIT:,} "
        "packets/s through three switches, and what comes faster waits unseen in its sockets: "
        f"{'sudo modprobe openvswitch, or ' if here else ''}use low link rates"
    )


def ports_of(fabric: Fabric) -> dict[str, list[Port]]:
    """A port's OpenFlow number is its place in the list, from 1."""
    ports: dict[str, list[Port]] = {name: [] for name in fabric.switches}
    for port in fabric.ports:
        if port.node in ports:
            ports[port.node].append(port)
    return ports


def bridge_arguments(fabric: Fabric, kind: str) -> list[str]:
    """linux-noop: the ports' queues are ours, and Open vSwitch would remove them."""
    arguments = ["--", "set", "Open_vSwitch", ".", f"other_config:max-revalidator={REVALIDATE_MS}"]
    arguments += ["--", "--id=@ours", "create", "QoS", "type=linux-noop"]
    for number, (switch, ports) in enumerate(ports_of(fabric).items()):
        arguments += [
            "--",
            "add-br",
            switch,
            "--",
            "set",
            "Bridge",
            switch,
            f"datapath_type={kind}",
            "fail_mode=secure",
        ]
        arguments += ["protocols=OpenFlow13", f"other_config:datapath-id={number + 1:016x}"]
        for place, port in enumerate(ports, 1):
            arguments += [
                "--",
                "add-port",
                switch,
                port.name,
                "--",
                "set",
                "Port",
                port.name,
                "qos=@ours",
            ]
            arguments += ["--", "set", "Interface", port.name, f"ofport_request={place}"]
    return arguments


def flow_lines(fabric: Fabric, switch: str) -> list[str]:
    """The flows forget the in_port: a path probe turns around at a T1, and OpenFlow would forbid
    leaving by the same port."""
    block = f"{BLOCK[0]:02x}{BLOCK[1]:02x}:{BLOCK[2]:02x}{BLOCK[3]:02x}"
    places = {port.name: place for place, port in enumerate(ports_of(fabric)[switch], 1)}
    shift = (
        "dec_ttl,move:NXM_NX_IPV6_DST[0..79]->NXM_NX_IPV6_DST[16..95],"
        "load:0->NXM_NX_IPV6_DST[0..15],load:0->NXM_OF_IN_PORT[]"
    )
    lines = [f"table={table},priority=0,actions=drop" for table in (0, 1)]
    lines.append(
        f"table=0,priority=1,ipv6,ipv6_dst={block}:{switch_usid(switch):x}::/48,"
        f"actions={shift},goto_table:1"
    )
    for usid, port in static_tables(fabric)[switch].items():
        lines.append(
            f"table=1,priority=1,ipv6,ipv6_dst={block}:{usid:x}::/48,actions=output:{places[port]}"
        )
    return lines


class OpenVSwitch:
    def __init__(self, fabric: Fabric) -> None:
        require()
        self.fabric = fabric
        self.datapath = datapath()
        self.run = Path()  # database, control and OpenFlow sockets (<switch>.mgmt), logs
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        # port -> the daemon's receiving socket, shared with it
        self._receivers: dict[str, socket.socket] = {}
        self._overruns: dict[str, int] = {}

    def start(self, namespace: str) -> None:
        self.run = Path(tempfile.mkdtemp(prefix="ovs-", dir=sandbox.RUN_DIR))
        schema = next(path for path in SCHEMAS if path.exists())
        self._tool("ovsdb-tool", "create", str(self.run / "conf.db"), str(schema))
        self._daemon(
            "ovsdb-server",
            namespace,
            f"--remote=punix:{self.run}/db.sock",
            str(self.run / "conf.db"),
            socket_path=self.run / "db.sock",
        )
        self._daemon(
            "ovs-vswitchd",
            namespace,
            f"unix:{self.run}/db.sock",
            socket_path=self.run / "ovs-vswitchd.ctl",
        )
        self._tool(
            "ovs-vsctl",
            f"--db=unix:{self.run}/db.sock",
            f"--timeout={patient(BRIDGES_S):.0f}",
            *bridge_arguments(self.fabric, self.datapath),
        )
        self._check_ports()
        if self.datapath == "netdev":
            self._adopt_sockets()
            self._hurry()

    def program(self) -> None:
        def write(switch: str) -> None:
            lines = "\n".join(flow_lines(self.fabric, switch)) + "\n"
            self._tool(
                "ovs-ofctl",
                "-O",
                "OpenFlow13",
                "add-flows",
                f"unix:{self.run}/{switch}.mgmt",
                "-",
                stdin=lines,
            )

        with ThreadPoolExecutor(16) as several:  # each takes some rounds of the daemon's one loop
            list(several.map(write, self.fabric.switches))

    def accounts(self) -> dict[str, tuple[int, int]]:
        """Return :data:`testbed.dataplane.counters.Accounts`. Only user space can be too slow.
        Packets that the tables sent, but the egress program never saw, met a port that is down."""
        self.control("revalidator/wait")  # until then flows lag behind by REVALIDATE_MS
        counts = {}
        for switch, ports in ports_of(self.fabric).items():
            sent = dict.fromkeys(range(1, len(ports) + 1), 0)
            for packets, place in _ROUTED.findall(self.control("bridge/dump-flows", switch)):
                sent[int(place)] = sent.get(int(place), 0) + int(packets)
            for place, port in enumerate(ports, 1):
                if sock := self._receivers.get(port.name):
                    self._overruns[port.name] += packet_sockets.newly_dropped(sock)
                counts[port.name] = self._overruns.get(port.name, 0), sent[place]
        return counts

    def control(self, method: str, *arguments: str) -> str:
        """Do as `ovs-appctl` does. Raises :class:`UserError`."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(patient(START_S))
            try:
                sock.connect(str(self.run / "ovs-vswitchd.ctl"))
                sock.sendall(
                    json.dumps({"method": method, "params": list(arguments), "id": 0}).encode()
                )
                data = b""
                while True:
                    data += sock.recv(1 << 20) or b"null"
                    try:
                        answer: Any = json.loads(data)
                        break
                    except ValueError:
                        continue
            except OSError as error:
                raise UserError(
                    f"ovs-vswitchd does not answer ({error.strerror or error}): "
                    f"{self._last_log_line()}"
                ) from None
        if not answer or answer["error"]:
            raise UserError(
                f"ovs-vswitchd refused {method} ({answer and answer['error']}): use --switch ebpf"
            )
        return str(answer["result"])

    def close(self) -> None:
        for _, process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        # Closing a packet socket waits for a grace period of the kernel's. The daemon's are closed
        # here, as we have them too: many at once, where its own exit would take one after the
        # other.
        with ThreadPoolExecutor(64) as closers:
            list(closers.map(socket.socket.close, self._receivers.values()))
        self._receivers.clear()
        if self.run != Path():
            shutil.rmtree(self.run, ignore_errors=True)

    # --- how --------------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **dict.fromkeys(
                ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(self.run)
            ),
        }

    def _tool(self, tool: str, *arguments: str, stdin: str | None = None) -> None:
        command = [str(shutil.which(tool, path=PATH)), *arguments]
        try:
            process = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                env=self._environment(),
                timeout=patient(BRIDGES_S + START_S),
            )
            errors = process.stderr.strip().splitlines()
            failed = process.returncode != 0
        except subprocess.TimeoutExpired:
            errors, failed = ["no answer"], True
        if failed:
            raise UserError(
                f"{tool} failed ({errors[0] if errors else 'without a word'}; "
                f"{self._last_log_line()}): see mrcbed doctor"
            )

    def _daemon(self, name: str, namespace: str, *arguments: str, socket_path: Path) -> None:
        options = [
            f"--unixctl={self.run}/{name}.ctl",
            f"--log-file={self.run}/{name}.log",
            "-vconsole:off",
            "-vsyslog:off",
        ]
        process = subprocess.Popen(
            [
                "nsenter",
                f"--net={namespace}",
                "--",
                str(shutil.which(name, path=PATH)),
                *options,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**self._environment(), **MALLOC},
            cwd=self.run,
        )
        self.processes.append((name, process))
        until = time.monotonic() + patient(START_S)
        while not socket_path.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise UserError(
                    f"{name} did not come up ({self._last_log_line()}): see mrcbed doctor, or "
                    "use --switch ebpf"
                )
            time.sleep(0.001)

    def _hurry(self) -> None:
        """Let the thread that forwards run before all else on its core, as eBPF switches do. On a
        loaded machine three switches and back then take one ms, otherwise 3 to 5, at times 25
        [measured]."""
        pid = self.processes[-1][1].pid
        try:
            os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        except OSError:  # a container may have no real time to give
            os.setpriority(os.PRIO_PROCESS, pid, -15)

    def _check_ports(self) -> None:
        expected = {
            port.name: place
            for ports in ports_of(self.fabric).values()
            for place, port in enumerate(ports, 1)
        }
        options = ["--bare", "--columns=name,ofport", "--format=csv", "list", "Interface"]
        command = [
            str(shutil.which("ovs-vsctl", path=PATH)),
            f"--db=unix:{self.run}/db.sock",
            *options,
        ]
        output = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self._environment()
        ).stdout
        actual = {
            name: int(number or 0)
            for name, number in (
                line.strip().split(",") for line in output.splitlines() if "," in line
            )
        }
        missing = [name for name, place in expected.items() if actual.get(name) != place]
        if missing:
            raise UserError(
                f"Open vSwitch did not take {len(missing)} ports, {missing[0]} among them "
                f"({self._last_log_line()}): use --switch ebpf"
            )

    def _adopt_sockets(self) -> None:
        """Give the daemon's packet sockets room, and let them see only what the ingress program
        hands over. The daemon has no setting for either. The one socket that sends for all ports is
        made with the first frame sent: one goes to a port that is still down, and so nowhere."""
        target = f"unix:{self.run}/{self.fabric.switches[0]}.mgmt"
        self._tool(
            "ovs-ofctl",
            "-O",
            "OpenFlow13",
            "packet-out",
            target,
            f"in_port=controller packet={'00' * 60} actions=1",
        )
        port_names = {port.name for ports in ports_of(self.fabric).values() for port in ports}
        senders = 0
        for sock in packet_sockets.of_process(self.processes[-1][1].pid):
            port = sock.getsockname()[0]
            if port in port_names:
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER)
                packet_sockets.see(sock, handed_over=True)
                self._receivers[port], self._overruns[port] = sock, 0
                continue
            sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, BUFFER)
            sock.close()
            senders += not port
        if not senders or len(self._receivers) != len(port_names):
            raise UserError(
                "ovs-vswitchd's packet sockets are not where they are looked for: use --switch ebpf"
            )

    def _last_log_line(self) -> str:
        for name, _ in reversed(self.processes):
            try:
                lines = (self.run / f"{name}.log").read_text(errors="replace").splitlines()
            except OSError:
                continue
            if worst := [
                line for line in lines if "|ERR|" in line or "|EMER|" in line or "|WARN|" in line
            ]:
                return f"{name}: {worst[-1].partition('|')[2]}"
        return "nothing in its log"
