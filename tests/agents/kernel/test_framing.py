"""Messages as a stream: however it is cut, everything lands where its header says, and nothing else
is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kernel.framing import (
    BYE,
    HEADER_BYTES,
    HELLO,
    WRITE,
    FramingError,
    Header,
    Inbound,
    Memory,
)

SIZE = 4096
MESSAGES = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.binary(max_size=300), st.integers(-1, 0xFFFFFFFF)),
    max_size=12,
)


def feed(inbound: Inbound, stream: bytes, cuts: list[int]) -> list[Header]:
    """Give the stream in pieces of at most those sizes, over and over, as a receive call would."""
    done: list[Header] = []
    at = turn = 0
    while at < len(stream):
        most = cuts[turn % len(cuts)]
        turn += 1
        count = 0
        for buffer in inbound.buffers():
            part = stream[at + count : at + min(most, count + len(buffer))]
            buffer[: len(part)] = part
            count += len(part)
        at += count
        done += inbound.took(count)
    return done


@given(MESSAGES, st.lists(st.integers(1, 500), min_size=1, max_size=6))
def test_any_cutting_gives_the_same_memory(
    messages: list[tuple[int, bytes, int]], cuts: list[int]
) -> None:
    memory = Memory()
    held = bytearray(SIZE + 300)
    region = memory.register(held)
    expected = bytearray(SIZE + 300)
    stream, headers = b"", []
    for offset, payload, imm in messages:
        header = Header(WRITE, region.va + offset, region.rkey, len(payload), imm)
        headers.append(header)
        stream += header.pack() + payload
        expected[offset : offset + len(payload)] = payload
    inbound = Inbound(memory)
    assert feed(inbound, stream, cuts) == headers
    assert held == expected
    assert inbound.placed == sum(len(payload) for _, payload, _ in messages)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES + 64))
def test_noise_never_lands(noise: bytes) -> None:
    memory = Memory()
    held = bytearray(64)
    memory.register(held)
    with pytest.raises(FramingError):
        feed(Inbound(memory), noise, [7])
    assert held == bytes(64)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_write_stays_within_its_region(va: int, rkey: int, length: int) -> None:
    memory = Memory()
    first, second = memory.register(bytearray(100)), memory.register(bytearray(100))
    inside = any(
        r.rkey == rkey and r.va <= va and va + length <= r.va + r.length for r in (first, second)
    )
    if inside:
        memory.at(va, rkey, length)
    else:
        with pytest.raises(FramingError) as caught:
            memory.at(va, rkey, length)
        assert caught.value.cause == "rx_refused_access"


@pytest.mark.parametrize("past", [-1, 1])
def test_the_edges_of_a_region(past: int) -> None:
    memory = Memory()
    region = memory.register(bytearray(100))
    assert len(memory.at(region.va, region.rkey, 100)) == 100
    assert len(memory.at(region.va + 100, region.rkey, 0)) == 0
    with pytest.raises(FramingError, match="are not within 100"):
        memory.at(region.va + past, region.rkey, 100)


@pytest.mark.parametrize(
    "bad",
    [
        Header(WRITE, 0, 0, 0, -2),
        Header(WRITE, 0, 0, 0, 1 << 32),
        Header(HELLO, 0, 0, 1, -1),
        Header(BYE, 0, 0, 9, -1),
    ],
)
def test_headers_that_no_peer_sends(bad: Header) -> None:
    with pytest.raises(FramingError):
        Header.unpack(bad.pack())


def test_only_writable_memory_is_registered() -> None:
    with pytest.raises(ValueError, match="writable"):
        Memory().register(memoryview(b"fixed"))
    with pytest.raises(ValueError, match="contiguous"):
        Memory().register(memoryview(bytearray(10))[::2])
