"""mrc0: ping, iperf3 through a cable cut, ssh's kind of small packets, what is refused; nothing
stays."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from agents.ip import NAME, address
from testbed.emulated import ip
from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.machine.slowness import patient
from tests.emulated.command import mrcbed
from topologies import load_fabric
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module", params=["mrc", "roce"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(load_fabric("tiny"), dilation=DILATION, controller=False) as cluster:
        cluster.start_agents(transport, {}, tmp_path_factory.mktemp("logs"), 1)
        carriers = ip.bring_up(cluster)
        try:
            yield cluster
        finally:
            carriers.end()
        assert all(process.poll() is not None for process in carriers.processes)  # type: ignore[attr-defined]


def test_every_host_reaches_every_other_one(cluster: Cluster) -> None:
    for number, name in enumerate(cluster.fabric.hosts):
        for other in set(range(cluster.fabric.host_count)) - {number}:
            said, _, status = cluster.net[name].pexec(
                ["ping", "-c", "1", "-W", f"{patient(10):.0f}", "-s", "8000", address(other)]
            )
            assert status == 0, said
    # a host that is not there
    said, _, status = cluster.net["h0"].pexec(["ping", "-c", "1", "-W", "1", address(200)])
    assert status == 1, said


def test_iperf3_goes_on_through_a_cable_cut(transport: str, cluster: Cluster) -> None:
    if transport != "mrc":
        pytest.skip("RoCE waits until the network has re-routed, which nobody does here")
    last = cluster.fabric.host_count - 1
    server = cluster.net[f"h{last}"].popen(
        ["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(patient(0.5))
    client = cluster.net["h0"].popen(
        ["iperf3", "-J", "-c", address(last), "-t", "7", "-i", "1"], stdout=subprocess.PIPE
    )
    try:
        time.sleep(3)
        cut = cluster.inject("link", "p0-t0-0:p0-t1-0")
        said = client.communicate(timeout=patient(30))[0]
        cluster.clear(cut.number)
    finally:
        for process in (client, server):
            if process.poll() is None:
                process.kill()
            process.wait()
    report = json.loads(said)
    assert "error" not in report
    rates = [interval["sum"]["bits_per_second"] for interval in report["intervals"]]
    # never two seconds without anything
    assert min(sum(pair) for pair in pairwise(rates[3:])) > 0, rates
    before, after = sum(rates[1:3]) / 2, sum(rates[5:7]) / 2
    assert after > 0.4 * before, rates


def test_tcp_is_refused_in_one_line() -> None:
    done = mrcbed("up", "tiny", "--ip", "--transport", "tcp")
    assert done.returncode and "tcp" in done.stderr and done.stderr.count("mrcbed:") == 1


def test_a_kernel_without_tun_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.emulated.ip.tun.available", lambda: False)
    with pytest.raises(UserError, match=f"{NAME} needs TUN"):
        ip.bring_up(cluster)


def test_the_prompt_says_how_to_use_it() -> None:
    done = mrcbed(
        "up", "tiny", "--ip", "--no-controller", input=f"h0 ping -c 2 {address(3)}\nexit\n"
    )
    assert done.returncode == 0, done.stderr
    assert (
        f"Try: h0 ping -c 3 {address(3)}" in done.stdout
        and "2 received" in done.stdout + done.stderr
    )
