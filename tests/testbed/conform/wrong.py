"""Endpoints that are wrong in one thing each: our engine, with something done to its frames or to
others'. iCRCs are made right again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testbed.conform import codec
from testbed.conform.layouts import AFTER_BTH, HEADERS
from testbed.conform.targets import OurEngine
from topologies import Fabric

SACK = codec.BTH + 12
"""Where what follows the BTH begins, a SETH or any other."""
Change = Callable[[bytes], bytes | None]
"""Returns the frame that goes on instead, or None for none."""


class Wrong(OurEngine):
    """Sends what ``out`` makes of its frames, and hears what ``into`` makes of others'."""

    def __init__(
        self,
        fabric: Fabric,
        host: int,
        out: Change = lambda frame: frame,
        into: Change = lambda frame: frame,
    ) -> None:
        super().__init__(fabric, host)
        self.out, self.into = out, into

    def receive(self, now: int, plane: int, frame: bytes) -> None:
        heard = self.into(frame)
        if heard is not None:
            super().receive(now, plane, heard)

    def transmit(self, now: int) -> tuple[int, bytes] | None:
        while (made := super().transmit(now)) is not None:
            said = self.out(made[1])
            if said is not None:
                return made[0], said
        return None


def sealed(frame: bytes | bytearray) -> bytes:
    """With the right iCRC."""
    return bytes(frame[: -codec.ICRC]) + codec.icrc(bytes(frame[: -codec.ICRC]))


def kind_of(frame: bytes) -> str:
    return codec.KINDS.get(frame[codec.BTH], "") if len(frame) > codec.BTH else ""


def flipped(kind: str, bit: int) -> Change:
    """One bit, counted from the BTH on, of every packet of a kind."""
    return bytes_at(codec.BTH + bit // 8, lambda byte: byte ^ 0x80 >> bit % 8, 1, kind)


def fields(opcode: int) -> Iterator[tuple[str, int]]:
    """(what it is, number of its last bit from the BTH on) of every field of a packet."""
    bit = 0
    for header in ("BTH", *AFTER_BTH[opcode]):
        for field in HEADERS[header]:
            bit += field.width
            yield f"{header} {field.key or 'reserved'} at {bit - 1}", bit - 1


def bytes_at(at: int, value: Callable[[int], int], length: int = 1, kinds: str = "") -> Change:
    """The number at a place of the frame changed, in packets of some kinds or all."""

    def change(frame: bytes) -> bytes:
        if kinds and kind_of(frame) not in kinds.split():
            return frame
        number = value(int.from_bytes(frame[at : at + length], "big")) & (1 << 8 * length) - 1
        return sealed(frame[:at] + number.to_bytes(length, "big") + frame[at + length :])

    return change


def without(*kinds: str) -> Change:
    return lambda frame: None if kind_of(frame) in kinds else frame


def halves_swapped(frame: bytes) -> bytes:
    return sealed(frame[:56] + frame[94:96] + frame[58:94] + frame[56:58] + frame[96:])


def stripped(frame: bytes) -> bytes:
    """One byte short."""
    return frame[:-1]


def unsealed(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))


def filled(frame: bytes) -> bytes:
    """With zeros where a WRITE was cut off."""
    length = codec.INNER + int.from_bytes(frame[18:20], "big")
    return sealed(frame + bytes(length - len(frame))) if len(frame) >= codec.BTH else frame


def acked(frame: bytes) -> bytes:
    """An ACK of the first message in place of a SACK."""
    head = bytearray(
        frame[: codec.BTH]
        + b"\xd1"
        + frame[codec.BTH + 1 : SACK]
        + bytes((0x1F, 0, 0, 1))
        + bytes(codec.ICRC)
    )
    for at, more in ((18, 0), (58, 40), (98, 40)):
        head[at : at + 2] = (len(head) - codec.INNER - more).to_bytes(2, "big")
    return sealed(head)


class Believes(Wrong):
    """Takes an ACK or a NACK for one of what it sent last, whatever it names."""

    def transmit(self, now: int) -> tuple[int, bytes] | None:
        made = super().transmit(now)
        if made is not None and kind_of(made[1]) == "write":
            self.last = made[1]
        return made

    def receive(self, now: int, plane: int, frame: bytes) -> None:
        last = getattr(self, "last", None)
        if last is not None and kind_of(frame) in ("ack", "nack"):
            changed = bytearray(frame)
            changed[codec.BTH + 9 : SACK] = last[codec.BTH + 9 : SACK]
            if kind_of(frame) == "nack":
                changed[SACK + 4 : SACK + 8] = last[56:58] + last[94:96]
                changed[SACK + 13 : SACK + 16] = last[codec.BTH + 9 : SACK]
                changed[SACK + 18 : SACK + 20] = last[SACK + 4 : SACK + 6]
            frame = sealed(changed)
        super().receive(now, plane, frame)


def psn_at(place: int, more: int, kinds: str) -> Change:
    return bytes_at(place, lambda psn: psn + more, 3, kinds)


WRONG: dict[str, dict[str, Change]] = {
    "says nothing": {"out": lambda frame: None},
    "hears nothing": {"into": lambda frame: None},
    "never acknowledges": {"out": without("ack")},
    "never tells what has come": {"out": without("sack")},
    "never refuses": {"out": without("nack")},
    "answers no request": {"out": without("response")},
    "tells no port": {"out": without("request")},
    "never probes": {"out": without("probe")},
    "does not hear probes": {"into": without("probe")},
    "does not hear NACKs": {"into": without("nack")},
    "does not hear ACKs": {"into": without("ack")},
    "does not hear SACKs": {"into": without("sack")},
    "iCRC wrong": {"out": unsealed},
    "believes any iCRC": {"into": sealed},
    "frames a byte short": {"out": stripped},
    "EV halves swapped": {"out": halves_swapped},
    "EV halves swapped when read": {"into": halves_swapped},
    "flow label without the plane": {"out": bytes_at(56, lambda flow: 0, 2)},
    "another source port": {"out": bytes_at(94, lambda port: port ^ 1, 2)},
    "UDP checksum": {"out": bytes_at(100, lambda _: 0x1234, 2)},
    "UDP port 4971": {"out": bytes_at(96, lambda _: 4971, 2)},
    "inner addresses exchanged": {
        "out": lambda frame: sealed(frame[:62] + frame[78:94] + frame[62:78] + frame[94:])
    },
    "goes by another uplink": {"out": bytes_at(40, lambda sid: sid ^ 1, 2)},
    "data that is not ECT": {"out": bytes_at(15, lambda byte: byte & 0xCF, 1, "write")},
    "control that is ECT": {"out": bytes_at(15, lambda byte: byte | 0x20, 1, "sack ack nack")},
    "outer and inner DSCP differ": {"out": bytes_at(55, lambda byte: byte ^ 0x40)},
    "data in the control class": {"out": bytes_at(14, lambda _: 0x6C00, 2, "write")},
    "cumulative PSN one too high": {"out": psn_at(SACK + 13, 1, "sack")},
    "cumulative PSN one too low": {"out": psn_at(SACK + 13, -1, "sack")},
    "bitmap base one too high": {"out": bytes_at(SACK + 18, lambda base: base + 1, 2, "sack")},
    "bitmap from the other end": {
        "out": bytes_at(SACK + 20, lambda bits: int(f"{bits:064b}"[::-1], 2), 8, "sack")
    },
    "bitmap inverted": {"out": bytes_at(SACK + 20, lambda bits: ~bits, 8, "sack")},
    "bitmap empty": {"out": bytes_at(SACK + 20, lambda bits: 0, 8, "sack")},
    "trigger's offset not signed": {
        "out": bytes_at(SACK + 2, lambda offset: offset & 0x7FFF, 2, "sack")
    },
    "marks are not told": {"into": bytes_at(15, lambda byte: byte & 0xEF)},
    "everything is marked": {"out": bytes_at(SACK + 1, lambda byte: byte | 0x20, 1, "sack")},
    "EV not echoed": {"out": bytes_at(SACK + 4, lambda ev: 0, 4, "sack")},
    "timestamp not echoed": {"out": bytes_at(SACK + 28, lambda ts: 0, 2, "sack")},
    "MSN one too low": {"out": psn_at(SACK + 1, -1, "ack")},
    "ACK names the next PSN": {"out": psn_at(codec.BTH + 9, 1, "ack")},
    "every error is an access error": {
        "out": bytes_at(SACK, lambda syndrome: 0x62 if syndrome != 0x1F else syndrome, 1, "ack")
    },
    "errors are told as fine": {"out": bytes_at(SACK, lambda _: 0x1F, 1, "ack")},
    "last hop's trims are told as others": {
        "out": bytes_at(SACK + 2, lambda reason: 1 if reason == 2 else reason, 1, "nack")
    },
    "NACK's PSN one too high": {"out": psn_at(SACK + 13, 1, "nack")},
    "never says that it sends again": {
        "out": bytes_at(codec.BTH + 8, lambda byte: byte & 0xDF, 1, "write")
    },
    "says always that it sends again": {
        "out": bytes_at(codec.BTH + 8, lambda byte: byte | 0x20, 1, "write")
    },
    "MSN from one on": {"out": bytes_at(SACK + 2, lambda msn: msn + 1, 2, "write")},
    "RQMSN stands still": {"out": bytes_at(SACK, lambda _: 0, 2, "write")},
    "rkey is another's": {"out": bytes_at(SACK + 16, lambda rkey: rkey + 1, 4, "write")},
    "dmalen of the packet": {
        "out": bytes_at(SACK + 20, lambda length: min(length, 4096), 4, "write")
    },
    "address stands still": {"out": bytes_at(SACK + 8, lambda va: va & ~0xFFFF, 8, "write")},
    "Middle for First": {
        "out": bytes_at(codec.BTH, lambda code: 0xC7 if code == 0xC6 else code, 1, "write")
    },
    "takes rkeys for right": {
        "into": bytes_at(SACK + 16, lambda rkey: rkey if rkey != 1 else 0, 4, "write")
    },
    "PSN wraps at 23 bits": {
        "into": bytes_at(codec.BTH + 9, lambda psn: psn & 0x7FFFFF, 3, "write")
    },
    "probe's id in 8 bits": {"out": bytes_at(SACK + 2, lambda probe: probe & 0xFF, 2, "sack")},
    "every answer is a probe's": {"out": bytes_at(SACK + 1, lambda byte: byte | 2, 1, "sack")},
    "response without its id": {"out": bytes_at(codec.BTH + 10, lambda _: 0, 2, "response")},
    "response with another operation": {
        "out": bytes_at(SACK + 1, lambda byte: byte ^ 4, 1, "response")
    },
    "all ports are up": {"out": bytes_at(SACK + 4, lambda _: 15, 4, "request")},
    "does not hear requests": {"into": without("request")},
    "takes the peer's ports for up": {"into": bytes_at(SACK + 4, lambda _: 15, 4, "request")},
    "takes any host for its peer": {"into": bytes_at(77, lambda _: 8)},
    "takes any queue pair for its own": {
        "into": bytes_at(codec.BTH + 5, lambda qpn: 16 if qpn == 0x7FFFFF else qpn, 3, "write")
    },
    "takes any opcode for a WRITE": {
        "into": bytes_at(codec.BTH, lambda code: 0xCA if code == 0xC4 else code)
    },
    "does not look at dmalen": {
        "into": bytes_at(SACK + 20, lambda length: 4096 if length == 100 else length, 4, "write")
    },
    "fills up what is cut short": {"into": filled},
    "takes SACKs for ACKs": {
        "into": lambda frame: acked(frame) if kind_of(frame) == "sack" else frame
    },
    "reads 31 bits of an immediate": {
        "into": bytes_at(SACK + 24, lambda imm: imm & 0x7FFFFFFF, 4, "write")
    },
    "immediate in little endian": {
        "out": bytes_at(
            SACK + 24, lambda imm: int.from_bytes(imm.to_bytes(4, "little"), "big"), 4, "write"
        )
    },
}


KINDS: dict[str, type[Wrong]] = {"believes any ACK and NACK": Believes}
NAMES = (*WRONG, *KINDS)


def make(name: str, fabric: Fabric) -> Wrong:
    """The first host's endpoint, wrong in this."""
    return KINDS[name](fabric, 0) if name in KINDS else Wrong(fabric, 0, **WRONG[name])
