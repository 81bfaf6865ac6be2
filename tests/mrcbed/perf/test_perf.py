"""``mrcbed perf``: tables that parsers for nccl-tests and perftest read, figures that are right,
one line for what cannot be measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from mrcbed import cli
from mrcbed.perf import measure, tables
from mrcbed.perf.measure import Measured
from mrcbed.perf.options import parse_line
from mrcbed.perf.run import Request, check_request, size_of
from testbed.errors import UserError
from testbed.simulated import cluster as simulated
from topologies import load_fabric
from topologies.theory import bus_factor
from topologies.units import MS, NS, US

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


@pytest.mark.parametrize(
    "operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv"]
)
def test_every_collective_has_nccl_tests_table(operation: str, go: Go) -> None:
    status, out, _ = go(operation, "tiny", "-b", "4K", "-e", "64K", "-n", "2")
    assert status == 0
    lines = out.splitlines()
    [heads] = [line for line in lines if "busbw" in line]
    assert heads[1:].split() == [
        "size",
        "count",
        "type",
        "redop",
        "root",
        *["time", "algbw", "busbw", "#wrong"] * 2,
    ]
    # superbenchmark takes the last, others the first
    assert sum("out-of-place" in line for line in lines) == 1
    rows = rows_of(out)
    assert [int(row[0]) for row in rows] == [4096, 16384, 65536]
    kind = "ring-allreduce" if operation == "all_reduce" else operation.replace("_", "-")
    for row in rows:
        size, count, kind_name, redop, root = row[:5]
        assert (
            int(count) == int(size) // 4 // (1 if operation in ("all_reduce", "send_recv") else 4)
            and kind_name == "float"
        )
        assert (
            redop == ("none" if operation in ("all_gather", "all_to_all") else "sum")
            and root == "-1"
        )
        for time, algbw, busbw, wrong in (row[5:9], row[9:13]):
            assert wrong == "0" and float(time) > 4  # a base RTT is 10 us, half of it one way
            # both are printed with two decimals
            assert float(algbw) == pytest.approx(int(size) / float(time) / 1e3, rel=0.002, abs=0.01)
            assert float(busbw) == pytest.approx(
                float(algbw) * bus_factor(kind, 4), rel=0.002, abs=0.012
            )
    assert "# Out of bounds values : 0 OK" in lines
    mean = [
        float(line.split(":")[1]) for line in lines if line.startswith("# Avg bus bandwidth    : ")
    ]
    assert mean == [
        pytest.approx(sum(float(row[k]) for row in rows for k in (7, 11)) / 6, abs=0.01)
    ]
    widths = [len(line) for line in lines if re.match(r"\s*\d", line)]
    assert len(set(widths)) == 1


def test_write_lat_has_perftests_columns_and_half_of_the_round_trip(go: Go) -> None:
    status, out, _ = go("write_lat", "tiny", "-b", "8", "-e", "2K", "-n", "5")
    assert status == 0
    [heads] = [line for line in out.splitlines() if "#bytes" in line]
    assert re.split(r"\s{2,}|\s(?=#iter)", heads.strip()) == [
        "#bytes",
        "#iterations",
        "t_min[usec]",
        "t_max[usec]",
        "t_typical[usec]",
        "t_avg[usec]",
        "t_stdev[usec]",
        "99% percentile[usec]",
        "99.9% percentile[usec]",
    ]
    fabric = load_fabric("tiny")
    for row in rows_of(out):
        assert len(row) == 9 and row[1] == "5"
        low, high, typical, mean = map(float, row[2:6])
        assert low <= typical <= high and low <= mean <= high
        assert 0.3 * fabric.base_rtt_ps / US < typical < fabric.base_rtt_ps / US


def test_write_bw_reaches_the_rate_of_all_planes(go: Go) -> None:
    status, out, _ = go(
        "write_bw", "tiny", "-s", "64K", "-n", "200", "--report_gbits", "--pair", "h0:h2"
    )
    assert status == 0 and "BW average[Gb/sec]" in out
    [[size, iterations, peak, average, rate]] = rows_of(out)
    fabric = load_fabric("tiny")
    line = fabric.host_rate * fabric.payload_share / 1e9
    assert (size, iterations) == ("65536", "200") and 0.8 * line < float(average) <= float(
        peak
    ) <= 1.001 * line
    assert float(rate) == pytest.approx(float(average) * 1e9 / 8 / 65536 / 1e6, rel=0.01)


def test_a_fault_is_there_during_all_of_it(go: Go) -> None:
    plain = ("all_reduce", "tiny", "-b", "1M", "-n", "2", "--placement", "interleaved", "--json")
    faults = ("--fault", "link p0-t0-0:p0-t1-0", "--fault", "link p1-t0-0:p1-t1-0")
    healthy, broken = (json.loads(go(*plain, *more)[1]) for more in ((), faults))
    before, after = (figures["rows"][0]["out_of_place"]["time_us"] for figures in (healthy, broken))
    assert after > 1.3 * before
    assert (
        broken["faults"] == ["link p0-t0-0:p0-t1-0", "link p1-t0-0:p1-t1-0"]
        and healthy["wrong"] == broken["wrong"] == 0
    )


def test_the_network_has_re_routed_roce_around_a_fault(go: Go) -> None:
    fault = ("--fault", "link p0-t0-0:p0-t1-0")
    status, out, err = go(
        "all_reduce",
        "tiny",
        "-b",
        "64K",
        "-n",
        "3",
        "--transport",
        "roce",
        "--placement",
        "interleaved",
        *fault,
        "--json",
    )
    assert (status, err) == (
        0,
        (
            "mrcbed: a queue pair of roce has one path: it runs on tiny-1p, where the 2 ports of "
            "a host are one\n"
        ),
    )
    assert [row["out_of_place"]["wrong"] for row in json.loads(out)["rows"]] == [0]


def test_wrong_elements_are_counted_and_end_with_status_1(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that expect other inputs than they have: what a network that damages data would look
    like."""
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
    monkeypatch.setattr("mrcbed.perf.measure.PATIENCE_S", 2)
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
        (["all_reduce", "-s", "8", "-b", "8"], "-s sets a single size"),
        (["all_reduce", "-b", "1", "-e", "1G", "-i", "1"], "more than 1000 sizes"),
        (["all_reduce", "-d", "half"], "'half' is not one of 'float', 'int', 'float32', 'int32'"),
        (["all_gather", "--algorithm", "tree"], "ring and tree"),
        (["write_bw", "--pair", "h0:h0"], "two different hosts"),
        (["write_bw", "--pair", "h0-h1"], "write it like h0:h5"),
        (["all_reduce", "--fault", "melt h0"], "melt"),
        (["all_reduce", "--placement", "random"], "no placement"),
        (["all_reduce", "-t", "tcp"], "no kernel"),
        (["all_reduce", "nofabric"], "nofabric"),
        (
            ["all_reduce", "-b", "8", "-e", "128M", "-f", "2", "-g", "1"],
            "all_reduce of 128M: the memory of a host holds 64M: give at most -e 64M",
        ),
        (
            ["all_reduce", "-b", "8", "-e", "8G", "-f", "2"],
            "all_reduce of 8G: the memory of a host holds 64M",
        ),
        (["all_to_all", "-b", "1G", "-e", "4G", "-i", "1G"], "all_to_all of 4G"),
        (
            ["write_lat", "-s", "128M"],
            "write_lat of 128M: the memory of a host holds 64M: give at most -e 64M",
        ),
        (
            ["write_bw", "-s", "16M"],
            "holds 8M: give at most -e 8M, or fewer messages at once (--tx-depth)",
        ),
        (["all_reduce", "-g", "8"], "each host is one rank"),
        (["all_reduce", "-o", "max"], "or give sum"),
        (["all_reduce", "-a"], "perftest's --all"),
        (["write_bw", "-a", "-s", "8"], "give one of them"),
        (
            ["write_bw", "-D", "5"],
            "No such option -D (no run here is as long: give a number of messages (-n))",
        ),
        (["write_bw", "--duration", "5"], "give a number of messages (-n))"),
        (["write_bw", "-t", "1"], "perftest's -t is --tx-depth"),
        (["write_bw", "-d", "mlx5_0"], "perftest's --ib-dev is --pair"),
        (["write_bw", "-c", "RC"], "perftest's --connection is always RC"),
        (["write_bw", "-b"], "perftest's --bidirectional is not there"),
        (["write_bw", "-R"], "neither registration nor rdma_cm"),
        (["write_bw", "-m", "1024"], "the MTU is the fabric's"),
        (["ib_read_bw"], "did you mean 'write_bw'?"),
        (["alltoallv_perf"], "did you mean 'all_to_all'?"),
        (["all_reduce", "-t", "rocee"], "did you mean roce?"),
        (
            ["all_reduce", "--placment", "packed"],
            "No such option --placment: did you mean --placement?",
        ),
    ],
)
def test_bad_input_is_one_line(words: list[str], says: str, go: Go) -> None:
    status, out, err = go(*words)
    assert status == 2 and out == "" and says in err.splitlines()[-1] and err.count("mrcbed:") == 1


def test_sizes() -> None:
    assert [size_of(text) for text in ("8", "32K", "1m", "2G", "128MB", "1.5K")] == [
        8,
        32 << 10,
        1 << 20,
        2 << 30,
        128 << 20,
        1536,
    ]
    assert Request("all_reduce", least=8, most=100, factor=3).sizes() == [8, 24, 72]
    assert Request("all_reduce", least=8, most=20, increment=6).sizes() == [8, 14, 20]
    # as in nccl-tests: -f goes before -i
    assert Request("all_reduce", least=8, most=32, increment=6, factor=2).sizes() == [8, 16, 32]
    # and -i is 1M
    assert Request("all_reduce", least=1 << 20, most=3 << 20, factor=1).sizes() == [
        1 << 20,
        2 << 20,
        3 << 20,
    ]
    # perftest: from 2 till 2^23
    assert parse_line("ib_write_bw -a".split()).sizes() == [2 << k for k in range(23)]
    assert parse_line("write_lat -s 64 -n 3 --pair h1:h2".split()).pair == (1, 2)


@pytest.mark.parametrize(
    ("operation", "ranks", "asked", "size", "count"),
    [
        ("all_reduce", 12, 8, 8, 2),
        ("all_reduce", 12, 64, 64, 16),
        ("all_reduce", 12, 4096, 4096, 1024),
        ("all_reduce", 8, 10, 8, 2),
        ("send_recv", 12, 512, 512, 128),
        ("all_gather", 8, 8, 0, 0),
        ("all_gather", 8, 64, 0, 0),
        ("all_gather", 8, 128, 128, 4),
        ("all_gather", 12, 4096, 4032, 84),
        ("all_gather", 12, 1 << 20, 1048512, 21844),
        ("reduce_scatter", 8, 256, 256, 8),
        ("reduce_scatter", 12, 512, 384, 8),
        ("all_to_all", 3, 1000, 960, 80),
        ("all_to_all", 8, 1000, 896, 28),
    ],
)
def test_rows_are_rounded_as_nccl_tests_rounds_them(
    operation: str, ranks: int, asked: int, size: int, count: int
) -> None:
    """By hand from nccl-tests' src/*.cu at a0b82b2: count = size / 4; all_reduce and sendrecv keep
    it, the others take (count / ranks) & ~3 elements of each rank, and print that times the ranks
    as size. What travels is no less, in equal slices."""
    request = Request(operation, least=asked)
    *row, slices = request.row(asked, ranks)
    assert row == [size, count]
    carried = request.carried(asked, ranks)
    parts = 1 if operation == "send_recv" else ranks
    assert size <= carried < size + parts * slices * 4 and carried % (parts * slices * 4) == 0


def test_what_twelve_hosts_cannot_do_is_refused_with_the_bound() -> None:
    """64M cannot be shared in equal slices there, and what is carried must fit, too."""
    fabric = load_fabric("tiny").with_(t0_per_plane=4, hosts_per_t0=3)
    with pytest.raises(
        UserError,
        match="all_reduce of 64M: the memory of a host holds 67108800: give at most -e 67108800",
    ):
        check_request(Request("all_reduce", least=8, most=64 << 20, factor=2), fabric)
    assert len(check_request(Request("all_reduce", least=8, most=67108800, factor=2), fabric)) == 12
    with pytest.raises(UserError, match="takes a power of two"):
        check_request(Request("all_reduce", algorithm="tree"), fabric)


def test_the_head_says_what_was_asked_and_every_size_has_its_row(go: Go) -> None:
    """As nccl-tests' writeDeviceReport() and TimeTest() (src/util.cu, src/common.cu) have it: sizes
    are not merged."""
    status, out, _ = go(
        "./build/all_gather_perf",
        "tiny",
        "-b",
        "8",
        "-e",
        "300",
        "-f",
        "2",
        "-n",
        "1",
        "-g",
        "1",
        "-o",
        "sum",
        "-d",
        "float",
    )
    assert (
        status == 0
        and (
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 300 step: 2(factor) warmup iters: 1 iters: "
            "1 agg iters: 1 "
        )
        in out
    )
    rows = rows_of(out)
    assert [(row[0], row[1]) for row in rows] == [
        ("0", "0"),
        ("0", "0"),
        ("0", "0"),
        ("64", "4"),
        ("128", "8"),
        ("256", "16"),
    ]
    assert rows[0][5:] == ["0.00", "0.00", "0.00", "0"] * 2
    status, out, _ = go(
        "sendrecv_perf", "tiny", "-b", "1K", "-e", "3K", "-i", "1K", "-n", "1", "-N", "2"
    )
    assert (
        "minBytes 1024 maxBytes 3072 step: 1024(bytes)" in out
        and [row[0] for row in rows_of(out)] == ["1024", "2048", "3072"] * 2
    )


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_reduce_perf", "all_reduce"),
        ("./build/alltoall_perf", "all_to_all"),
        ("alltoall", "all_to_all"),
        ("allreduce", "all_reduce"),
        ("AllGather", "all_gather"),
        ("reduce-scatter", "reduce_scatter"),
        ("sendrecv_perf", "send_recv"),
        ("ib_write_bw", "write_bw"),
        ("/usr/bin/ib_write_lat", "write_lat"),
    ],
)
def test_operations_by_their_names_elsewhere(name: str, operation: str) -> None:
    assert parse_line([name]).operation == operation


def test_perftests_options_mean_the_same() -> None:
    """src/perftest_parameters.c: -q QPs, -n iterations, -s size; -F, -x and -p concern a machine
    that is not there."""
    request = parse_line(
        "ib_write_bw -q 4 -n 50 -s 64K -F -x 3 -p 18515 --tx-depth 1 --report_gbits".split()
    )
    assert (request.qps, request.iterations, request.sizes(), request.depth, request.gbits) == (
        4,
        50,
        [1 << 16],
        1,
        True,
    )


@pytest.mark.parametrize(
    "more",
    [
        ("--qps", "16"),
        ("--fault", "loss h0-p0 probability=0.05"),
        ("-n", "3"),
        ("--tx-depth", "1"),
        ("-t", "roce"),
    ],
)
def test_the_peak_is_between_the_average_and_the_line(more: tuple[str, ...], go: Go) -> None:
    _, out, _ = go("write_bw", "demo", "-b", "4K", "-e", "64K", "-n", "40", "--report_gbits", *more)
    fabric = load_fabric("demo")
    for row in rows_of(out):
        assert float(row[3]) <= float(row[2]) <= fabric.host_rate * fabric.payload_share / 1e9


def test_an_impossible_figure_is_an_internal_error_with_numbers(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrcbed.perf.run.flow_times", lambda *args: Measured(flows=[
        {"bytes": 6400, "start_ps": 0, "end_ps": 10 * MS, "peak_bytes": 6400, "peak_ps": MS}
    ]))  # fmt: skip
    status, out, err = go("write_bw", "tiny", "-s", "64")
    assert status == 0, err
    monkeypatch.setattr("mrcbed.perf.run.flow_times", lambda *args: Measured(flows=[
        {"bytes": 6400, "start_ps": 0, "end_ps": 200 * NS, "peak_bytes": 6400, "peak_ps": 200 * NS}
    ]))  # fmt: skip
    status, out, err = go("write_bw", "tiny", "-s", "64")
    assert (
        status == 70
        and "peak bandwidth in GB/s is 32, more than 24.1623, which is impossible" in err
    )
    assert rows_of(out) == [] and out.splitlines()[-1] == tables.RULE


@pytest.mark.parametrize("operation", ["all_reduce", "write_bw", "write_lat"])
def test_ctrl_c_ends_with_130_and_with_the_rows_before(
    operation: str, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = measure.wait_for_all
    rounds: list[int] = []

    def interrupted(*args: Any) -> bool:
        rounds.append(1)
        if len(rounds) == 5:
            raise KeyboardInterrupt
        return wait(*args)

    monkeypatch.setattr(measure, "wait_for_all", interrupted)
    words = (operation, "tiny", "-b", "4K", "-e", "1M", "-n", "2")
    status, out, err = go(*words)
    assert (status, err.splitlines()[-1]) == (130, f"mrcbed: {operation}: stopped")
    measured = 2 if operation == "all_reduce" else 4  # a row of nccl-tests' is two measurements
    assert len(rows_of(out)) == measured
    lines = out.splitlines()
    assert (
        lines[-1] == tables.RULE
        if operation.startswith("write")
        else "# Out of bounds values : 0 OK" in lines
    )
    rounds.clear()
    status, out, _ = go(*words, "--json")
    assert (
        status == 130
        and len(json.loads(out)["rows"]) == measured
        and json.loads(out)["failed"] == "stopped"
    )


def test_latency_of_known_round_trips() -> None:
    row = tables.latency(8, [2.0 * k for k in range(1, 1001)])
    assert (row.t_min, row.t_max, row.typical, row.average, row.p99, row.p999) == (
        1,
        1000,
        500.5,
        500.5,
        990,
        999,
    )
    assert row.stdev == pytest.approx(288.67, abs=0.01)


def test_times_keep_to_seven_characters() -> None:
    half = tables.block(1 << 20, 123456.7, 1.0, 0)
    line = tables.nccl_row(
        tables.Row(1 << 20, 1 << 18, "float", "sum", -1, half, tables.block(8, 1.5, 1.0, None))
    )
    assert line.split()[5] == "123457" and line.split()[9] == "1.50" and line.split()[-1] == "N/A"
