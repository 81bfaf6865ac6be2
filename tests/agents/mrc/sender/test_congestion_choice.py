"""The option ``congestion``: what is there, anybody's own, each way to get it wrong in a line; and
what an algorithm is told of a SACK."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.endpoint import Endpoint
from agents.mrc.sender.congestion.base import Congestion
from agents.mrc.sender.congestion.choice import congestion_class
from agents.mrc.sender.congestion.fixed import FixedWindow
from agents.mrc.sender.congestion.nscc import Nscc
from agents.transport import OK
from tests.agents.mrc.rig import DEMO, SMALL, TINY, Rig, drain
from tests.agents.mrc.test_hostile import NOW, bare_frame, feed
from topologies.units import BYTE, MS, NS


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


def make_congestion(config: Config, path_rtt: int) -> Congestion:
    return congestion_class(config)(config, path_rtt)


def test_nscc_unless_said_otherwise() -> None:
    assert isinstance(make_congestion(config(), DEMO.base_rtt_ps), Nscc)
    assert isinstance(make_congestion(config(congestion="nscc"), DEMO.base_rtt_ps), Nscc)
    assert isinstance(make_congestion(config(congestion="fixed"), DEMO.base_rtt_ps), FixedWindow)


def test_each_qp_has_its_own_with_its_own_paths_rtt() -> None:
    """h0 and h1 share a T0, h0 and h7 do not: the shorter path starts with the smaller window."""
    rigs = [Rig(DEMO, 0, peer, 1000) for peer in (1, 7)]
    near, far = (rig.a.engine.qps[rig.a.qpn].requester.congestion for rig in rigs)
    assert near is not far
    held = Config.from_fabric(DEMO, {}).sack_bytes
    assert near.cwnd == int(1.5 * DEMO.host_rate * DEMO.local_rtt_ps / BYTE) + held
    assert far.cwnd == int(1.5 * DEMO.host_rate * DEMO.base_rtt_ps / BYTE) + held


def test_a_fixed_window_does_not_move_but_with_the_planes() -> None:
    w = make_congestion(config(congestion="fixed", window_bdp=2.0), DEMO.base_rtt_ps)
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
    w = make_congestion(config(congestion="fixed", window_bdp=0.1), DEMO.base_rtt_ps)
    assert w.cwnd == 2 * (DEMO.mtu + 88)


def test_anybodys_own_is_named_by_module_and_class() -> None:
    rig = Rig(SMALL, 0, 3, 3000, {"congestion": f"{__name__}:OnePacket"})
    data = bytes(range(250)) * 12
    flying: list[int] = []
    rig.net.trace = lambda now, port, frame: flying.append(
        rig.a.engine.counters()["in_flight_bytes"]
    )
    rig.write(1, data)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == OK and rig.b.memory[64:-64] == data
    assert max(flying) == SMALL.mtu + 88


@pytest.mark.parametrize(
    "name, words",
    [
        ("reno", "nscc and fixed"),
        ("", "nscc and fixed"),
        ("NSCC", "nscc and fixed"),
        ("no.such.module:Class", "no.such"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:", "congestion"),
        (":OnePacket", "congestion"),
        (".here:OnePacket", "congestion"),
        (f"{__name__}:NotOne", "is no agents.mrc.sender.congestion.base.Congestion"),
        (f"{__name__}:config", "is no agents.mrc.sender.congestion.base"),
        ("os:getcwd", "is no agents.mrc.sender.congestion.base"),
        ("os:sep", "is no agents.mrc.sender.congestion.base"),
    ],
)
def test_a_wrong_name_is_told_in_a_line(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Endpoint(DEMO, 0, {"congestion": name}, 1)  # at once, not with the first queue pair
    assert "\n" not in str(caught.value) and repr(name) in str(caught.value)


@pytest.mark.parametrize("fabric", [TINY, DEMO])
def test_a_window_that_no_signal_moves_is_what_the_base_class_is(fabric: Any) -> None:
    c = Congestion(Config.from_fabric(fabric, {}), fabric.base_rtt_ps)
    size = c.cwnd
    c.planes_changed(2)
    c.on_sack(1, 1, 1, True, 1, 1, True)
    c.on_nack(1, 1, 1, True)
    c.on_loss(1, 1)
    c.on_wrong_loss(1, 1)
    assert c.cwnd == size == 2 * (fabric.mtu + 88)


SIZE = TINY.mtu + 88


class Told:
    """Host b has sent five packets to host a; the test plays a's SACKs and sees what b's algorithm
    hears of them."""

    def __init__(self) -> None:
        self.rig = Rig(
            TINY, 0, 3, 8192, {"congestion": "tests.agents.mrc.sender.recorder:Recorder"}
        )
        engine = self.rig.b.engine
        self.shift = engine.config.ts_shift
        engine.post_write(
            self.rig.b.qpn,
            1,
            memoryview(bytes(5 * TINY.mtu)),
            self.rig.a.region.va,
            self.rig.a.region.rkey,
            -1,
        )
        now = NOW
        while engine.qps[self.rig.b.qpn].requester.has_data():
            drain(engine, now)
            now += 100 * NS
        self.first = engine.qps[self.rig.b.qpn].first_psn

    def sack(
        self,
        got: int,
        rcvd: int,
        *,
        trigger: int = 0,
        rtt: int = 0,
        m: int = 0,
        pr: bool = False,
        pen: int = 0,
        restore: bool = False,
        rtx: bool = False,
    ) -> list[Any]:
        """The first ``got`` have arrived; ``rtt`` in the timestamp's units. The algorithm's last
        call."""
        cack = self.first + got - 1
        offset = self.first + trigger - cack
        ext = wire.S_SACK.pack(
            wire.seth_word(m, pr),
            offset,
            0,
            0,
            0,
            cack & 0xFFFFFF,
            0,
            8,
            1,
            0,
            (NOW >> self.shift) - rtt & 0xFFFF,
            0,
            restore << 31 | pen << 24 | rcvd,
        )
        feed(
            self.rig,
            bare_frame(self.rig, wire.SACK, ext, cack & 0xFFFFFF | (wire.F_RTX if rtx else 0)),
        )
        calls: list[list[Any]] = self.rig.b.engine.qps[self.rig.b.qpn].requester.congestion.calls  # type: ignore[attr-defined]
        return calls[-1]


def test_what_a_sack_tells() -> None:
    t = Told()
    unit = 1 << t.shift
    assert t.sack(1, 17, rtt=9) == ["on_sack", NOW, 17 * 256, 4 * SIZE, False, 9 * unit, 0, False]
    assert t.sack(2, 34, rtt=11, trigger=1, m=wire.M_SKIP_ONCE) == [
        "on_sack",
        NOW,
        17 * 256,
        3 * SIZE,
        True,
        11 * unit,
        0,
        False,
    ]
    assert t.sack(3, 50, rtt=3, trigger=2, pen=127) == [
        "on_sack",
        NOW,
        16 * 256,
        2 * SIZE,
        False,
        3 * unit,
        127,
        False,
    ]
    assert t.sack(4, 60, rtt=3, trigger=3, restore=True) == [
        "on_sack",
        NOW,
        10 * 256,
        SIZE,
        False,
        3 * unit,
        0,
        True,
    ]


@pytest.mark.parametrize(
    "invalid", [{"trigger": 5}, {"trigger": -1200}, {"rtx": True}, {"pr": True, "trigger": 0}]
)
def test_no_sample_is_told_as_none(invalid: dict[str, Any]) -> None:
    assert Told().sack(1, 17, rtt=9, pen=5, **invalid) == [
        "on_sack",
        NOW,
        17 * 256,
        4 * SIZE,
        False,
        -1,
        5,
        False,
    ]


def test_an_older_sack_brings_no_news_but_its_sample() -> None:
    t = Told()
    t.sack(2, 34)
    assert t.sack(1, 17, rtt=9, pen=3) == [
        "on_sack",
        NOW,
        0,
        3 * SIZE,
        False,
        9 << t.shift,
        3,
        False,
    ]
