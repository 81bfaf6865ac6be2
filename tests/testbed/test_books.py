"""The books on rows made by hand: a lost packet has nowhere to hide."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.dataplane.counters import books, totals

ZERO = (
    "admitted_packets admitted_bytes arrived_packets arrived_bytes drop_tail_packets drop_tail_bytes drop_link_down_packets drop_no_route "
    "drop_not_mine drop_hop_limit drop_switch_down flushed_packets flushed_bytes backlog_bytes backlog_peak_bytes"
).split()


def row(port: str, node: str, peer: str, **values: int) -> dict[str, Any]:
    return {"port": port, "node": node, "peer": peer, "plane": 0, **dict.fromkeys(ZERO, 0), **values}


def chain() -> dict[str, dict[str, Any]]:
    """h0 -> switch -> h1: ten sent, one flushed on the first cable, nine arrive at the switch, two of them dropped there."""
    rows = [
        row("h0-p0", "h0", "p0-t0-0-d0", admitted_packets=10, admitted_bytes=1000, flushed_packets=1, flushed_bytes=100),
        row("p0-t0-0-d0", "p0-t0-0", "h0-p0", arrived_packets=9, arrived_bytes=900, drop_no_route=1),
        row("p0-t0-0-d1", "p0-t0-0", "h1-p0", admitted_packets=7, admitted_bytes=700, drop_tail_packets=1, drop_tail_bytes=100),
        row("h1-p0", "h1", "p0-t0-0-d1", arrived_packets=7, arrived_bytes=700),
    ]
    return {r["port"]: r for r in rows}


def test_balanced_books_have_no_differences() -> None:
    assert books(chain().values()) == []


@pytest.mark.parametrize(
    ("port", "counter", "where", "kind"),
    [
        ("h0-p0", "flushed_packets", "h0-p0 -> p0-t0-0-d0", "cable"),
        ("h1-p0", "arrived_bytes", "p0-t0-0-d1 -> h1-p0", "cable"),
        ("p0-t0-0-d0", "drop_no_route", "p0-t0-0", "switch"),
        ("p0-t0-0-d1", "drop_tail_packets", "p0-t0-0", "switch"),
    ],
)
def test_one_packet_without_a_cause_is_seen(port: str, counter: str, where: str, kind: str) -> None:
    rows = chain()
    rows[port][counter] -= 1
    assert [(d["where"], d["kind"], max(d["packets"], d["bytes"])) for d in books(rows.values())] == [(where, kind, 1)]


def test_totals_add_counters_and_take_the_largest_peak() -> None:
    rows = chain()
    rows["h0-p0"]["backlog_peak_bytes"], rows["h1-p0"]["backlog_peak_bytes"] = 5, 3
    found = totals(rows.values())
    assert found["admitted_packets"] == 17 and found["backlog_peak_bytes"] == 5 and "plane" not in found
