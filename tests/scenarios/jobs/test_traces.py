"""Traces: what is read, what is refused with the node's number in one line, and replays in virtual time whose elements are compared."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from scenarios.jobs import aicb, chakra
from scenarios.jobs.plan import MOST_GROUPS, Node, Plan, PlanError, checked, rehearse, scaled
from scenarios.jobs.replay import read_trace
from testbed import cli
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
    assert by_stage["mlp_row", "forward"].size == 131072 and by_stage["mlp_row", "forward"].kind == "all_gather"
    rows = [row.split("\t") for row in traces.AICB.splitlines()[2:]]
    assert plan.compute_ns == [sum(int(row[column]) for row in rows for column in (2, 5, 8))] * 8
    weights = by_stage["mlp_row", "weights"]
    later = [node for node in plan.ranks[5] if node.number > weights.number]
    assert later and not any(weights.number in node.after for node in later)  # it overlaps with what follows


def test_chakra_nodes_and_both_kinds_of_dependency(chakra_file: Path) -> None:
    plan = chakra.read(chakra_file, GROUPS)
    nodes = {node.number: node for node in plan.ranks[6]}
    assert nodes[0].kind == "compute" and nodes[0].ns == 20_000 and nodes[3].after == (0,)
    assert nodes[1].kind == "nothing" and nodes[2].group == (4, 5, 6, 7) and nodes[2].size == 1 << 18
    assert (nodes[4].kind, nodes[4].peer, nodes[4].tag) == ("send", 7, 5) and nodes[5].peer == 5
    assert nodes[6].size == 8 * 32768 and nodes[7].kind == "reduce_scatter" and nodes[9].after == (4, 8)
    assert sum(plan.skipped.values()) == 8


@pytest.mark.parametrize("words", [("{aicb}",), ("{chakra}", "--groups", "{groups}")])
def test_a_replay_moves_what_the_trace_says(
    words: tuple[str, ...], aicb_file: Path, chakra_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"aicb": aicb_file, "chakra": chakra_file, "groups": tmp_path / "groups.json"}
    out = tmp_path / "out"
    assert replay(*(word.format(**places) for word in words), "--passes", "2", "--json", "--out", str(out)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["wrong"] == 0 and summary["passes"] == 2 and summary["compute_late_us"] == pytest.approx(0, abs=0.01)
    assert 0.6 * summary["estimate_us"] < summary["median_pass_us"] < 1.6 * summary["estimate_us"]
    assert summary["gpu_lost_us"] == pytest.approx(summary["gpu_us"] - 2 * 8 * summary["compute_us"])
    assert json.loads((out / "summary.json").read_text()) == summary and (out / "raw" / "h0.jsonl").stat().st_size


def test_sigma_divides_bytes_and_computing(chakra_file: Path) -> None:
    whole = chakra.read(chakra_file, GROUPS)
    part = scaled(whole, 10)
    assert part.compute_ns == [ns // 10 for ns in whole.compute_ns] and part.bytes == pytest.approx(whole.bytes / 10, rel=1e-3)


def refusal(ranks: list[list[bytes]], tmp_path: Path, groups: dict[str, tuple[int, ...]] | None = None) -> str:
    file = traces.write(tmp_path, ranks)
    if groups is not None:
        (tmp_path / "g.json").write_text(json.dumps(groups))
    with pytest.raises(UserError) as refused:
        read_trace(file, load_fabric("demo"), None, tmp_path / "g.json" if groups is not None else None, 1)
    assert "\n" not in str(refused.value)
    return str(refused.value)


SIZE = {"comm_size": 4096}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([traces.node(1, COMP, data=[2]), traces.node(2, COMP, data=[1])], None, ("rank 0", "node 1", "depends on itself")),
        ([traces.node(1, COMP, data=[9])], None, ("node 1", "node 9", "not there")),
        ([traces.node(1, COMP), traces.node(1, COMP)], None, ("node 1", "two nodes")),
        ([traces.node(3, COLL, comm_type=traces.REDUCE, **SIZE)], None, ("node 3", "REDUCE cannot be replayed")),
        ([traces.node(3, 9)], None, ("node 3", "type 9", "cannot be replayed")),
        ([traces.node(3, COLL, comm_type=0, pg_name="tp", **SIZE)], None, ("node 3", "'tp'", "--groups")),
        ([traces.node(3, SEND, comm_dst=7, **SIZE)], None, ("node 3", "rank 7", "ranks 0 to 1")),
        ([traces.node(3, RECV, **SIZE)], None, ("node 3", "comm_src")),
        ([traces.node(3, SEND, comm_dst=1, **SIZE)], [traces.node(4, COMP)], ("node 3", "for ever", "rank 1", "no recv")),
        ([traces.node(3, COLL, comm_type=0, **SIZE)], [traces.node(4, COMP)], ("node 3", "for ever", "rank 1", "no such call")),
        (
            [traces.node(3, COLL, comm_type=0, **SIZE)], [traces.node(5, COLL, comm_type=0, comm_size=64)],
            ("node 3", "4,096", "node 5", "64 bytes", "same order"),
        ),
        (
            [traces.node(1, RECV, comm_src=1, **SIZE), traces.node(2, SEND, data=[1], comm_dst=1, **SIZE)],
            [traces.node(7, RECV, comm_src=0, **SIZE), traces.node(8, SEND, data=[7], comm_dst=0, **SIZE)],
            ("node 1", "for ever", "node 8", "node 7"),
        ),
        ([traces.node(3, COLL, comm_type=0, comm_size=-5)], None, ("node 3", "comm_size -5")),
        ([traces.node(3, COLL, comm_type=0, comm_size=1 << 40)], None, ("node 3", "sigma")),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_refused_with_its_number(
    first: list[bytes], second: list[bytes] | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    line = refusal([first, first if second is None else second], tmp_path)
    assert all(word in line for word in words), line


def test_hostile_files_give_one_line(tmp_path: Path) -> None:
    good = traces.write(tmp_path, [traces.job(rank, 2) for rank in range(2)])
    data = good.read_bytes()
    for bad, words in (
        (data[:-3], "are there"),
        (b"\xff" * 9 + b"\x7f", "bytes, of which"),
        (b"\xff" * 40, "more than ten"),
        (data + traces.varint(1 << 63), f"{1 << 63} bytes"),
        (data[:8] + traces.varint(12) + b"\x2a" + traces.varint(1 << 62) + b"abc", "is no node"),
        (b"", "no nodes"),
    ):
        good.write_bytes(bad)
        with pytest.raises(PlanError) as refused:
            chakra.read(good, GROUPS)
        assert words in str(refused.value) and "\n" not in str(refused.value) and "job.0.et" in str(refused.value)


def test_a_million_groups_or_nodes_give_one_line(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(json.dumps({str(number): [0, 1] for number in range(1_000_000)})[: 3 << 20] + "}")
    with pytest.raises(PlanError, match="g.json"):
        chakra.read_groups(tmp_path / "g.json")
    (tmp_path / "g.json").write_text(json.dumps({str(number): [0, 1] for number in range(5000)}))
    with pytest.raises(PlanError, match="5,000 groups, 4,096 at most"):
        chakra.read_groups(tmp_path / "g.json")
    count = MOST_GROUPS + 1
    nodes = [traces.node(number, COLL, comm_type=0, pg_name=str(number), comm_size=64) for number in range(1, count + 1)]
    file = traces.write(tmp_path, [nodes] * 70)
    groups = {str(number): (0, number) for number in range(1, count + 1)}
    with pytest.raises(PlanError, match=f"rank 0: node {count} .* {count}th group"):
        checked(chakra.read(file, groups))
    message = traces.node(1, COMP, micros=1)
    (tmp_path / "job.0.et").write_bytes((traces.varint(len(message)) + message) * 200_002)
    with pytest.raises(PlanError, match="more than 200,000 nodes"):
        chakra.read(file)


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
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "DATA", "line 1: 'DATA'"),
        ("\n5\n", "\n6\n", "line 2: 6 layers are announced, 5 are there"),
        ("ALLTOALL_EP", "GATHER_EP", "line 5: layer 'mlp_moelayer': 'GATHER_EP' cannot be replayed"),
        ("\t40000\tALLGATHER", "\tsoon\tALLGATHER", "line 6: layer 'mlp_row': 'soon' is no time"),
        ("131072\t1\tNONE\t0\t100\nmlp_row", "131072\t1\tNONE\t100\nmlp_row", "line 5: 11 columns"),
        ("NPU_group: 2", "NPU_group: 3", "line 1: tensor parallel over 3 does not divide 8"),
        ("NPU_group: 2", "NPU_group: 99999999999999", "line 1"),
    ],
)
def test_broken_aicb_files_are_refused_with_the_line(old: str, new: str, words: str, aicb_file: Path) -> None:
    assert old in traces.AICB
    aicb_file.write_text(traces.AICB.replace(old, new, 1))
    with pytest.raises(PlanError) as refused:
        aicb.read(aicb_file, 8)
    assert words in str(refused.value)


def test_the_command_refuses_in_one_line(aicb_file: Path, chakra_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        ((str(tmp_path / "none.txt"),), "no NAME.0.et"),
        ((str(chakra_file),), "'low' is in no file of groups"),
        ((str(chakra_file), "-n", "4", "--groups", str(tmp_path / "groups.json")), "a trace of 8 ranks"),
        ((str(aicb_file), "--within", "soon"), "--within"),
    ):
        assert replay(*words) != 0
        error = capsys.readouterr().err.strip()
        assert expected in error and len(error.splitlines()) == 1, error


def test_a_pass_overlaps_computing_and_calls() -> None:
    both = (0, 1)
    nodes = (Node(0, "compute", ns=100), Node(1, "all_reduce", after=(0,), size=4, group=both), Node(2, "compute", ns=100))
    assert rehearse(Plan((nodes, nodes)), lambda node: 70.0).ns == 200
    nodes = (*nodes, Node(3, "all_reduce", after=(2,), size=4, group=both), Node(4, "send", size=8, peer=1))
    other = (*nodes[:-1], Node(4, "recv", size=8, peer=0))
    assert rehearse(Plan((nodes, other)), lambda node: 130.0).ns == 360  # the second call of a group begins after the first
