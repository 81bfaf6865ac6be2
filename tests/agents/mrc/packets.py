"""WRITE packets for tests: every field has a value, those given are set."""

from __future__ import annotations

from typing import Any

from agents.mrc import wire
from agents.mrc.packet import WritePacket


def write_packet(**fields: Any) -> WritePacket:
    """A WRITE Only without an immediate, unless ``fields`` say otherwise."""
    packet = WritePacket()
    for name, value in {"op": wire.WRITE_ONLY, **fields}.items():
        setattr(packet, name, value)
    return packet
