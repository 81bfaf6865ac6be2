"""Lines of logs: all that a run writes is declared, what is not is left out, and damage is one line
with its key and place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenarios.run.simulate import simulate
from testbed.results import log
from testbed.results.log import KINDS, Lines
from tests.scenarios.small import small, undrawn
from topologies import load_fabric
from topologies.files import FileError
from topologies.structs import plain

TINY = load_fabric("tiny")
LOG = Path("raw/x/h1.jsonl")


def read(line: str) -> log.Line:
    return Lines(TINY, 4, 2).read(line.encode(), LOG, 7)


def test_a_line_is_a_struct_of_its_kind_in_ps_and_in_ns() -> None:
    line = read(
        '{"t":12501,"kind":"ev","host":1,"peer":2,"ev":65536,"from":"GOOD","to":"ASSUMED_BAD","last_data_ps":null,"srtt_ps":25000}'
    )
    assert isinstance(line, log.PathChange)
    assert (
        line.kind,
        line.t,
        line.t_ns,
        line.pair,
        line.from_,
        line.srtt_ns,
        line.last_data_ns,
    ) == (
        "ev",
        12501,
        12.501,
        (1, 2),
        "GOOD",
        25.0,
        None,
    )
    assert list(plain(line)) == [
        "kind",
        "t",
        "host",
        "peer",
        "ev",
        "from",
        "to",
        "last_data_ps",
        "srtt_ps",
    ], "as it was written"


def test_kinds_and_keys_of_others_are_left_out() -> None:
    assert isinstance(read('{"t":1,"kind":"of another version","host":3,"peer":-7}'), log.Unknown)
    assert isinstance(read('{"t":1}'), log.Unknown)
    step = read(
        '{"t":9,"kind":"step","host":1,"rank":1,"step":0,"start_ps":1,"end_ps":9,"ok":true,"mood":[1,{"x":null}]}'
    )
    assert isinstance(step, log.Step) and "mood" not in plain(step)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"t":"x","kind":"of another version"}', "t"),
        ('{"t":1,"kind":7}', "kind"),
        ('{"t":1,"kind":"ev","host":1,"peer":2,"to":"GOOD"}', "ev"),
        ('{"t":1,"kind":"ev","host":1,"peer":4,"ev":0,"to":"GOOD"}', "peer"),
        ('{"t":1,"kind":"of another version","host":4}', "host"),
        (
            '{"t":1,"kind":"step","host":1,"rank":4,"step":0,"start_ps":1,"end_ps":9,"ok":true}',
            "rank",
        ),
        (
            '{"t":1,"kind":"step","host":1,"rank":1,"step":0,"start_ps":9,"end_ps":1,"ok":true}',
            "end_ps",
        ),
        ('{"t":1,"kind":"flow","host":1,"flow":2,"bin_ps":1,"rx":1}', "flow"),
        ('{"t":1,"kind":"goodput","host":1,"bin_ps":1,"tx":[1,2],"rx":[1,2,3]}', "rx"),
        ('{"t":1,"kind":"evs","host":1,"peer":2,"bin_ps":1,"tx":{"x":1}}', "tx"),
        (
            '{"t":1,"kind":"fault","name":"f","fault":"loss","on":"a","phase":"begin","links":[],"keys":{"probability":2}}',
            "keys.probability",
        ),
    ],
)
def test_damage_is_told_with_key_and_line(line: str, key: str) -> None:
    with pytest.raises(FileError, match=rf"^damaged: \S*{key}\S* in raw/x/h1.jsonl, line 7: "):
        read(line)


def test_what_is_no_json_is_told_with_its_line() -> None:
    with pytest.raises(
        FileError, match=r"^damaged: raw/x/h1.jsonl, line 7 \(.*\): take it from a copy"
    ):
        read('{"t":1,')


GOOD = [
    '{"t":1,"kind":"qp","host":1,"peer":2,"state":"RTS"}',
    '{"t":1,"kind":"flow","host":0,"flow":1,"bin_ps":1,"rx":1}',
    '{"t":2,"kind":"goodput","host":1,"bin_ps":1,"tx":[1,2],"rx":[1,2]}',
]


def test_lines_read_at_once_are_those_read_one_by_one() -> None:
    assert Lines(TINY, 4, 2).read_all([line.encode() for line in GOOD]) == [
        read(line) for line in GOOD
    ]
    of_none = b'{"t":1,"kind":"cwnd","host":1,"peer":0,"qpn":16,"cwnd":9,"in_flight":0,"srtt_ps":0}'
    assert Lines(TINY, 4, 0).read_all([of_none]) is not None, "a collective has no flows"


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"t":1,',
        '{"t":1,"kind":"of another version"}',
        '{"t":1,"kind":"qp","host":4,"peer":2,"state":"RTS"}',
        '{"t":1,"kind":"flow","host":1,"flow":2,"bin_ps":1,"rx":1}',
        '{"t":1,"kind":"goodput","host":1,"bin_ps":1,"tx":[1,2],"rx":[1,2,3]}',
        '{"t":1,"kind":"step","host":1,"rank":1,"step":0,"start_ps":9,"end_ps":1,"ok":true}',
    ],
)
def test_one_line_that_may_be_wrong_has_all_read_one_by_one(line: str) -> None:
    assert Lines(TINY, 4, 2).read_all([text.encode() for text in (*GOOD, line, *GOOD)]) is None


@pytest.mark.dear("simulates a run of each transport")
def test_all_that_a_run_writes_is_declared(tmp_path: Path) -> None:
    """A key that is not would be missing in events.parquet."""
    with undrawn():
        (tmp_path / "out").mkdir()
        simulate(small(tmp_path, seeds=[1]), tmp_path / "out")
    paths = [
        path
        for path in tmp_path.glob("out/raw/*/*.jsonl")
        if path.name not in ("controller.jsonl", "queues.jsonl")
    ]
    written: dict[str, set[str]] = {}
    for line in (json.loads(text) for path in paths for text in path.read_text().splitlines()):
        written.setdefault(line["kind"], set()).update(line)
    assert len(written) > 15
    undeclared = {
        kind: keys - {"kind", *KINDS[kind].__struct_encode_fields__}
        for kind, keys in written.items()
        if kind != "counters"
    }
    assert {kind: keys for kind, keys in undeclared.items() if keys} == {}
