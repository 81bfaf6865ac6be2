"""When senders leave a path and use it again: by the endpoint's rules, worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from testbed.fluid.senders import BUSY_RTTS, Senders
from topologies.fabrics import load_fabric
from topologies.structs import Refused

FABRIC = load_fabric("demo").real
SENDERS = Senders.of(FABRIC, {})
RTT, BUSY = FABRIC.base_rtt_ns, round(FABRIC.base_rtt_ns * BUSY_RTTS)
LINE = float(FABRIC.host_rate)


def test_a_sender_that_goes_on_sees_the_loss_after_an_rtt_and_the_reordering_window() -> None:
    loss = SENDERS.loss(LINE, 16, slack_ns=1e6)
    assert loss.known_ns == BUSY + RTT
    assert loss.verdict_ns == loss.known_ns + BUSY // 4 and loss.there_ns == loss.known_ns + RTT // 2


def test_one_that_has_nothing_more_to_send_needs_a_tail_probe() -> None:
    dry = SENDERS.loss(LINE, 16, slack_ns=2_000)
    assert dry.last_ns == RTT // 2 + 2_000
    assert dry.known_ns == dry.last_ns + 4 * BUSY  # the last SACK, two smoothed RTTs of silence, the probe's answer


def test_without_trimming_no_nack_is_waited_for() -> None:
    bare = Senders.of(FABRIC.with_(trimming=False), {}).loss(LINE, 16, 1e6)
    assert bare.verdict_ns == bare.known_ns


def test_losses_grow_with_the_rate_up_to_the_paths_share_of_the_window() -> None:
    counts = [SENDERS.loss(LINE * share, 16, 1e6).packets for share in (0.01, 0.3, 1.0, 10.0)]
    assert counts == sorted(counts) and counts[0] <= 2
    window = 1.5 * FABRIC.plane_bdp * FABRIC.planes / FABRIC.mtu
    assert counts[-1] == -(-window // 16) + 1


def test_a_path_returns_after_three_answers_and_later_after_every_flap() -> None:
    back = [SENDERS.readmitted_ns(0, 0, flaps) for flaps in (1, 2, 3, 9)]
    assert back[0] == BUSY + RTT + 2 * 2 * BUSY  # a probe an RTT after the verdict, its answer, and two more rounds
    assert [b - a for a, b in pairwise(back)] == [3 * 2 * BUSY, 6 * 2 * BUSY, 20 * 2 * BUSY]  # 3, 6, 12, at most 32


def test_a_path_that_was_dead_for_long_is_probed_every_four_rtts() -> None:
    """The mending falls half a gap before the next probe, on average."""
    long_dead = SENDERS.readmitted_ns(0, 10_000_000, 1) - 10_000_000
    assert long_dead == 4 * RTT // 2 + RTT + 2 * 2 * BUSY
    assert SENDERS.readmitted_ns(0, 10_000_000, 1, alone=True) - 10_000_000 == 4 * RTT // 2 + RTT


def test_options_change_the_rules_and_unknown_ones_are_refused() -> None:
    eager = Senders.of(FABRIC, {"probe_successes": 1, "active_evs": 8})
    assert eager.readmitted_ns(0, 0, 1) == BUSY + RTT
    assert (eager.evs(4), SENDERS.evs(4), SENDERS.evs(64)) == (2, 4, 32)
    with pytest.raises(Refused):
        Senders.of(FABRIC, {"no_such": 1})


def test_a_port_returns_after_a_hold_down_that_doubles() -> None:
    first, second = (SENDERS.port_back_ns(flaps) for flaps in (1, 2))
    assert (first, second) == (RTT // 2 + 2 * BUSY + RTT, RTT // 2 + 4 * BUSY + RTT)
