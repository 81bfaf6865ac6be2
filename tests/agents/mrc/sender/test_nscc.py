"""NSCC against windows worked out by hand from docs/why/protocol.md, section 7: each cell of its
table, QuickAdapt, the penalty. What happens where they meet, and at each clamp, is
test_nscc_streams.py's.

The numbers here are arithmetic on paper, not the code's constants. One plane at 100 Gb/s with a
configured RTT of 12 us, the sources' own: BDP 150 kB, so a = 1; trimming, so T = 9 us and b = 0.75;
a full packet counts 4000 bytes.

    largest window  1.5 x BDP         = 225,000 bytes, where it starts
    alpha = 4 a b MTU / T             = 12,000 / 9 us
    fi = 5 a MTU                      = 20,000 bytes
    fs = 0.25 a                       = 0.25
    eta = 0.15 a MTU                  = 600 bytes each 12 us
    no delay to speak of              : below 12 us / 12 = 1 us
    an adjustment                     : each 8 MTU = 32,000 bytes, or each 12 us
    QuickAdapt                        : periods of 12 + 9 = 21 us, little is less than 225,000 / 8 =
    28,125 bytes
"""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc.config import Config
from agents.mrc.sender.congestion.nscc import Nscc
from topologies.units import NS, US

RTT = 12 * US
T = 9 * US
MTU = 4000
FULL = 225_000


def config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "base_rtt": RTT, "port_rate": 10**11, "mtu": 3912, "trimming": True,
        "sack_bytes": 0,  # what the peer holds until its next SACK has a test of its own
        **changes,
    }  # fmt: skip
    return Config(**values)


class Bench:
    """An NSCC told what it is told in a network; ``us`` is the time."""

    def __init__(self, path_rtt: int = RTT, **changes: Any) -> None:
        self.n = Nscc(config(**changes), path_rtt)
        self.us = 100.0

    @property
    def now(self) -> int:
        return round(self.us * US)

    def shrink_to(self, window: int) -> None:
        self.n.on_loss(self.now, self.n.cwnd - window)
        assert self.n.cwnd == window

    def sack(
        self,
        d: float,
        news: int = MTU,
        *,
        ecn: bool = False,
        after: float = 0.1,
        in_flight: int = 50_000,
        penalty: int = 0,
        restore: bool = False,
        base: float = 12.0,
    ) -> int:
        """``after`` us later a SACK whose trigger took ``base`` + ``d`` us; the window then."""
        self.us += after
        self.n.on_sack(self.now, news, in_flight, ecn, round((base + d) * US), penalty, restore)
        return self.n.cwnd

    def mute(
        self,
        news: int = MTU,
        *,
        in_flight: int = 50_000,
        penalty: int = 0,
        restore: bool = False,
        ecn: bool = False,
    ) -> int:
        """A SACK whose trigger gives no valid RTT."""
        self.us += 0.1
        self.n.on_sack(self.now, news, in_flight, ecn, -1, penalty, restore)
        return self.n.cwnd

    def nack(
        self, size: int = MTU, *, in_flight: int = 50_000, trimmed: bool = True, after: float = 0.1
    ) -> int:
        self.us += after
        self.n.on_nack(self.now, size, in_flight, trimmed)
        return self.n.cwnd


def test_it_starts_with_one_and_a_half_bdp_of_the_live_planes() -> None:
    b = Bench()
    assert b.n.cwnd == FULL
    b.n.planes_changed(4)
    assert b.n.cwnd == 4 * FULL


def test_what_the_peer_holds_until_its_next_sack_is_allowed_beyond_it() -> None:
    """Or a sender whose BDP is a few SACKs' worth of data could not fill what is left of its
    ports."""
    b = Bench(sack_bytes=16_384)
    assert b.n.cwnd == FULL + 16_384
    b.n.planes_changed(4)
    b.sack(0, 4 * FULL)
    assert b.n.max_wnd == 4 * FULL + 16_384  # once, not per plane


def test_a_shorter_path_starts_with_less() -> None:
    assert Bench(path_rtt=8 * US).n.cwnd == 150_000  # 1.5 x 100 Gb/s x 8 us


def test_the_largest_window_is_never_under_a_packet() -> None:
    assert Bench(port_rate=10**9).n.cwnd == MTU  # 1.5 x 1 Gb/s x 12 us = 2250 bytes


# --- not marked -----------------------------------------------------------------------------------


# 32,000 x 12,000 / 9 x (9 - d) / 100,000
@pytest.mark.parametrize("d, grown", [(1, 3413), (4.5, 1920), (6, 1280), (8.9, 42)])
def test_proportional_growth_at_other_delays(d: float, grown: int) -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(d, 32_000) == 100_000 + grown


def test_fair_growth_at_and_above_the_target_is_the_same_at_any_delay() -> None:
    for d in (9, 9.1, 50):
        b = Bench()
        b.shrink_to(100_000)
        # 20,000 x 32,000 / 100,000
        assert b.sack(d, 32_000) == 106_400


def test_fast_growth_needs_more_than_a_window_without_delay() -> None:
    b = Bench()
    b.shrink_to(60_000)
    # 60,000 bytes without delay are not more than the window: proportional, 12,000 / 9 x 60,000 x 9
    # / 60,000 = 12,000.
    assert b.sack(0, 60_000) == 72_000
    # Now 64,000, not more than 72,000: proportional, 48,000,000 waits for more than 4000 bytes.
    assert b.sack(0) == 72_000
    # 80,000 are: a quarter of 16,000. What waited is not due, 20,000 bytes are fewer than 32,000.
    assert b.sack(0, 16_000) == 76_000
    # A quarter of 12,000, and now 32,000 have gathered: 48,000,000 / 79,000 = 607.6.
    assert b.sack(0.99, 12_000) == 79_607


# --- marked, above the target ---------------------------------------------------------------------


def test_decrease_is_by_how_far_the_average_exceeds_the_target() -> None:
    b = Bench()
    b.shrink_to(200_000)
    # One sample of 12: 1 - 0.8 x 3 / 12 = 0.8.
    assert b.sack(12, 0, ecn=True) == 160_000


def test_the_average_is_of_the_last_base_rtt() -> None:
    b = Bench()
    b.shrink_to(200_000)
    b.sack(30, 0)  # out of the window by 0.1 us when it counts
    b.sack(6, 0, after=2.1)
    b.sack(12, 0, after=5)
    # (6 + 12 + 18) / 3 = 12, 12.1 us after the first: so eta comes on top.
    assert b.sack(18, 0, ecn=True, after=5) == 160_000 + 600


def test_decrease_once_per_base_rtt() -> None:
    b = Bench()
    b.shrink_to(200_000)
    assert b.sack(12, 0, ecn=True) == 160_000
    assert b.sack(12, 0, ecn=True, after=11.9) == 160_000
    # 12 us after the first: 0.8 x 160,000, and eta for the time since the first SACK.
    assert b.sack(12, 0, ecn=True, after=0.1) == 128_600


def test_decrease_is_at_most_by_half() -> None:
    b = Bench()
    b.shrink_to(200_000)
    assert b.sack(1000, 0, ecn=True) == 100_000  # 1 - 0.8 x 991 / 1000 = 0.207
    c = Bench()
    c.shrink_to(200_000)
    assert c.sack(24, 0, ecn=True) == 100_000  # exactly: 1 - 0.8 x 15 / 24
    e = Bench()
    e.shrink_to(200_000)
    assert e.sack(22.5, 0, ecn=True) == 104_000  # 1 - 0.8 x 13.5 / 22.5 = 0.52


# --- when growth is applied -----------------------------------------------------------------------


def test_growth_waits_for_8_packets_or_a_configured_rtt() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(9, 31_999) == 100_000
    assert b.sack(9, 1) == 106_400
    c = Bench()
    c.shrink_to(100_000)
    assert c.sack(9, 4000) == 100_000
    assert c.sack(9, 0, after=11.9) == 100_000
    assert c.sack(9, 0, after=0.1) == 101_400  # 20,000 x 4000 / 100,000, and eta


def test_a_little_for_free_each_configured_rtt() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.sack(9.5, 0)
    assert b.sack(9.5, 0, after=11.9999) == 100_000
    assert b.sack(9.5, 0, after=0.0001) == 100_600
    assert b.sack(9.5, 0, after=11.9) == 100_600
    assert b.sack(9.5, 0, after=0.1) == 101_200
    assert b.sack(9.5, 0, after=120) == 101_800, "once, however long it was quiet"


def test_growth_ends_at_the_largest_window() -> None:
    b = Bench()
    b.shrink_to(224_000)
    assert b.sack(9, 32_000) == FULL  # 2857 would be the growth
    assert b.sack(9, 32_000) == FULL
    b.shrink_to(200_000)
    assert b.n.cwnd == 200_000, "nothing was saved up above the clamp"


# --- the receiver's penalty -----------------------------------------------------------------------


def test_the_penalty_takes_128ths_of_what_was_received() -> None:
    b = Bench()
    b.shrink_to(100_000)
    # 16 / 128 x 32,000; and no growth
    assert b.sack(3, 32_000, penalty=16, in_flight=300_000) == 96_000
    assert b.mute(12_800, penalty=127, in_flight=300_000) == 83_300  # 12,700 of 12,800


def test_the_penalty_leaves_a_packet() -> None:
    b = Bench()
    assert b.mute(0, penalty=1, in_flight=0) == MTU
    assert b.mute(32_000, penalty=127, in_flight=5000) == MTU


def test_restore_brings_back_what_was_before_the_first_penalty_once() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.mute(16_000, penalty=64, in_flight=300_000)
    assert b.mute(16_000, penalty=64, in_flight=300_000) == 84_000
    assert b.mute() == 84_000, "neither penalty nor restore"
    assert b.mute(restore=True) == 100_000
    b.shrink_to(50_000)
    assert b.mute(restore=True) == 50_000


# --- base RTT and planes --------------------------------------------------------------------------


def test_a_shorter_base_rtt_lowers_the_largest_window() -> None:
    b = Bench()
    # 1.5 x 100 Gb/s x 9.6 us, and d = 0.
    assert b.sack(0, 0, base=9.6) == 180_000
    # From now on delay counts from 9.6 us: 12 us is d = 2.4, 18.6 us is the target. T itself is of
    # the configured RTT.
    b.shrink_to(100_000)
    assert b.sack(0, 32_000, base=9.6 + 9) == 106_400
    assert b.sack(0, 0, base=12) == 106_400
    assert b.n.base_rtt == 9600 * NS


def test_the_window_keeps_its_share_of_the_planes() -> None:
    b = Bench()
    b.n.planes_changed(4)
    b.shrink_to(400_000)
    b.n.planes_changed(3)
    assert b.n.cwnd == 300_000
    b.n.planes_changed(3)
    assert b.n.cwnd == 300_000
    b.n.planes_changed(4)
    assert b.n.cwnd == 400_000
    b.n.planes_changed(1)
    b.n.on_wrong_loss(b.now, 10**6)
    assert b.n.cwnd == FULL


def test_growth_scales_with_the_planes() -> None:
    b = Bench()
    b.n.planes_changed(2)
    b.shrink_to(100_000)
    assert b.sack(9, 32_000) == 112_800  # fi doubled
    assert b.sack(9, 0, after=12) == 114_000  # eta doubled


# --- trims, losses and QuickAdapt -----------------------------------------------------------------


def begun(**changes: Any) -> Bench:
    """At the beginning of a period of QuickAdapt, window 200,000."""
    b = Bench(**changes)
    b.shrink_to(200_000)
    b.sack(8.9999, 0)
    return b


def test_a_nack_takes_its_size_off() -> None:
    b = begun()
    assert b.nack(4000) == 196_000
    assert b.nack(1000, trimmed=False) == 195_000
    b.shrink_to(5000)
    assert b.nack(4000) == MTU


def test_a_trim_is_a_sample_of_the_configured_rtt_and_another_nack_none() -> None:
    b = begun()
    b.us += 20  # still within the period; older samples are gone
    b.nack(0, trimmed=False)
    b.nack(0)
    # (12 + 9) / 2 = 10.5: 1 - 0.8 x 1.5 / 10.5 = 0.885714; eta since the first SACK.
    assert b.sack(9, 0, ecn=True) == 177_742
    c = begun()
    c.us += 20
    c.nack(0, trimmed=False)
    assert c.sack(9, 0, ecn=True) == 200_600


def test_quick_adapt_cuts_to_what_got_through_at_the_end_of_a_period() -> None:
    b = begun()
    b.mute(28_124)
    assert b.nack(4000, after=20.89) == 196_000  # 20.99 us after the period began
    assert b.nack(4000, after=0.01) == 28_124


def test_quick_adapt_leaves_alone_who_got_an_eighth_through() -> None:
    b = begun()
    b.mute(28_125)
    assert b.nack(4000, after=20.9) == 196_000


def test_quick_adapt_does_not_act_in_the_first_period() -> None:
    b = Bench()
    assert b.nack(4000, after=10_000) == FULL - 4000
    assert b.nack(4000, after=20.9) == FULL - 8000
    assert b.nack(4000, after=0.1) == MTU


def test_quick_adapt_at_a_sack_needs_a_trim_before() -> None:
    b = begun()
    assert b.sack(9.1, 0, after=21) == 200_600  # eta
    c = begun()
    c.nack(4000)
    assert c.sack(9.1, 0, after=20.9) == MTU
    # The trigger is spent; the window sits at what QuickAdapt left when the next period ends.
    assert c.sack(9.1, 0, after=21) == MTU + 600


def test_quick_adapt_leaves_an_event() -> None:
    b = begun()
    log: list[Any] = []
    b.n.attach(7, 42, log)
    b.mute(28_124)
    b.nack(4000, after=20.8)
    assert log == []
    b.nack(5000, in_flight=12_000, after=0.1)
    figures = {"before": 196_000, "window": 28_124, "in_flight": 12_000, "trimmed": 9000}
    assert log == [(b.now, "quick_adapt", {"peer": 7, "qpn": 42, **figures})]


def test_after_quick_adapt_what_was_in_flight_is_ignored_where_marked() -> None:
    b = begun()
    b.mute(20_000)
    assert b.nack(4000, in_flight=12_000, after=20.9) == 20_000
    # Trims and marked SACKs of 12,000 bytes are spoken for: neither they nor what they carry change
    # the window.
    assert b.nack(4000) == 20_000  # 0 ignored before, 4000 with it
    assert b.sack(12, 4000, ecn=True) == 20_000  # 8000
    assert b.nack(3999) == 20_000  # 11,999
    assert b.nack(1) == 19_999  # 12,000: no longer
    assert b.sack(30, 0, ecn=True) < 19_999


def test_what_is_not_marked_is_not_ignored() -> None:
    b = begun()
    b.mute(20_000)
    assert b.nack(4000, in_flight=100_000, after=20.9) == 20_000
    # 20,000 x 32,000 / 20,000, and eta: 21 us since the first SACK
    assert b.sack(9, 32_000) == 52_600
    assert b.nack(4000, trimmed=False) == 48_600


def test_quick_adapt_without_trimming_needs_four_targets_of_delay() -> None:
    # T = 12 us, threshold 48 us, period 24 us.
    b = Bench(trimming=False)
    b.shrink_to(200_000)
    b.sack(11.9, 0)
    assert b.sack(48, 0, after=24) == 200_600
    assert b.sack(48.000001, 0, after=23.9) == 201_200
    assert b.sack(48.000001, 0, after=0.1) == MTU


def test_the_target_without_trimming_is_the_configured_rtt() -> None:
    # b = 1, alpha = 16,000 / 12 us, the same slope; the target is what moves.
    b = Bench(trimming=False)
    b.shrink_to(100_000)
    assert b.sack(11.9, 32_000) == 100_042  # 16,000 / 12 x 32,000 x 0.1 / 100,000 = 42.67
    c = Bench(trimming=False)
    c.shrink_to(100_000)
    assert c.sack(12, 32_000) == 106_400
    e = Bench(trimming=False)
    e.shrink_to(100_000)
    assert e.sack(11.9, 0, ecn=True) == 100_000
    assert e.sack(16, 0, ecn=True, after=12.1) == 80_600  # the only sample: 1 - 0.8 x 4 / 16


def test_a_loss_takes_its_size_off_and_a_wrong_one_gives_it_back() -> None:
    b = begun()
    b.n.on_loss(b.now, 4000)
    assert b.n.cwnd == 196_000
    b.n.on_wrong_loss(b.now, 4000)
    assert b.n.cwnd == 200_000
    b.n.on_wrong_loss(b.now, 10**6)
    assert b.n.cwnd == FULL
