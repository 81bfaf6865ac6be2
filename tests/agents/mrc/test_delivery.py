"""Whole engines over the virtual network: healthy, with dead paths and ports, over the edge of
PSNs.

That every byte lands once whatever the fabric does is told by the stories of
tests/properties/test_delivery.py.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.mrc import wire
from agents.packets import dscp, headers
from agents.transport import OK
from tests.agents.mrc.rig import DEMO, GUARD, SMALL, TINY, WIDE, Rig, ev_of, is_data
from topologies.clos import Fabric
from topologies.paths import evs_over, path_evs, path_links
from topologies.units import MS, US, wire_time


@pytest.mark.parametrize(
    "fabric, peer",
    [(TINY, 3), (TINY, 1), (DEMO, 4), (WIDE, 7)],
    ids=["tiny", "tiny under one T0", "demo", "wide"],
)
def test_a_healthy_fabric_sees_no_loss_no_verdict_and_equal_planes(
    fabric: Fabric, peer: int
) -> None:
    rig = Rig(fabric, 0, peer, 1_000_000)
    counts = [0] * fabric.planes
    used = set()

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h0-") and is_data(frame):
            counts[int(port[-1])] += 1
            used.add(ev_of(frame))

    rig.net.trace = trace
    began = rig.net.now
    rig.write(1, Random(1).randbytes(1_000_000))
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    c = rig.a.engine.counters()
    assert (c["retransmitted"], c["spurious"], rig.b.engine.counters()["rx_duplicate"]) == (0, 0, 0)
    assert rig.a.of("ev") == []
    assert max(counts) - min(counts) <= 1
    assert used == set(path_evs(fabric, 0, peer))
    ideal = wire_time(sum(counts) // fabric.planes * fabric.frame_bytes, fabric.nic_rate)
    assert rig.net.now - began < ideal + 6 * rig.a.engine.config.base_rtt


@pytest.mark.parametrize("trimming", [True, False])
def test_frames_out_are_what_describe_calls_them(trimming: bool) -> None:
    """Data ECT(0) in the data class, control not-ECT in its own; inner host to host; every frame's
    EV is its plane's."""
    fabric = DEMO.with_(trimming=trimming)
    rig = Rig(fabric, 0, 4, 400_000)
    seen, again = set(), set()

    def trace(now: int, port: str, frame: bytes) -> None:
        if not port.startswith("h"):
            return
        d = wire.describe(frame)
        seen.add(d["name"])
        data = d["name"].startswith("WRITE") or d["name"] == "Reliability Probe"
        klass = (dscp.TRIMMABLE_RETX if d["rtx"] else dscp.TRIMMABLE) if data else dscp.CONTROL
        if not fabric.trimming and data:
            klass = dscp.NO_TRIM
        assert (d["dscp"], d["ecn"]) == (klass, dscp.ECT0 if data else dscp.NOT_ECT)
        again.add(d["rtx"] and data)
        assert port == f"h{0 if port.startswith('h0') else 4}-p{d['ev'] >> 16}"

    rig.net.trace = trace
    rng = Random(1)
    rig.net.fate = lambda frame, link, now: rng.random() > 0.02
    rig.b.engine.post_recv(rig.b.qpn, 1)
    rig.write(1, bytes(390_000), imm=3)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    assert True in again
    assert {"WRITE First", "WRITE Middle", "WRITE Last with immediate", "SACK", "ACK"} <= seen


DEAD_PATH = given(
    fabric=st.sampled_from([TINY, DEMO, WIDE]),
    seed=st.integers(0, 1 << 30),
    when=st.floats(0.0, 1.0),
    link=st.integers(0, 63),
)


# tests/soak takes hundreds
@pytest.mark.parametrize("fabric, seed, when, link", [(TINY, 1, 0.3, 1), (DEMO, 2, 0.7, 6)])
def test_after_detection_no_data_goes_to_a_dead_path_until_a_probe_came_back(
    fabric: Fabric, seed: int, when: float, link: int
) -> None:
    dead_path(fabric, seed, when, link)


def dead_path(fabric: Fabric, seed: int, when: float, link: int) -> None:
    """A cable of some path dies at a random time and comes back later; nothing fails, the path is
    left alone, then used again."""
    peer = fabric.host_count - 1
    size = 400_000 if fabric is not WIDE else 1_200_000
    rig = Rig(fabric, 0, peer, size, seed=seed)
    base = rig.a.engine.config.base_rtt
    evs = path_evs(fabric, 0, peer)
    middle = path_links(fabric, 0, peer, evs[link % len(evs)])[1 + link % 2].name
    dead = set(evs_over(fabric, 0, peer, middle))
    whole = wire_time(size, fabric.host_rate)
    died = rig.net.now + int(when * whole)
    alive = died + 40 * base + whole
    rig.net.at(died, lambda: rig.net.down.add(middle))
    rig.net.at(alive, lambda: rig.net.down.discard(middle))
    data_sent: list[tuple[int, int]] = []
    answers: list[tuple[int, int]] = []

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h0-") and is_data(frame) and ev_of(frame) in dead:
            data_sent.append((now, ev_of(frame)))

    def taken(now: int, host: int, frame: bytes) -> None:
        if host == 0 and frame[headers.BTH_AT] == wire.SACK:
            d = wire.describe(frame)
            if d["pr"]:
                answers.append((now, d["entropy"]))

    rig.net.trace, rig.net.taken = trace, taken
    rng = Random(seed)
    posted = [0]

    def done() -> bool:
        """Writes follow one another, so that something is always under way."""
        while posted[0] - len(rig.a.writes) < 3:
            rig.write(posted[0], rng.randbytes(size // 4), size // 4 * (posted[0] % 4))
            posted[0] += 1
        return rig.net.now > alive + 100 * base

    assert rig.run(60 * MS, done)
    assert [c.wr_id for c in rig.a.writes] == list(range(len(rig.a.writes)))
    assert all(c.status == OK for c in rig.a.writes)
    verdicts = [(t, f["ev"]) for t, f in rig.a.of("ev") if f["to"] == "ASSUMED_BAD"]
    assert dead <= {ev for _, ev in verdicts}  # every dead path was found out
    for t, ev in verdicts:
        if ev not in dead:
            continue
        after = [at for at, e in answers if e == ev and at > t]
        free = min(after, default=1 << 62)
        undone = [
            u for u, f in rig.a.of("ev") if f["ev"] == ev and f["cause"] == "spurious" and u > t
        ]
        assert not undone or min(undone) > free
        assert not [at for at, e in data_sent if e == ev and t < at < free]
    for ev in dead:
        assert [at for at, e in data_sent if e == ev and at > alive], "used again once it works"
    # What a dead path swallows is bounded: an overdue path is held before it is judged.
    swallowed = [at for at, _ in data_sent if died - base < at < alive]
    window = rig.a.engine.config.window_bdp * fabric.plane_bdp / fabric.frame_bytes
    assert len(swallowed) <= 8 + 4 * window * len(dead)


def test_a_port_that_goes_down_punishes_nobody_and_comes_back() -> None:
    rig = Rig(DEMO, 0, 4, 2_000_000)
    base = rig.a.engine.config.base_rtt
    sent: list[tuple[int, int]] = []

    def trace(now: int, port: str, frame: bytes) -> None:
        if port.startswith("h0-"):
            sent.append((now, int(port[-1])))

    rig.net.trace = trace
    began = rig.net.now
    down, up = began + 3 * base, began + 8 * base

    def port(to: bool) -> None:
        link = "h0:p2-t0-0"
        (rig.net.down.discard if to else rig.net.down.add)(link)
        rig.a.engine.port_state(rig.net.now, 2, to)

    rig.net.at(down, lambda: port(False))
    rig.net.at(up, lambda: port(True))
    data = Random(1).randbytes(2_000_000)
    rig.write(1, data)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    assert rig.b.memory[GUARD:-GUARD] == data
    assert not [at for at, plane in sent if plane == 2 and down < at < up]
    assert [at for at, plane in sent if plane == 2 and at > up]
    c = rig.a.engine.counters()
    assert c["lost_by_port"] > 0 and c["spurious"] == 0
    assert {f["rule"] for _, f in rig.a.of("loss")} == {"port"}
    assert rig.a.of("ev") == []


def test_a_queue_pair_made_while_a_port_is_down_knows() -> None:
    rig = Rig(TINY, 0, 3, 100)
    rig.a.engine.port_state(rig.net.now, 1, False)
    a, b = rig.a.engine.create_qp(3), rig.b.engine.create_qp(0)
    rig.a.engine.connect_qp(rig.net.now, a["qpn"], b)
    rig.b.engine.connect_qp(rig.net.now, b["qpn"], a)
    ports = []
    rig.net.trace = lambda now, port, frame: ports.append(port)
    rig.a.engine.post_write(
        a["qpn"], 1, memoryview(bytes(50)), rig.b.region.va, rig.b.region.rkey, -1
    )
    assert rig.run(500 * US, lambda: len(rig.a.writes) == 1)
    assert "h0-p1" not in ports and "h0-p0" in ports


def test_what_fits_no_field_is_refused_by_the_verbs() -> None:
    """And not by what packs a header much later, in the middle of other queue pairs' work."""
    rig = Rig(TINY, 0, 3, 100)
    a, b = rig.a.engine.create_qp(3), rig.b.engine.create_qp(0)
    for bad in (
        {},
        {**b, "psn": "1"},
        {**b, "psn": 1 << 24},
        {**b, "qpn": -1},
        {**b, "mpr": 0},
        {**b, "mpr": True},
    ):
        with pytest.raises(ValueError, match="connection parameters"):
            rig.a.engine.connect_qp(rig.net.now, a["qpn"], bad)
    rig.a.engine.connect_qp(rig.net.now, a["qpn"], b)
    for va, rkey, imm in ((-1, 0, -1), ((1 << 64) - 1, 0, -1), (0, 1 << 32, -1), (0, 0, 1 << 32)):
        with pytest.raises(ValueError, match="do not fit"):
            rig.a.engine.post_write(a["qpn"], 1, memoryview(b"xy"), va, rkey, imm)
    rig.a.engine.post_write(a["qpn"], 1, memoryview(b"xy"), (1 << 64) - 2, 0, -1)


@pytest.mark.parametrize("first", [0, 0xFFFFF0])
def test_psns_wrap(first: int) -> None:
    """More packets than the window, over the 24-bit edge, with loss: a QP whose first PSN is chosen
    by hand."""
    size = 1200 * SMALL.mtu
    rig = Rig(SMALL, 0, 3, size)
    assert size // SMALL.mtu > rig.a.engine.config.mpr
    a, b = rig.a.engine.create_qp(3), rig.b.engine.create_qp(0)
    rig.a.engine.qps[a["qpn"]].first_psn = first
    rig.b.engine.connect_qp(rig.net.now, b["qpn"], {**a, "psn": first})
    rig.a.engine.connect_qp(rig.net.now, a["qpn"], b)
    rng = Random(first)
    rig.net.fate = lambda frame, link, now: rng.random() > 0.005
    data = rng.randbytes(size)
    for k in range(4):
        part = memoryview(data)[k * size // 4 : (k + 1) * size // 4]
        rig.a.engine.post_write(
            a["qpn"], k, part, rig.b.region.va + k * size // 4, rig.b.region.rkey, -1
        )
    assert rig.run(60 * MS, lambda: len(rig.a.writes) == 4)
    assert [c.status for c in rig.a.writes] == [OK] * 4
    assert rig.b.memory[GUARD:-GUARD] == data
    assert rig.a.engine.counters()["retransmitted"] > 0


def test_many_queue_pairs_share_the_ports_fairly() -> None:
    rig = Rig(TINY, 0, 3, 1)
    arena = bytearray(4 * 200_000)
    region = rig.b.engine.register(arena)
    qpns = []
    for _ in range(4):
        a, b = rig.a.engine.create_qp(3), rig.b.engine.create_qp(0)
        rig.a.engine.connect_qp(rig.net.now, a["qpn"], b)
        rig.b.engine.connect_qp(rig.net.now, b["qpn"], a)
        qpns.append(a["qpn"])
    data = Random(9).randbytes(800_000)
    for k, qpn in enumerate(qpns):
        rig.a.engine.post_write(
            qpn,
            k,
            memoryview(data)[k * 200_000 : (k + 1) * 200_000],
            region.va + k * 200_000,
            region.rkey,
            -1,
        )
    ends: dict[int, int] = {}

    def done() -> bool:
        for c in rig.a.writes:
            ends.setdefault(c.qpn, rig.net.now)
        return len(rig.a.writes) == 4

    assert rig.run(6 * MS, done)
    assert arena == data
    assert min(ends.values()) - US > 0.8 * (max(ends.values()) - US)


def test_the_same_seed_is_the_same_run() -> None:
    def once() -> list[Any]:
        rig = Rig(DEMO, 0, 4, 300_000, seed=5)
        rng = Random(5)
        rig.net.fate = lambda frame, link, now: rng.random() > 0.02
        made: list[Any] = []
        rig.net.trace = lambda now, port, frame: made.append((now, port, frame))
        rig.write(1, bytes(300_000))
        assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
        return made

    assert once() == once()
