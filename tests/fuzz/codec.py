"""Target ``codec``: any bytes are an MRC packet or one ValueError, and what was read can be written
and read again.

The encoder here is the tests' own: from the names that ``wire.describe`` gives, sharing only the
structs.
"""

from __future__ import annotations

from typing import Any

from agents.clustermapper import probes
from agents.mrc import wire
from agents.packets import headers

ICRC = headers.IcrcCheck()
LOOKED_AT = 154
"""Bytes of a frame that a receiver copies out, as MRC's does; any number from the BTH on would
do."""
DROPPED = ("hop_limit", "payload")
"""Not compared by value: a head is always built with 64 hops, and the payload is compared by
itself."""


def body(d: dict[str, Any]) -> bytes:
    """What follows the BTH, without the iCRC."""
    op = d["opcode"]
    if op <= wire.WRITE_ONLY_IMM:
        made = wire.S_WRITE_EXT.pack(
            d["rqmsn"], d["msn"], d["tx_ts"], wire.FTYPE, d["va"], d["rkey"], d["dmalen"]
        )
        if "imm" in d:
            made += wire.S_IMM.pack(d["imm"])
        return made + bytes(d["payload"])
    if op == wire.ACK:
        return wire.S_AETH.pack(d["syndrome"] << 24 | d["msn"])
    if op == wire.SACK:
        state = d["restore_cwnd"] << 31 | d["rcv_cwnd_pen"] << 24 | d["rcvd_bytes"]
        return wire.S_SACK.pack(
            wire.seth_word(d["m"], d["pr"] == 1),
            d["ack_psn_offset"],
            d["entropy"],
            d["spdcid"],
            d["dpdcid"],
            d["cack_psn"],
            0,
            d["mpr"],
            d["sack_offset"],
            d["bitmap"],
            d["tx_ts"],
            d["ooo_count"],
            state,
        )
    if op == wire.NACK:
        return wire.S_NETH.pack(
            0,
            d["reason"],
            d["vendor"],
            d["entropy"],
            d["spdcid"],
            d["dpdcid"],
            d["nack_psn"],
            wire.CC_NACK << 4,
            0,
            d["tx_ts"],
        )
    if op == wire.PROBE:
        return wire.S_PETH.pack(
            d["vendor"], d["probe_id"], d["spdcid"], d["dpdcid"], d["tx_ts"], wire.FTYPE
        )
    if op == wire.ENDPOINT_REQUEST:
        return wire.S_ERTH.pack(d["op"], d["port_status_mask"], d["tx_ts"], wire.FTYPE)
    return wire.S_EETH.pack(d["op"] << 2, d["tx_ts"])


def encode(d: dict[str, Any]) -> bytes:
    """The frame that says ``d``, which is as ``wire.describe`` returns it. Its iCRC comes from the
    sender's way of taking it."""
    ext = body(d)
    head = headers.head(
        (d["outer_src"], d["outer_dst"]),
        (d["inner_src"], d["inner_dst"]),
        d["ev"],
        d["dscp"],
        d["ecn"],
        12 + len(ext) + headers.ICRC,
        d["udp_port"],
    )
    word = d["ackreq"] << 31 | d["rtx"] << 29 | d["ts"] << 28 | d["psn"]
    after = bytearray(
        wire.S_BTH.pack(d["opcode"], 0, wire.PKEY, 0xFF000000 | d["dqpn"], word) + ext
    )
    icrc = headers.crc32(after, headers.icrc_of_head(head))
    after[4] = 0
    return head + bytes(after) + headers.S_ICRC.pack(icrc)


class Codec:
    """One execution: one frame."""

    max_len = 320
    words = ()

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        probes.read(data, 0, len(data))  # None or a probe
        try:
            d = wire.describe(data)
        except ValueError as error:
            assert str(error) and "\n" not in str(error)
            return
        if data[12:14] != b"\x86\xdd":
            raise AssertionError("a packet without its EtherType")
        frame = encode(d)
        again = wire.describe(frame)
        for key, value in d.items():
            if key not in DROPPED:
                assert again[key] == value, f"{key}: {value!r} came back as {again[key]!r}"
        if "payload" in d:
            assert again["payload"] == d["payload"], "another payload"
        assert encode(again) == frame, "encode and decode are not inverses"
        assert ICRC.good(frame[:LOOKED_AT], frame, 0, len(frame)), (
            "sender and receiver disagree about the iCRC"
        )

    def seeds(self) -> list[bytes]:
        """A small frame of every kind, as endpoints send it and with every field full."""
        from tests.fuzz.mrc_pair import MrcPair

        seen: dict[int, bytes] = {}
        for frame in MrcPair().templates:
            if len(frame) < self.max_len:
                seen.setdefault(frame[headers.BTH_AT], frame)
        full = [f[: wire.AFTER_BTH] + b"\xfe" * (len(f) - wire.AFTER_BTH) for f in seen.values()]
        return [*seen.values(), *full]
