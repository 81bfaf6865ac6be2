"""Traces: what is read, what is refused with the node's number in one line, and replays in virtual
time whose elements are compared."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import struct
from pathlib import Path

import pytest

from mrcbed import cli
from scenarios.jobs import aicb, chakra
from scenarios.jobs import plan as plans
from scenarios.jobs.plan import MOST_GROUPS, Node, Plan, PlanError, checked, rehearse, scaled
from scenarios.jobs.replay import read_trace
from testbed.errors import UserError
from tests.scenarios.jobs import traces
from tests.scenarios.jobs.traces import COLL, COMP, RECV, SEND
from topologies import load_fabric

GROUPS = {"low": (0, 1, 2, 3), "high": (4, 5, 6, 7)}


@pytest.fixture
def aicb_file(tmp_path: Path) -> Path:
    file = tmp_path / "small.txt"
    file.write_text(traces.AICB)
    return file


@pytest.fixture
def chakra_file(tmp_path: Path) -> Path:
    (tmp_path / "groups.json").write_text(json.dumps(GROUPS))
    return traces.write(tmp_path, [traces.job(rank, 8) for rank in range(8)])


def replay(*words: str) -> int:
    try:
        return cli.execute(["replay", "--world", "simulated", *words])
    except SystemExit as left:
        return int(left.code or 0)


def test_groups_of_an_aicb_workload_are_megatrons(aicb_file: Path) -> None:
    plan = aicb.read(aicb_file, 8)
    by_stage = {(node.name, node.stage): node for node in plan.ranks[5] if node.group}
    assert by_stage["embedding_layer", "forward"].group == (4, 5)
    assert by_stage["embedding_layer", "weights"].group == (1, 3, 5, 7)
    assert by_stage["mlp_moelayer", "forward"].group == (5, 7)
    assert by_stage["grad_norm", "weights"].group == (1, 5)
    assert (
        by_stage["mlp_row", "forward"].size == 131072
        and by_stage["mlp_row", "forward"].kind == "all_gather"
    )
    rows = [row.split("\t") for row in traces.AICB.splitlines()[2:]]
    assert plan.compute_ns == [sum(int(row[column]) for row in rows for column in (2, 5, 8))] * 8
    weights = by_stage["mlp_row", "weights"]
    later = [node for node in plan.ranks[5] if node.number > weights.number]
    # it overlaps with what follows
    assert later and not any(weights.number in node.after for node in later)


def test_chakra_nodes_and_both_kinds_of_dependency(chakra_file: Path) -> None:
    plan = chakra.read(chakra_file, GROUPS)
    nodes = {node.number: node for node in plan.ranks[6]}
    assert nodes[0].kind == "compute" and nodes[0].ns == 20_000 and nodes[3].after == (0,)
    assert (
        nodes[1].kind == "nothing" and nodes[2].group == (4, 5, 6, 7) and nodes[2].size == 1 << 18
    )
    assert (nodes[4].kind, nodes[4].peer, nodes[4].tag) == ("send", 7, 5) and nodes[5].peer == 5
    assert (
        nodes[6].size == 8 * 32768
        and nodes[7].kind == "reduce_scatter"
        and nodes[9].after == (4, 8)
    )
    assert sum(plan.skipped.values()) == 8


@pytest.mark.parametrize("words", [("{aicb}",), ("{chakra}", "--groups", "{groups}")])
def test_a_replay_moves_what_the_trace_says(
    words: tuple[str, ...],
    aicb_file: Path,
    chakra_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"aicb": aicb_file, "chakra": chakra_file, "groups": tmp_path / "groups.json"}
    out = tmp_path / "out"
    assert (
        replay(
            *(word.format(**places) for word in words), "--passes", "2", "--json", "--out", str(out)
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert (
        summary["wrong"] == 0
        and summary["passes"] == 2
        and summary["compute_late_us"] == pytest.approx(0, abs=0.01)
    )
    assert 0.6 * summary["estimate_us"] < summary["median_pass_us"] < 1.6 * summary["estimate_us"]
    assert summary["gpu_lost_us"] == pytest.approx(
        summary["gpu_us"] - 2 * 8 * summary["compute_us"]
    )
    assert (
        json.loads((out / "summary.json").read_text()) == summary
        and (out / "raw" / "h0.jsonl").stat().st_size
    )


def test_sigma_divides_bytes_and_computing(chakra_file: Path) -> None:
    whole = chakra.read(chakra_file, GROUPS)
    part = scaled(whole, 10)
    assert part.compute_ns == [ns // 10 for ns in whole.compute_ns] and part.bytes == pytest.approx(
        whole.bytes / 10, rel=1e-3
    )


def refusal(
    ranks: list[list[bytes]], tmp_path: Path, groups: dict[str, tuple[int, ...]] | None = None
) -> str:
    file = traces.write(tmp_path, ranks)
    if groups is not None:
        (tmp_path / "g.json").write_text(json.dumps(groups))
    with pytest.raises(UserError) as refused:
        read_trace(
            file, load_fabric("demo"), None, tmp_path / "g.json" if groups is not None else None, 1
        )
    assert "\n" not in str(refused.value)
    return str(refused.value)


SIZE = {"comm_size": 4096}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            [traces.node(1, COMP, data=[2]), traces.node(2, COMP, data=[1])],
            None,
            ("rank 0", "node 1", "depends on itself"),
        ),
        ([traces.node(1, COMP, data=[9])], None, ("node 1", "node 9", "not there")),
        ([traces.node(1, COMP), traces.node(1, COMP)], None, ("node 1", "two nodes")),
        ([traces.node(3, 9)], None, ("node 3", "type 9", "cannot be replayed")),
        (
            [traces.node(3, COLL, comm_type=0, pg_name="tp", **SIZE)],
            None,
            ("node 3", "'tp'", "--groups"),
        ),
        ([traces.node(3, SEND, comm_dst=7, **SIZE)], None, ("node 3", "rank 7", "ranks 0 to 1")),
        (
            [traces.node(3, SEND, comm_dst=1, **SIZE)],
            [traces.node(4, COMP)],
            ("node 3", "for ever", "rank 1", "no recv"),
        ),
        (
            [traces.node(3, COLL, comm_type=0, **SIZE)],
            [traces.node(4, COMP)],
            ("node 3", "for ever", "rank 1", "no such call"),
        ),
        (
            [traces.node(3, COLL, comm_type=0, **SIZE)],
            [traces.node(5, COLL, comm_type=0, comm_size=64)],
            ("node 3", "4,096", "node 5", "64 bytes", "same order"),
        ),
        (
            [
                traces.node(1, RECV, comm_src=1, **SIZE),
                traces.node(2, SEND, data=[1], comm_dst=1, **SIZE),
            ],
            [
                traces.node(7, RECV, comm_src=0, **SIZE),
                traces.node(8, SEND, data=[7], comm_dst=0, **SIZE),
            ],
            ("node 1", "for ever", "node 8", "node 7"),
        ),
        (
            [traces.node(1, SEND, comm_dst=1, comm_tag=4, **SIZE)],
            [traces.node(2, RECV, comm_src=0, comm_tag=5, **SIZE)],
            ("node 2", "for ever", "no send of tag 5"),
        ),
        (
            [traces.node(1, SEND, comm_dst=1, **SIZE)],
            [traces.node(2, RECV, comm_src=0, comm_size=64)],
            ("node 1", "4,096", "node 2", "64 bytes"),
        ),
        ([traces.node(3, COLL, comm_type=0, comm_size=-5)], None, ("node 3", "comm_size -5")),
        (
            [traces.node(3, COLL, comm_type=0, comm_size=1 << 40)],
            None,
            ("node 3", "use --sigma 1100"),
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_its_number(
    first: list[bytes], second: list[bytes] | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    line = refusal([first, first if second is None else second], tmp_path)
    assert all(word in line for word in words), line


def test_hostile_files_give_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chakra, "MOST_READ", 1000)
    good = traces.write(tmp_path, [traces.job(rank, 2) for rank in range(2)])
    data = good.read_bytes()
    for bad, words in (
        (data[:-3], "are there"),
        (b"\xff" * 9 + b"\x7f", "bytes, of which"),
        (b"\xff" * 40, "more than ten"),
        (data + traces.varint(1 << 63), f"{1 << 63} bytes"),
        (data[:8] + traces.varint(12) + b"\x2a" + traces.varint(1 << 62) + b"abc", "is no node"),
        (b"", "no nodes"),
        (data[:8] + traces.block(1, b"")[1:] * 2 + b"\0" * 1200, "more than 1,000 nodes"),
        (gzip.compress(bytes(65 << 20), 1), "more than 64 MiB"),
        (gzip.compress(data)[:-9], "gzip: "),
        (_protobuf(data, traces.block(5, b"\1" * 1200)), "a list of more than 1,000 numbers"),
        (
            _protobuf(data, _double("comm_size", math.nan)),
            "node 9 '': comm_size nan is no number of bytes",
        ),
        (_protobuf(data, _double("comm_size", 1e300)), "node 9 '': comm_size 1"),
        (_protobuf(data, _double("comm_size", 0.5)), "node 9 '': comm_size 0.5"),
    ):
        good.write_bytes(bad)
        with pytest.raises(PlanError) as refused:
            chakra.read(good, GROUPS)
        line = str(refused.value)
        assert words in line and "\n" not in line and ("job.0.et" in line or "node 9" in line)


def _protobuf(data: bytes, field: bytes) -> bytes:
    """A file whose only node, 9, is a collective with this field."""
    node = traces.number(1, 9) + traces.number(3, COLL) + field
    return data[: 1 + data[0]] + traces.varint(len(node)) + node


def _double(name: str, value: float) -> bytes:
    content = traces.block(1, name.encode()) + b"\x19" + struct.pack("<d", value)
    return traces.block(10, content)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ('"id": 1, "type": 4, "name": ' + "[" * 900 + "]" * 900, "more than 64 deep"),
        ('"id": 1, "type": 4, "name": ' + "[" * 90_000, "lie too deep in each other"),
        ('"id": 1, "type": 4, "duration_micros": ' + "9" * 5000, "object 0 is no node: '9999"),
        ('"id": 1, "type": 4, "duration_micros": NaN', "object 0 is no node: 'nan' is no number"),
        ('"id": 1, "type": 4, "duration_micros": -5', "object 0 is no node: '-5' is no number"),
        (
            '"id": 1, "type": 4, "duration_micros": 1e300',
            "object 0 is no node: '1e[+]300' is no number",
        ),
        (
            '"id": 1, "type": 4, "duration_micros": "１０"',
            "object 0 is no node: '１０' is no number",
        ),
        (
            '"id": 7, "type": 4, "duration_micros": 1000000000000',
            "node 7 '': 1000000000000 us are more than a day",
        ),
        (
            '"id": 7, "type": 7, "comm_type": 0, "comm_size": "１０"',
            "node 7 '': comm_size １０ is no number of bytes",
        ),
        ('"id": 7, "type": 7, "comm_type": 0, "comm_size": 1e30', "node 7 '': comm_size 1"),
        (
            (
                '"id": 7, "type": 1, "inputs": {"values": "[{\\"pg_name\\": 1, \\"ranks\\": '
                '[Infinity]}]"}'
            ),
            "nothing to replay",
        ),
        (
            '"id": 7, "type": 4, "duration_micros": 0',
            "no rank computes or communicates: there is nothing to replay",
        ),
    ],
)
def test_json_that_makes_no_sense_is_one_line(node: str, said: str, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"j.{rank}.json").write_text("[{" + node + "}]", encoding="utf-8")
    with pytest.raises(UserError, match=said) as refused:
        read_trace(tmp_path, load_fabric("tiny"), None, None, 1.0)
    assert "\n" not in str(refused.value)


def test_json_of_empty_tables_is_counted_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chakra, "MOST_TABLES", 1000)
    (tmp_path / "j.0.json").write_text("[" + "{}," * 1000 + "{}]")
    with pytest.raises(PlanError, match="j.0.json: 1,002 tables and lists, 1,000 at most"):
        chakra.read(tmp_path, None, 2)


def test_a_file_of_one_rank_is_read_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = traces.write(tmp_path, [traces.job(0, 1)[:1]])
    reads: list[Path] = []
    real = chakra.content
    monkeypatch.setattr(chakra, "content", lambda path: reads.append(path) or real(path))  # type: ignore[func-returns-value]
    assert len(chakra.read(file, GROUPS, 64).ranks) == 64 and reads == [file]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("/dev/zero", "/dev/zero is no regular file: give a file"),
        ("a.et", "a.et is no regular file: give a file"),
        ("job --groups /dev/zero", "/dev/zero is no regular file"),
        ("job --groups a.et", "is a FIFO"),
        ("job --groups missing", "missing: No such file or directory"),
        ("job --sigma nan", "'nan' is no number"),
        ("job --sigma １", "'１' is no number"),
        ("job --out /dev/null", "/dev/null: Not a directory"),
        ("empty", "no rank computes or communicates"),
        ("none.txt", "no rank computes or communicates"),
        (
            "long --passes 10",
            (
                "11 passes take 880,000 s of the network, 100,000 s at most: give a --sigma, or "
                "fewer --passes"
            ),
        ),
    ],
)
def test_bad_files_and_values_are_one_line(
    words: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("a.et")
    for name, micros in (("empty", 0), ("job", 5), ("long", 80_000_000_000)):
        (tmp_path / name).mkdir()
        traces.write(tmp_path / name, [[traces.node(1, COMP, micros=micros)]] * 2)
    (tmp_path / "none.txt").write_text("MICRO model_parallel_NPU_group: 1\n0\n")
    trace, *more = words.split()
    assert replay(trace, "tiny", *more) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and "internal error" not in error


def test_a_pass_that_sigma_made_nothing_is_a_row_of_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces.write(tmp_path, [[traces.node(1, COMP, micros=1)]] * 2)
    assert replay(str(tmp_path), "tiny", "--sigma", "1e18", "--passes", "1", "--warmup", "0") == 0
    assert "0 %" in capsys.readouterr().out


def test_too_many_groups_or_nodes_give_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.json").write_text("{" + '"1": [0, 1], ' * 250_000 + "}")
    with pytest.raises(PlanError, match="g.json"):
        chakra.read_groups(tmp_path / "g.json")
    (tmp_path / "g.json").write_text(json.dumps({str(number): [0, 1] for number in range(5000)}))
    with pytest.raises(PlanError, match="5,000 groups, 4,096 at most"):
        chakra.read_groups(tmp_path / "g.json")
    count = MOST_GROUPS + 1
    nodes = [
        traces.node(number, COLL, comm_type=0, pg_name=str(number), comm_size=64)
        for number in range(1, count + 1)
    ]
    file = traces.write(tmp_path, [nodes] * 70)
    groups = {str(number): (0, number) for number in range(1, count + 1)}
    with pytest.raises(PlanError, match=f"rank 0: node {count} .* {count}th group"):
        checked(chakra.read(file, groups))
    monkeypatch.setattr(chakra, "MOST_READ", 1000)
    traces.write(
        tmp_path, [[traces.node(number, COMP, micros=1) for number in range(501)]] * 2, "many"
    )
    with pytest.raises(PlanError, match=r"many.1.et: more than 1,000 nodes"):
        chakra.read(tmp_path / "many")
    monkeypatch.setattr(plans, "MOST_NODES", 1000)
    with pytest.raises(PlanError, match="1,002 nodes that do something: 1,000 at most"):
        checked(Plan((tuple(Node(number, "compute", ns=1) for number in range(501)),) * 2))
    idle = tuple(
        Node(number, "nothing", after=(number - 1,) if number else ()) for number in range(500)
    )
    # what does nothing does not count
    assert len(checked(Plan(((*idle, Node(500, "compute", (499,), ns=1)),) * 2)).ranks[0]) == 1


def test_bytes_at_random_are_read_or_refused(tmp_path: Path) -> None:
    good = traces.write(tmp_path, [traces.job(rank, 2) for rank in range(2)])
    data = good.read_bytes()
    draw = random.Random(7)
    for _ in range(300):
        bad = bytearray(data)
        for _ in range(draw.randrange(1, 6)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        good.write_bytes(bad[: draw.randrange(1, len(bad) + 1)])
        try:
            rehearse(checked(chakra.read(good, GROUPS)), lambda node: 1.0)
        except PlanError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
            "DATA",
            "line 1: 'DATA' is of ASTRA-sim 1: chakra_converter",
        ),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "BOTH", "line 1: 'BOTH'"),
        ("\n5\n", "\n6\n", "line 2: 6 layers are announced, 5 are there"),
        ("ALLTOALL_EP", "131072", "line 5: layer 'mlp_moelayer': '131072' is no operation"),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "comm_type,comm_group", "CSV"),
        ("\t40000\tALLGATHER", "\tsoon\tALLGATHER", "line 6: layer 'mlp_row': 'soon' is no time"),
        ("131072\t1\tNONE\t0\t100\nmlp_row", "131072\t1\tNONE\t100\nmlp_row", "line 5: 11 columns"),
        (
            "NPU_group: 2",
            "NPU_group: 3",
            "line 1: tensor parallel over 3 does not divide 8 ranks: use --ranks 6",
        ),
        ("NPU_group: 2", "NPU_group: 99999999999999", "line 1"),
    ],
)
def test_broken_aicb_files_are_refused_with_the_line(
    old: str, new: str, words: str, aicb_file: Path
) -> None:
    assert old in traces.AICB
    aicb_file.write_text(traces.AICB.replace(old, new, 1))
    with pytest.raises(PlanError) as refused:
        aicb.read(aicb_file, 8)
    assert words in str(refused.value)


def test_the_command_refuses_in_one_line(
    aicb_file: Path, chakra_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, expected in (
        ((str(tmp_path / "small.tx"),), "small.tx: there is no such file: did you mean small.txt?"),
        ((str(chakra_file),), "'low' is in no file of groups"),
        (
            (str(chakra_file), "-n", "4", "--groups", str(tmp_path / "groups.json")),
            "a trace of 8 ranks",
        ),
        ((str(aicb_file), "--within", "soon"), "--within"),
    ):
        assert replay(*words) != 0
        error = capsys.readouterr().err.strip()
        assert expected in error and len(error.splitlines()) == 1, error


def test_a_pass_overlaps_computing_and_calls() -> None:
    both = (0, 1)
    nodes = (
        Node(0, "compute", ns=100),
        Node(1, "all_reduce", after=(0,), size=4, group=both),
        Node(2, "compute", ns=100),
    )
    assert rehearse(Plan((nodes, nodes)), lambda node: 70.0).ns == 200
    nodes = (
        *nodes,
        Node(3, "all_reduce", after=(2,), size=4, group=both),
        Node(4, "send", size=8, peer=1),
    )
    other = (*nodes[:-1], Node(4, "recv", size=8, peer=0))
    # the second call of a group begins after the first
    assert rehearse(Plan((nodes, other)), lambda node: 130.0).ns == 360


@pytest.fixture
def protobuf_files(tmp_path: Path) -> Path:
    for rank, text in enumerate(traces.PROTOBUF):
        (tmp_path / f"real.{rank}.et").write_bytes(bytes.fromhex(text))
    return tmp_path / "real.0.et"


def test_what_protobuf_writes_is_read_as_its_consumers_read_it(
    protobuf_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups from the metadata node, numbers of every kind, a control dependency of the converter's
    that leads nowhere; sends first."""
    plan = chakra.read(protobuf_files)
    call, send, receive, kernel = plan.ranks[0][1:]
    assert (call.kind, call.group, call.size, call.after) == ("all_gather", (0, 1), 8192, (1,))
    assert (send.size, send.peer, send.tag) == (receive.size, receive.peer, receive.tag) == (
        4096,
        1,
        9,
    ) and kernel.ns == 12_000
    assert any("names node 99, which is not there" in what for what in plan.skipped)
    assert any("involved_dim" in what for what in plan.skipped)
    assert replay(str(protobuf_files), "tiny", "--passes", "1", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["wrong"] == 0 and summary["passes"] == 1 and summary["nodes"] == 8


# of Chakra's feeder, of the jsonizer (protobuf's mapping: long numbers are strings), of STAGE
NODES = [
    {
        "workload_graph": [
            {
                "Id": 1,
                "Name": "a",
                "NodeType": 7,
                "data_deps": [],
                "runtime": 1.5,
                "comm_type": 2,
                "comm_size": 4096,
            }
        ]
    },
    [
        {"version": "0.0.4"},
        {
            "id": "1",
            "name": "a",
            "type": "COMM_COLL_NODE",
            "attr": [
                {"name": "comm_type", "int64Val": "2"},
                {"name": "comm_size", "int64Val": "4096"},
            ],
        },
    ],
    {
        "nodes": [
            {
                "id": 1,
                "name": "a",
                "node_type": "coll_comm_node",
                "data_deps": [],
                "comm_type": "ALL_GATHER",
                "comm_size": 4096,
            }
        ]
    },
]


@pytest.mark.parametrize("written", NODES)
@pytest.mark.parametrize("form", ["{}.json", "{}.json.gz", "rank_{}.json", "a_{}.et"])
def test_json_and_gzip_are_read(written: object, form: str, tmp_path: Path) -> None:
    text = (
        "\n".join(json.dumps(one, indent=2) for one in written)
        if isinstance(written, list)
        else json.dumps(written)
    )
    for rank in range(2):
        data = b"\xef\xbb\xbf" + text.encode()
        (tmp_path / form.format(rank)).write_bytes(
            gzip.compress(data) if form.endswith("gz") else data
        )
    for name in (tmp_path, tmp_path / form.format(1)):
        plan = chakra.read(name)
        assert [(node.kind, node.size, node.group) for node in plan.ranks[1]] == [
            ("all_gather", 8192, (0, 1))
        ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.0.json", '{"traceEvents": []}', "a trace of PyTorch's profiler"),
        (
            "t.json",
            '{"schema": "1.1.0-chakra.0.0.4", "nodes": []}',
            "an execution trace of PyTorch",
        ),
        ("t.0.json", '{"id": 1', "t.0.json: Expecting"),
        ("t.0.json", '{"nodes": [{"id": 1, "type": "NOVEL_NODE"}]}', "'NOVEL_NODE' is no number"),
        ("t.0.et", "\x0a\x08\x01\x12\x01a\x18\x03\x00\x00\x00", "of a schema before 0.0.4"),
    ],
)
def test_what_is_no_trace_is_said(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(PlanError, match=words):
        chakra.read(tmp_path / name)


def test_one_file_for_all_ranks(protobuf_files: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.et").write_bytes(
        traces.write(
            tmp_path, [[traces.node(1, COLL, comm_type=0, pg_name="0", **SIZE)]], "x"
        ).read_bytes()
    )
    with pytest.raises(PlanError, match="--ranks N"):
        chakra.read(tmp_path / "alone.et")
    assert [nodes[0].group for nodes in chakra.read(tmp_path / "alone.et", None, 4).ranks] == [
        (0, 1, 2, 3)
    ] * 4


def test_control_dependencies_hold_where_they_can(tmp_path: Path) -> None:
    # good; of a node that was dropped; in a cycle with data
    for control, after in (([1], (1,)), ([9], ()), ([3], ())):
        nodes = [
            traces.node(1, COMP, micros=1),
            traces.node(2, COMP, control=control, micros=1),
            traces.node(3, COMP, data=[2], micros=1),
        ]
        plan = chakra.read(traces.write(tmp_path, [nodes] * 2))
        assert plan.ranks[0][1].after == after and bool(plan.skipped) == (after == ())


def test_calls_that_cannot_be_replayed_are_counted(tmp_path: Path) -> None:
    nodes = [
        traces.node(1, COLL, comm_type=traces.REDUCE, **SIZE),
        traces.node(2, SEND, **SIZE),
        traces.node(3, 0),
        traces.node(4, COLL, data=[1, 2, 3], comm_type=8, **SIZE),
    ]
    plan = checked(chakra.read(traces.write(tmp_path, [nodes] * 2)))
    assert [[node.kind for node in own] for own in plan.ranks] == [["reduce_scatter"]] * 2
    assert all(
        any(word in what for what in plan.skipped)
        for word in ("REDUCE nodes", "COMM_SEND nodes without comm_dst", "INVALID")
    )


def ring(rank: int, ranks: int, steps: int, size: int) -> list[bytes]:
    """A ring of sends and receives, as a custom collective is written: each rank's first node
    sends, and the receive waits for it."""
    result = []
    for step in range(steps):
        before = [2 * step - 1] if step else []
        result.append(
            traces.node(2 * step, SEND, before, comm_dst=(rank + 1) % ranks, comm_size=size)
        )
        result.append(
            traces.node(2 * step + 1, RECV, [2 * step], comm_src=(rank - 1) % ranks, comm_size=size)
        )
    return result


@pytest.mark.parametrize("size", [4096, 5 << 20])
def test_a_ring_that_sends_first_runs(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = traces.write(tmp_path, [ring(rank, 4, 3, size) for rank in range(4)])
    assert replay(str(file), "--passes", "2", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (
        summary["wrong"] == 0
        and 0.5 * summary["estimate_us"] < summary["median_pass_us"] < 3 * summary["estimate_us"]
    )


def test_messages_are_matched_by_their_tags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lower number sends last, because it waits for an answer to the other; sizes differ, so
    that a mix-up is seen."""
    first = [
        traces.node(0, RECV, comm_src=1, comm_tag=3, **SIZE),
        traces.node(1, SEND, [0], comm_dst=1, comm_tag=1, comm_size=64),
        traces.node(2, SEND, comm_dst=1, comm_tag=2, comm_size=1 << 20),
    ]
    second = [
        traces.node(0, RECV, comm_src=0, comm_tag=1, comm_size=64),
        traces.node(1, RECV, comm_src=0, comm_tag=2, comm_size=1 << 20),
        traces.node(2, SEND, [1], comm_dst=0, comm_tag=3, **SIZE),
    ]
    assert (
        replay(str(traces.write(tmp_path, [first, second])), "tiny", "--passes", "2", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)["wrong"] == 0


def test_aicb_as_others_write_it(tmp_path: Path) -> None:
    """A byte order mark, CRLF, gzip, floats, checkpoints, operations of every kind; what is not
    replayed is counted."""
    head = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 expert_parallel_npu_group: "
        "2 pp: 2 checkpoints: 2 0 1 pp_comm: 4096.0"
    )
    layers = [
        "norm -1 0 BROADCAST 16384 1 NONE 0 1 NONE 0 100",
        "novel -1 1.5 GATHER 64 1 ALLREDUCEALLTOALL 64.0 1 ALLREDUCE 4096 100",
        "moe\t-1\t1\tALLTOALL_EP\t8192\t1\tNone\t5\t1\tNONE\t0\t100",
    ]
    file = tmp_path / "w.txt.gz"
    file.write_bytes(
        gzip.compress(b"\xef\xbb\xbf" + "\r\n".join([head, "3", *layers, ""]).encode())
    )
    plan, _ = read_trace(file, load_fabric("demo"), None, None, 1)
    calls = [(node.kind, node.size, node.group) for node in plan.ranks[0] if node.group]
    assert sorted(calls) == [
        ("all_reduce", 4096, (0, 2, 4, 6)),
        ("all_to_all", 8192, (0, 2)),
        ("broadcast", 16384, (0, 1)),
    ]
    assert plan.skipped["GATHER"] == plan.skipped["ALLREDUCEALLTOALL"] == 1
    assert any("checkpoints: 2" in what for what in plan.skipped) and any(
        "4,096" in what for what in plan.skipped
    )


def workload(tmp_path: Path, layers: int, tp: int, size: int = 64) -> Path:
    head = f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: 1 pp: 1"
    (tmp_path / "w.txt").write_text(
        "\n".join([head, str(layers), *[f"a -1 9 ALLREDUCE {size} 9 NONE 0 9 NONE 0 1"] * layers])
    )
    return tmp_path / "w.txt"


def test_limits_are_counted_as_used_and_hints_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aicb, "MOST_NODES", 4 * 100 * 16)
    file = workload(tmp_path, 100, 8)
    assert sum(map(len, aicb.read(file, 16, 64).ranks)) == 4 * 100 * 16  # not six for a layer
    with pytest.raises(PlanError, match="use --ranks 16"):
        aicb.read(file, 64, 64)
    with pytest.raises(PlanError, match="does not divide 20 ranks: use --ranks 16"):
        aicb.read(file, 20, 64)
    with pytest.raises(UserError, match="it takes 8 hosts: use a larger fabric, such as demo"):
        read_trace(file, load_fabric("tiny"), None, None, 1)


@pytest.mark.parametrize(
    ("size", "most_ns"), [(5 << 30, float("inf")), (5 << 30, 2e6), (1 << 28, 2e6)]
)
def test_the_sigma_that_is_named_fits(size: int, most_ns: float, tmp_path: Path) -> None:
    file, fabric = workload(tmp_path, 3, 8, size), load_fabric("demo")
    with pytest.raises(UserError) as refused:
        read_trace(file, fabric, None, None, 1, most_ns)
    match = re.search(r"use --sigma ([\d.]+)", str(refused.value))
    assert (
        match is not None
        and read_trace(file, fabric, None, None, float(match[1]), most_ns)[1].ns <= most_ns
    )
    with pytest.raises(UserError, match="delays alone take"):
        read_trace(file, fabric, None, None, 1, 1000)


def test_a_long_simulated_replay_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, long in ((64, False), (1 << 29, True)):
        assert replay(str(workload(tmp_path, 3, 8, size)), "--check") == 0
        assert ("on one core" in capsys.readouterr().out) == long
