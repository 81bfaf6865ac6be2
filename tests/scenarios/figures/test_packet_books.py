"""Books of a run: a loss that two parties tell of is one loss."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.figures.books import balanced, books
from testbed.results.record import Counted
from topologies.structs import plain


def test_a_frame_that_the_hosts_own_port_dropped_counts_once() -> None:
    """The port's program drops it inside the agent's sendmsg, which fails: both count. A port that
    is down refuses without counting."""
    ports = [
        {"port": "h0-p0", "node": "h0", "drop_link_down_packets": 2, "drop_tail_packets": 1},
        {"port": "p0-t0-0-u0", "node": "p0-t0-0", "drop_link_down_packets": 3},
    ]
    made = books(
        Counted(
            agent_counters={"0": {"tx_packets": 20, "rx_packets": 12, "tx_refused": 5}},
            counters_after=ports,
        )
    )
    assert made.causes == {"drop_tail": 1, "drop_link_down": 5, "tx_refused": 2}
    assert (made.lost, made.unexplained) == (8, 0)


def with_background(**more: int) -> Counted:
    """The agents sent 20 and got 15; background sent 10 and got 4. Of eleven lost four went with a
    flushed queue."""
    ports: list[dict[str, Any]] = [
        {
            "port": "h0-p0",
            "node": "h0",
            "background_left": 10,
            "drop_tail_packets": 3,
            "background_drop_tail": 2,
        },
        {
            "port": "p0-t0-0-u0",
            "node": "p0-t0-0",
            "drop_fault_loss": 4,
            "background_drop_fault_loss": 2,
            "flushed_packets": 4,
        },
        {
            "port": "h1-p0",
            "node": "h1",
            "background_arrived": 4,
            "corrupted": 3,
            "background_corrupted": 1,
        },
    ]
    ports[2] |= more
    agents = {"0": {"tx_packets": 20, "rx_packets": 15, "tx_refused": 1}}
    return Counted(agent_counters=agents, counters_after=ports)


def test_background_traffic_has_an_account_of_its_own() -> None:
    made = books(with_background())
    assert plain(made.background) == {
        "sent": 10,
        "delivered": 4,
        "lost": 6,
        "unexplained": 0,
        "causes": {"drop_tail": 2, "drop_fault_loss": 2, "flushed": 2},
    }
    assert (made.sent, made.delivered, made.lost, made.unexplained, made.corrupted) == (
        20,
        15,
        5,
        0,
        2,
    )
    # the one refused is the tail drop, told twice
    assert made.causes == {"drop_tail": 1, "drop_fault_loss": 2, "flushed": 2}
    assert balanced(made)


@pytest.mark.parametrize("arrived", [1, 5])
def test_a_frame_in_the_wrong_account_is_seen(arrived: int) -> None:
    """Background's frames that vanish are not made up for by the workload's flushed ones, nor the
    other way round."""
    made = books(with_background(background_arrived=arrived))
    assert made.background is not None
    assert (made.unexplained, made.background.unexplained) == ((2, 1) if arrived == 1 else (-1, 0))
    assert not balanced(made)


def test_without_background_nothing_is_said_of_it() -> None:
    made = books(
        Counted(
            agent_counters={"0": {"tx_packets": 2, "rx_packets": 2}},
            counters_after=[{"port": "h0-p0", "node": "h0"}],
        )
    )
    assert made.background is None and balanced(made)


def test_frames_of_the_kernels_transports_are_told_from_backgrounds_at_the_hosts_ports() -> None:
    """h0's port admits 27 of 30 (10 of them background), h1's takes 20 off the cable and a fault
    drops 3 there, 2 of them background's."""
    ports: list[dict[str, Any]] = [
        {
            "port": "h0-p0",
            "node": "h0",
            "admitted_packets": 27,
            "drop_tail_packets": 3,
            "background_left": 10,
            "background_drop_tail": 1,
        },
        {
            "port": "p0-t0-0-d1",
            "node": "p0-t0-0",
            "drop_tail_packets": 7,
            "background_drop_tail": 4,
        },
        {
            "port": "h1-p0",
            "node": "h1",
            "arrived_packets": 20,
            "background_arrived": 3,
            "drop_fault_loss": 3,
        },
    ]
    ports[2]["background_drop_fault_loss"] = 2
    made = books(
        Counted(kind="tcp", agent_counters={"0": {"retransmitted": 1}}, counters_after=ports)
    )
    assert (made.sent, made.delivered, made.lost, made.unexplained) == (20, 14, 6, 0)
    assert plain(made.background) == {
        "sent": 10,
        "delivered": 3,
        "lost": 7,
        "unexplained": 0,
        "causes": {"drop_tail": 5, "drop_fault_loss": 2},
    }
