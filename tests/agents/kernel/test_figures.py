"""What is read from the kernel: answers of its routing table, TCP_INFO, interface counters, and how
bytes are split."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.clock import WallClock
from agents.kernel.endpoint import Endpoint
from agents.kernel.info import read_info, subflows, unacknowledged, unsent
from agents.kernel.options import Options, congestion_controls
from agents.kernel.ports import HEADERS, PortBytes, bad_checksums, split
from agents.kernel.routes import Routes, first_segment, request
from agents.packets import rtnetlink
from topologies import load_fabric
from topologies.addressing import (
    host_of_inner,
    host_of_plane,
    inner_address,
    path_address,
    plane_address,
)

TINY = load_fabric("tiny")


def test_a_connection_tells_of_itself() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("::1", port)) as left, server.accept()[0]:
            left.sendall(bytes(1000))
            (flow,) = subflows(left, False)
            assert flow.local == (socket.inet_pton(socket.AF_INET6, "::1"), left.getsockname()[1])
            assert flow.remote == (socket.inet_pton(socket.AF_INET6, "::1"), port)
            assert flow.info.state == 1 and flow.info.data_segs_out == 1 and flow.info.segs_out >= 2
            assert (
                flow.info.cwnd > 0
                and flow.info.mss > 500
                and flow.info.rtt_us > 0
                and flow.info.total_retrans == 0
            )
            assert unacknowledged(left) in (0, 1000) and unsent(left) == 0


def test_an_older_kernels_info_has_no_count_of_timeouts() -> None:
    data = bytearray(232)
    struct.pack_into("=I", data, 100, 7)
    info = read_info(bytes(data))
    assert (info.total_retrans, info.total_rto) == (7, -1)
    assert read_info(bytes(data) + b"\0" * 8 + struct.pack("=HHI", 3, 0, 0)).total_rto == 3


def route(ev: int, number: int) -> bytes:
    """The kernel's answer number ``number`` to a question for the route from h0 to h3: EV
    ``ev``."""
    header = struct.pack("=BBBBHBB", 43, 2, 4, 0, 0, 0, 0)  # a routing header of one segment
    tunnel = struct.pack("=i", 2) + header[:8] + path_address(TINY, 0, 3, ev)
    encap = struct.pack("=HH", 4 + len(tunnel), 1) + tunnel
    body = bytes(12) + struct.pack("=HH", 4 + len(encap), 22 | 0x8000) + encap
    return struct.pack("=IHHII", 16 + len(body), rtnetlink.RTM_NEWROUTE, 0, number, 0) + body


def test_a_routes_segment_is_found() -> None:
    segment, (answer,) = path_address(TINY, 0, 3, 1), rtnetlink.messages(route(1, 1))
    assert first_segment(answer) == segment
    for cut in range(len(answer.body)):
        shorter = answer._replace(body=answer.body[:cut])
        assert first_segment(shorter) in (b"", segment), "never an exception, never something else"
    assert len(request((bytes(16), 1, bytes(16), 2), 3)) % 4 == 0


def test_a_late_answer_is_not_taken_for_the_next_flows() -> None:
    """The kernel's answer to a question that was given up comes before the one to the next
    question."""
    routes = Routes(TINY, 0)
    routes.close()

    class Slow:
        """Says nothing to the first question until the second is asked."""

        asked: ClassVar[list[bytes]] = []
        answers: ClassVar[list[bytes]] = []

        def send(self, question: bytes) -> None:
            self.asked.append(question)
            if len(self.asked) == 2:
                self.answers += [route(1, 1), route(0, 2)]

        def recv(self, most: int) -> bytes:
            if not self.answers:
                raise TimeoutError
            return self.answers.pop(0)

    routes._socket = Slow()  # type: ignore[assignment]
    flows = [(inner_address(0), port, inner_address(3), 47910) for port in (10_001, 10_002)]
    assert [routes.ev(flow) for flow in flows] == [-1, 0]


def test_who_has_just_connected_is_told_the_path_however_young_the_last_look_is() -> None:
    """A fault on a path that is in use asks at once; what was looked at some milliseconds before
    had no connection yet."""
    engine = Endpoint(TINY, 0, WallClock(), "tcp", {}, 1)
    engine._routes = Routes(TINY, 0)
    engine._routes.close()
    engine._routes.ev = lambda flow: 1  # type: ignore[method-assign]
    engine.new(1, 3, 7)
    assert engine.paths() == []
    engine.observed[1].expected = (inner_address(0), 10_001, inner_address(3), 47910)
    assert [(row["peer"], row["ev"], row["active"]) for row in engine.paths()] == [(3, 1, True)]


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_a_split_loses_nothing(amount: int, weights: list[int]) -> None:
    parts = split(amount, weights)
    assert sum(parts) == amount and len(parts) == len(weights) and min(parts) >= 0
    if any(weights):
        assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if not weight)
        assert all(
            abs(part - amount * weight / sum(weights)) <= len(weights)
            for part, weight in zip(parts, weights, strict=True)
        )


def test_port_bytes_are_payload(tmp_path: Path) -> None:
    file = tmp_path / "dev"

    def set_to(*counts: tuple[int, int, int, int]) -> None:
        lines = [
            f" h0-p{i}: {r} {rp} 0 0 0 0 0 0 {t} {tp} 0 0 0 0 0 0"
            for i, (r, rp, t, tp) in enumerate(counts)
        ]
        file.write_text(
            "one\ntwo\n    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n" + "\n".join(lines) + "\n"
        )

    set_to((0, 0, 0, 0), (0, 0, 0, 0))
    ports = PortBytes(["h0-p0", "h0-p1"], file)
    set_to((5000 + HEADERS, 1, HEADERS - 20, 1), (0, 0, 2 * (4000 + HEADERS), 2))
    assert ports.growth() == ([0, 8000], [5000, 0]), "an ACK alone weighs nothing"
    assert ports.growth() == ([0, 0], [0, 0])
    with pytest.raises(ValueError, match="no interface h9-p0"):
        PortBytes(["h9-p0"], file)


def test_bad_checksums_are_those_of_tcp(tmp_path: Path) -> None:
    file = tmp_path / "snmp"
    file.write_text(
        "Ip: Forwarding\nIp: 2\nTcp: InSegs InErrs OutRsts InCsumErrors\nTcp: 9 8 7 6\n"
        "Udp: InCsumErrors\nUdp: 5\n"
    )
    assert bad_checksums(file) == 6
    assert bad_checksums() >= 0


def test_options_name_what_there_is() -> None:
    there = congestion_controls()
    assert Options("tcp", TINY, {"congestion": there[0]}).congestion == there[0]
    with pytest.raises(ValueError, match=f"congestion = 'vegasx': this kernel has {there[0]}"):
        Options("tcp", TINY, {"congestion": "vegasx"})
    with pytest.raises(ValueError, match="did you mean 'congestion'"):
        Options("tcp", TINY, {"congestio": "cubic"})
    for bad in (0, True, "20", 10**6):
        with pytest.raises(ValueError, match="1 to 3600 seconds"):
            Options("mptcp", TINY, {"user_timeout": bad})
    with pytest.raises(ValueError, match="takes up to 8"):
        Options("mptcp", TINY.with_(planes=9), {})


def test_a_connection_is_given_up_after_the_same_network_time_at_every_dilation_never_soon() -> (
    None
):
    usual = Options("tcp", TINY, {})
    assert [
        usual.user_timeout_s(WallClock(dilation)) for dilation in (1e4, 1e5, 1e6)
    ] == pytest.approx([20, 160, 1600])
    assert Options("tcp", TINY, {"user_timeout": 5}).user_timeout_s(WallClock(1e6)) == 5


def test_plane_addresses_are_nobody_elses() -> None:
    seen = {plane_address(plane, host) for plane in range(8) for host in range(64)} | {
        inner_address(host) for host in range(64)
    }
    assert len(seen) == 9 * 64
    assert all(
        host_of_plane(plane_address(p, h)) == (p, h) and host_of_inner(plane_address(p, h)) == -1
        for p in (0, 7)
        for h in (0, 63)
    )
    assert host_of_plane(inner_address(3)) == (-1, -1) == host_of_plane(bytes(16))
