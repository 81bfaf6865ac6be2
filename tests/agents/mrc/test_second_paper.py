"""What the second MRC paper (arXiv 2606.18170) says otherwise than we first read it, as options:
both readings work, and say what they are.

Retransmissions in a class of their own, a receive window that follows what a host can hold, packets
beyond it, and another UDP port.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from agents.mrc import wire
from agents.packets import dscp, headers
from agents.transport import OK
from tests.agents.mrc.crowd import RACK16, Crowd
from tests.agents.mrc.rig import DEMO, GUARD, TINY, Rig, is_data
from tests.agents.nic.egress import dscp_of
from topologies.units import US

READINGS = ("data", "high")
LOSSES = ("order", "time", "count", "rto")


def verdicts(engine: Any) -> int:
    counters = engine.counters()
    return sum(counters[f"lost_by_{rule}"] for rule in LOSSES)


@pytest.mark.parametrize("reading", READINGS)
def test_every_verdict_of_loss_is_true_whatever_the_class_of_retransmissions(reading: str) -> None:
    """Packets vanish at random, retransmissions too: each verdict is of a packet that was dropped,
    and each drop gets one."""
    rig = Rig(DEMO, 0, 7, 1 << 20, {"retransmit_class": reading, "ev_min_active": 16})
    draw = Random(1)
    gone: Counter[bool] = Counter()

    def fate(frame: bytes, link: str, now: int) -> bool:
        if is_data(frame) and link.startswith("p") and draw.random() < 0.01:
            gone[dscp_of(frame) == dscp.RETX_HIGH] += 1
            return False
        return True

    rig.net.fate = fate
    data = draw.randbytes(1 << 20)
    for k in range(4):
        rig.write(k, data)
    assert rig.run(200 * US, lambda: len(rig.a.writes) == 4)
    assert [c.status for c in rig.a.writes] == [OK] * 4 and rig.b.memory[GUARD:-GUARD] == data
    counters = rig.a.engine.counters()
    assert (verdicts(rig.a.engine), counters["spurious"]) == (gone.total(), 0), counters
    assert counters["retransmitted"] == gone.total() > 15
    assert (gone[True] > 0) <= (reading == "high")


def test_a_lost_retransmission_in_the_high_class_is_found_by_others_of_its_class() -> None:
    """Data that left later on the path says nothing of it: it was overtaken. Its own class does, or
    a probe in it."""
    rig = Rig(TINY, 0, 3, 1 << 18, {"retransmit_class": "high"})
    again: list[bytes] = []
    seen: list[bytes] = []

    def fate(frame: bytes, link: str, now: int) -> bool:
        if not link.startswith("h0:"):
            return True
        if frame[headers.BTH_AT] == wire.PROBE:
            seen.append(frame)
        if is_data(frame) and len(seen) + len(again) < 1000:
            psn = frame[headers.BTH_AT + 9 : headers.BTH_AT + 12]
            if dscp_of(frame) == dscp.RETX_HIGH:
                again.append(psn)
                return len(again) > 1  # the first retransmission is lost, too
            return psn != first[0] if first else bool(first.append(psn))
        return True

    first: list[bytes] = []
    rig.net.fate = fate
    data = Random(2).randbytes(1 << 18)
    rig.write(1, data)
    assert rig.run(100 * US, lambda: len(rig.a.writes) == 1)
    assert again[:2] == first * 2
    counters = rig.a.engine.counters()
    assert (verdicts(rig.a.engine), counters["spurious"], counters["lost_by_rto"]) == (2, 0, 0), (
        counters
    )


@pytest.mark.parametrize("reading", READINGS)
def test_an_incast_loses_nothing_and_gives_no_false_verdict(reading: str) -> None:
    """Full queues on the last hop, and all that they trim goes again: in the high class that is a
    large part of it."""
    crowd = Crowd(
        RACK16, [(8 + i, 0) for i in range(7)] + [(15, 1)], options={"retransmit_class": reading}
    )
    classes: Counter[int] = Counter()
    crowd.net.trace = lambda now, port, frame: classes.update(
        [dscp_of(frame)] if port.startswith("h") and is_data(frame) else []
    )
    crowd.run(25)
    shares = crowd.rates(25)
    assert sum(shares[:-1]) > 0.95 and shares[-1] > 0.9, shares
    assert crowd.total("trims") > 50 and crowd.wrong == 0
    assert (sum(map(verdicts, crowd.engines)), crowd.total("spurious")) == (0, 0)
    assert (classes[dscp.RETX_HIGH] > 50) == (reading == "high")
    assert (classes[dscp.TRIMMABLE_RETX] > 50) == (reading == "data")


@pytest.mark.parametrize("reading", READINGS)
def test_a_silent_t1_costs_each_path_once(reading: str) -> None:
    """A failure: what was on the dead paths goes again, none of the living ones is blamed, and all
    sums are right."""
    rig = Rig(DEMO, 0, 7, 1 << 20, {"retransmit_class": reading})
    rig.net.fate = lambda frame, link, now: now < US * 3 // 2 or "p1-t1-2" not in link
    data = Random(3).randbytes(1 << 20)
    for k in range(8):
        rig.write(k, data)
    assert rig.run(900 * US, lambda: len(rig.a.writes) == 8)
    bad = {fields["ev"] for _, fields in rig.a.of("ev") if fields["to"] == "ASSUMED_BAD"}
    assert bad == {1 << 16 | 2} and rig.a.engine.counters()["spurious"] == 0


@pytest.mark.parametrize("reading", ["nack", "drop"])
def test_a_packet_beyond_the_window_is_refused_or_dropped_in_silence(reading: str) -> None:
    """A sender that believes in twice the window that the receiver has, and whose first packet is
    lost for a while."""
    rig = Rig(
        TINY,
        0,
        3,
        1 << 20,
        {"mpr": 256, "out_of_window": reading, "window_bdp": 100.0, "congestion": "fixed"},
    )
    rig.b.engine.order[0].responder.size = 128
    first = (rig.a.engine.order[0].first_psn & headers.PSN_MASK).to_bytes(3, "big")
    rig.net.fate = lambda frame, link, now: (
        not (is_data(frame) and frame[headers.BTH_AT + 9 : headers.BTH_AT + 12] == first)
    )
    data = Random(4).randbytes(200 * TINY.mtu)
    rig.write(1, data)
    rig.run(50 * US)
    beyond, nacks = rig.b.engine.counters()["rx_beyond_window"], rig.b.engine.counters()["nacks_tx"]
    assert beyond > 0 and nacks == (beyond if reading == "nack" else 0)
    rig.net.fate = lambda frame, link, now: True
    assert rig.run(500 * US, lambda: len(rig.a.writes) == 1) and rig.a.writes[0].status == OK
    assert rig.b.memory[GUARD : GUARD + len(data)] == data


def test_a_shared_receive_window_follows_the_number_of_senders() -> None:
    """1,024 PSNs for all: seven senders get 128 each, one alone all of it again; and nobody is
    refused what it was told."""
    crowd = Crowd(
        RACK16,
        [(8 + i, 0) for i in range(7)],
        options={"mpr_pool": 1024},
        endless=False,
        size=300 * 4096,
    )
    told: dict[int, set[int]] = {}

    def taken(now: int, host: int, frame: bytes) -> None:
        if host and frame[headers.BTH_AT] == wire.SACK:
            told.setdefault(host, set()).add(frame[headers.BTH_AT + 12 + 17] * 128)

    crowd.net.taken = taken
    assert crowd.run(4000, until_done=True)
    assert crowd.wrong == 0 and crowd.total("rx_beyond_window") == 0
    assert all(128 in windows for windows in told.values()), told
    last = max(told, key=lambda host: max(told[host]))
    assert max(told[last]) > 128


@pytest.mark.parametrize("port", [4791, 4971])
def test_the_udp_port_is_the_fabrics(port: int) -> None:
    rig = Rig(TINY.with_(udp_port=port), 0, 3, 4096)
    ports: set[int] = set()
    rig.net.trace = lambda now, name, frame: ports.add(int.from_bytes(frame[96:98], "big"))
    rig.write(1, bytes(4096))
    assert rig.run(100 * US, lambda: len(rig.a.writes) == 1)
    assert ports == {port}
