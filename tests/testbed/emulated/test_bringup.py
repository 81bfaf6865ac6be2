"""The batches as text: no root, no kernel."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any

import pytest

from agents.clock import WallClock
from testbed.emulated import bringup
from testbed.errors import UserError
from topologies import Fabric, FabricError, addressing, load_fabric, named_fabrics

CLOCK = WallClock(10_000)


@pytest.fixture(params=sorted(named_fabrics()))
def fabric(request: pytest.FixtureRequest) -> Fabric:
    return load_fabric(request.param)


def test_every_cable_is_made_once_with_its_numbers(fabric: Fabric) -> None:
    lines = bringup.veth_lines(fabric, dict.fromkeys(fabric.hosts, "77"))
    assert len(lines) == len(fabric.links)
    words = " ".join(lines).split()
    first = {word: at for at, word in reversed(list(enumerate(words)))}
    for port in fabric.ports:
        at = first[port.name]
        assert words[at + 1 : at + 3] == ["index", str(1000 + port.number)]
    assert words.count("netns") == sum(link.kind == "nic" for link in fabric.links)
    assert len({w for i, w in enumerate(words) if words[i - 1] == "index"}) == len(fabric.ports)


def test_a_kernel_tcp_packet_fits_after_encapsulation(fabric: Fabric) -> None:
    assert bringup.link_mtu(fabric) >= fabric.frame_bytes - 14 + 4  # and an immediate


def test_queue_rates_add_up_to_the_links(fabric: Fabric) -> None:
    port = fabric.ports[0]
    lines = bringup.queue_lines(fabric, CLOCK, [(port, 99_999_990_000)])
    rate = {
        w.split()[w.split().index("classid") + 1]: int(w.split("htb rate ")[1].split("bit")[0])
        for w in lines
        if " classid " in w
    }
    assert rate["1:f"] == 9_999_999 == rate["1:1"] + rate["1:2"]
    ceil = next(w for w in lines if "classid 1:1 " in w).split("ceil ")[1].split("bit")[0]
    assert int(ceil) == 9_999_999 // 2
    assert any("stab overhead 0 linklayer ethernet htb default 2" in w for w in lines)


def test_only_lossless_fabrics_can_be_stopped(fabric: Fabric) -> None:
    port = (fabric.ports[0], 99_999_990_000)
    if fabric.sites > 1:
        with pytest.raises(FabricError, match="pfc = true is not for two sites"):
            fabric.with_(pfc=True)
        return
    lossy, lossless = (
        "\n".join(bringup.queue_lines(f, CLOCK, [port])) for f in (fabric, fabric.with_(pfc=True))
    )
    assert (
        f"parent 1:2 handle 12: bfifo limit {fabric.buffer_bytes + 65536}" in lossy
        and "tbf" not in lossy
        and "1:3" not in lossy
    )
    assert (
        "parent 1:2 handle 12: tbf rate 32000000000bit" in lossless
        and "parent 1:3 handle 13: bfifo limit 1\n" in lossless
    )


def test_what_a_port_catches_up_is_the_same_in_the_network_at_every_large_dilation() -> None:
    rate = 10**11
    ns = {
        d: bringup.burst_bytes(rate, WallClock(d)) * 8 / rate * 1e9
        for d in (10_000, 20_000, 125_000, 1_000_000)
    }
    assert ns[10_000] == pytest.approx(50, rel=0.02) and ns[20_000] == pytest.approx(25, rel=0.05)
    assert ns[125_000] == pytest.approx(25, rel=0.05) and ns[1_000_000] == pytest.approx(
        25, rel=0.3
    )


def test_kernel_paths_are_the_same_both_ways_and_spread(fabric: Fabric) -> None:
    planes: Counter[int] = Counter()
    for a in range(fabric.host_count):
        for b in range(fabric.host_count):
            if a != b:
                value = bringup.spread(fabric, a, b)
                assert value == bringup.spread(fabric, b, a)
                planes[value >> 16] += 1
    if fabric.host_count < fabric.planes:  # too few pairs to meet every plane
        assert len(planes) > 1
        return
    assert set(planes) == set(range(fabric.planes))
    assert max(planes.values()) <= 2 * min(planes.values())


def test_a_host_reaches_every_peer_and_receives_on_every_plane(fabric: Fabric) -> None:
    lines = bringup.host_lines(fabric, 1)
    for peer in range(fabric.host_count):
        inner = addressing.text(addressing.inner_address(peer))
        assert sum(f"route add {inner}/128 encap seg6 mode encap.red" in w for w in lines) == (
            peer != 1
        )
    assert sum("End.DT6 table 255" in w for w in lines) == fabric.planes
    assert not any(w.startswith("-6") for w in lines)  # ip -batch takes no options inside


class Kernel:
    """In place of `ip -batch`: does line after line and ends at the first it refuses. ``refusals``:
    line -> what to say, once for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusals: dict[str, list[str]]) -> None:
        self.done: list[str] = []
        self.refusals = refusals
        monkeypatch.setattr(bringup.subprocess, "run", self.batch)
        monkeypatch.setattr(bringup, "NO_MEMORY_PAUSE_S", 0.0)

    def batch(
        self, command: list[str], *, input: str, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        for number, line in enumerate(input.splitlines(), 1):
            if self.refusals.get(line):
                said = (
                    f"RTNETLINK answers: {self.refusals[line].pop()}\nCommand failed -:{number}\n"
                )
                return subprocess.CompletedProcess(command, 1, "", said)
            self.done.append(line)
        return subprocess.CompletedProcess(command, 0, "", "")


LINES = ["route add a", "route add b", "route add c"]
NO_MEMORY = "Cannot allocate memory"


@pytest.mark.parametrize(
    "refusals",
    [{"route add a": [NO_MEMORY]}, {"route add b": [NO_MEMORY] * 3, "route add c": [NO_MEMORY]}],
)
def test_a_line_without_memory_is_tried_again_and_none_twice(
    monkeypatch: pytest.MonkeyPatch, refusals: dict[str, list[str]]
) -> None:
    kernel = Kernel(monkeypatch, refusals)
    bringup.run_batch("ip", LINES, "/proc/self/ns/net")
    assert kernel.done == LINES


def test_memory_that_never_comes_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(monkeypatch, {"route add b": [NO_MEMORY] * 1000})
    monkeypatch.setattr(bringup, "NO_MEMORY_S", 0.0)
    with pytest.raises(
        UserError, match=r"at `ip route add b` \(RTNETLINK answers: Cannot allocate memory\)"
    ):
        bringup.run_batch("ip", LINES, "/proc/self/ns/net")


def test_any_other_refusal_ends_the_batch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, {"route add b": [NO_MEMORY], "route add c": ["File exists"]})
    with pytest.raises(UserError, match=r"at `ip route add c` \(RTNETLINK answers: File exists\)"):
        bringup.run_batch("ip", LINES, "/proc/self/ns/net")
    assert kernel.done == LINES[:2]
