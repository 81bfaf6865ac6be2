"""The Lua dissector against the codec: tshark's fields of every frame are the fields that
``wire.describe`` reads in it.

``python tests/testbed/wireshark/test_dissector.py`` makes golden.pcap and golden.txt anew; look at
the difference before you commit it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agents.mrc import wire
from agents.packets import dscp, headers
from tests.testbed.wireshark.golden import FABRIC, RECEIVER, SENDER, Record, records, write_pcap
from tests.tshark import tshark as run_tshark
from topologies.addressing import (
    ev,
    ev_fields,
    inner_address,
    path_address,
    shift,
    sid_list,
    usid_fields,
)

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
PCAP, TEXT = HERE / "golden.pcap", HERE / "golden.txt"

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed: apt install tshark"
)

COMMON = {
    "dscp": "mrc.dscp",
    "ecn": "mrc.ecn",
    "ev": "mrc.ev",
    "opcode": "mrc.opcode",
    "dqpn": "mrc.dqpn",
    "ackreq": "mrc.ackreq",
    "rtx": "mrc.rtx",
    "ts": "mrc.ts",
    "psn": "mrc.psn",
}
OF = {
    "WRITE": {
        "rqmsn": "mrc.meth.rqmsn",
        "msn": "mrc.meth.msn",
        "tx_ts": "mrc.tseth.tx_ts",
        "va": "mrc.reth.va",
        "rkey": "mrc.reth.rkey",
        "dmalen": "mrc.reth.dmalen",
        "imm": "mrc.imm",
    },
    "ACK": {"syndrome": "mrc.aeth.syndrome", "msn": "mrc.aeth.msn"},
    "SACK": {
        "entropy": "mrc.sack.entropy",
        "spdcid": "mrc.sack.spdcid",
        "dpdcid": "mrc.sack.dpdcid",
        "mpr": "mrc.sack.mpr",
        "sack_offset": "mrc.sack.sack_offset",
        "bitmap": "mrc.sack.bitmap",
        "m": "mrc.sack.m",
        "pr": "mrc.sack.pr",
        "ack_psn_offset": "mrc.sack.ack_psn_offset",
        "cack_psn": "mrc.sack.cack_psn",
        "tx_ts": "mrc.cc.tx_ts",
        "ooo_count": "mrc.cc.ooo_count",
        "restore_cwnd": "mrc.cc.restore_cwnd",
        "rcv_cwnd_pen": "mrc.cc.rcv_cwnd_pen",
        "rcvd_bytes": "mrc.cc.rcvd_bytes",
    },
    "NACK": {
        "reason": "mrc.nack.reason",
        "vendor": "mrc.nack.vendor",
        "entropy": "mrc.nack.entropy",
        "spdcid": "mrc.nack.spdcid",
        "dpdcid": "mrc.nack.dpdcid",
        "nack_psn": "mrc.nack.nack_psn",
        "tx_ts": "mrc.nack.tx_ts",
    },
    "Reliability": {
        "vendor": "mrc.probe.vendor",
        "probe_id": "mrc.probe.probe_id",
        "spdcid": "mrc.probe.spdcid",
        "dpdcid": "mrc.probe.dpdcid",
        "tx_ts": "mrc.probe.tx_ts",
    },
    "Endpoint": {
        "tx_ts": "mrc.endpoint.tx_ts",
        "port_status_mask": "mrc.endpoint.port_status_mask",
        "op": "mrc.endpoint.%s_op",
    },
}
"""describe()'s names -> filter names, by the first word of the packet's name."""

BITS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "mrc.bth.m": ((), 8, 1),
    "mrc.bth.se": ((), 9, 1),
    "mrc.bth.pad": ((), 10, 2),
    "mrc.bth.tver": ((), 12, 4),
    "mrc.pkey": ((), 16, 16),
    "mrc.bth.res": ((), 32, 8),
    "mrc.bth.r": ((), 65, 1),
    "mrc.bth.res4": ((), 68, 4),
    "mrc.tseth.tsr": ((0xC6, 0xC9), 144, 1),
    "mrc.tseth.ts_res": ((0xC6, 0xC9), 145, 11),
    "mrc.tseth.ftype": ((0xC6, 0xC9), 156, 4),
    "mrc.sack.type": ((0xDC,), 96, 4),
    "mrc.sack.nxt": ((0xDC,), 100, 5),
    "mrc.sack.res": ((0xDC,), 107, 3),
    "mrc.sack.r": ((0xDC,), 111, 1),
    "mrc.sack.res12": ((0xDC,), 192, 8),
    "mrc.sack.cc_type": ((0xDC,), 224, 4),
    "mrc.sack.cc_fl": ((0xDC,), 228, 4),
    "mrc.cc.r": ((0xDC,), 336, 1),
    "mrc.sack.plane": ((0xDC,), 128, 16),
    "mrc.sack.uplink": ((0xDC,), 144, 16),
    "mrc.nack.type": ((0xDD,), 96, 4),
    "mrc.nack.nxt": ((0xDD,), 100, 5),
    "mrc.nack.res": ((0xDD,), 105, 7),
    "mrc.nack.res12": ((0xDD,), 192, 8),
    "mrc.nack.cc_type": ((0xDD,), 224, 4),
    "mrc.nack.cc_fl": ((0xDD,), 228, 4),
    "mrc.nack.res17": ((0xDD,), 232, 8),
    "mrc.nack.plane": ((0xDD,), 128, 16),
    "mrc.nack.uplink": ((0xDD,), 144, 16),
    "mrc.probe.tsr": ((0xDE,), 208, 1),
    "mrc.probe.ts_res": ((0xDE,), 209, 11),
    "mrc.probe.ftype": ((0xDE,), 220, 4),
    "mrc.endpoint.tsr": ((0xD8,), 208, 1),
    "mrc.endpoint.ts_res": ((0xD8,), 209, 11),
    "mrc.endpoint.ftype": ((0xD8,), 220, 4),
    "mrc.endpoint.request_id": ((0xD8, 0xD9), 80, 16),
}
"""What describe() leaves out: (opcodes, none for all; first bit counted from the BTH; width).
CC_STATE begins at bit 320."""


def tshark(pcap: Path, *options: str, script: bool = True) -> str:
    done = run_tshark("-n", "-r", pcap, *options, script=script)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


@cache
def golden() -> list[dict[str, list[str]]]:
    """All fields of the golden capture's frames; not to be changed."""
    return dissect(PCAP)


def flatten(tree: Any, into: dict[str, list[str]]) -> dict[str, list[str]]:
    for key, value in tree.items() if isinstance(tree, dict) else ():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                flatten(one, into)
            else:
                into.setdefault(key, []).append(one)
    return into


def dissect(pcap: Path, *options: str) -> list[dict[str, list[str]]]:
    """All fields of every frame: name -> values as shown."""
    frames = json.loads(tshark(pcap, "-T", "json", "--no-duplicate-keys", *options))
    return [flatten(f["_source"]["layers"], {}) for f in frames]


def number(shown: str) -> int:
    return {"True": 1, "False": 0}[shown] if shown in ("True", "False") else int(shown, 0)


def columns(pcap: Path, *options: str, script: bool = True) -> list[tuple[str, str]]:
    lines = tshark(
        pcap,
        "-T",
        "fields",
        "-e",
        "_ws.col.Protocol",
        "-e",
        "_ws.col.Info",
        *options,
        script=script,
    ).splitlines()
    return [(a, b) for a, _, b in (line.partition("\t") for line in lines)]


def frames_of(pcap: Path) -> list[tuple[bytes, int]]:
    """(kept bytes, length on the wire) of every frame of a classic pcap."""
    data = pcap.read_bytes()
    made, at = [], 24
    while at < len(data):
        kept, length = struct.unpack_from("<II", data, at + 8)
        made.append((data[at + 16 : at + 16 + kept], length))
        at += 16 + kept
    return made


def save(path: Path, frames: list[bytes]) -> Path:
    write_pcap(
        path, [Record(k * 1_000_000, frame, len(frame), "") for k, frame in enumerate(frames)]
    )
    return path


def is_mrc(frame: bytes) -> bool:
    return frame[headers.BTH_AT] in wire.OPCODE_NAMES


def compare(frame: bytes, shown: dict[str, list[str]]) -> None:
    """Every field of one whole frame. Fields describe() gives and this knows no name for fail."""
    told = wire.describe(frame)
    op = told.pop("opcode")
    name = told.pop("name")
    word = {"request": "request", "response": "response"}.get(name.split()[-1], "")
    names = COMMON | {k: v % word if "%" in v else v for k, v in OF[name.split()[0]].items()}
    assert shown["mrc.opcode"] == [f"0x{op:02x}"] or number(shown["mrc.opcode"][0]) == op
    assert shown["ipv6.hlim"][0] == str(told.pop("hop_limit"))
    assert shown["udp.dstport"] == [str(told.pop("udp_port"))]
    assert told.pop("outer_src") == told["inner_src"]
    for key, who in (("inner_src", "mrc.src_host"), ("inner_dst", "mrc.dst_host")):
        host = int.from_bytes(told.pop(key)[14:], "big") - 1
        assert shown[who] == [f"h{host}"]
    path = told.pop("outer_dst")
    sids = [
        int.from_bytes(path[k : k + 2], "big")
        for k in range(4, 16, 2)
        if path[k : k + 2] != b"\0\0"
    ]
    spoken = []
    for sid in sids:
        plane, tier, index = usid_fields(sid)
        spoken.append(f"downlink {index}" if tier == 3 else f"p{plane}-t{tier - 1}-{index}")
    assert shown["usid.name"] == spoken
    assert [number(s) for s in shown["usid.sid"]] == sids
    assert shown["usid.path"] == [" > ".join(spoken)]
    assert shown["usid.next"] == [spoken[0]]
    if "payload" in told:
        payload = told.pop("payload")
        got = "".join(shown.get("mrc.payload", [""]) + shown.get("mrc.pad", [""])).replace(":", "")
        assert bytes.fromhex(got) == payload
        assert int(shown["mrc.payload.length"][0]) == len(payload) - (
            frame[headers.BTH_AT + 1] >> 4 & 3
        )
    if told.get("pr"):
        assert number(shown["mrc.sack.probe_id"][0]) == told.pop("ack_psn_offset") & 0xFFFF
        assert "mrc.sack.ack_psn" not in shown
    elif "ack_psn_offset" in told:
        assert (
            int(shown["mrc.sack.ack_psn"][0])
            == (told["cack_psn"] + told["ack_psn_offset"]) & headers.PSN_MASK
        )
    plane, uplink = ev_fields(told["ev"])
    assert (int(shown["mrc.plane"][0]), int(shown["mrc.uplink"][0])) == (plane, uplink)
    if "bitmap" in told:
        first = told["cack_psn"] + told["sack_offset"]
        assert shown.get("mrc.sack.psn", []) == [
            str(first + k & headers.PSN_MASK) for k in range(64) if told["bitmap"] >> k & 1
        ]
    if "nack_psn" in told:
        told["nack_psn"] &= headers.PSN_MASK  # describe() gives the reserved byte above it too
    for key, value in told.items():
        assert number(shown[names[key]][0]) == value, f"{name}: {key}"
    bits = int.from_bytes(frame[headers.BTH_AT :], "big")
    total = 8 * (len(frame) - headers.BTH_AT)
    for key, (ops, at, width) in BITS.items():
        if not ops or op in ops:
            assert number(shown[key][0]) == bits >> total - at - width & (1 << width) - 1, (
                f"{name}: {key}"
            )


# --- the golden capture ---------------------------------------------------------------------------


LONG = re.compile(r"( Payload)(?: \[…\])?: ([0-9a-f]{72})[0-9a-f]*…?$")
"""A long value, which every version of tshark cuts short in its own place and way."""


def text_of(pcap: Path) -> str:
    """Info of every MRC frame, then the details of the first frame of each kind: what a person
    sees."""
    listed = columns(pcap)
    kinds: dict[Any, int] = {}
    for k, (frame, length) in enumerate(frames_of(pcap)):
        if is_mrc(frame):
            healthy = (
                listed[k][1].find("trimmed") < 0
                and "[bad" not in listed[k][1]
                and length == len(frame)
            )
            kinds.setdefault(
                (frame[headers.BTH_AT], healthy, length == len(frame), "[bad" in listed[k][1]), k
            )
    shown = [f"{k + 1} {info}" for k, (protocol, info) in enumerate(listed) if protocol == "MRC"]
    wanted = sorted(kinds.values())
    details = tshark(
        pcap, "-O", "usid,mrc", "-Y", " || ".join(f"frame.number == {k + 1}" for k in wanted)
    )
    ours = False
    for line in details.splitlines():
        if line and not line.startswith(" "):
            ours = line.startswith(("SRv6 micro-SIDs", "Multipath Reliable Connection"))
            if line.startswith("Frame "):
                shown += ["", line.split(":")[0]]
        if ours and line:
            shown.append(LONG.sub(r"\1: \2…", line))
    return "\n".join(shown) + "\n"


def test_a_person_sees_the_expected_text() -> None:
    assert text_of(PCAP) == TEXT.read_text()


def test_golden_capture_holds_every_packet_type() -> None:
    whole = [frame for frame, length in frames_of(PCAP) if is_mrc(frame)]
    assert {frame[headers.BTH_AT] for frame in whole} == set(wire.OPCODE_NAMES)
    told = [wire.describe(frame) for frame in whole]
    assert any(t["rtx"] for t in told if t["name"].startswith("WRITE"))
    assert any(t.get("pr") for t in told)
    assert any(t.get("m") == wire.M_SKIP_ONCE for t in told)
    assert {t["reason"] for t in told if "reason" in t} >= {
        wire.UNEXP_EVENT,
        wire.TRIMMED,
        wire.TRIMMED_LASTHOP,
    }


@pytest.mark.parametrize("fresh", [False, True], ids=["golden", "engine of today"])
def test_every_field_of_every_frame(fresh: bool, tmp_path: Path) -> None:
    pcap = PCAP
    if fresh:
        pcap = tmp_path / "fresh.pcap"
        write_pcap(pcap, records())
    seen = set()
    for (frame, length), shown in zip(
        frames_of(pcap), dissect(pcap) if fresh else golden(), strict=True
    ):
        declared = 94 + int.from_bytes(frame[headers.UDP + 4 : headers.UDP + 6], "big")
        if not is_mrc(frame) or len(frame) != length or declared != length:
            continue
        compare(frame, shown)
        damaged = headers.icrc_of(bytearray(frame), 0, length) != int.from_bytes(
            frame[-4:], "little"
        )
        assert number(shown["mrc.icrc.status"][0]) == (0 if damaged else 1)
        assert ("mrc.icrc.bad" in json.dumps(list(shown))) == damaged
        seen.add(frame[headers.BTH_AT])
    assert seen == set(wire.OPCODE_NAMES)


def test_one_path_hop_by_hop() -> None:
    """The followed WRITE shows the same EV on four cables, and one uSID fewer on each."""
    first = next(f for f, _ in frames_of(PCAP) if f[headers.BTH_AT] == wire.WRITE_FIRST)
    same = [s for (f, _), s in zip(frames_of(PCAP), golden(), strict=True) if f[54:] == first[54:]]
    path = sid_list(FABRIC, SENDER, RECEIVER, wire.describe(first)["ev"])
    assert [[number(x) for x in s["usid.sid"]] for s in same] == [list(path[k:]) for k in range(4)]
    assert len({s["mrc.ev"][0] for s in same}) == 1


def test_trimmed_damaged_and_snapped() -> None:
    cut = dissect(PCAP, "-Y", "mrc.trimmed == 1")
    assert [(c["mrc.dscp"], c["mrc.payload.original_length"]) for c in cut] == [
        ([str(dscp.TRIMMED)], ["256"]),
        ([str(dscp.TRIMMED_LASTHOP)], ["256"]),
    ]
    assert all(
        "mrc.icrc" not in c
        and "mrc.payload" not in c
        and c["mrc.reth.dmalen"] == [str(18 * 256 + 101)]
        for c in cut
    )
    odd = [
        sum(name in frame for frame in golden())
        for name in ("mrc.icrc.bad", "mrc.not_captured", "mrc.truncated")
    ]
    assert odd == [1, 1, 0]


def test_filters_find_some_and_not_all() -> None:
    questions = [
        "mrc.ev == 0x10003",
        "mrc.plane == 1",
        "mrc.sack.bitmap != 0",
        'usid.name == "p0-t1-7"',
        "mrc.nack.reason == 0x19",
    ]
    table = tshark(PCAP, "-q", "-z", ",".join(["io,stat,0", *questions]))
    (row,) = [line for line in table.splitlines() if "<>" in line]
    counts = [int(frames) for frames in row.split("|")[2:-1:2]]
    assert len(counts) == len(questions) and all(
        0 < count < len(frames_of(PCAP)) / 1.5 for count in counts
    ), table


def test_summary_is_the_same_without_details() -> None:
    """tshark builds no tree for plain lines; Info must not depend on one."""
    plain = tshark(PCAP, "-o", 'gui.column.format:"P","%p","I","%i"').splitlines()
    assert [line.split(None, 1) for line in plain] == [[a, b] for a, b in columns(PCAP)]


# --- frames that no engine sends ------------------------------------------------------------------


def odd_frame(rng: random.Random, op: int) -> bytes:
    """A frame with random bits in every header field; its iCRC is wrong."""
    size = 36 if op <= wire.WRITE_ONLY_IMM else wire.EXT_LENGTH[op] + 12
    body = bytearray(rng.randbytes(size))
    body[0] = op
    if op <= wire.WRITE_ONLY_IMM:
        body[8] |= 0x10
        body += rng.randbytes(4 * (op in (wire.WRITE_LAST_IMM, wire.WRITE_ONLY_IMM)) + 16)
    path = ev(rng.randrange(2), rng.randrange(8))
    me, you = inner_address(SENDER), inner_address(RECEIVER)
    klass = rng.choice([k for k in dscp.NAMES if k not in (dscp.TRIMMED, dscp.TRIMMED_LASTHOP)])
    outer = path_address(FABRIC, SENDER, RECEIVER, path)
    for _ in range(rng.randrange(4)):
        outer = shift(outer)
    head = headers.head((me, outer), (me, you), path, klass, rng.randrange(4), len(body) + 4)
    return head + bytes(body) + rng.randbytes(4)


def test_every_bit_of_every_header(tmp_path: Path) -> None:
    rng = random.Random(7)
    frames = [odd_frame(rng, op) for op in wire.OPCODE_NAMES for _ in range(12)]
    for frame, shown in zip(frames, dissect(save(tmp_path / "odd.pcap", frames)), strict=True):
        compare(frame, shown)


def test_any_damage_is_dissected_without_a_lua_error(tmp_path: Path) -> None:
    """Cut anywhere with lengths that agree or not, or with bytes changed: an expert note, never an
    error of ours."""
    rng = random.Random(8)
    whole = [f for f, n in frames_of(PCAP) if is_mrc(f)]
    frames = []
    for k in range(600):
        frame = bytearray(whole[k % len(whole)])
        if k % 3:
            frame = frame[: rng.randrange(14, len(frame) + 1)]
        if k % 3 == 1 and len(frame) > 102:
            for at, base in ((18, 54), (58, 94), (98, 94)):
                struct.pack_into("!H", frame, at, len(frame) - base)
        for _ in range(0 if k % 3 == 1 else rng.randrange(4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        frames.append(bytes(frame))
    pcap = save(tmp_path / "damaged.pcap", frames)
    text = tshark(pcap, "-V")
    assert "Lua Error" not in text and "Dissector bug" not in text
    assert len(columns(pcap)) == len(frames)
    assert len(columns(pcap, "-Y", "mrc.truncated")) > 20


def write_on(uplink: int, port: int = 4791) -> bytes:
    me, you = inner_address(SENDER), inner_address(RECEIVER)
    outer = path_address(FABRIC, SENDER, RECEIVER, ev(0, 1))
    body = wire.S_BTH.pack(wire.WRITE_ONLY, 0, 0xFFFF, 16, wire.F_TS | 5) + wire.S_WRITE_EXT.pack(
        0, 0, 0, 1, 0, 0, 0
    )
    frame = bytearray(
        headers.head((me, outer), (me, you), ev(0, uplink), dscp.NO_TRIM, 2, 40, port)
        + body
        + b"\0\0\0\0"
    )
    return bytes(frame[:-4]) + headers.S_ICRC.pack(headers.icrc_of(frame, 0, len(frame)))


def test_every_uplink_number_is_mrc_and_others_keep_their_ports(tmp_path: Path) -> None:
    """UDP source ports below 1024 belong to Echo, DNS, ... which Wireshark would ask first;
    afterwards they must still be theirs."""
    ask = (
        bytes.fromhex("123401000001000000000000") + b"\7example\3org\0" + bytes.fromhex("00010001")
    )
    udp = struct.pack("!HHHH", 40000, 53, 8 + len(ask), 0) + ask
    dns = (
        b"\2\0\0\0\0\1" * 2
        + b"\x86\xdd"
        + headers.ip_header(17, len(udp), 0, 0, 0, 64, inner_address(0), inner_address(1))
        + udp
    )
    pcap = save(tmp_path / "uplinks.pcap", [dns, *(write_on(k) for k in range(1024)), dns])
    shown = columns(pcap)
    assert [p for p, _ in shown] == ["DNS"] + ["MRC"] * 1024 + ["DNS"]
    assert shown[0] == shown[-1] == columns(pcap, "-Y", "dns", script=False)[0]
    assert all("[bad iCRC]" not in info for _, info in shown)


def test_port_is_a_preference_and_4791_goes_back(tmp_path: Path) -> None:
    pcap = save(tmp_path / "port.pcap", [write_on(3, 4971), write_on(3, 4791)])
    assert [p for p, _ in columns(pcap, "-o", "mrc.port:4971")] == ["MRC", "RRoCE"]
    assert columns(pcap)[1][0] == "MRC"


def test_roce_is_as_it_was() -> None:
    wanted = [
        "-Y",
        "infiniband",
        "-T",
        "fields",
        *(
            x
            for f in (
                "frame.number",
                "_ws.col.Protocol",
                "_ws.col.Info",
                "infiniband.bth.opcode",
                "infiniband.bth.psn",
                "infiniband.reth.dmalen",
                "infiniband.invariant.crc",
            )
            for x in ("-e", f)
        ),
    ]
    ours = tshark(PCAP, *wanted).splitlines()
    numbers = [str(k + 1) for k, (f, _) in enumerate(frames_of(PCAP)) if not is_mrc(f)]
    before = [
        line
        for line in tshark(PCAP, *wanted, script=False).splitlines()
        if line.split("\t")[0] in numbers
    ]
    assert len(ours) == len(numbers) >= 5
    assert ours == before
    assert len(columns(PCAP, "-Y", "infiniband && usid.path")) == len(numbers)


def test_many_snapped_frames_do_not_wear_lua_out(tmp_path: Path) -> None:
    """An exception of another dissector that jumps over a Lua frame leaks a little of its stack:
    sixty were enough to end it."""
    healthy = [r for r in records() if len(r.frame) == r.length]
    snapped = [
        r._replace(frame=r.frame[:keep])
        for keep in (60, 90, 100, 110, 120, 130, 140)
        for r in healthy
    ]
    pcap = tmp_path / "snapped.pcap"
    write_pcap(pcap, snapped + healthy)
    assert "Lua Error" not in tshark(pcap, "-V")
    alone = tmp_path / "healthy.pcap"
    write_pcap(alone, healthy)
    assert columns(pcap)[len(snapped) :] == columns(alone)


def test_icrc_check_can_be_switched_off() -> None:
    assert columns(PCAP, "-o", "mrc.icrc:FALSE", "-Y", "mrc.icrc.status != 2") == []
    assert len(columns(PCAP, "-Y", "mrc.icrc.status == 1")) > 50


if __name__ == "__main__":
    write_pcap(PCAP, records())
    TEXT.write_text(text_of(PCAP))
