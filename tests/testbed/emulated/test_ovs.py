"""What Open vSwitch is told, as text; nothing is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mrcbed.cli.common import check_switch
from testbed.emulated import ovs
from testbed.errors import UserError
from topologies import load_fabric
from topologies.paths import static_tables

TINY = load_fabric("tiny")


def test_every_port_is_on_its_switch_with_the_number_of_its_place() -> None:
    words = ovs.bridge_arguments(TINY, "netdev")
    text = " ".join(words)
    for number, (switch, ports) in enumerate(ovs.ports_of(TINY).items()):
        assert (
            f"-- add-br {switch} -- set Bridge {switch} datapath_type=netdev fail_mode=secure"
            in text
        )
        assert f"other_config:datapath-id={number + 1:016x}" in text
        for place, port in enumerate(ports, 1):
            made = (
                f"-- add-port {switch} {port.name} -- set Port {port.name} qos=@ours -- set "
                f"Interface {port.name} "
            )
            assert f"{made}ofport_request={place} " in text + " "
    assert text.count("add-port") == sum(p.node in TINY.switches for p in TINY.ports)
    assert "type=linux-noop" in words


def test_flows_say_what_the_static_table_says() -> None:
    switch = "p1-t0-1"
    numbers = {port.name: place for place, port in enumerate(ovs.ports_of(TINY)[switch], 1)}
    lines = ovs.flow_lines(TINY, switch)
    assert lines[:2] == ["table=0,priority=0,actions=drop", "table=1,priority=0,actions=drop"]
    assert lines[2].startswith(
        "table=0,priority=1,ipv6,ipv6_dst=fcbb:bb00:1401::/48,actions=dec_ttl,move:"
    )
    assert lines[2].endswith(",goto_table:1")
    table = static_tables(TINY)[switch]
    assert lines[3:] == [
        f"table=1,priority=1,ipv6,ipv6_dst=fcbb:bb00:{u:x}::/48,actions=output:{numbers[p]}"
        for u, p in table.items()
    ]


def test_the_datapath_follows_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovs, "MODULE", tmp_path)
    assert ovs.datapath() == "system" and ovs.limits("system") == ""
    monkeypatch.setattr(ovs, "MODULE", tmp_path / "absent")
    assert ovs.datapath() == "netdev"
    for loadable, reason in (
        (True, "kernel module is not loaded"),
        (False, "no openvswitch kernel module"),
    ):
        monkeypatch.setattr(ovs, "loadable", lambda is_there=loadable: is_there)
        line = ovs.limits("netdev")
        assert "45,000 packets/s" in line and "\n" not in line
        assert reason in line
        assert ("modprobe openvswitch" in line) is loadable


def test_without_open_vswitch_it_is_one_line_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovs, "PATH", "/nowhere")
    check_switch("ebpf")
    said = (
        r"^Open vSwitch is not here \(ovs-vswitchd, .*\): apt-get install openvswitch-switch, or "
        r"use --switch ebpf$"
    )
    with pytest.raises(UserError, match=said):
        check_switch("ovs")
    with pytest.raises(UserError, match="apt-get install openvswitch-switch"):
        ovs.OpenVSwitch(TINY)


def test_without_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovs, "TOOLS", ("sh",))
    monkeypatch.setattr(ovs, "SCHEMAS", (Path("/nowhere"),))
    assert ovs.installed() == "vswitch.ovsschema"


@pytest.mark.parametrize("command", ["up", "run"])
def test_no_third_kind_of_switch(command: str) -> None:
    words = [
        sys.executable,
        "-m",
        "mrcbed",
        command,
        "--switch",
        "linux",
        "tiny" if command == "up" else "smoke",
    ]
    done = subprocess.run(
        words, cwd=Path(__file__).resolve().parents[3], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'linux' is not one of 'ebpf', 'ovs'" in done.stderr
