"""The cluster as one object: controller, agents, captures, and what it says when one of them
dies."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.dataplane import loader
from testbed.dataplane.counters import books
from testbed.dataplane.maps import BpfMap
from testbed.emulated.cluster import Cluster
from testbed.errors import ClusterDied, UserError
from testbed.machine import sandbox
from tests.emulated.frames import arrived, mrc, wires_of
from tests.emulated.ring import PATIENCE_S, quiet, wait_until
from topologies import FabricError, addressing, load_fabric
from topologies.fabrics import DILATION
from topologies.paths import path_evs

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).resolve().parents[2]
FABRIC = load_fabric("tiny")
LINK = "p0-t0-0:p0-t1-0"


def routes() -> dict[bytes, bytes]:
    held = BpfMap(loader.PINS / "routes")
    return dict(held.items())


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    """With controller."""
    said: list[tuple[str, float]] = []
    with Cluster(
        FABRIC, dilation=DILATION, progress=lambda what, share: said.append((what, share))
    ) as cluster:
        assert said and all(0 <= share <= 1 for _, share in said)
        yield cluster


def crossing(cluster: Cluster, count: int = 1) -> int:
    """Send over every path from h0 to h2 and count what arrives."""
    with wires_of(cluster) as wires:
        for value in path_evs(FABRIC, 0, 2) * count:
            wires[0].send(value >> 16, mrc(0, 2, addressing.path_address(FABRIC, 0, 2, value)))
        return len(arrived(wires[2]))


def test_the_controller_programs_what_the_cluster_would_alone(whole: Cluster) -> None:
    assert whole.controller_alive and whole.rest_url.startswith("http://127.0.0.1:")
    by_ryu = routes()
    held = BpfMap(loader.PINS / "routes")
    for key in by_ryu:
        held.delete(key)
    loader.program_fabric(FABRIC)
    assert routes() == by_ryu and by_ryu


def test_agents_come_up_without_root_and_go(whole: Cluster, tmp_path: Path) -> None:
    for turn in range(2):  # a second time on the same fabric
        whole.start_agents("mrc", {}, tmp_path / str(turn), seed=turn)
        assert [agent.call("hello")["uid"] for agent in whole.agents] == [
            sandbox.agent_uid(n) for n in range(FABRIC.host_count)
        ]
        assert all((tmp_path / str(turn) / f"{host}.jsonl").exists() for host in FABRIC.hosts)
        whole.check()
        whole.stop_agents()
        whole.check()
        assert whole.agents == []


def test_agents_that_cannot_be_are_one_line(whole: Cluster, tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"^the agents did not come up: no transport 'no-such-transport': there are [\w, ]+$",
    ):
        whole.start_agents("no-such-transport", {}, tmp_path, seed=0)
    whole.check()


def test_an_agent_that_does_not_come_up_is_one_line(
    whole: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = whole.net.path_of
    monkeypatch.setattr(
        whole.net, "path_of", lambda name: "/nowhere" if name == "h2" else real(name)
    )
    with pytest.raises(
        UserError,
        match=r"^the agent of h2 did not come up: agent: .*No such file or directory: '/nowhere'$",
    ):
        whole.start_agents("mrc", {}, tmp_path, seed=0)
    whole.check()


@pytest.mark.usefixtures("unhurried")
def test_a_dead_agent_is_named(tmp_path: Path) -> None:
    with Cluster(FABRIC, dilation=DILATION, controller=False) as cluster:
        cluster.start_agents("mrc", {}, tmp_path, seed=0)
        pid = cluster.agents[1].call("hello")["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            ClusterDied, match=rf"the agent of h1 \(process {pid}\) was killed by SIGKILL"
        ):
            wait_until(cluster.check)


def test_traffic_does_not_notice_the_controllers_death() -> None:
    with Cluster(FABRIC, dilation=DILATION) as cluster:
        assert crossing(cluster) == 4
        os.kill(cluster.controller_pid, signal.SIGKILL)
        assert wait_until(lambda: not cluster.controller_alive)
        cluster.check()
        assert crossing(cluster, count=50) == 200
        cluster.set_link(LINK, False)
        assert crossing(cluster) == 3
        assert books(cluster.counters()) == []


def test_faults_quiesce_and_the_capture_lives_through_them(tmp_path: Path) -> None:
    with Cluster(
        FABRIC, dilation=DILATION, controller=False, pcap_links=[LINK], pcap_dir=tmp_path
    ) as cluster:
        assert crossing(cluster) == 4
        cluster.set_link(LINK, False)
        assert crossing(cluster) == 3
        cluster.set_link(LINK, True)
        assert crossing(cluster) == 4
        cluster.check()
        with pytest.raises(FabricError, match="no link"):
            cluster.set_link("p0-t0-0:p9-t1-0", False)
        with pytest.raises(FabricError, match="no switch"):
            cluster.set_switch("p9-t1-0", False)
        assert quiet(cluster)
        rows = cluster.counters()
        assert books(rows) == []
        carried = sum(r["arrived_packets"] for r in rows if r["link"] == LINK)
        (capture,) = cluster.captures
        size = len(mrc(0, 2, bytes(16)))
        assert wait_until(lambda: capture.path.stat().st_size >= 24 + 2 * (16 + size))
    assert (capture.captured, capture.dropped, carried) == (2, 0, 2)
    data = capture.path.read_bytes()
    assert data[:4] == struct.pack("=I", 0xA1B23C4D)  # nanoseconds
    assert len(data) == 24 + 2 * (16 + size)


def test_stop_is_idempotent_and_waits_for_nobody() -> None:
    cluster = Cluster(FABRIC, dilation=DILATION, controller=False)
    cluster.start()
    cluster.net["h1"].cmd("trap '' TERM HUP; sleep 100 &")
    cluster.stop()
    taken = cluster.teardown_ns
    cluster.stop()
    assert taken < PATIENCE_S * 1e9, "it did not wait for who does not listen"
    assert cluster.teardown_ns == taken
    Cluster(FABRIC, dilation=DILATION, controller=False).stop()  # never started


def test_an_unknown_capture_link_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="no link"):
        Cluster(FABRIC, dilation=DILATION, pcap_links=["h0:h1"], pcap_dir=tmp_path)


def test_outside_the_sandbox_is_an_error_for_people() -> None:
    code = (
        "from testbed.emulated.cluster import Cluster; from topologies import load_fabric; "
        "Cluster(load_fabric('tiny'), dilation=1e4)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MRCBED")}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "UserError: a fabric is built inside the sandbox only" in done.stderr


def test_missing_tools_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    real = shutil.which
    for tool in ("bpftool", "mnexec", "ip", "tc"):
        monkeypatch.setattr(
            shutil,
            "which",
            lambda name, path=None, lacking=tool: (
                None if name == lacking else real(name, path=path)
            ),
        )
        with pytest.raises(UserError, match=f"{tool} is missing: install it with apt-get install"):
            Cluster(FABRIC, dilation=DILATION, controller=False).start()
