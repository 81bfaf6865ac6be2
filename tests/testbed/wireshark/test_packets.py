"""``mrcbed results packets``: a capture read without Wireshark, files of other programs, and files
that are none."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrcbed import cli
from testbed.errors import UserError
from testbed.wireshark.packets import Packet, read, row
from tests.testbed.wireshark.golden import records, write_pcap

GOLDEN = Path(__file__).resolve().parent / "golden.pcap"


def test_a_capture_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_pcap(tmp_path / "now.pcap", records())
    packets = list(read(tmp_path / "now.pcap"))
    assert [(p.frame, p.length) for p in packets] == [(r.frame, r.length) for r in records()]
    assert [p.at for p in packets] == [r.at // 1000 * 1000 for r in records()]  # the file has µs


def test_rows_say_what_is_special() -> None:
    rows = [row(packet) for packet in read(GOLDEN)]
    notes = {note.rstrip("0123456789") for r in rows for note in r["notes"].split(", ") if note}
    assert {
        "trimmed",
        "marked",
        "sent again",
        "answers a probe",
        "all up to PSN ",
        "asks for PSN ",
    } <= notes
    assert rows[0] | {"at_ns": 0} == {
        "at_ns": 0,
        "src": "h0",
        "dst": "h7",
        "type": "WRITE First",
        "ev": "0:7",
        "psn": rows[0]["psn"],
        "bytes": 398,
        "notes": "",
    }
    assert [r["type"] for r in rows][-1] == "not MRC"  # RoCE's


@pytest.mark.parametrize("order", "<>")
def test_both_orders_of_bytes_and_both_units_of_time(order: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    for magic, fraction in ((0xA1B23C4D, 5), (0xA1B2C3D4, 5000)):
        head = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
        path.write_bytes(head + struct.pack(f"{order}4I", 2, 5, 3, 60) + b"abc")
        assert list(read(path)) == [Packet(2 * 10**9 + fraction, b"abc", 60)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "is no pcap file"),
        (lambda data: b"\x0a\x0d\x0d\x0a" + data[4:], "is no pcap file"),
        (lambda data: data[:20] + b"\x71\0\0\0" + data[24:], "no Ethernet frames"),
        (lambda data: data[:-1], "ends in the middle"),
        (lambda data: data[:30], "ends in the middle"),
        (lambda data: data[:32] + b"\xff\xff\xff\x7f" + data[36:], "ends in the middle"),
    ],
)
def test_what_is_no_capture_is_refused_in_one_line(
    change, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.pcap"
    path.write_bytes(change(GOLDEN.read_bytes()))
    with pytest.raises(UserError, match=says):
        list(read(path))
    assert cli.execute(["results", "packets", str(path), "--summary"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@given(at=st.integers(0, 2000), value=st.binary(min_size=1, max_size=8), cut=st.integers(0, 400))
def test_no_frame_of_anybody_ends_the_list(at: int, value: bytes, cut: int) -> None:
    frame = records()[15].frame if at % 2 else records()[0].frame
    at %= len(frame)
    changed = (frame[:at] + value + frame[at + len(value) :])[:cut]
    assert row(Packet(0, changed, len(changed)))["bytes"] == len(changed)


def test_the_command_lists_counts_and_shows_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, expected = str(tmp_path / "now.pcap"), records()
    write_pcap(Path(file), expected)
    assert cli.execute(["results", "packets", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = lines[1].split()
    assert len(lines) == 1 + len(expected) and words == [
        "1",
        "0.000",
        "h0",
        ">",
        "h7",
        "1:3",
        words[6],
        "398",
        "WRITE",
        "First",
    ]
    assert cli.execute(["results", "packets", file, "--summary"]) == 0
    total = capsys.readouterr().out.splitlines()[-1].split()
    assert total == [str(len(expected)), str(sum(r.length for r in expected)), "all"]
    assert cli.execute(["results", "packets", file, "--headers", "1"]) == 0
    fields = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert (fields["name"], fields["ev"], fields["payload"]) == (
        "WRITE First",
        str(1 << 16 | 3),
        "256 bytes",
    )
    assert cli.execute(["results", "packets", file, "--json"]) == 0
    assert [json.loads(line)["bytes"] for line in capsys.readouterr().out.splitlines()] == [
        r.length for r in expected
    ]
    assert cli.execute(["results", "packets", file, "--headers", "999"]) == 2
    write_pcap(tmp_path / "empty.pcap", [])
    assert cli.execute(["results", "packets", str(tmp_path / "empty.pcap")]) == 0
