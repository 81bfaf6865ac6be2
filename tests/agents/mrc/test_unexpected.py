"""NACK UNEXP_EVENT ends a queue pair, so it is believed only if it names what this queue pair has
sent: a forger must guess that."""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc import wire
from agents.mrc.framing import Framer, Route
from agents.mrc.queue_pair import ERROR, RTS
from agents.packets import dscp, headers
from agents.transport import FLUSHED, PEER_UNKNOWN
from tests.agents.mrc.rig import TINY, Rig, drain
from topologies.units import MS, US

NOW = 5 * US


def sender() -> tuple[Rig, dict[str, Any]]:
    """Host a has three WRITEs out; and the first of them as the wire has it."""
    rig = Rig(TINY, 0, 3, 8192)
    for k in range(3):
        rig.write(k, bytes(1000))
    frames = [wire.describe(frame) for _, frame in drain(rig.a.engine, NOW)]
    return rig, next(d for d in frames if d["opcode"] == wire.WRITE_ONLY)


def probing() -> tuple[Rig, dict[str, Any], int]:
    """Host a's WRITEs are unanswered for so long that it asks by a Reliability Probe: the probe,
    and the time."""
    rig, _ = sender()
    engine = rig.a.engine
    now = NOW
    for _ in range(100):
        now = max(now + 1, min(engine.deadline(), now + 100 * US))
        engine.timer(now)
        for _, frame in drain(engine, now):
            d = wire.describe(frame)
            if d["opcode"] == wire.PROBE:
                return rig, d, now
    raise AssertionError("no probe")


def nack(
    rig: Rig, now: int, number: int, ev: int, ts: int, reason: int = wire.UNEXP_EVENT
) -> dict[str, int]:
    """Hand host a a NACK as from its peer; what changed in its counters."""
    framer = Framer(rig.a.engine.config)
    ext = wire.S_NETH.pack(
        0, reason, 0, ev, 0, 0, number & headers.PSN_MASK, wire.CC_NACK << 4, 0, ts & 0xFFFF
    )
    framer.bare(
        Route(TINY, 3, 0), 0, dscp.CONTROL, wire.NACK, rig.a.qpn, number & headers.PSN_MASK, ext
    )
    before = rig.a.engine.counters()
    rig.a.engine.receive(now, 0, bytearray(framer.frame), 0, len(framer.frame))
    after = rig.a.engine.counters()
    return {k: v - before[k] for k, v in after.items() if v != before[k]}


def state(rig: Rig) -> int:
    return int(rig.a.engine.qps[rig.a.qpn].state)


def test_one_that_names_a_packet_ends_the_sender() -> None:
    rig, sent = sender()
    assert "bad_nacks" not in nack(rig, NOW + 1, sent["psn"], sent["ev"], sent["tx_ts"])
    assert [(c.wr_id, c.status) for c in rig.a.engine.completions()] == [
        (0, PEER_UNKNOWN),
        (1, FLUSHED),
        (2, FLUSHED),
    ]


@pytest.mark.parametrize(
    "psn, ev, ts",
    [
        (0, 0, 1),
        (0, 0, -1),
        (0, 1, 0),
        (0, 0x10000, 0),
        (-1, 0, 0),
        (3, 0, 0),
        (0x7FFFFF, 0, 0),
        (1 << 23, 0, 0),
    ],
)
def test_one_that_is_off_by_anything_is_counted_and_ignored(psn: int, ev: int, ts: int) -> None:
    rig, sent = sender()
    counted = nack(rig, NOW + 1, sent["psn"] + psn, sent["ev"] ^ ev, sent["tx_ts"] + ts)
    assert counted == {"rx_packets": 1, "nacks_rx": 1, "bad_nacks": 1}
    assert state(rig) == RTS and rig.a.engine.completions() == []


def test_one_that_names_a_number_alone_is_refused_at_any_time() -> None:
    """As a forger would send it who knows address and QPN: before anything was sent, with packets
    out, and with a probe out."""
    idle = Rig(TINY, 0, 3, 8192)
    for rig, now in ((idle, NOW), (sender()[0], NOW + 1), probing()[::2]):
        assert nack(rig, now, 0, 0, 0)["bad_nacks"] == 1
        assert state(rig) == RTS


def test_one_that_names_a_probe_ends_the_sender() -> None:
    rig, probe, now = probing()
    assert nack(rig, now + 1, probe["probe_id"], probe["ev"], probe["tx_ts"])["nacks_rx"] == 1
    assert state(rig) == ERROR


@pytest.mark.parametrize(
    "pid, ev, ts",
    [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, 0x10000, 0), (0, 0, 1), (0, 0, -1), (1 << 15, 0, 0)],
)
def test_one_that_names_no_probe_that_is_out_is_refused(pid: int, ev: int, ts: int) -> None:
    rig, probe, now = probing()
    assert (
        nack(rig, now + 1, probe["probe_id"] + pid, probe["ev"] ^ ev, probe["tx_ts"] + ts)[
            "bad_nacks"
        ]
        == 1
    )
    assert state(rig) == RTS


def test_a_probe_that_was_answered_can_no_longer_be_named() -> None:
    rig, probe, now = probing()
    engine = rig.a.engine
    framer = Framer(engine.config)
    cack = engine.qps[rig.a.qpn].first_psn - 1 & headers.PSN_MASK
    ext = wire.S_SACK.pack(
        wire.seth_word(0, True),
        probe["probe_id"],
        probe["ev"],
        0,
        0,
        cack,
        0,
        8,
        1,
        0,
        probe["tx_ts"],
        0,
        1,
    )
    framer.bare(Route(TINY, 3, 0), probe["ev"], dscp.CONTROL, wire.SACK, rig.a.qpn, cack, ext)
    engine.receive(now + 1, probe["ev"] >> 16, bytearray(framer.frame), 0, len(framer.frame))
    assert nack(rig, now + 2, probe["probe_id"], probe["ev"], probe["tx_ts"])["bad_nacks"] == 1
    assert state(rig) == RTS


def test_probe_ids_of_two_queue_pairs_begin_at_different_places() -> None:
    """From 1 on, a forger could count them."""
    starts = {probing()[1]["probe_id"]} | {
        Rig(TINY, 0, 3, 64, seed=n).a.engine.order[0].next_probe_id for n in range(2, 10)
    }
    assert len(starts) >= 8 and all(1 <= pid <= 0x7FFF for pid in starts)


@pytest.mark.parametrize("sends", ["data", "probes"])
def test_whoever_missed_the_refusal_learns_from_the_answer_to_what_it_sends(sends: str) -> None:
    """The peer goes to ERROR and every ACK that says so is lost: the answer to a packet is
    believed, and that to a probe if all packets are lost from then on."""
    rig = Rig(TINY, 0, 3, 8192)
    b = rig.b.engine.qps[rig.b.qpn]

    def carried(frame: bytes, link: str, now: int) -> bool:
        op = frame[headers.BTH_AT]
        return op != wire.ACK and not (
            sends == "probes" and b.state == ERROR and op <= wire.WRITE_ONLY_IMM
        )

    rig.net.fate = carried
    rig.a.engine.post_write(
        rig.a.qpn, 1, memoryview(bytes(3000)), rig.b.region.va, rig.b.region.rkey ^ 1, -1
    )
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    assert rig.a.writes[0].status == PEER_UNKNOWN and state(rig) == ERROR
    assert rig.a.engine.counters()["bad_nacks"] == 0
