"""The books on rows made by hand: a lost packet has nowhere to hide."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.dataplane.counters import books, mean_backlog, totals
from testbed.dataplane.trunk import lost

ZERO = (
    "admitted_packets admitted_bytes arrived_packets arrived_bytes drop_tail_packets "
    "drop_tail_bytes drop_high_packets drop_trim_failed drop_link_down_packets drop_no_route "
    "drop_not_mine drop_hop_limit drop_switch_down flushed_packets flushed_bytes marked "
    "trimmed met_bytes met_packets backlog_bytes backlog_mean_bytes backlog_peak_bytes "
    "backlog_high_peak_bytes"
).split()


def row(port: str, node: str, peer: str, **values: int) -> dict[str, Any]:
    return {
        "port": port,
        "node": node,
        "peer": peer,
        "plane": 0,
        **dict.fromkeys(ZERO, 0),
        **values,
    }


def chain() -> dict[str, dict[str, Any]]:
    """h0 -> switch -> h1: twelve sent, one flushed on the first cable, eleven arrive at the switch.

    There one has no route, one meets a full buffer, one is trimmed to 42 bytes, one cannot be, and
    one, trimmed, meets a full high class.
    """
    rows = [
        row(
            "h0-p0",
            "h0",
            "p0-t0-0-d0",
            admitted_packets=12,
            admitted_bytes=1200,
            flushed_packets=1,
            flushed_bytes=100,
        ),
        row(
            "p0-t0-0-d0",
            "p0-t0-0",
            "h0-p0",
            arrived_packets=11,
            arrived_bytes=1100,
            drop_no_route=1,
        ),
        row(
            "p0-t0-0-d1",
            "p0-t0-0",
            "h1-p0",
            admitted_packets=7,
            admitted_bytes=642,
            trimmed=1,
            drop_trim_failed=1,
            drop_tail_packets=2,
            drop_tail_bytes=142,
            drop_high_packets=1,
        ),
        row("h1-p0", "h1", "p0-t0-0-d1", arrived_packets=7, arrived_bytes=642),
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
        ("p0-t0-0-d1", "drop_trim_failed", "p0-t0-0", "switch"),
    ],
)
def test_one_packet_without_a_cause_is_seen(port: str, counter: str, where: str, kind: str) -> None:
    rows = chain()
    rows[port][counter] -= 1
    assert [
        (d["where"], d["kind"], max(d["packets"], d["bytes"])) for d in books(rows.values())
    ] == [(where, kind, 1)]


def test_totals_add_counters_and_take_the_largest_peak() -> None:
    rows = chain()
    for name in ("backlog_peak_bytes", "backlog_high_peak_bytes"):
        rows["h0-p0"][name], rows["h1-p0"][name] = 5, 3
    found = totals(rows.values())
    assert found["admitted_packets"] == 19 and "plane" not in found
    assert found["backlog_peak_bytes"] == found["backlog_high_peak_bytes"] == 5


def test_the_mean_backlog_weighs_ports_by_their_packets() -> None:
    rows = chain()
    rows["h0-p0"] |= {"met_bytes": 900, "met_packets": 9, "backlog_mean_bytes": 100}
    rows["h1-p0"] |= {"met_bytes": 500, "met_packets": 1, "backlog_mean_bytes": 500}
    assert totals(rows.values())["backlog_mean_bytes"] == 140
    assert mean_backlog(row("h0-p0", "h0", "x")) == 0


def test_rows_of_results_from_before_trimming_still_add_up() -> None:
    rows = chain()
    rows["p0-t0-0-d1"]["drop_tail_packets"] += rows["p0-t0-0-d1"].pop("drop_trim_failed")
    for r in rows.values():
        r.pop("drop_trim_failed", None)
    assert books(rows.values()) == []


def test_what_a_trunk_loses_is_in_the_books_of_its_switch() -> None:
    rows = chain()
    rows["p0-t0-0-d0"]["arrived_packets"] += 3  # three more came in, for a port of another machine
    rows["h0-p0"]["admitted_packets"] += 3
    assert [(gap["where"], gap["packets"]) for gap in books(rows.values())] == [("p0-t0-0", 3)]
    rows["p0-t0-0-d1"]["drop_trunk"] = 3
    assert books(rows.values()) == []


def test_lost_on_the_trunk_is_what_all_sent_to_a_port_and_its_machine_did_not_receive() -> None:
    sent_by_a = {5: [10, 1000, 0, 0, 0, 0], 6: [4, 400, 0, 0, 0, 0]}
    sent_by_b = {5: [7, 700, 0, 0, 0, 0], 9: [0, 0, 3, 300, 0, 0]}
    received_by_c = {5: [0, 0, 15, 1500, 0, 0], 6: [0, 0, 4, 400, 0, 0]}
    assert lost([sent_by_a, sent_by_b, received_by_c]) == {5: 2, 9: -3}
