"""``mrcbed perf``: tables that parsers for nccl-tests and perftest read, figures that are right, one line for what cannot be measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from testbed import cli
from testbed.perf import tables
from testbed.perf.options import parse_line
from testbed.perf.run import Request, size_of
from testbed.simulated import cluster as simulated
from topologies import load_fabric
from topologies.theory import bus_factor

Go = Callable[..., tuple[int, str, str]]


@pytest.fixture
def go(capsys: pytest.CaptureFixture[str]) -> Go:
    """Run ``mrcbed perf`` in the simulated world: status, output, complaints."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            status = cli.execute(["perf", *words, "--world", "simulated"])
        except SystemExit as left:
            status = int(left.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def rows_of(text: str) -> list[list[str]]:
    """As parsers take them: what begins with a number."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"])
def test_every_collective_has_nccl_tests_table(operation: str, go: Go) -> None:
    status, out, _ = go(operation, "tiny", "-b", "4K", "-e", "64K", "-n", "2")
    assert status == 0
    lines = out.splitlines()
    [heads] = [line for line in lines if "busbw" in line]
    assert heads[1:].split() == ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    assert sum("out-of-place" in line for line in lines) == 1  # superbenchmark takes the last, others the first
    rows = rows_of(out)
    assert [int(row[0]) for row in rows] == [4096, 16384, 65536]
    kind = "ring-allreduce" if operation == "all_reduce" else operation.replace("_", "-")
    for row in rows:
        size, count, kind_name, redop, root = row[:5]
        assert int(count) == int(size) // 4 // (1 if operation in ("all_reduce", "send_recv") else 4) and kind_name == "float"
        assert redop == ("sum" if "reduce" in operation else "none") and root == "-1"
        for time, algbw, busbw, wrong in (row[5:9], row[9:13]):
            assert wrong == "0" and float(time) > 4  # a base RTT is 10 us, half of it one way
            assert float(algbw) == pytest.approx(int(size) / float(time) / 1e3, rel=0.002, abs=0.01)  # both are printed with two decimals
            assert float(busbw) == pytest.approx(float(algbw) * bus_factor(kind, 4), rel=0.002, abs=0.012)
    assert "# Out of bounds values : 0 OK" in lines
    mean = [float(line.split(":")[1]) for line in lines if line.startswith("# Avg bus bandwidth    : ")]
    assert mean == [pytest.approx(sum(float(row[k]) for row in rows for k in (7, 11)) / 6, abs=0.01)]
    widths = [len(line) for line in lines if re.match(r"\s*\d", line)]
    assert len(set(widths)) == 1


def test_write_lat_has_perftests_columns_and_half_of_the_round_trip(go: Go) -> None:
    status, out, _ = go("write_lat", "tiny", "-b", "8", "-e", "2K", "-n", "5")
    assert status == 0
    [heads] = [line for line in out.splitlines() if "#bytes" in line]
    assert re.split(r"\s{2,}|\s(?=#iter)", heads.strip()) == [
        "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]", "99% percentile[usec]",
        "99.9% percentile[usec]",
    ]  # fmt: skip
    fabric = load_fabric("tiny")
    for row in rows_of(out):
        assert len(row) == 9 and row[1] == "5"
        low, high, typical, mean = map(float, row[2:6])
        assert low <= typical <= high and low <= mean <= high
        assert 0.3 * fabric.base_rtt_ns / fabric.dilation / 1e3 < typical < fabric.base_rtt_ns / fabric.dilation / 1e3


def test_write_bw_reaches_the_rate_of_all_planes(go: Go) -> None:
    status, out, _ = go("write_bw", "tiny", "-s", "64K", "-n", "200", "--report_gbits", "--pair", "h0:h2")
    assert status == 0 and "BW average[Gb/sec]" in out
    [[size, iterations, peak, average, rate]] = rows_of(out)
    fabric = load_fabric("tiny").real
    line = fabric.host_rate * fabric.payload_share / 1e9
    assert (size, iterations) == ("65536", "200") and 0.8 * line < float(average) <= float(peak) <= 1.001 * line
    assert float(rate) == pytest.approx(float(average) * 1e9 / 8 / 65536 / 1e6, rel=0.01)


def test_a_fault_is_there_during_all_of_it(go: Go) -> None:
    plain = ("all_reduce", "tiny", "-b", "1M", "-n", "2", "--placement", "interleaved", "--json")
    faults = ("--fault", "link p0-t0-0:p0-t1-0", "--fault", "link p1-t0-0:p1-t1-0")
    healthy, broken = (json.loads(go(*plain, *more)[1]) for more in ((), faults))
    before, after = (figures["rows"][0]["out_of_place"]["time_us"] for figures in (healthy, broken))
    assert after > 1.3 * before
    assert broken["faults"] == ["link p0-t0-0:p0-t1-0", "link p1-t0-0:p1-t1-0"] and healthy["wrong"] == broken["wrong"] == 0


def test_the_network_has_re_routed_roce_around_a_fault(go: Go) -> None:
    status, out, err = go("all_reduce", "tiny", "-b", "64K", "-n", "3", "--transport", "roce", "--fault", "switch p0-t0-0", "--json")
    assert (status, err) == (0, "")
    assert [row["out_of_place"]["wrong"] for row in json.loads(out)["rows"]] == [0]


def test_wrong_elements_are_counted_and_end_with_status_1(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that expect other inputs than they have: what a network that damages data would look like."""
    ask = simulated.SimulatedAgent.call

    def call(self: Any, op: str, **args: Any) -> Any:
        if op == "start" and self.host.number == 1:
            args["seed"] += 1
        return ask(self, op, **args)

    monkeypatch.setattr(simulated.SimulatedAgent, "call", call)
    status, out, _ = go("all_gather", "tiny", "-b", "4K", "-n", "1")
    assert status == 1 and "FAILED" in out and int(rows_of(out)[0][8]) > 0
    status, out, _ = go("all_gather", "tiny", "-b", "4K", "-n", "1", "-c", "0")
    assert status == 0 and rows_of(out)[0][8] == "N/A"


def test_a_host_that_is_cut_off_ends_with_one_line(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.perf.measure.PATIENCE_S", 2)
    faults = [word for plane in (0, 1) for word in ("--fault", f"port h1-p{plane}")]
    status, out, err = go("all_reduce", "tiny", "-b", "4K", "-n", "1", *faults)
    assert status == 1 and rows_of(out) == []
    [line] = [line for line in err.splitlines() if line.startswith("mrcbed:")]
    assert line.startswith("mrcbed: all_reduce: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["all_sum"], "there are all_reduce"),
        (["all_reduce", "-b", "1X"], "write it like 8, 32K or 1M"),
        (["all_reduce", "-b", "2M", "-e", "1M"], "upwards (-b, -e)"),
        (["all_reduce", "-s", "8", "-b", "8"], "-s is one size"),
        (["all_reduce", "-b", "1", "-e", "1G", "-i", "1"], "more than 1000 sizes"),
        (["all_reduce", "-d", "half"], "there are float32, int32"),
        (["all_gather", "--algorithm", "tree"], "ring and tree"),
        (["write_bw", "--pair", "h0:h0"], "two different hosts"),
        (["write_bw", "--pair", "h0-h1"], "write it like h0:h5"),
        (["all_reduce", "--fault", "melt h0"], "melt"),
        (["all_reduce", "--placement", "random"], "no placement"),
        (["all_reduce", "-t", "tcp"], "no kernel"),
        (["all_reduce", "nofabric"], "nofabric"),
    ],
)
def test_bad_input_is_one_line(words: list[str], says: str, go: Go) -> None:
    status, out, err = go(*words)
    assert status == 2 and out == "" and says in err.splitlines()[-1] and err.count("mrcbed:") == 1


def test_sizes() -> None:
    assert [size_of(text) for text in ("8", "32K", "1m", "2G")] == [8, 32 << 10, 1 << 20, 2 << 30]
    assert Request("all_reduce", least=8, most=100, factor=3).sizes() == [8, 24, 72]
    assert Request("all_reduce", least=8, most=20, increment=6).sizes() == [8, 14, 20]
    assert parse_line("write_lat -s 64 -n 3 --pair h1:h2".split()).pair == (1, 2)


def test_latency_of_known_round_trips() -> None:
    row = tables.latency(8, [2.0 * k for k in range(1, 1001)])
    assert (row.t_min, row.t_max, row.typical, row.average, row.p99, row.p999) == (1, 1000, 500.5, 500.5, 990, 999)
    assert row.stdev == pytest.approx(288.67, abs=0.01)


def test_times_keep_to_seven_characters() -> None:
    half = tables.block(1 << 20, 123456.7, 1.0, 0)
    line = tables.nccl_row(tables.Row(1 << 20, 1 << 18, "float", "sum", -1, half, tables.block(8, 1.5, 1.0, None)))
    assert line.split()[5] == "123457" and line.split()[9] == "1.50" and line.split()[-1] == "N/A"
