"""docs/why/protocol.md suffices by itself: its layouts, values and states are the code's."""

from __future__ import annotations

from random import Random

import pytest

from agents.mrc import wire
from agents.packets import dscp
from agents.packets.headers import BTH_AT, ICRC
from docs.tools.protocol import PAGE, PARTS, written
from testbed.conform.layouts import AFTER_BTH, CLASSES, HEADERS, PACKETS, REASONS, SYNDROMES, size

OUTSIDE = {
    "dscp",
    "ecn",
    "hop_limit",
    "outer_src",
    "outer_dst",
    "inner_src",
    "inner_dst",
    "ev",
    "udp_port",
    "name",
    "payload",
}
"""What the engine's reader tells that is in no header from the BTH on."""


@pytest.mark.parametrize("name", PARTS)
def test_the_page_has_the_part(name: str) -> None:
    page = PAGE.read_text()
    assert page == written(page, name), "write it anew: python -m docs.tools.protocol"


def test_a_page_without_a_place_is_found() -> None:
    with pytest.raises(ValueError, match="no place for layouts"):
        written(PAGE.read_text().replace("layouts: end", "layouts"), "layouts")


@pytest.mark.parametrize("opcode", AFTER_BTH)
def test_a_frame_of_any_bits_is_read_by_the_page_as_by_the_engine(opcode: int) -> None:
    random = Random(opcode)
    headers = ("BTH", *AFTER_BTH[opcode])
    length = sum(map(size, headers))
    keys: set[str] = set()
    for _ in range(100):
        frame = bytearray(random.randbytes(BTH_AT + length + ICRC))
        frame[12:14], frame[20], frame[60], frame[BTH_AT] = b"\x86\xdd", 41, 17, opcode
        frame[14:16] = b"\x60\x00"  # a class that is no trimmed packet's
        said = wire.describe(bytes(frame))
        bits, bit = int.from_bytes(frame[BTH_AT : BTH_AT + length]), 8 * length
        for header in headers:
            for field in HEADERS[header]:
                bit -= field.width
                value = bits >> bit & (1 << field.width) - 1
                if field.signed and value >> field.width - 1:
                    value -= 1 << field.width
                if field.key in said:
                    keys.add(field.key)
                    assert said[field.key] == value, f"{header}: {field.text}"
    assert said.keys() - keys <= OUTSIDE


def test_every_value_of_the_code_is_on_the_page() -> None:
    reasons = {
        value: name
        for name, value in vars(wire).items()
        if name in {row[0] for row in REASONS.values()}
    }
    assert {value: name for value, (name, _) in REASONS.items()} == reasons
    assert PACKETS == wire.OPCODE_NAMES and set(AFTER_BTH) == set(PACKETS)
    assert set(SYNDROMES) == {
        value for name, value in vars(wire).items() if name.startswith("SYNDROME_")
    }
    assert {value: name for value, (name, _) in CLASSES.items()} == {
        v: name for v, name in dscp.NAMES.items() if v != dscp.ROCE
    }
