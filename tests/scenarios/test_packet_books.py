"""Books of a run: a loss that two parties tell of is one loss."""

from __future__ import annotations

from scenarios.measure import books


def test_a_frame_that_the_hosts_own_port_dropped_counts_once() -> None:
    """The port's program drops it inside the agent's sendmsg, which fails: both count. A port that is down refuses without counting."""
    ports = [
        {"port": "h0-p0", "node": "h0", "drop_link_down_packets": 2, "drop_tail_packets": 1},
        {"port": "p0-t0-0-u0", "node": "p0-t0-0", "drop_link_down_packets": 3},
    ]
    made = books({"agent_counters": {"0": {"tx_packets": 20, "rx_packets": 12, "tx_refused": 5}}, "counters_after": ports})
    assert made["causes"] == {"drop_tail": 1, "drop_link_down": 5, "tx_refused": 2}
    assert (made["lost"], made["unexplained"]) == (8, 0)
