"""The option ``congestion``: what is there, anybody's own, and each way to get it wrong told in a line."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc.config import Config
from agents.mrc.congestion.base import Congestion
from agents.mrc.congestion.choice import make_congestion
from agents.mrc.congestion.fixed import FixedWindow
from agents.mrc.congestion.nscc import Nscc
from agents.transport import OK
from tests.agents.mrc.rig import DEMO, SMALL, TINY, Rig


class OnePacket(Congestion):
    """A third party's: one packet in flight, ever."""

    def __init__(self, config: Config, path_rtt: int) -> None:
        super().__init__(config, path_rtt)
        self.cwnd = self.mtu


class NotOne:
    def __init__(self, config: Config, path_rtt: int) -> None:
        self.cwnd = 1


def config(**options: Any) -> Config:
    return Config.from_fabric(DEMO, options)


def test_nscc_unless_said_otherwise() -> None:
    assert isinstance(make_congestion(config(), DEMO.base_rtt_ns), Nscc)
    assert isinstance(make_congestion(config(congestion="nscc"), DEMO.base_rtt_ns), Nscc)
    assert isinstance(make_congestion(config(congestion="fixed"), DEMO.base_rtt_ns), FixedWindow)


def test_each_qp_has_its_own_with_its_own_paths_rtt() -> None:
    """h0 and h1 share a T0, h0 and h7 do not: the shorter path starts with the smaller window."""
    rigs = [Rig(DEMO, 0, peer, 1000) for peer in (1, 7)]
    near, far = (rig.a.engine.qps[rig.a.qpn].requester.congestion for rig in rigs)
    assert near is not far
    assert near.cwnd == int(1.5 * DEMO.host_rate * DEMO.local_rtt_ns / 8e9)
    assert far.cwnd == int(1.5 * DEMO.host_rate * DEMO.base_rtt_ns / 8e9)


def test_a_fixed_window_does_not_move_but_with_the_planes() -> None:
    w = make_congestion(config(congestion="fixed", window_bdp=2.0), DEMO.base_rtt_ns)
    w.planes_changed(4)
    size = w.cwnd
    assert abs(size - 8 * DEMO.plane_bdp) <= 1
    w.on_sack(1, 10_000, 10_000, True, 10**9, 127, True)
    w.on_nack(2, 4184, 0, True)
    w.on_loss(3, 4184)
    w.on_wrong_loss(4, 4184)
    assert w.cwnd == size
    w.planes_changed(2)
    assert abs(w.cwnd - size // 2) <= 1


def test_a_fixed_window_lets_two_packets_go() -> None:
    w = make_congestion(config(congestion="fixed", window_bdp=0.1), DEMO.base_rtt_ns)
    assert w.cwnd == 2 * (DEMO.mtu + 88)


def test_anybodys_own_is_named_by_module_and_class() -> None:
    rig = Rig(SMALL, 0, 3, 3000, {"congestion": f"{__name__}:OnePacket"})
    data = bytes(range(250)) * 12
    flying: list[int] = []
    rig.net.trace = lambda now, port, frame: flying.append(rig.a.engine.counters()["in_flight_bytes"])
    rig.write(1, data)
    assert rig.run(60, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == OK and rig.b.memory[64:-64] == data
    assert max(flying) == SMALL.mtu + 88


@pytest.mark.parametrize(
    "name, words",
    [
        ("reno", "nscc and fixed"), ("", "nscc and fixed"), ("NSCC", "nscc and fixed"), ("no.such.module:Class", "no.such"),
        (f"{__name__}:Missing", "Missing"), (f"{__name__}:", "congestion"), (":OnePacket", "congestion"), (".here:OnePacket", "congestion"),
        (f"{__name__}:NotOne", "is no agents.mrc.congestion.base.Congestion"), (f"{__name__}:config", "is no agents.mrc.congestion.base"),
        ("os:getcwd", "is no agents.mrc.congestion.base"), ("os:sep", "is no agents.mrc.congestion.base"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_told_in_a_line(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        make_congestion(config(congestion=name), DEMO.base_rtt_ns)
    assert "\n" not in str(caught.value) and repr(name) in str(caught.value)


@pytest.mark.parametrize("fabric", [TINY, DEMO])
def test_a_window_that_no_signal_moves_is_what_the_base_class_is(fabric: Any) -> None:
    c = Congestion(Config.from_fabric(fabric, {}), fabric.base_rtt_ns)
    size = c.cwnd
    c.planes_changed(2)
    c.on_sack(1, 1, 1, True, 1, 1, True)
    c.on_nack(1, 1, 1, True)
    c.on_loss(1, 1)
    c.on_wrong_loss(1, 1)
    assert c.cwnd == size == 2 * (fabric.mtu + 88)
