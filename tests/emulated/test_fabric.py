"""The fabric as users of Mininet meet it: nodes, prompt, faults, quiet wires, and every path of
`wide`."""

from __future__ import annotations

import io
import os
import resource
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mininet.log import lg, setLogLevel
from mininet.net import Mininet

from testbed.dataplane import loader
from testbed.dataplane.counters import totals
from testbed.emulated.cluster import Cluster
from testbed.emulated.netlink import in_namespace
from testbed.emulated.nodes import FabricHost
from testbed.emulated.prompt import Prompt
from testbed.errors import UserError
from tests.emulated.frames import OTHERHOST, Wire, at_rest, mrc
from tests.emulated.ring import PATIENCE_S
from topologies import addressing, load_fabric
from topologies.fabrics import DILATION
from topologies.paths import path_evs, path_links

pytestmark = pytest.mark.sandbox


def namespace_programs() -> str:
    command = ["bpftool", "-j", "prog", "show", "pinned", str(loader.INGRESS)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.quiet
def test_all_paths_of_wide_both_ways_and_nothing_left() -> None:
    fabric = load_fabric("wide")
    values = path_evs(fabric, 0, 4)
    assert len(values) == 128
    cluster = Cluster(fabric, dilation=DILATION, controller=False)
    with cluster:
        spaces = {os.fstat(fd).st_ino for fd in cluster.net.namespaces.values()}
        pids = [host.pid for host in cluster.net.hosts]
        assert namespace_programs()
        for src, dst in ((0, 4), (4, 0)):
            out, into = Wire(cluster, src), Wire(cluster, dst)
            for value in values:
                assert out.send(
                    value >> 16,
                    mrc(
                        src,
                        dst,
                        addressing.path_address(fabric, src, dst, value),
                        value.to_bytes(4, "big"),
                    ),
                )
            got = into.receive(128, linger=0.1)
            assert sorted((int.from_bytes(g.frame[-4:], "big"), g.port) for g in got) == [
                (v, f"h{dst}-p{v >> 16}") for v in sorted(values)
            ]
            assert all(g.kind == OTHERHOST for g in got)
            out.close()
            into.close()
        assert at_rest(cluster)
        rows = cluster.counters()
        # Every path's T0-T1 cables carried exactly its packet, once each way; h0 and h4 have one
        # per path; nobody else anything.
        used = {
            link.name
            for v in values
            for link in path_links(fabric, 0, 4, v)
            if link.kind == "fabric"
        }
        expected = {"h0": 128, "h4": 128}
        assert len(used) == 256
        assert all(
            r["arrived_packets"] == (1 if r["link"] in used else 0)
            for r in rows
            if r["kind"] == "fabric"
        )
        for host in fabric.hosts:
            assert sum(r["arrived_packets"] for r in rows if r["node"] == host) == expected.get(
                host, 0
            )
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(_namespace(entry) in spaces for entry in os.listdir("/proc") if entry.isdigit())
    assert not loader.PINS.exists()


def _namespace(pid: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def test_an_idle_fabric_carries_not_one_frame() -> None:
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        # a carrier that comes back must not wake anyone either
        cluster.set_link("h0:p0-t0-0", False)
        cluster.set_link("h0:p0-t0-0", True)
        time.sleep(3)
        assert (
            sum(
                v
                for k, v in totals(cluster.counters()).items()
                if k.startswith(("admitted", "arrived", "drop"))
            )
            == 0
        )


def test_sysctls_of_the_machine_stay_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are as Mininet wants them already, so that nothing would change, it must not even
    try."""
    monkeypatch.setattr(
        "mininet.net.fixLimits", lambda: pytest.fail("Mininet raises limits of the machine")
    )
    monkeypatch.setattr(Mininet, "inited", False)

    def values() -> str:
        text = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False).stdout
        keep = ("net.core.", "net.ipv4.", "net.ipv6.", "fs.file-max", "kernel.pty")
        volatile = ("net.netfilter", "kernel.pty.nr")
        return "\n".join(
            line
            for line in text.splitlines()
            if line.startswith(keep) and not line.startswith(volatile)
        )

    before = values()
    assert before
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False):
        assert values() == before
    assert values() == before


def test_tc_may_open_a_file_for_every_filter_of_wide() -> None:
    """As that of Debian 13 does. A login of Debian allows 1,024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    fabric = load_fabric("wide")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        Cluster(fabric, dilation=DILATION, controller=False)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * len(fabric.ports) + 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_pingall(tiny: Cluster) -> None:
    assert tiny.net.pingAll() == 0


def test_host_commands(tiny: Cluster) -> None:
    h0 = tiny.net.get("h0")
    assert h0.cmd("echo $((6*7))").strip() == "42"
    assert h0.popen(["sh", "-c", "exit 3"]).wait() == 3
    assert [
        line.split("@")[0] for line in h0.cmd("ip -color=never -br link").split() if "@" in line
    ] == ["h0-p0", "h0-p1"]
    assert tiny.net["h1"].IP() == "fd6d:7263::2"


def test_switch_commands_run_in_the_switches_namespace(tiny: Cluster) -> None:
    switch = tiny.net["p0-t0-0"]
    names = {line.split("@")[0] for line in switch.cmd("ip -br link").splitlines()}
    assert {p.name for p in tiny.fabric.ports if p.node in tiny.fabric.switches} <= names
    assert switch.pexec("sh", "-c", "echo hi; exit 4")[0::2] == ("hi\n", 4)
    assert switch.cmd("") == ""


def test_the_prompt(tiny: Cluster, tmp_path: Path) -> None:
    lines = [
        "nodes",
        "net",
        "links",
        "dump",
        "intfs",
        "ports",
        "pingpair",
        "link h0 p0-t0-0 down",
        "links",
        "link h0 p0-t0-0 up",
    ]
    lines += ["h0 ping -c1 h3", "h0 echo from-$(hostname | wc -l)", "p0-t0-0 echo on-a-switch"]
    lines += [
        "switch p0-t1-0 stop",
        "py net.faults.link_states()",
        "switch p0-t1-0 start",
        "p0-t0-0 ip link show p0-t0-0-u0",
    ]
    script = tmp_path / "commands"
    script.write_text("\n".join(lines) + "\n")
    said_to = io.StringIO()
    stream = lg.handlers[0].setStream(said_to)
    setLogLevel("output")
    reader, writer = os.pipe()
    try:
        with open(reader) as stdin:
            Prompt(tiny.net, stdin=stdin, script=str(script))
    finally:
        os.close(writer)
        setLogLevel("warning")
        lg.handlers[0].setStream(stream)
    said = said_to.getvalue()
    assert "Unknown command" not in said
    for text in (
        "p1-t1-1",
        "h0-p0:p0-t0-0-d0",
        "0% dropped (2/2 received)",
        "1 received",
        "from-1",
        "on-a-switch",
        "p0-t0-0-u0@",
    ):
        assert text in said, text
    assert (
        said.count("h0-p0<->p0-t0-0-d0 (up)") == 1 and said.count("h0-p0<->p0-t0-0-d0 (down)") == 1
    )
    assert "'p0-t0-1:p0-t1-0': False" in said
    assert all(tiny.link_states().values())


def test_faults_leave_the_host_end_and_its_routes_alone(tiny: Cluster) -> None:
    h0 = tiny.net["h0"]
    routes = h0.cmd("ip -6 route show; ip -6 neigh")
    tiny.net.configLinkStatus("h0", "p0-t0-0", "down")
    text = h0.cmd("ip -br link show h0-p0")
    assert "NO-CARRIER" in text and ",UP" in text
    assert "UP" not in tiny.net["p0-t0-0"].cmd("ip -br link show p0-t0-0-d0").split("<")[1]
    tiny.net.configLinkStatus("p0-t0-0", "h0", "up")  # either order
    assert h0.cmd("ip -6 route show; ip -6 neigh").replace(" linkdown", "") == routes
    assert tiny.net.ping([tiny.net["h0"], tiny.net["h2"]]) == 0


@pytest.mark.quiet
def test_a_host_hears_of_its_carrier_at_once(tiny: Cluster) -> None:
    space = tiny.net.namespaces["h0"]
    heard = in_namespace(
        space, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    )
    heard.bind((0, 1))
    heard.settimeout(PATIENCE_S)
    took = []
    for up in (False, True) * 3:
        told = tiny.set_link("h0:p0-t0-0", up)
        heard.recv(65536)
        took.append(tiny.clock.now() - told)
        time.sleep(0.05)
        heard.setblocking(False)
        try:
            while True:
                heard.recv(65536)
        except BlockingIOError:
            heard.settimeout(PATIENCE_S)
    heard.close()
    assert statistics.median(took) < tiny.clock.patience(0.1), (
        "a single one may have to wait for a core"
    )


def test_set_link_is_dated_and_links_of_a_dead_switch_stay_down(tiny: Cluster) -> None:
    for up in (False, True):
        begun = tiny.clock.now()
        assert begun <= tiny.set_link("p0-t0-0:p0-t1-0", up) <= tiny.clock.now()
    tiny.set_link("p0-t0-0:p0-t1-1", False)
    tiny.set_switch("p0-t1-0", False)
    tiny.set_link("p0-t0-0:p0-t1-0", True)
    assert [k for k, v in tiny.link_states().items() if not v] == [
        "p0-t0-0:p0-t1-0",
        "p0-t0-0:p0-t1-1",
        "p0-t0-1:p0-t1-0",
    ]
    tiny.set_switch("p0-t1-0", True)
    assert [k for k, v in tiny.link_states().items() if not v] == ["p0-t0-0:p0-t1-1"]
    tiny.heal()
    assert all(tiny.link_states().values())


@pytest.mark.quiet
def test_tcp_rides_the_fabric_in_frames_that_fit(tiny: Cluster) -> None:
    link = path_links(tiny.fabric, 0, 3, path_evs(tiny.fabric, 0, 3)[-1])[0]
    assert link.name == "h0:p1-t0-0"
    sniffer = in_namespace(
        tiny.net.namespaces[""],
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)),
    )
    sniffer.bind((link.b.name, 3))
    sniffer.setblocking(False)
    server, client = (
        float(rate.split()[0])
        for rate in tiny.net.iperf([tiny.net["h0"], tiny.net["h3"]], seconds=2)
    )
    sizes = []
    while True:
        try:
            sizes.append(len(sniffer.recv(65536, socket.MSG_TRUNC)))
        except BlockingIOError:
            break
    sniffer.close()
    assert 8 < server <= 10 and client > 0
    assert tiny.fabric.mtu < max(sizes) <= tiny.fabric.frame_bytes + 64
    assert at_rest(tiny)


def test_no_offload_is_on(tiny: Cluster) -> None:
    features = ["tx-checksumming", "scatter-gather", "tx-tcp-segmentation", "tx-tcp6-segmentation"]
    features += ["generic-segmentation-offload", "generic-receive-offload"]
    for node, port in (("h0", "h0-p0"), ("p0-t0-0", "p0-t0-0-d0")):
        text = tiny.net[node].cmd(f"ethtool -k {port}")
        for feature in features:
            assert f"{feature}: off" in text, (port, feature)


class Killed(FabricHost):
    """Somebody ends its shell before it has said anything."""

    def _popen(self, cmd: Any, **params: Any) -> Any:
        process = super()._popen(["sleep", "60"], **params)
        process.kill()
        return process


def test_a_shell_that_is_killed_before_its_prompt_ends_the_bring_up() -> None:
    """Found by killing shells at random: whoever waited for the prompt held the other end of its
    terminal, and waited for ever."""
    with pytest.raises(UserError, match="the shell of h0 was ended"):
        Killed("h0", "fd00::1")


def test_a_shell_that_is_killed_while_cables_are_made_is_what_is_told() -> None:
    """Its namespace is gone, and `ip` says that there is no such process."""

    def reached(what: str, share: float) -> None:
        if what.endswith(": cables"):
            host = cluster.net.get("h1")
            os.kill(host.pid, signal.SIGKILL)
            host.shell.wait()

    cluster = Cluster(load_fabric("tiny"), dilation=DILATION, controller=False, progress=reached)
    with pytest.raises(UserError, match="the shell of h1 was ended from outside: start again"):
        cluster.start()
