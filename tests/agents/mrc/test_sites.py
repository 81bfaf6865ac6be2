"""Queue pairs between sites: times, windows and patience of their own RTT, and no change for those
within a site."""

from __future__ import annotations

from random import Random

import pytest

from agents.mrc.config import Config
from tests.agents.mrc.rig import TINY, Rig
from topologies import load_fabric
from topologies.units import BYTE, MS

TWO = load_fabric("two-sites")
FAR, NEAR = (0, 5), (0, 2)


def lost_once(rig: Rig, link: str, which: int) -> None:
    """Lose the packet of that number that comes to a cable."""
    seen = 0

    def fate(frame: bytes, at: str, now: int) -> bool:
        nonlocal seen
        if at != link or len(frame) < 1000:
            return True
        seen += 1
        return seen != which

    rig.net.fate = fate


def sent(rig: Rig, size: int) -> float:
    """How long a message takes to be acknowledged, in base RTTs of the pair."""
    data, begin = Random(1).randbytes(size), rig.net.now
    rig.write(1, data)
    assert rig.run(6 * MS, lambda: len(rig.a.writes) == 1)
    assert bytes(rig.b.memory)[64 : 64 + size] == data and rig.b.guards_intact()
    return (rig.net.now - begin) / TWO.rtt_ps(rig.host_a, rig.host_b)


def test_the_configuration_between_sites_follows_its_rtt() -> None:
    near = Config.from_fabric(TWO, {})
    far = near.between_sites(TWO)
    assert (
        far.base_rtt == TWO.haul_rtt_ps
        and far.queue_rtt == near.queue_rtt == near.base_rtt == TWO.base_rtt_ps
    )
    assert far.rto >= near.rto / near.base_rtt * far.base_rtt, "at least as many RTTs"
    assert far.rto <= 2 * near.rto / near.base_rtt * far.base_rtt
    window = 1.5 * TWO.host_rate * TWO.haul_rtt_ps / BYTE
    assert far.mpr % 128 == 0 and window / TWO.mtu <= far.mpr < window / TWO.mtu + 129
    assert far.ts_shift == near.ts_shift and (0x10000 << far.ts_shift) > 4 * far.base_rtt, (
        "stamps of both ends compare, and wrap late"
    )
    assert near.base_rtt / 2**near.ts_shift > 32, "stamps are fine enough for a site's RTT"
    assert near.between_sites(TWO.with_(long_haul_delay_ps=2 * MS)).mpr == 255 * 128, (
        "as far as the field goes"
    )


def test_one_site_has_one_configuration() -> None:
    assert (
        Config.from_fabric(TINY, {}).longest_rtt == 0
        and Config.from_fabric(TINY, {}).queue_rtt == TINY.base_rtt_ps
    )


@pytest.mark.parametrize("pair", [FAR, NEAR])
def test_a_message_takes_a_round_trip_of_its_pair(pair: tuple[int, int]) -> None:
    rig = Rig(TWO, *pair, 1 << 16)
    assert 0.95 < sent(rig, 4096) < 1.01
    rig.run(TWO.rtt_ps(*pair) // 10)  # the SACK comes after the ACK
    counters = rig.a.engine.counters()
    assert counters["retransmitted"] == counters["probes_tx"] == 0
    assert counters["min_rtt_ps"] == pytest.approx(TWO.rtt_ps(*pair), rel=0.03)


def test_what_may_be_on_the_way_fills_the_long_way() -> None:
    """A megabyte is on its way at once, which no window or PSN limit of a site's RTT would let
    be."""
    rig = Rig(TWO, *FAR, 1 << 20)
    assert sent(rig, 1 << 20) < 1.15
    assert rig.a.engine.counters()["retransmitted"] == 0


def test_a_loss_on_the_long_way_is_found_in_one_round_trip_and_mended_in_the_next() -> None:
    """Something sent later on the same path arrives: rule 1 needs no more time than the SACK."""
    rig = Rig(TWO, *FAR, 1 << 20)
    lost_once(rig, "p0-t1-0:p0-t1-2", 3)
    assert 2.0 < sent(rig, 1 << 20) < 2.2
    counters = rig.a.engine.counters()
    assert counters["retransmitted"] == counters["lost_by_order"] == 1
    assert counters["lost_by_rto"] == counters["spurious"] == 0


def test_a_loss_at_the_end_waits_for_the_tail_probe_not_for_the_timer() -> None:
    """Nothing follows on its path: after two RTTs of silence a probe asks."""
    rig = Rig(TWO, *FAR, 1 << 16)
    lost_once(rig, "h0:p0-t0-0", 1)
    assert 3.5 < sent(rig, 4096 * 2) < 5.5
    counters = rig.a.engine.counters()
    assert (
        counters["retransmitted"] == 1
        and counters["lost_by_rto"] == 0
        and counters["probes_tx"] > 0
    )


def test_a_dead_long_haul_cable_is_left_and_the_paths_beside_it_carry_on() -> None:
    rig = Rig(TWO, *FAR, 1 << 20)
    sent(rig, 1 << 18)
    rig.net.down.add("p0-t1-0:p0-t1-2")
    rig.a.writes.clear()
    assert sent(rig, 1 << 18) < 6
    rig.a.collect()
    left = {fields["ev"] for _, fields in rig.a.of("ev") if fields["to"] == "ASSUMED_BAD"}
    assert left == {0}
