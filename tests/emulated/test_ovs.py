"""Open vSwitch as the switches: private, programmed and watched over OpenFlow, with its packets
counted and none lost unseen.

What both forwarding planes have in common is in test_planes.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controller.client import ControllerClient
from testbed.controller.framework import FRAMEWORKS
from testbed.dataplane.counters import books, totals
from testbed.emulated import ovs
from testbed.emulated.cluster import Cluster
from testbed.errors import ClusterDied
from tests.emulated.frames import Wire, at_rest, mrc, wires_of
from tests.emulated.ring import PATIENCE_S, quiet, wait_until
from tests.emulated.test_cli_run import QUICK, mrcbed
from topologies import addressing, load_fabric
from topologies.addressing import ev
from topologies.fabrics import DILATION
from topologies.paths import path_evs

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed"
    ),
]


@pytest.fixture(scope="module")
def bridged() -> Iterator[Cluster]:
    with Cluster(load_fabric("tiny"), dilation=DILATION, switch="ovs") as cluster:
        yield cluster


@pytest.fixture
def wires(bridged: Cluster) -> Iterator[list[Wire]]:
    with wires_of(bridged) as made:
        yield made


def ofctl(cluster: Cluster, switch: str, command: str, *arguments: str) -> str:
    """A stranger's hand at a switch."""
    assert cluster.net.ovs is not None
    words = [
        "ovs-ofctl",
        "-O",
        "OpenFlow13",
        command,
        f"unix:{cluster.net.ovs.run}/{switch}.mgmt",
        *arguments,
    ]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_nothing_of_the_machines_own_is_touched() -> None:
    """Its Open vSwitch (run directory, database, bridges), its namespace and its sysctls."""

    def machine() -> tuple[object, ...]:
        places = [
            Path(f"/{p}/openvswitch") for p in ("var/run", "run", "etc", "var/lib", "var/log")
        ]
        files = [
            (str(f), f.lstat().st_mtime_ns)
            for p in places
            if p.exists()
            for f in [p, *p.rglob("*")]
        ]
        buffers = [
            Path(f"/proc/sys/net/core/{name}").read_text()
            for name in ("wmem_default", "wmem_max", "rmem_default", "rmem_max")
        ]
        return files, sorted(os.listdir("/sys/class/net")), buffers

    before = machine()
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False, switch="ovs") as cluster:
        assert machine() == before
        assert cluster.net.ovs is not None
        where, pids = cluster.net.ovs.run, [process.pid for _, process in cluster.net.ovs.processes]
        assert len(pids) == 2 and (where / "p0-t0-0.mgmt").exists()
        assert cluster.net.pingAll() == 0
    assert machine() == before
    assert not where.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_daemon_forwards_by_the_datapath_that_was_announced(bridged: Cluster) -> None:
    """The kernel's (`system@`) where its module is loaded; every bridge is on it."""
    assert bridged.net.ovs is not None
    shown = bridged.net.ovs.control("dpif/show")
    heads = re.findall(r"^(\w+)@", shown, re.MULTILINE)
    assert heads == [ovs.datapath()], shown
    assert all(switch in shown for switch in bridged.fabric.switches)


def test_the_controller_programs_what_runs_without_it(bridged: Cluster) -> None:
    """The flows over Ryu and those of --no-controller are the same, as Open vSwitch prints them."""
    assert bridged.net.ovs is not None
    switches = bridged.fabric.switches
    programmed = [flows(ofctl(bridged, s, "dump-flows", "--no-stats")) for s in switches]
    assert all(len(found) >= 5 for found in programmed)
    for switch in switches:
        ofctl(bridged, switch, "del-flows")
    assert flows(ofctl(bridged, switches[0], "dump-flows", "--no-stats")) == []
    bridged.net.ovs.program()
    assert [flows(ofctl(bridged, s, "dump-flows", "--no-stats")) for s in switches] == programmed


TO_T1 = "ipv6,ipv6_dst=fcbb:bb00:800::/48"


def flows(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if "actions=" in line)


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (
            ("del-flows", f"table=1,{TO_T1}"),
            ("add-flow", f"table=1,priority=1,{TO_T1},actions=output:3"),
        ),
        (
            ("mod-flows", f"table=1,{TO_T1},actions=output:4"),
            ("mod-flows", f"table=1,{TO_T1},actions=output:3"),
        ),
        (
            ("add-flow", "table=1,priority=7,in_port=1,actions=2"),
            ("--strict", "del-flows", "table=1,priority=7,in_port=1"),
        ),
        (
            ("add-flow", "table=0,priority=9,ipv6,actions=drop"),
            ("--strict", "del-flows", "table=0,priority=9,ipv6"),
        ),
        (
            ("--strict", "del-flows", "table=0,priority=0"),
            ("add-flow", "table=0,priority=0,actions=drop"),
        ),
    ],
    ids=[
        "route gone",
        "route elsewhere",
        "one more route",
        "an earlier match",
        "misses go uncounted",
    ],
)
def test_a_switch_spoilt_behind_its_back_shows(
    bridged: Cluster, spoil: tuple[str, ...], mend: tuple[str, ...]
) -> None:
    def meddle(words: tuple[str, ...]) -> None:
        *options, command, flow = words
        assert bridged.net.ovs is not None
        where = f"unix:{bridged.net.ovs.run}/p0-t0-0.mgmt"
        subprocess.run(
            ["ovs-ofctl", "-O", "OpenFlow13", *options, command, where, flow],
            check=True,
            capture_output=True,
        )

    def wrong() -> list[str]:
        return [
            name
            for name, table in ControllerClient(bridged.rest_url).get("tables").items()
            if not table["as_computed"]
        ]

    assert wrong() == []
    meddle(spoil)
    assert wrong() == ["p0-t0-0"]
    meddle(mend)
    assert wrong() == []


def test_it_counts_per_route_and_says_why_it_dropped(bridged: Cluster, wires: list[Wire]) -> None:
    controller = ControllerClient(bridged.rest_url)
    good = addressing.path_address(bridged.fabric, 0, 2, ev(0, 0))
    before = {name: controller.get(f"tables/{name}") for name in ("p0-t0-0", "p0-t1-0")}
    sent = [mrc(0, 2, good, bytes(100)) for _ in range(7)]
    strange = [
        mrc(0, 2, addressing.shift(good)),
        mrc(0, 2, good[:6] + b"\x0b\xff" + good[8:]),
        mrc(0, 2, good, hop_limit=1),
    ]
    for frame in [
        *sent,
        strange[0],
        strange[1],
        strange[1],
        *[strange[2]] * 3,
        mrc(0, 2, good, hop_limit=2),
    ]:
        assert wires[0].send(0, frame)
    assert len(wires[2].receive(7)) == 7

    def shown() -> int:
        """What Open vSwitch says it forwarded or dropped there, once its counters are up to
        date."""
        bridged.counters()
        now = controller.get("tables/p0-t1-0")
        return sum(now["dropped_packets"].values()) - sum(
            before["p0-t1-0"]["dropped_packets"].values()
        )

    assert wait_until(lambda: shown() > 0), "the last that was sent"
    t0, t1 = (controller.get(f"tables/{name}") for name in ("p0-t0-0", "p0-t1-0"))
    route = {
        key: t0["forwarded"]["0800"][key] - before["p0-t0-0"]["forwarded"]["0800"][key]
        for key in ("packets", "bytes")
    }
    assert route == {"packets": 8, "bytes": 7 * len(sent[0]) + len(strange[2])}
    for now, was, why in ((t0, before["p0-t0-0"], (1, 2, 3)), (t1, before["p0-t1-0"], (0, 0, 1))):
        names = ("not_mine", "no_route", "hop_limit")
        assert (
            tuple(now["dropped_packets"][name] - was["dropped_packets"][name] for name in names)
            == why
        )
    # The switches' own books miss exactly what Open vSwitch dropped: it names the cause, not the
    # port.
    assert {b["where"]: b["packets"] for b in books(bridged.counters())} == {
        "p0-t0-0": 6,
        "p0-t1-0": 1,
    }


def test_a_port_that_open_vswitch_loses_is_a_link_down(bridged: Cluster) -> None:
    """Its own view, not netlink's: the interface goes down by somebody's hand in the switches'
    namespace."""
    controller = ControllerClient(bridged.rest_url)
    bridged.net["p1-t0-0"].cmd("ip link set p1-t0-0-u1 down")
    assert wait_until(lambda: "p1-t0-0:p1-t1-1" in controller.get("failed-links"))
    bridged.net["p1-t0-0"].cmd("ip link set p1-t0-0-u1 up")
    assert wait_until(lambda: not controller.get("failed-links"))


def test_queues_and_programs_stay_through_flaps_and_reconfiguration(bridged: Cluster) -> None:
    """Open vSwitch would remove both from a port when it feels like it."""

    def hanging() -> str:
        filters = [
            f"tc filter show dev {port} {way}"
            for port in ("p0-t0-0-u0", "p0-t1-0-d0")
            for way in ("ingress", "egress")
        ]
        return str(bridged.net["p0-t0-0"].cmd("; ".join(["tc qdisc show", *filters])))

    before = hanging()
    assert (
        before.count("name fabric_ingress") == 2
        and before.count("name fabric_egress") == 2
        and "htb 1:" in before
    )
    for up in (False, True) * 3:
        bridged.set_link("p0-t0-0:p0-t1-0", up)
    assert bridged.net.ovs is not None
    command = [
        "ovs-vsctl",
        f"--db=unix:{bridged.net.ovs.run}/db.sock",
        "set",
        "Interface",
        "p0-t0-0-u0",
        "external_ids:touched=yes",
    ]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    time.sleep(0.3)
    assert sorted(hanging().splitlines()) == sorted(before.splitlines())


@pytest.mark.quiet
def test_more_than_it_can_take_waits_and_is_not_lost() -> None:
    """Full ports on all planes at once, as fast as Python sends: late, but every packet."""
    fabric = load_fabric("tiny").with_(nic_rate=2 * 10**12, fabric_rate=2 * 10**12)
    with Cluster(fabric, dilation=DILATION, controller=False, switch="ovs") as cluster:
        out = Wire(cluster, 0)
        frames = [
            (v >> 16, mrc(0, 2, addressing.path_address(fabric, 0, 2, v), bytes(64)))
            for v in path_evs(fabric, 0, 2)
        ]
        taken, until = 0, time.monotonic() + 1.5
        while time.monotonic() < until:
            for plane, frame in frames:
                taken += out.send(plane, frame)
        assert wait_until(
            lambda: (
                sum(r["arrived_packets"] for r in cluster.counters() if r["node"] == "h2") == taken
            ),
            3 * PATIENCE_S,
        )
        assert at_rest(cluster)
        rows = cluster.counters()
        assert totals(rows)["drop_bridge"] == 0
        out.close()


def test_what_its_sockets_drop_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    if ovs.datapath() == "system":
        pytest.skip("the kernel forwards: frames do not pass through the daemon's sockets")
    monkeypatch.setattr(ovs, "BUFFER", 4096)
    with Cluster(
        load_fabric("tiny").with_(nic_rate=10**12),
        dilation=DILATION,
        controller=False,
        switch="ovs",
    ) as cluster:
        assert cluster.net.ovs is not None
        daemon = cluster.net.ovs.processes[-1][1]
        out = Wire(cluster, 0)
        frame = mrc(0, 2, addressing.path_address(cluster.fabric, 0, 2, ev(0, 0)), bytes(1000))
        daemon.send_signal(signal.SIGSTOP)
        assert all(out.send(0, frame) for _ in range(100))
        assert quiet(cluster)
        daemon.send_signal(signal.SIGCONT)
        assert at_rest(cluster)
        rows = cluster.counters()
        lost = {r["port"]: r["drop_bridge"] for r in rows if r["drop_bridge"]}
        assert set(lost) == {"p0-t0-0-d0"} and 50 < lost["p0-t0-0-d0"] < 100
        out.close()


@pytest.mark.usefixtures("unhurried")
def test_its_death_ends_the_run(tmp_path: Path) -> None:
    cluster = Cluster(load_fabric("tiny"), dilation=DILATION, switch="ovs")
    try:
        cluster.start()
        assert cluster.net.ovs is not None
        cluster.net.ovs.processes[-1][1].kill()
        cluster.net.ovs.processes[-1][1].wait()
        with pytest.raises(
            ClusterDied, match=r"ovs-vswitchd \(process \d+\) was killed by SIGKILL"
        ):
            cluster.check()
    finally:
        cluster.stop()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_scenario_runs_to_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    """The same application programs and watches the switches on Ryu and on os-ken."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    monkeypatch.setenv("MRCBED_CONTROLLER", framework)
    done = mrcbed("run", "smoke", "--switch", "ovs", *QUICK, "--out", tmp_path / "out")
    # 3: the machine, or Open vSwitch, was too slow to be trusted
    assert done.returncode in (0, 3), done.stderr
    (run,) = json.loads((tmp_path / "out/summary.json").read_text())["runs"]
    assert (run["wrong"], run["packets"]["unexplained"]) == (0, 0)
    assert run["failovers"], "the cable was pulled, and MRC went round it"
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    kind = ovs.datapath()
    assert manifest["switch"] == f"ovs ({kind})"
    assert manifest["tools"]["ovs-vswitchd"].startswith("ovs-vswitchd (Open vSwitch)")
    if limits := ovs.limits(kind):
        assert f"{limits}." in manifest["notes"]
        assert done.stderr.count(limits) == 1


def test_the_prompt_rides_on_it(tmp_path: Path) -> None:
    lines = (
        "pingall\nstatus\ntrace h0 h2 0:0\nbreak p0-t0-0:p0-t1-0\n"
        "allreduce steps=2 bytes=65536 placement=interleaved\n"
    )
    done = mrcbed("up", "tiny", "--switch", "ovs", input=lines)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "0% dropped (12/12 received)" in said
    assert "switches: Open vSwitch" in said
    assert said.count("p0-t1-0-d0") == 1, "a trace shows every port once"
    assert "every sum right" in said
