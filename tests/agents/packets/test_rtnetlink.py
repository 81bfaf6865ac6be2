"""The rtnetlink codec, against bytes written by hand after rtnetlink(7) and against this machine's
own kernel."""

from __future__ import annotations

import errno
import socket
import struct

from hypothesis import given
from hypothesis import strategies as st

from agents.packets import rtnetlink


def ask(kind: int, flags: int, body: bytes) -> list[rtnetlink.Message]:
    """The kernel's answers, to the end of a dump or to an acknowledgement."""
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as s:
        s.settimeout(5)
        s.send(rtnetlink.request(kind, flags, 7, body))
        answers: list[rtnetlink.Message] = []
        while not answers or answers[-1].kind not in (rtnetlink.NLMSG_DONE, rtnetlink.NLMSG_ERROR):
            answers += rtnetlink.messages(s.recv(1 << 18))
        return answers


def test_a_message_by_hand() -> None:
    body = (
        struct.pack("=BxHiII", 0, 1, 5, 0x10001, 0)
        + struct.pack("=HHB3x", 5, 16, 6)
        + struct.pack("=HHI", 8, 4, 1500)
    )
    data = struct.pack("=IHHII", 16 + len(body), 16, 0, 9, 0) + body
    (message,) = rtnetlink.messages(data)
    assert (message.kind, message.serial) == (rtnetlink.RTM_NEWLINK, 9)
    state = rtnetlink.link_state(message.body)
    assert state == (5, 0x10001, 6)
    assert state.carries
    assert not state._replace(flags=rtnetlink.IFF_UP).carries
    assert not state._replace(flags=rtnetlink.IFF_LOWER_UP).carries


def test_the_kernel_lists_its_interfaces() -> None:
    answers = ask(rtnetlink.RTM_GETLINK, rtnetlink.NLM_F_DUMP, rtnetlink.link())
    assert {a.serial for a in answers} == {7}
    assert answers[-1].kind == rtnetlink.NLMSG_DONE
    states = [rtnetlink.link_state(a.body) for a in answers[:-1]]
    assert {s.ifindex for s in states} == {index for index, _ in socket.if_nameindex()}


def test_the_kernel_says_what_is_wrong() -> None:
    (answer,) = ask(rtnetlink.RTM_GETLINK, rtnetlink.NLM_F_ACK, rtnetlink.link(2_000_000_000))
    assert answer.kind == rtnetlink.NLMSG_ERROR
    assert rtnetlink.error(answer) == errno.ENODEV


@given(st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=20)), max_size=5))
def test_attributes_come_back_as_they_went(values: list[tuple[int, bytes]]) -> None:
    data = b"".join(rtnetlink.attribute(kind, value) for kind, value in values)
    assert len(data) % 4 == 0
    assert rtnetlink.attributes(data) == values
    assert rtnetlink.attributes(b"head" + data, 4) == values


@given(st.binary(max_size=200))
def test_nonsense_is_no_exception(data: bytes) -> None:
    rtnetlink.attributes(data)
    for message in rtnetlink.messages(data):
        assert len(message.body) <= len(data) - 16


@given(st.binary(max_size=40), st.integers(0, 200))
def test_what_is_cut_short_is_no_message(body: bytes, cut: int) -> None:
    data = rtnetlink.request(rtnetlink.RTM_NEWLINK, 0, 1, body)
    whole = 16 + len(body)
    assert rtnetlink.messages(data[:cut]) == (
        [(rtnetlink.RTM_NEWLINK, 1, body)] if cut >= whole else []
    )


def test_a_token_bucket_by_hand() -> None:
    """Layouts of struct tcmsg, tc_tbf_qopt and tc_ratespec (linux/pkt_sched.h)."""
    body = rtnetlink.token_bucket(1003, 0x120000, 0x10002, 4_000_000_000, 1 << 20, 1 << 30)
    assert body[:20] == struct.pack("=B3xiIII", 0, 1003, 0x120000, 0x10002, 0)
    kind, options = rtnetlink.attributes(body, 20)
    assert kind == (1, b"tbf\0") and options[0] == 2
    (_, parameters), burst = rtnetlink.attributes(options[1])
    assert len(parameters) == 36 and burst == (6, struct.pack("=I", 1 << 20))
    assert struct.unpack_from("=BBHhHI", parameters) == (0, 1, 0, 0, 0, 4_000_000_000)
    assert struct.unpack_from("=III", parameters, 24) == (1 << 30, 0, 0)
    assert rtnetlink.token_rate(body) == (1003, 4_000_000_000)


def test_another_queue_has_no_token_rate() -> None:
    fifo = (
        rtnetlink.queue(7, 0x120000)
        + rtnetlink.attribute(1, b"bfifo\0")
        + rtnetlink.attribute(2, struct.pack("=I", 5))
    )
    assert rtnetlink.token_rate(fifo) == (7, -1)
    assert rtnetlink.token_rate(
        rtnetlink.queue(7, 0x120000) + rtnetlink.attribute(1, b"tbf\0")
    ) == (7, -1)
