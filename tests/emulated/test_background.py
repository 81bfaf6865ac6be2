"""Background traffic on a real fabric: on its path alone, in an account of its own, and gone
without a trace."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scenarios.figures.books import books
from scenarios.figures.measure import Run
from scenarios.figures.summary import run_summary
from scenarios.run.one_run import OneRun, Spec
from scenarios.schema.scenario import load_scenario
from testbed.dataplane.counters import books as cable_books
from testbed.emulated.cluster import Cluster
from testbed.emulated.iperf_flows import ANSWER_S, datagram_bytes
from testbed.emulated.iperf_report import complaint, flow_figures
from testbed.errors import UserError
from testbed.machine.slowness import patient
from testbed.results.record import Counted
from testbed.world import Stream
from tests.emulated.ring import PATIENCE_S, quiet
from topologies.addressing import ev
from topologies.fabrics import DILATION
from topologies.paths import path_links
from topologies.units import S

S_HERE = round(S / DILATION)
"""A second of this machine."""
pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]


def moved(before: list[dict[str, Any]], after: list[dict[str, Any]], column: str) -> dict[str, int]:
    """Port -> how much its counter grew, of those that did."""
    had = {row["port"]: row.get(column, 0) for row in before}
    return {
        row["port"]: row.get(column, 0) - had[row["port"]]
        for row in after
        if row.get(column, 0) != had[row["port"]]
    }


def state(cluster: Cluster) -> str:
    """Addresses and routes of every host, and what runs in them."""
    found = "".join(
        cluster.net[h].cmd("ip -6 addr show dev lo; ip -6 route show table all")
        for h in cluster.fabric.hosts
    )
    spaces = {os.fstat(fd).st_ino for fd in cluster.net.namespaces.values()}
    running = sorted(
        pid for pid in os.listdir("/proc") if pid.isdigit() and namespace(pid) in spaces
    )
    return f"{found}\n{running}"


def namespace(pid: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0


def ports_of(cluster: Cluster, src: int, dst: int, value: int) -> tuple[set[str], set[str]]:
    """Ports at which a path's frames leave, there and back."""
    there, back = set(), set()
    at = f"h{src}"
    for link in path_links(cluster.fabric, src, dst, value):
        near, far = (link.a, link.b) if link.a.node == at else (link.b, link.a)
        there.add(near.name)
        back.add(far.name)
        at = far.node
    return there, back


@pytest.mark.parametrize(("protocol", "value"), [("udp", ev(1, 0)), ("tcp", ev(0, 1))])
def test_only_the_chosen_path_carries_it_both_ways(
    tiny: Cluster, tmp_path: Path, protocol: str, value: int
) -> None:
    was = state(tiny)
    before = tiny.counters()
    flow = tiny.background(
        Stream(3, 0, 3, protocol, 3 * 10**10, S_HERE, value), tmp_path / "iperf3-x"
    )
    flow.prepare()
    assert flow.begun is flow.over is False
    flow.begin()
    while not flow.over:
        time.sleep(0.02)
    flow.end()
    assert quiet(tiny) and state(tiny) == was
    after = tiny.counters()
    there, back = ports_of(tiny, 0, 3, value)
    admitted = moved(before, after, "admitted_packets")
    assert set(admitted) == there | back and len(there) == 4
    full = 3_000_000 / 8 / (datagram_bytes(tiny.fabric))
    # TCP need not fill its segments: a process that wakes late sends more of them
    most = 1.3 if protocol == "udp" else 2.0
    assert all(0.8 * full < admitted[port] < most * full for port in there), (full, admitted)
    assert moved(before, after, "background_left") == {
        port: n for port, n in admitted.items() if port.startswith("h")
    }
    assert cable_books(after) == []
    made = flow_figures(tmp_path / "iperf3-x")
    assert complaint(tmp_path / "iperf3-x", flow.cut) == "" and not flow.cut
    assert 2.7e10 < made["sent_bps"] < 3.4e10 and 2.5e10 < made["received_bps"] <= made["sent_bps"]
    assert (made["lost_percent"] == 0, made["retransmits"] == 0) == (
        (True, False) if protocol == "udp" else (False, True)
    )


def test_ended_early_it_tells_what_it_had_and_leaves_nothing(tiny: Cluster, tmp_path: Path) -> None:
    was = state(tiny)
    flow = tiny.background(
        Stream(0, 1, 2, "udp", 2 * 10**10, 30 * S_HERE, ev(0, 0), parallel=2), tmp_path / "iperf3-y"
    )
    flow.prepare()
    flow.begin()
    begun = time.monotonic()
    time.sleep(0.7)
    flow.end()
    flow.end()
    took = time.monotonic() - begun
    assert flow.cut and flow.over and quiet(tiny) and state(tiny) == was
    assert complaint(tmp_path / "iperf3-y", True) == "" and "terminated" in complaint(
        tmp_path / "iperf3-y", False
    )
    made = flow_figures(tmp_path / "iperf3-y")
    assert (
        0.4 < made["seconds"] < took + 0.5
        and 1.5e10 < made["sent_bps"] < 2.6e10
        and made["lost_percent"] < 5
    )


def test_on_a_dead_path_it_ends_in_time_all_the_same(tiny: Cluster, tmp_path: Path) -> None:
    """The server never hears that the client has gone."""
    was = state(tiny)
    flows = [
        tiny.background(
            Stream(n, 0, 2, "udp", 10**10, 30 * S_HERE, ev(0, 0)), tmp_path / f"iperf3-{n}"
        )
        for n in range(4)
    ]
    for flow in flows:
        flow.prepare()
        flow.begin()
    time.sleep(0.5)
    tiny.set_link("p0-t0-1:p0-t1-0", False)
    begun = time.monotonic()
    for flow in flows:
        flow.ask()
    for flow in flows:
        flow.end()
    assert time.monotonic() - begun < patient(4 * ANSWER_S), (
        "once the time to answer, for all four of them"
    )
    tiny.heal()
    assert quiet(tiny) and state(tiny) == was
    assert complaint(tmp_path / "iperf3-1", True) == ""
    assert "the server has terminated" in (tmp_path / "iperf3-1-server.json").read_text()
    assert flow_figures(tmp_path / "iperf3-1")["received_bps"] > 0.5e10


def test_what_cannot_be_is_said_and_leaves_nothing(
    tiny: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = state(tiny)
    taken = tiny.background(Stream(0, 0, 2, "tcp", None, S_HERE, ev(0, 0)), tmp_path / "iperf3-a")
    taken.prepare()
    with pytest.raises(UserError, match="ip failed"):  # the addresses of number 0 are there
        tiny.background(Stream(0, 0, 3, "tcp", None, S_HERE, ev(0, 0)), tmp_path / "b").prepare()
    assert taken._server is not None
    taken._server.terminate()
    taken._server.wait(PATIENCE_S)  # while it ends, a client's connection is reset, and not refused
    taken.begin()
    while not taken.over:
        time.sleep(0.02)
    taken.end()
    said = complaint(tmp_path / "iperf3-a", taken.cut)
    assert re.search(
        "iperf3's client says: unable to connect to server.*Connection (refused|timed out)", said
    )  # the latter on a busy machine
    assert state(tiny) == was
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("testbed.emulated.iperf_flows.PATH", "/nowhere")
    with pytest.raises(
        UserError, match="iperf3 is missing: install it with apt-get install iperf3"
    ):
        tiny.background(Stream(0, 0, 3, "tcp", None, S_HERE, ev(0, 0)), tmp_path / "c").prepare()


def test_a_run_whose_ports_background_overloads_balances(tiny: Cluster, tmp_path: Path) -> None:
    """Two UDP flows of 70 Gbit meet on a T1's 100 Gbit port, the ring has to get through, and a
    cable of theirs goes for a while."""
    flows = [
        (
            '{tool = "iperf3", name = "a", src = "h0", dst = "h3", protocol = "udp", rate = '
            '"70Gbit", path = "p0/1"}'
        ),
        '{tool = "iperf3", name = "b", src = "h1", dst = "h2", protocol = "udp", rate = '
        '"70Gbit", path = "p0/1", start = "30us", for = "400us"}',
    ]
    fault = '{name = "cut", kind = "link", on = "p0-t0-1:p0-t1-1", at = "300us", for = "30us"}'
    given = [
        f"background=[{', '.join(flows)}]",
        f"fault=[{fault}]",
        "workload.steps=10",
        "expect=[]",
    ]
    scenario = load_scenario("smoke", transports=["mrc"], overrides=given)
    tmp_path.chmod(0o777)  # agents drop root
    was = state(tiny)
    assert (
        OneRun(
            tiny,
            Spec(scenario, scenario.transports[0], "interleaved", 1),
            tmp_path / "run",
            lambda *_: None,
        ).go()
        == "done"
    )
    assert state(tiny) == was
    made = run_summary(Run(tmp_path / "run"))
    assert (made["outcome"], made["wrong"], made["failed_steps"]) == ("done", 0, 0), made["reason"]
    packets = made["packets"]
    account = packets["background"]
    assert (packets["unexplained"], account["unexplained"]) == (0, 0), packets
    assert account["causes"]["drop_tail"] > 20 and account["delivered"] > 300
    assert {"drop_link_down", "flushed"} & set(account["causes"])
    first, second = made["background"]
    assert first["lost_percent"] > 3 and first["path"] == "p0/1" and first["retransmits"] is None
    assert (
        6e10 < first["sent_bps"] < 7.5e10
        and first["received_bps"] < first["sent_bps"]
        and second["seconds"] > 0.9
    )
    assert made["beside_background_busbw_bps"] < made["ideal_busbw_bps"]
    assert not made["notes"] and not [
        why for why in made["distrust"] if "without a cause" in why or "balance" in why
    ]
    raw = tmp_path / "run"
    assert (
        json.loads((raw / "iperf3-a.json").read_text())["start"]["test_start"]["protocol"] == "UDP"
    )
    record = json.loads((raw / "run.json").read_text())
    assert record["background"][0]["cut"] and not record["background"][1]["cut"]
    record["counters_after"] = [
        {k: v for k, v in row.items() if not k.startswith("background_")}
        for row in record["counters_after"]
    ]
    # what the account of its own is for
    assert (books(msgspec.convert(record, Counted)).unexplained or 0) < 0
