"""The delay line against the clock: an idle pair's round trip is the fabric's base RTT, and no
frame is handed over early."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agents.nic.device import Device
from agents.transport import Engine
from testbed.emulated.cluster import Cluster
from testbed.emulated.netlink import in_namespace
from tests.emulated.ring import PATIENCE_S
from topologies import load_fabric
from topologies.units import NS

pytestmark = [pytest.mark.sandbox, pytest.mark.quiet]
FABRIC = load_fabric("tiny")
WRITES = 12
SOON = 10 * NS


class Pair:
    """Two devices of a cluster, one QP between them, turned by hand in one thread; nothing else is
    on the fabric."""

    def __init__(self, cluster: Cluster, peer: int) -> None:
        spaces = cluster.net.namespaces
        self.devices = [
            in_namespace(spaces[f"h{host}"], partial(Device, FABRIC, host, cluster.clock, seed=1))
            for host in (0, peer)
        ]
        self.a, self.b = self.devices
        self.clock = cluster.clock
        mine, theirs = self.a.create_qp(peer), self.b.create_qp(0)
        self.a.connect_qp(mine["qpn"], theirs)
        self.b.connect_qp(theirs["qpn"], mine)
        self.qpn = mine["qpn"]
        self.region = self.b.register(bytearray(FABRIC.mtu))

    def write(self, timeout: float = PATIENCE_S) -> int:
        """One full packet; ps from posting to completion."""
        begun = self.clock.now()
        self.a.post_write(
            self.qpn, 1, memoryview(bytes(FABRIC.mtu)), self.region.va, self.region.rkey
        )
        while self.clock.now() - begun < self.clock.patience(timeout):
            for device in self.devices:
                # Both in turn, never asleep for long: each one's timers count.
                device.turn(self.clock.now() + SOON)
            if self.a.engine.completions():
                return self.clock.now() - begun
        raise AssertionError("a write did not complete")

    def close(self) -> None:
        for device in self.devices:
            device.close()


class Shim(Engine):
    """An engine with two of its methods replaced; compiled ones cannot be patched."""

    def __init__(self, engine: Engine, transmit: Any, receive: Any) -> None:
        super().__init__()
        self._engine, self._transmit, self._receive = engine, transmit, receive

    def transmit(self, now: int) -> int:
        port: int = self._transmit(now)
        for name in ("tx_frame", "tx_payload", "tx_trailer", "tx_high"):
            setattr(self, name, getattr(self._engine, name))
        return port

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        self._receive(now, port, buffer, start, length)


def _passed_on(name: str) -> Any:
    return lambda shim, *arguments: getattr(shim._engine, name)(*arguments)


for _name in {*dir(Engine)} - {*vars(Shim)}:
    if not _name.startswith(("_", "tx_")):
        setattr(Shim, _name, _passed_on(_name))


@pytest.fixture(params=[2, 1], ids=["across T1", "under one T0"])
def pair(tiny: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, int]]:
    made = Pair(tiny, request.param)
    yield made, FABRIC.base_rtt_ps if request.param == 2 else FABRIC.local_rtt_ps
    made.close()


def test_nobody_sleeps_on_what_completed(pair: tuple[Pair, int]) -> None:
    """Who waits for a message to post the next one is told at once, not when the next frame or
    timer wakes the loop."""
    two, _ = pair
    two.a.post_write(two.qpn, 1, memoryview(bytes(FABRIC.mtu)), two.region.va, two.region.rkey)
    end = two.clock.now() + two.clock.patience(PATIENCE_S)
    while not two.a.engine.completed():
        assert two.clock.now() < end
        for device in two.devices:
            device.turn(two.clock.now() + SOON)
    begun = two.clock.now()
    two.a.turn(begun + two.clock.patience(1.0))  # nothing comes: b is asleep
    assert (
        two.clock.now() - begun < two.clock.patience(0.5) and len(two.a.engine.completions()) == 1
    )


def test_what_waits_in_the_delay_line_is_counted(pair: tuple[Pair, int]) -> None:
    """A run's books name what is on its way: a frame that has come and that nobody has looked at
    yet, then one that is held."""
    two, _ = pair
    two.a.post_write(two.qpn, 1, memoryview(bytes(FABRIC.mtu)), two.region.va, two.region.rkey)
    end = two.clock.now() + two.clock.patience(2.0)
    while not two.b.counters()["rx_waiting"]:
        assert two.clock.now() < end
        two.a.turn(two.clock.now() + SOON)
    assert two.b.counters()["rx_packets"] == 0
    while two.b.counters()["rx_packets"] < two.a.counters()["tx_packets"]:
        assert two.clock.now() < end
        two.b.turn(two.clock.now() + SOON)
    assert two.b.counters()["rx_waiting"] == 0


def test_an_idle_round_trip_is_the_base_rtt(pair: tuple[Pair, int]) -> None:
    two, expected = pair
    took = [two.write() for _ in range(WRITES)]
    engine: Any = two.a.engine
    stamp = 1 << engine.config.ts_shift  # an RTT from two readings may be short by one unit
    assert expected - stamp <= engine.counters()["min_rtt_ps"] <= 1.2 * expected
    assert expected <= min(took) <= 1.2 * expected


def test_nothing_is_handed_over_early(
    pair: tuple[Pair, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frame by frame: sent by one engine, received by the other, by the clock they share."""
    two, expected = pair
    delay = FABRIC.delay_ps if expected == FABRIC.base_rtt_ps else FABRIC.local_delay_ps
    wire = (expected - 2 * delay) / (FABRIC.frame_bytes + 154)  # ps per byte
    left: dict[bytes, list[int]] = {}
    late: list[float] = []

    def watch(device: Device) -> None:
        engine: Any = device.engine
        transmit, receive = engine.transmit, engine.receive

        def sending(now: int) -> int:
            port: int = transmit(now)
            if port >= 0:
                # The inner headers and the BTH tell frames apart; the outer ones change on the way.
                # Two answers that say the same take the same path, one behind the other.
                left.setdefault(bytes(engine.tx_frame[54:114]), []).append(two.clock.now())
            return port

        def receiving(now: int, port: int, buffer: Any, start: int, length: int) -> None:
            sent = left[bytes(buffer[start + 54 : start + 114])].pop(0)
            late.append(two.clock.now() - sent - delay - length * wire)
            receive(now, port, buffer, start, length)

        device.engine = device.taker = Shim(engine, sending, receiving)

    for device in two.devices:
        watch(device)
    for _ in range(WRITES):
        two.write()
    assert len(late) >= 2 * WRITES
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 0.2 * expected
    assert all(device.counters()["rx_ring_drops"] == 0 for device in two.devices)


def test_a_device_sleeps_while_frames_are_held(pair: tuple[Pair, int]) -> None:
    """The ring's socket stays readable while the newest frame is held; the loop must not spin on
    it."""
    two, expected = pair
    for device in two.devices:
        device.turn(0)
    two.a.post_write(two.qpn, 1, memoryview(bytes(FABRIC.mtu)), two.region.va, two.region.rkey)
    two.a.turn(0)
    end = two.clock.now() + 3 * expected
    turns = 0
    while two.clock.now() < end:
        two.b.turn(end)
        turns += 1
    assert two.b.engine.counters()["data_rx"] == 1
    assert turns <= 10, (
        "woken by the frame, once on its way, when it was due, by the engine's timers, EV Probes "
        "too, and at the end"
    )
