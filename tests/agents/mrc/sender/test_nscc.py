"""NSCC against windows worked out by hand from docs/protocol.md, section 7: each cell of its table, each clamp, QuickAdapt, the penalty.

The numbers here are arithmetic on paper, not the code's constants. One plane at 10 Mb/s with a configured RTT of 120 ms, which is the
12 us of the sources at this speed: BDP 150 kB, so a = 1; trimming, so T = 90 ms and b = 0.75; a full packet counts 4000 bytes.

    largest window  1.5 x BDP         = 225,000 bytes, where it starts
    alpha = 4 a b MTU / T             = 12,000 / 90 ms
    fi = 5 a MTU                      = 20,000 bytes
    fs = 0.25 a                       = 0.25
    eta = 0.15 a MTU                  = 600 bytes each 120 ms
    no delay to speak of              : below 120 ms / 12 = 10 ms
    an adjustment                     : each 8 MTU = 32,000 bytes, or each 120 ms
    QuickAdapt                        : periods of 120 + 90 = 210 ms, little is less than 225,000 / 8 = 28,125 bytes
"""

from __future__ import annotations

from typing import Any

import pytest

from agents.mrc.config import Config
from agents.mrc.sender.congestion.nscc import Nscc

MS = 1_000_000
RTT = 120 * MS
T = 90 * MS
MTU = 4000
FULL = 225_000


def config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "base_rtt": RTT, "plane_bdp": 150_000, "port_rate": 10_000_000, "mtu": 3912, "dilation": 10_000.0, "trimming": True,
        "sack_bytes": 0,  # what the peer holds until its next SACK has a test of its own
        **changes,
    }  # fmt: skip
    return Config(**values)


class Bench:
    """An NSCC told what it is told in a network; ``ms`` is the time."""

    def __init__(self, path_rtt: int = RTT, **changes: Any) -> None:
        self.n = Nscc(config(**changes), path_rtt)
        self.ms = 1000.0

    @property
    def now(self) -> int:
        return int(self.ms * MS)

    def shrink_to(self, window: int) -> None:
        self.n.on_loss(self.now, self.n.cwnd - window)
        assert self.n.cwnd == window

    def sack(
        self, d: float, news: int = MTU, *, ecn: bool = False, after: float = 1.0, in_flight: int = 50_000, penalty: int = 0,
        restore: bool = False, base: float = 120.0,
    ) -> int:  # fmt: skip
        """``after`` ms later a SACK whose trigger took ``base`` + ``d`` ms; the window then."""
        self.ms += after
        self.n.on_sack(self.now, news, in_flight, ecn, int((base + d) * MS), penalty, restore)
        return self.n.cwnd

    def mute(self, news: int = MTU, *, in_flight: int = 50_000, penalty: int = 0, restore: bool = False, ecn: bool = False) -> int:
        """A SACK whose trigger gives no valid RTT."""
        self.ms += 1
        self.n.on_sack(self.now, news, in_flight, ecn, -1, penalty, restore)
        return self.n.cwnd

    def nack(self, size: int = MTU, *, in_flight: int = 50_000, trimmed: bool = True, after: float = 1.0) -> int:
        self.ms += after
        self.n.on_nack(self.now, size, in_flight, trimmed)
        return self.n.cwnd


def test_it_starts_with_one_and_a_half_bdp_of_the_live_planes() -> None:
    b = Bench()
    assert b.n.cwnd == FULL
    b.n.planes_changed(4)
    assert b.n.cwnd == 4 * FULL


def test_what_the_peer_holds_until_its_next_sack_is_allowed_beyond_it() -> None:
    """Or a sender whose BDP is a few SACKs' worth of data could not fill what is left of its ports."""
    b = Bench(sack_bytes=16_384)
    assert b.n.cwnd == FULL + 16_384
    b.n.planes_changed(4)
    b.sack(0, 4 * FULL)
    assert b.n.max_wnd == 4 * FULL + 16_384  # once, not per plane


def test_a_shorter_path_starts_with_less() -> None:
    assert Bench(path_rtt=80 * MS).n.cwnd == 150_000  # 1.5 x 10 Mb/s x 80 ms


def test_the_largest_window_is_never_under_a_packet() -> None:
    assert Bench(port_rate=100_000).n.cwnd == MTU  # 1.5 x 100 kb/s x 120 ms = 2250 bytes


# --- not marked ------------------------------------------------------------------------------------------------


def test_proportional_growth_is_by_what_is_missing_to_the_target() -> None:
    b = Bench()
    b.shrink_to(100_000)
    for _ in range(7):
        assert b.sack(30) == 100_000
    # 32,000 bytes at T - d = 60 ms: 12,000 / 90 x 32,000 x 60 = 256,000,000; over the window of 100,000: 2560.
    assert b.sack(30) == 102_560


@pytest.mark.parametrize("d, grown", [(10, 3413), (45, 1920), (60, 1280), (89, 42)])  # 32,000 x 12,000 / 90 x (90 - d) / 100,000
def test_proportional_growth_at_other_delays(d: int, grown: int) -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(d, 32_000) == 100_000 + grown


def test_fair_growth_at_and_above_the_target_is_the_same_at_any_delay() -> None:
    for d in (90, 91, 500):
        b = Bench()
        b.shrink_to(100_000)
        # 20,000 x 32,000 / 100,000
        assert b.sack(d, 32_000) == 106_400


def test_growth_is_divided_by_the_window_it_had_before_growing() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(90, 32_000) == 106_400
    assert b.sack(90, 32_000) == 112_415  # 640,000,000 / 106,400 = 6015.04


def test_fast_growth_needs_more_than_a_window_without_delay() -> None:
    b = Bench()
    b.shrink_to(60_000)
    # 60,000 bytes without delay are not more than the window: proportional, 12,000 / 90 x 60,000 x 90 / 60,000 = 12,000.
    assert b.sack(0, 60_000) == 72_000
    # Now 64,000, not more than 72,000: proportional, 48,000,000 waits for more than 4000 bytes.
    assert b.sack(0) == 72_000
    # 80,000 are: a quarter of 16,000. What waited is not due, 20,000 bytes are fewer than 32,000.
    assert b.sack(0, 16_000) == 76_000
    # A quarter of 12,000, and now 32,000 have gathered: 48,000,000 / 79,000 = 607.6.
    assert b.sack(9.9, 12_000) == 79_607


@pytest.mark.parametrize("d, ecn", [(10, False), (90, True)])
def test_fast_growth_ends_with_delay(d: float, ecn: bool) -> None:
    b = Bench()
    b.shrink_to(40_000)
    b.sack(0, 40_000)
    b.sack(0, 32_000)
    fast = b.n.cwnd
    assert b.sack(0) == fast + 1000
    b.sack(d, 0, ecn=ecn)
    at = b.n.cwnd
    assert b.sack(0) == at, "a whole window without delay is asked for again"


def test_a_mark_below_the_target_does_nothing_to_the_window_nor_to_fast_growth() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(89, 31_999, ecn=True) == 100_000
    assert b.sack(89, 32_000, ecn=True) == 100_000
    c = Bench()
    c.shrink_to(40_000)
    c.sack(0, 40_000)
    c.sack(0, 32_000)
    fast = c.n.cwnd
    assert c.sack(0, ecn=True) == fast
    assert c.sack(0) == fast + 1000


# --- marked, above the target ----------------------------------------------------------------------------------


def test_decrease_is_by_how_far_the_average_exceeds_the_target() -> None:
    b = Bench()
    b.shrink_to(200_000)
    # One sample of 120: 1 - 0.8 x 30 / 120 = 0.8.
    assert b.sack(120, 0, ecn=True) == 160_000


def test_the_average_is_of_the_last_base_rtt() -> None:
    b = Bench()
    b.shrink_to(200_000)
    b.sack(300, 0)  # out of the window by 1 ms when it counts
    b.sack(60, 0, after=21)
    b.sack(120, 0, after=50)
    # (60 + 120 + 180) / 3 = 120, 121 ms after the first: so eta comes on top.
    assert b.sack(180, 0, ecn=True, after=50) == 160_000 + 600


def test_a_sample_of_exactly_a_base_rtt_ago_still_counts() -> None:
    b = Bench()
    b.shrink_to(200_000)
    b.sack(60, 0)
    assert b.sack(180, 0, ecn=True, after=120) == 160_000 + 600  # the same average; after a configured RTT, eta comes on top


def test_no_decrease_while_the_average_is_not_above_the_target() -> None:
    b = Bench()
    b.shrink_to(200_000)
    b.sack(60, 0)
    assert b.sack(120, 0, ecn=True) == 200_000  # average 90
    # Average 96, and the refusal did not count as a decrease: 1 - 0.8 x 6 / 96.
    assert b.sack(108, 0, ecn=True) == 190_000
    c = Bench()
    c.shrink_to(200_000)
    c.sack(0, 0)
    assert c.sack(150, 0, ecn=True) == 200_000  # average 75


def test_decrease_once_per_base_rtt() -> None:
    b = Bench()
    b.shrink_to(200_000)
    assert b.sack(120, 0, ecn=True) == 160_000
    assert b.sack(120, 0, ecn=True, after=119) == 160_000
    # 120 ms after the first: 0.8 x 160,000, and eta for the time since the first SACK.
    assert b.sack(120, 0, ecn=True, after=1) == 128_600


def test_decrease_is_at_most_by_half() -> None:
    b = Bench()
    b.shrink_to(200_000)
    assert b.sack(10_000, 0, ecn=True) == 100_000  # 1 - 0.8 x 9910 / 10,000 = 0.207
    c = Bench()
    c.shrink_to(200_000)
    assert c.sack(240, 0, ecn=True) == 100_000  # exactly: 1 - 0.8 x 150 / 240
    e = Bench()
    e.shrink_to(200_000)
    assert e.sack(225, 0, ecn=True) == 104_000  # 1 - 0.8 x 135 / 225 = 0.52


def test_a_mark_exactly_at_the_target_decreases_nothing() -> None:
    b = Bench()
    b.shrink_to(200_000)
    assert b.sack(90, 0, ecn=True) == 200_000


# --- when growth is applied ------------------------------------------------------------------------------------


def test_growth_waits_for_8_packets_or_a_configured_rtt() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(90, 31_999) == 100_000
    assert b.sack(90, 1) == 106_400
    c = Bench()
    c.shrink_to(100_000)
    assert c.sack(90, 4000) == 100_000
    assert c.sack(90, 0, after=119) == 100_000
    assert c.sack(90, 0, after=1) == 101_400  # 20,000 x 4000 / 100,000, and eta


def test_bytes_told_without_a_sample_count_towards_the_8_packets_and_grow_nothing() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.mute(28_000)
    assert b.sack(90, 4000) == 100_800  # 20,000 x 4000 / 100,000


def test_a_little_for_free_each_configured_rtt() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.sack(95, 0)
    assert b.sack(95, 0, after=119.999) == 100_000
    assert b.sack(95, 0, after=0.001) == 100_600
    assert b.sack(95, 0, after=119) == 100_600
    assert b.sack(95, 0, after=1) == 101_200
    assert b.sack(95, 0, after=1200) == 101_800, "once, however long it was quiet"


def test_growth_ends_at_the_largest_window() -> None:
    b = Bench()
    b.shrink_to(224_000)
    assert b.sack(90, 32_000) == FULL  # 2857 would be the growth
    assert b.sack(90, 32_000) == FULL
    b.shrink_to(200_000)
    assert b.n.cwnd == 200_000, "nothing was saved up above the clamp"


def test_a_window_is_never_under_a_packet() -> None:
    b = Bench()
    b.n.on_loss(b.now, 10**9)
    assert b.n.cwnd == MTU
    assert b.nack(10**9) == MTU
    assert b.sack(10_000, 0, ecn=True) == MTU
    assert b.sack(90, 32_000) == MTU + 160_000  # 640,000,000 / 4000: nothing is owed below the clamp


# --- the receiver's penalty ------------------------------------------------------------------------------------


def test_the_penalty_takes_128ths_of_what_was_received() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.sack(30, 32_000, penalty=16, in_flight=300_000) == 96_000  # 16 / 128 x 32,000; and no growth
    assert b.mute(12_800, penalty=127, in_flight=300_000) == 83_300  # 12,700 of 12,800


def test_the_penalty_starts_from_what_is_in_flight_if_that_is_less() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.mute(12_800, penalty=10, in_flight=40_000) == 39_000


def test_the_penalty_leaves_a_packet() -> None:
    b = Bench()
    assert b.mute(0, penalty=1, in_flight=0) == MTU
    assert b.mute(32_000, penalty=127, in_flight=5000) == MTU


@pytest.mark.parametrize("d", [0, 30, 90])
def test_nothing_grows_under_the_penalty(d: float) -> None:
    b = Bench()
    b.shrink_to(100_000)
    for _ in range(40):
        at = b.n.cwnd
        assert b.sack(d, 16_000, penalty=1, in_flight=300_000) == at - 125


def test_restore_brings_back_what_was_before_the_first_penalty_once() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.mute(16_000, penalty=64, in_flight=300_000)
    assert b.mute(16_000, penalty=64, in_flight=300_000) == 84_000
    assert b.mute() == 84_000, "neither penalty nor restore"
    assert b.mute(restore=True) == 100_000
    b.shrink_to(50_000)
    assert b.mute(restore=True) == 50_000


def test_restore_without_a_penalty_does_nothing() -> None:
    b = Bench()
    b.shrink_to(50_000)
    assert b.mute(restore=True) == 50_000


def test_fast_growth_goes_by_the_window_of_now() -> None:
    b = Bench()
    b.shrink_to(200_000)
    b.sack(0, 150_000)  # proportional: 12,000 / 90 x 150,000 x 90 / 200,000 = 9000
    b.mute(0, penalty=1, in_flight=40_000)
    assert b.n.cwnd == 40_000
    assert b.sack(0, 1000, restore=True) == 209_000, "151,000 bytes without delay are less than the window that came back"


def test_a_penalty_with_the_restore_flag_is_a_penalty() -> None:
    b = Bench()
    b.shrink_to(100_000)
    assert b.mute(12_800, penalty=10, restore=True, in_flight=300_000) == 99_000
    assert b.mute(restore=True) == 100_000


def test_after_restore_the_next_penalty_is_remembered_anew() -> None:
    b = Bench()
    b.shrink_to(100_000)
    b.mute(16_000, penalty=64, in_flight=300_000)
    b.mute(restore=True)
    b.shrink_to(70_000)
    b.mute(16_000, penalty=64, in_flight=300_000)
    assert b.mute(restore=True) == 70_000


def test_no_sample_stops_after_the_penalty() -> None:
    b = Bench()
    b.shrink_to(100_000)
    for _ in range(200):
        assert b.mute(32_000) == 100_000
        assert b.mute(32_000, ecn=True) == 100_000
    assert not b.n.samples


# --- base RTT and planes ---------------------------------------------------------------------------------------


def test_a_shorter_base_rtt_lowers_the_largest_window() -> None:
    b = Bench()
    # 1.5 x 10 Mb/s x 96 ms, and d = 0.
    assert b.sack(0, 0, base=96) == 180_000
    # From now on delay counts from 96 ms: 120 ms is d = 24, 186 ms is the target. T itself is of the configured RTT.
    b.shrink_to(100_000)
    assert b.sack(0, 32_000, base=96 + 90) == 106_400
    assert b.sack(0, 0, base=120) == 106_400
    assert b.n.base_rtt == 96 * MS


def test_a_longer_rtt_does_not_move_the_base() -> None:
    b = Bench()
    b.sack(50, 0)
    assert b.n.base_rtt == RTT


def test_the_period_of_decreases_and_averages_is_the_measured_base_rtt() -> None:
    b = Bench()
    b.sack(0, 0, base=60)  # largest window 112,500
    b.shrink_to(100_000)
    b.ms += 61
    assert b.sack(120, 0, ecn=True, base=60) == 80_000
    assert b.sack(120, 0, ecn=True, base=60, after=59) == 80_000 + 600  # 121 ms since the first SACK: eta
    assert b.sack(120, 0, ecn=True, base=60, after=1) == 64_480


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
    assert b.sack(90, 32_000) == 112_800  # fi doubled
    assert b.sack(90, 0, after=120) == 114_000  # eta doubled


def test_a_window_of_one_packet_stays_one() -> None:
    b = Bench()
    b.n.planes_changed(4)
    b.n.on_loss(b.now, 10**9)
    b.n.planes_changed(1)
    assert b.n.cwnd == MTU


# --- trims, losses and QuickAdapt ------------------------------------------------------------------------------


def begun(**changes: Any) -> Bench:
    """At the beginning of a period of QuickAdapt, window 200,000."""
    b = Bench(**changes)
    b.shrink_to(200_000)
    b.sack(89.999, 0)
    return b


def test_a_nack_takes_its_size_off() -> None:
    b = begun()
    assert b.nack(4000) == 196_000
    assert b.nack(1000, trimmed=False) == 195_000
    b.shrink_to(5000)
    assert b.nack(4000) == MTU


def test_a_trim_is_a_sample_of_the_configured_rtt_and_another_nack_none() -> None:
    b = begun()
    b.ms += 200  # still within the period; older samples are gone
    b.nack(0, trimmed=False)
    b.nack(0)
    # (120 + 90) / 2 = 105: 1 - 0.8 x 15 / 105 = 0.885714; eta since the first SACK.
    assert b.sack(90, 0, ecn=True) == 177_742
    c = begun()
    c.ms += 200
    c.nack(0, trimmed=False)
    assert c.sack(90, 0, ecn=True) == 200_600


def test_quick_adapt_cuts_to_what_got_through_at_the_end_of_a_period() -> None:
    b = begun()
    b.mute(28_124)
    assert b.nack(4000, after=208.9) == 196_000  # 209.9 ms after the period began
    assert b.nack(4000, after=0.1) == 28_124


def test_quick_adapt_leaves_a_packet() -> None:
    b = begun()
    assert b.nack(4000, after=210) == MTU


def test_quick_adapt_leaves_alone_who_got_an_eighth_through() -> None:
    b = begun()
    b.mute(28_125)
    assert b.nack(4000, after=209) == 196_000


def test_quick_adapt_does_not_act_in_the_first_period() -> None:
    b = Bench()
    assert b.nack(4000, after=100_000) == FULL - 4000
    assert b.nack(4000, after=209) == FULL - 8000
    assert b.nack(4000, after=1) == MTU


def test_quick_adapt_at_a_sack_needs_a_trim_before() -> None:
    b = begun()
    assert b.sack(91, 0, after=210) == 200_600  # eta
    c = begun()
    c.nack(4000)
    assert c.sack(91, 0, after=209) == MTU
    # The trigger is spent; the window sits at what QuickAdapt left when the next period ends.
    assert c.sack(91, 0, after=210) == MTU + 600


def test_a_trim_speaks_for_its_own_period_and_for_no_later_one() -> None:
    """A burst is trimmed once and gets enough through; then its sender has little to send, on a network without a queue."""
    b = begun()
    b.mute(28_125)
    assert b.nack(4000) == 196_000
    assert b.sack(91, 0, after=208) == 196_600  # the period ends: an eighth got through, nothing is cut
    assert b.sack(91, 4000, after=210) > 196_600, "no packet was trimmed in this period"
    c = begun()
    c.nack(4000)
    c.mute(30_000)
    c.sack(91, 0, after=208)
    c.nack(4000)
    assert c.sack(91, 4000, after=209) == 4000, "one was in this"


def test_quick_adapt_leaves_an_event() -> None:
    b = begun()
    log: list[Any] = []
    b.n.attach(7, 42, log)
    b.mute(28_124)
    b.nack(4000, after=208)
    assert log == []
    b.nack(5000, in_flight=12_000, after=1)
    figures = {"before": 196_000, "window": 28_124, "in_flight": 12_000, "trimmed": 9000}
    assert log == [(b.now, "quick_adapt", {"peer": 7, "qpn": 42, **figures})]


def test_an_untrimmed_nack_is_a_loss_for_quick_adapt_but_no_trigger() -> None:
    b = begun()
    b.nack(4000, trimmed=False)
    assert b.sack(91, 0, after=209) == 196_600
    c = begun()
    assert c.nack(4000, trimmed=False, after=210) == MTU


def test_delay_alone_never_triggers_quick_adapt_with_trimming() -> None:
    b = begun()
    assert b.sack(100_000, 0, after=210) == 200_600


def test_a_period_begins_when_the_last_one_was_looked_at() -> None:
    b = begun()
    b.mute(30_000)
    assert b.nack(4000, after=250) == 196_000  # got enough through; looked at 251 ms after its beginning
    assert b.nack(4000, after=209) == 192_000
    assert b.nack(4000, after=1) == MTU, "what got through counted for the period before"


def test_a_period_is_the_measured_base_rtt_and_the_target() -> None:
    b = Bench()
    b.sack(0, 0, base=60)  # so 60 + 90 = 150 ms; the largest window is 112,500, an eighth of it 14,062.5
    b.mute(14_062)
    assert b.nack(4000, after=148.9) == 108_500
    assert b.nack(4000, after=0.1) == 14_062
    c = Bench()
    c.sack(0, 0, base=60)
    c.mute(14_063)
    assert c.nack(4000, after=149) == 108_500


def test_after_quick_adapt_what_was_in_flight_is_ignored_where_marked() -> None:
    b = begun()
    b.mute(20_000)
    assert b.nack(4000, in_flight=12_000, after=209) == 20_000
    # Trims and marked SACKs of 12,000 bytes are spoken for: neither they nor what they carry change the window.
    assert b.nack(4000) == 20_000  # 0 ignored before, 4000 with it
    assert b.sack(120, 4000, ecn=True) == 20_000  # 8000
    assert b.nack(3999) == 20_000  # 11,999
    assert b.nack(1) == 19_999  # 12,000: no longer
    assert b.sack(300, 0, ecn=True) < 19_999


def test_what_is_not_marked_is_not_ignored() -> None:
    b = begun()
    b.mute(20_000)
    assert b.nack(4000, in_flight=100_000, after=209) == 20_000
    assert b.sack(90, 32_000) == 52_600  # 20,000 x 32,000 / 20,000, and eta: 210 ms since the first SACK
    assert b.nack(4000, trimmed=False) == 48_600


def test_quick_adapt_voids_what_had_gathered() -> None:
    b = begun()
    b.sack(90, 20_000)
    b.nack(4000, after=209)
    assert b.n.cwnd == 20_000
    # Else 400,000,000 / 20,000 would come with the first 12,000 bytes more, or after a configured RTT.
    assert b.sack(95, 0) == 20_600
    assert b.sack(89.9999999, 31_999) == 20_600


def test_what_is_ignored_voids_what_has_gathered_too() -> None:
    b = begun()
    b.mute(20_000)
    b.nack(4000, in_flight=100_000, after=209)
    assert b.sack(95, 28_000, after=1) == 48_600
    b.n.on_sack(b.now, 4000, 0, True, RTT, 0, False)
    assert b.sack(95, 28_000, after=1) == 48_600, "28,000 of 32,000 bytes: the first were void"


def test_quick_adapt_without_trimming_needs_four_targets_of_delay() -> None:
    # T = 120 ms, threshold 480 ms, period 240 ms.
    b = Bench(trimming=False)
    b.shrink_to(200_000)
    b.sack(119, 0)
    assert b.sack(480, 0, after=240) == 200_600
    assert b.sack(480.000001, 0, after=239) == 201_200
    assert b.sack(480.000001, 0, after=1) == MTU


def test_the_target_without_trimming_is_the_configured_rtt() -> None:
    # b = 1, alpha = 16,000 / 120 ms, the same slope; the target is what moves.
    b = Bench(trimming=False)
    b.shrink_to(100_000)
    assert b.sack(119, 32_000) == 100_042  # 16,000 / 120 x 32,000 x 1 / 100,000 = 42.67
    c = Bench(trimming=False)
    c.shrink_to(100_000)
    assert c.sack(120, 32_000) == 106_400
    e = Bench(trimming=False)
    e.shrink_to(100_000)
    assert e.sack(119, 0, ecn=True) == 100_000
    assert e.sack(160, 0, ecn=True, after=121) == 80_600  # the only sample: 1 - 0.8 x 40 / 160


def test_a_loss_takes_its_size_off_and_a_wrong_one_gives_it_back() -> None:
    b = begun()
    b.n.on_loss(b.now, 4000)
    assert b.n.cwnd == 196_000
    b.n.on_wrong_loss(b.now, 4000)
    assert b.n.cwnd == 200_000
    b.n.on_wrong_loss(b.now, 10**6)
    assert b.n.cwnd == FULL


def test_a_loss_is_never_quick_adapt_nor_its_trigger() -> None:
    b = begun()
    b.ms += 210
    b.n.on_loss(b.now, 4000)
    assert b.n.cwnd == 196_000
    assert b.sack(91, 0) == 196_600


# --- time scale ------------------------------------------------------------------------------------------------


def test_a_slower_fabric_has_the_same_trajectory_in_its_own_time() -> None:
    """Every time constant scales: at a tenth of the speed the same bytes make the same windows, ten times later."""
    fast = Nscc(config(), RTT)
    slow = Nscc(config(port_rate=1_000_000, base_rtt=10 * RTT, dilation=100_000.0), 10 * RTT)
    story = [(k * 37 % 29, k * 53 % 251, k * 31 % 7) for k in range(600)]
    now = 10**9
    seen = set()
    for gap, d, what in story:
        now += gap * MS
        if what == 0:
            fast.on_nack(now, MTU, 60_000, True)
            slow.on_nack(10 * now, MTU, 60_000, True)
        elif what == 1 and gap > 24:
            fast.on_loss(now, MTU)
            slow.on_loss(10 * now, MTU)
        else:
            rtt = 120 * MS + d * MS
            fast.on_sack(now, gap * 400, 60_000, d > 150, rtt, 0, False)
            slow.on_sack(10 * now, gap * 400, 60_000, d > 150, 10 * rtt, 0, False)
        assert fast.cwnd == slow.cwnd
        seen.add(fast.cwnd)
    assert len(seen) > 100
