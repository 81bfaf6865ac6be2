"""DCQCN's reaction point against windows, rates and times worked out by hand. All numbers are small
and round: line 1,000,000 bits/s, R_AI 10,000, R_HAI 50,000, g 1/4, F 5, a stage is 1000 ps or
10,000 bytes, alpha's period 1100 ps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.roce.congestion import FixedWindow, NotificationPoint
from agents.roce.dcqcn import Dcqcn, Parameters
from agents.roce.options import Options
from agents.transport import NEVER
from tests.fabrics import near
from topologies import load_fabric
from topologies.units import MS, US

LINE = 1_000_000
FRAME_PS = 8 * MS  # 1000 bytes at line rate


def dcqcn(slack_ps: int = 0, paced: bool = False, **changes: Any) -> Dcqcn:
    given: dict[str, Any] = {
        "line": LINE,
        "min_rate": 1000,
        "rate_ai": 10_000.0,
        "rate_hai": 50_000.0,
        "g": 0.25,
        "initial_alpha": 1.0,
        "fast_recovery": 5,
        "byte_counter": 10_000,
        "timer_ps": 1000,
        "alpha_ps": 1100,
        "cut_ps": 100,
        "clamp": True,
    }
    return Dcqcn(Parameters(**{**given, **changes}), 1 << 20, slack_ps, paced)


def cut_twice(at: int = 0) -> Dcqcn:
    """R_T 500,000, R_C 250,000, alpha 1; stages count from ``at`` + 200."""
    cc = dcqcn()
    cc.on_cnp(at)
    cc.on_cnp(at + 200)
    assert (cc.target, cc.current, cc.alpha) == (500_000, 250_000, 1)
    return cc


def stages(cc: Dcqcn, count: int) -> list[float]:
    """R_C after each of the next stages of the timer."""
    made = []
    for _ in range(count):
        cc.on_timer(cc.timer_at)
        made.append(cc.current)
    return made


# --- cuts and alpha -------------------------------------------------------------------------------


def test_before_any_cnp_there_is_neither_limit_nor_timer() -> None:
    cc = dcqcn()
    for k in range(100):
        cc.on_sent(k * FRAME_PS, 1000)
        cc.on_ack(k * FRAME_PS, 1000)
    cc.on_loss(5)
    cc.on_timer(1 << 40)
    assert (cc.current, cc.target, cc.rate, cc.next_send_ps, cc.timer_at) == (
        LINE,
        LINE,
        0,
        -NEVER,
        NEVER,
    )


def test_the_first_cnp_halves_the_rate_and_starts_the_stages() -> None:
    cc = dcqcn()
    cc.on_cnp(70)
    assert (cc.target, cc.current, cc.rate) == (LINE, 500_000, 500_000)
    assert cc.alpha == 0.75 * 1 + 0.25
    assert cc.timer_at == 1070


def test_alpha_shrinks_once_per_period_without_a_cnp_and_sets_the_depth_of_the_next_cut() -> None:
    cc = dcqcn(timer_ps=1 << 40)
    cc.on_cnp(0)
    assert cc.alpha_now(1099) == 1
    assert cc.alpha_now(1100) == 0.75
    assert cc.alpha_now(3299) == 0.5625
    cc.on_cnp(3305)  # three periods: alpha 0.421875
    assert cc.target == 500_000
    assert cc.current == 500_000 * (1 - 0.421875 / 2)
    assert cc.alpha == 0.75 * 0.421875 + 0.25
    assert cc.alpha_now(3305 + 1099) == 0.56640625, "the period starts again at each CNP"
    assert cc.alpha_now(3305 + 1100) == 0.75 * 0.56640625


def test_a_cnp_too_soon_after_a_cut_only_starts_alphas_period_again() -> None:
    cc = dcqcn(initial_alpha=0.5)
    cc.on_cnp(0)
    assert (cc.current, cc.alpha) == (750_000, 0.625)
    cc.on_cnp(99)
    assert (cc.current, cc.alpha, cc.timer_at) == (750_000, 0.625, 1000)
    assert cc.alpha_now(1198) == 0.625 and cc.alpha_now(1199) == 0.625 * 0.75
    cc.on_cnp(1210)
    assert cc.current == 750_000 * (1 - 0.46875 / 2)


def test_a_cut_ends_what_both_counters_had_reached() -> None:
    cc = cut_twice()
    stages(cc, 3)
    cc.on_sent(3300, 19_000)  # one stage of bytes and nine tenths
    assert (cc.timer_stage, cc.byte_stage, cc.stage_bytes) == (3, 1, 9000)
    before = cc.current
    cc.on_cnp(3400)
    assert cc.target == before
    assert (cc.timer_stage, cc.byte_stage, cc.stage_bytes, cc.timer_at) == (0, 0, 0, 4400)
    cc.on_sent(3500, 9999)
    assert cc.byte_stage == 0


# --- recovery -------------------------------------------------------------------------------------


def test_fast_recovery_halves_the_distance_five_times_then_the_target_grows() -> None:
    cc = cut_twice()
    assert stages(cc, 5) == [375_000, 437_500, 468_750, 484_375, 492_187.5]
    assert cc.target == 500_000
    assert stages(cc, 2) == [501_093.75, 510_546.875]
    assert cc.target == 520_000
    assert cc.timer_at == 200 + 8 * 1000


def test_bytes_make_stages_of_their_own_and_leave_the_rest_for_the_next() -> None:
    cc = cut_twice()
    cc.on_sent(300, 9_999)
    assert cc.current == 250_000
    cc.on_sent(310, 1)
    assert (cc.byte_stage, cc.current) == (1, 375_000)
    cc.on_sent(320, 25_000)
    assert (cc.byte_stage, cc.stage_bytes, cc.current) == (3, 5000, 468_750)
    assert stages(cc, 1) == [484_375], "the timer has its own count, and did not start again"
    assert (cc.timer_stage, cc.timer_at) == (1, 2200)


def test_either_counter_alone_ends_fast_recovery_and_only_both_make_it_hyper() -> None:
    cc = cut_twice()
    for k in range(5):
        cc.on_sent(300 + k, 10_000)
    assert cc.target == 500_000
    cc.on_sent(310, 10_000)  # b = 6, t = 0
    assert cc.target == 510_000
    stages(cc, 5)  # b = 6, t = 5: five times additive
    assert cc.target == 560_000
    current = cc.current
    cc.on_timer(cc.timer_at)  # b = 6, t = 6: i = 1
    assert (cc.target, cc.current) == (610_000, (610_000 + current) / 2)
    cc.on_timer(cc.timer_at)  # b = 6, t = 7: i = 1
    assert cc.target == 660_000
    cc.on_sent(9000, 10_000)  # b = 7, t = 7: i = 2
    assert cc.target == 760_000
    cc.on_sent(9001, 10_000)
    stages(cc, 1)  # b = 8 (i = 2: 860,000), t = 8 (i = 3)
    assert cc.target == LINE, "and not 1,010,000"


def test_stages_missed_while_the_host_was_busy_are_made_up_for() -> None:
    late, exact = cut_twice(), cut_twice()
    late.on_timer(200 + 6 * 1000 + 999)
    stages(exact, 6)
    assert (late.current, late.target, late.timer_at) == (
        exact.current,
        exact.target,
        exact.timer_at,
    )


def test_back_at_line_rate_everything_stops() -> None:
    cc = dcqcn()
    cc.on_cnp(0)
    made = stages(cc, 6)
    # 500,000 short of the line, halved each time: 7812.5 after the sixth, less than R_AI
    assert made == [750_000, 875_000, 937_500, 968_750, 984_375, LINE]
    assert (cc.rate, cc.timer_at) == (0, NEVER)
    cc.on_sent(1 << 30, 1 << 20)
    assert (cc.byte_stage, cc.stage_bytes, cc.current) == (0, 0, LINE)
    cc.on_cnp(cc._last_cut + 100)
    assert cc.current == 500_000


def test_no_cut_goes_below_the_least_rate_and_it_comes_back_from_there() -> None:
    cc = dcqcn(min_rate=200_000)
    for k, rate in enumerate((500_000, 250_000, 200_000, 200_000)):
        cc.on_cnp(k * 100)
        assert cc.current == rate
    assert cc.target == 200_000
    assert stages(cc, 6)[-1] == 205_000


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000), st.sampled_from(["cnp", "sent", "timer"]), st.integers(1, 30_000)
        ),
        max_size=60,
    )
)
def test_rates_stay_in_order_whatever_happens(happenings: list[tuple[int, str, int]]) -> None:
    """least <= current <= target <= line, 0 < alpha <= 1, and a rate below the line has a timer
    that brings it back."""
    cc = dcqcn(min_rate=50_000)
    now = 0
    for wait, what, size in happenings:
        now += wait
        if what == "cnp":
            cc.on_cnp(now)
        elif what == "sent":
            cc.on_sent(now, size)
        elif now >= cc.timer_at:
            cc.on_timer(now)
        assert 50_000 <= cc.current <= cc.target <= LINE
        assert 0 < cc.alpha_now(now) <= 1
        assert cc.current == LINE or now - 1_000_000 < cc.timer_at < NEVER
        assert cc.rate == (0 if cc.current == LINE else int(cc.current))
    while cc.timer_at < NEVER:
        cc.on_timer(cc.timer_at)
    assert cc.current == LINE


# --- pacing ---------------------------------------------------------------------------------------


def test_what_is_left_of_the_wait_follows_the_rate() -> None:
    cc = dcqcn(timer_ps=4 * MS, alpha_ps=1 << 40)
    cc.on_cnp(0)
    cc.on_sent(0, 1000)
    assert cc.next_send_ps == 2 * FRAME_PS, "half the rate"
    cc.on_timer(4 * MS)  # to 750,000 with three quarters of the wait to go: two thirds of that
    assert cc.next_send_ps == 4 * MS + 12 * MS * 2 // 3
    cc.on_cnp(6 * MS)  # to 375,000 with 6 ms to go: twice that
    assert cc.next_send_ps == 18 * MS


def test_lateness_within_the_slack_is_made_up_for_and_idleness_is_not() -> None:
    cc = FixedWindow(1, LINE, slack_ps=1000)
    cc.on_sent(0, 1000)
    cc.on_sent(FRAME_PS + 1000, 1000)
    assert cc.next_send_ps == 2 * FRAME_PS
    cc.on_sent(2 * FRAME_PS + 1001, 1000)
    assert cc.next_send_ps == 3 * FRAME_PS + 1001


def test_a_limit_of_the_queue_pairs_own_is_its_line_rate() -> None:
    cc = dcqcn(paced=True)
    cc.on_sent(0, 1000)
    assert cc.next_send_ps == FRAME_PS
    cc.on_cnp(0)
    stages(cc, 6)
    assert (cc.current, cc.rate) == (LINE, LINE)


def test_a_fixed_window_does_not_mind() -> None:
    cc = FixedWindow(5000)
    for what in (cc.on_cnp, cc.on_loss, cc.on_timer):
        what(1)
    cc.on_sent(1, 1000)
    assert (cc.window, cc.rate, cc.next_send_ps, cc.timer_at) == (5000, 0, -NEVER, NEVER)


def test_without_a_clamp_only_a_stage_of_the_timer_lets_a_cut_move_the_target() -> None:
    cc = dcqcn(clamp=False)
    cc.on_cnp(0)
    cc.on_cnp(200)
    assert (cc.target, cc.current) == (LINE, 250_000)
    cc.on_sent(210, 10_000)  # a stage of bytes
    assert (cc.target, cc.current) == (LINE, 625_000)
    cc.on_cnp(400)
    assert (cc.target, cc.current) == (LINE, 312_500)
    cc.on_timer(1400)
    assert (cc.target, cc.current) == (LINE, 656_250)
    cc.on_cnp(1450)
    assert (cc.target, cc.current) == (656_250, 328_125)


# --- notification point ---------------------------------------------------------------------------


def test_one_cnp_per_interval() -> None:
    point = NotificationPoint(50)
    assert [t for t in range(7, 180) if point.on_mark(t)] == [7, 57, 107, 157]
    assert point.on_mark(1000)
    assert not point.on_mark(1049)


# --- options --------------------------------------------------------------------------------------


def test_published_parameters() -> None:
    fabric = load_fabric("rack16")
    o = Options(fabric, {})
    p = o.dcqcn
    assert o.algorithm == "dcqcn"
    assert o.cnp_interval_ps == 50 * US
    assert (p.timer_ps, p.alpha_ps, p.cut_ps) == (55 * US, 55 * US, 4 * US)
    assert (p.line, p.rate_ai, p.rate_hai, p.min_rate) == (10**11, 1e8, 1e9, 10**8)
    assert (p.g, p.initial_alpha, p.fast_recovery, p.byte_counter) == (1 / 256, 1.0, 5, 10_000_000)
    assert o.window == 1024 * (4096 + 138), "no window but what can be outstanding"
    assert o.ack_every == 14, "half a BDP of 29.5 packets"
    assert o.rto_ps == 10 * fabric.base_rtt_ps
    # on a 40 Gb/s port these are the paper's own figures
    papers = Options(fabric.with_(nic_rate=4 * 10**10), {}).dcqcn
    assert (papers.rate_ai, papers.rate_hai) == (40e6, 400e6)


def test_what_nvidias_adapters_ship_with() -> None:
    """Rates are in bit/s and the same at any rate of the port; a key that is set has its own
    value."""
    for fabric in (load_fabric("rack16"), load_fabric("cluster-d")):
        o = Options(fabric, {"profile": "nvidia"})
        p = o.dcqcn
        assert (o.cnp_interval_ps, p.timer_ps, p.alpha_ps, p.cut_ps) == (
            4 * US,
            300 * US,
            US,
            4 * US,
        )
        assert (p.g, p.initial_alpha, p.fast_recovery, p.byte_counter, p.clamp) == (
            5 / 1024,
            1023 / 1024,
            1,
            32_767,
            False,
        )
        assert (p.line, p.rate_ai, p.rate_hai) == (
            fabric.nic_rate,
            pytest.approx(5e6),
            pytest.approx(50e6),
        )
        assert p.min_rate == pytest.approx(1e6, abs=1)
    assert (
        Options(load_fabric("rack16"), {"profile": "zhu"}).dcqcn
        == Options(load_fabric("rack16"), {}).dcqcn
    )
    limited = Options(
        load_fabric("rack16"),
        {"profile": "nvidia", "rate_limit": 10**10, "g": 0.5, "rate_hai": 0.1},
    ).dcqcn
    assert (limited.g, limited.rate_ai, limited.rate_hai, limited.alpha_ps) == (
        0.5,
        pytest.approx(5e6),
        1e9,
        US,
    )


@pytest.mark.parametrize("recovery", ["go-back-n", "selective"])
def test_no_congestion_control_is_a_line_rate_and_1024_packets_out(recovery: str) -> None:
    fabric = load_fabric("cluster-d").with_(pfc=True)
    o, fixed = (
        Options(fabric, {"recovery": recovery, **more})
        for more in ({"congestion": "none"}, {"congestion": "fixed", "window_bdp": 0.0})
    )
    cc = o.congestion()
    assert isinstance(cc, FixedWindow) and (cc.window, cc.rate) == (1024 * (4096 + 138), 0)
    assert (o.window, o.ack_every, o.rto_ps) == (fixed.window, fixed.ack_every, fixed.rto_ps), (
        "a fixed window of 0 is the same"
    )
    cc.on_sent(0, 4234)
    cc.on_cnp(0)
    assert (cc.rate, cc.next_send_ps, cc.timer_at) == (0, -NEVER, NEVER)


def test_timeouts_by_name() -> None:
    demo = load_fabric("rack16")
    deployed = 67_108_864_000
    for fabric, rto in ((demo, 10 * demo.base_rtt_ps), (demo.with_(pfc=True), deployed)):
        fixed, adaptive = Options(fabric, {}), Options(fabric, {"rto": "adaptive"})
        assert (fixed.rto_ps, fixed.rto_most_ps) == (rto, rto)
        assert (adaptive.rto_ps, adaptive.rto_most_ps) == (10 * demo.base_rtt_ps, deployed)
    own = Options(demo, {"rto": "adaptive", "rto_ns": 16_000, "rto_most_ns": 64_000})
    assert (own.rto_ps, own.rto_most_ps) == (16_000_000, 64_000_000)
    assert (
        Options(demo, {"rto": "adaptive", "rto_ns": 16_000, "rto_most_ns": 8_000}).rto_most_ps
        == 16_000_000
    )


def test_every_parameter_can_be_set() -> None:
    fabric = near(load_fabric("tiny"))
    set_to = {
        "congestion": "fixed",
        "window_bdp": 2.0,
        "cnp_interval_us": 4.0,
        "cut_interval_us": 5.0,
        "alpha_timer_us": 1.0,
        "g": 0.5,
        "increase_timer_us": 300.0,
        "initial_alpha": 0.25,
        "fast_recovery": 1,
        "byte_counter": 32_767,
        "rate_ai": 0.01,
        "rate_hai": 0.1,
        "min_rate": 0.002,
        "rate_limit": 10**10,
        "clamp_target": False,
    }
    o = Options(fabric, set_to)
    p = o.dcqcn
    assert (
        isinstance(o.congestion(), FixedWindow)
        and o.congestion().window == 2 * fabric.plane_bdp
        and o.congestion().rate == 10**10
    )
    assert (o.cnp_interval_ps, p.cut_ps, p.alpha_ps, p.timer_ps) == (4 * US, 5 * US, US, 300 * US)
    assert (p.g, p.initial_alpha, p.fast_recovery, p.byte_counter, p.clamp) == (
        0.5,
        0.25,
        1,
        32_767,
        False,
    )
    assert (p.line, p.rate_ai, p.rate_hai, p.min_rate) == (10**10, 1e8, 1e9, 2 * 10**7)
    limited = Options(fabric, {"rate_limit": 10**10}).congestion()
    assert isinstance(limited, Dcqcn) and limited.rate == 10**10
    assert Options(fabric, {"congestion": "fixed"}).window == int(1.5 * fabric.plane_bdp)
    assert Options(fabric, {"congestion": "fixed"}).ack_every == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("congestion", "nscc"),
        ("g", 1.5),
        ("g", True),
        ("cnp_interval_us", 0),
        ("rate_ai", 0),
        ("min_rate", 2),
        ("byte_counter", 0),
        ("fast_recovery", -1),
        ("initial_alpha", "1"),
        ("congestion", 1),
        ("profile", "mellanox"),
        ("rto", "doubling"),
        ("rto_most_ns", 0),
    ],
)
def test_values_that_cannot_be(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{key} = ") as said:
        Options(near(load_fabric("tiny")), {key: value})
    assert "\n" not in str(said.value)
