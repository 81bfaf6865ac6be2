"""What iperf3's reports say, of both ends, of flows that were ended early and of those that
failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.clock import WallClock
from testbed.emulated.iperf_report import complaint, flow_figures

RECORDED = Path(__file__).parent / "data" / "iperf3"
"""Reports of iperf3 3.12 between hosts of `tiny`, both ends: -b 4M -l 4000 for UDP; those called
cut were ended by SIGTERM."""


def recorded(name: str) -> Path:
    return RECORDED / f"iperf3-{name}"


def test_reports_of_both_ends_are_read() -> None:
    tcp, udp, two = (flow_figures(recorded(name)) for name in ("tcp", "udp", "udp-parallel"))
    assert tcp["sent_bps"] == pytest.approx(3234408 * 8 / 2.003218) and tcp[
        "received_bps"
    ] == pytest.approx(2441376 * 8 / 2.003218)
    assert (tcp["retransmits"], tcp["jitter_ms"], tcp["lost_percent"]) == (0, None, None)
    assert udp["received_bps"] == pytest.approx(udp["sent_bps"]) and udp[
        "sent_bps"
    ] == pytest.approx(4e6, rel=0.01)
    assert udp["lost_percent"] == 0 and 0 < udp["jitter_ms"] < 1 and udp["retransmits"] is None
    assert udp["seconds"] == pytest.approx(2, rel=0.01)
    assert two["sent_bps"] == pytest.approx(4e6, rel=0.02)  # two streams of 2 Mbit/s
    assert not any(complaint(recorded(name), False) for name in ("tcp", "udp", "udp-parallel"))


def test_a_flow_that_we_ended_is_no_failure_and_its_bytes_count_over_the_senders_time() -> None:
    """The server's own seconds end with its last interval: its rate would be too high."""
    udp, tcp = flow_figures(recorded("udp-cut")), flow_figures(recorded("tcp-cut"))
    assert udp["received_bps"] == pytest.approx(748000 * 8 / 1.48883) == udp["sent_bps"]
    assert (
        tcp["received_bps"] == pytest.approx(1810272 * 8 / 1.482433)
        and tcp["received_bps"] < tcp["sent_bps"]
    )
    assert complaint(recorded("udp-cut"), True) == "" == complaint(recorded("tcp-cut"), True)
    assert (
        complaint(recorded("udp-cut"), False)
        == "iperf3's client says: interrupt - the client has terminated"
    )


def test_what_went_wrong_is_said(tmp_path: Path) -> None:
    assert (
        complaint(recorded("refused"), True)
        == "iperf3's client says: unable to connect to server: Connection refused"
    )
    assert set(flow_figures(recorded("refused")).values()) == {None}
    assert complaint(tmp_path / "iperf3-gone", False) == "iperf3's client says: it was not started"
    (tmp_path / "iperf3-half.json").write_text('{"start": {')
    assert (
        complaint(tmp_path / "iperf3-half", True)
        == "iperf3's client says: iperf3 left no whole report"
    )
    (tmp_path / "iperf3-none.json").write_text("")
    assert (
        complaint(tmp_path / "iperf3-none", True) == "iperf3's client says: iperf3 left no report"
    )
    cut = '{"intervals": [], "end": {}, "error": "interrupt - the client has terminated"}'
    for ending in ("", "-server"):
        (tmp_path / f"iperf3-early{ending}.json").write_text(cut)
    assert (
        complaint(tmp_path / "iperf3-early", True)
        == "it was ended before it had sent anything: its path may be dead"
    )


def test_rates_are_the_networks_where_the_client_kept_its_clock(tmp_path: Path) -> None:
    report = json.loads(Path(f"{recorded('udp')}.json").read_text())
    (tmp_path / "x.json").write_text(
        json.dumps({**report, "extra_data": json.dumps(WallClock(10_000).to_dict())})
    )
    (tmp_path / "x-server.json").write_text(Path(f"{recorded('udp')}-server.json").read_text())
    made = flow_figures(tmp_path / "x")
    assert made["sent_bps"] == pytest.approx(4e10, rel=0.01) and made["seconds"] == pytest.approx(
        2, rel=0.01
    )
