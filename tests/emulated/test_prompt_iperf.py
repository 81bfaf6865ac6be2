"""The prompt's iperf on a living fabric: its path, its figures, and one line where something is
wrong."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

import pytest

from testbed.emulated.cluster import Cluster
from tests.emulated.typing_at import typing_at

pytestmark = pytest.mark.sandbox


@pytest.fixture
def say(tiny: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Types a line; returns what was printed."""
    with typing_at(tiny, tmp_path_factory.mktemp("script"), io.StringIO()) as typed:
        yield typed


@pytest.mark.quiet
def test_udp_and_tcp_on_a_chosen_path(tiny: Cluster, say: Callable[[str], str]) -> None:
    before = {row["port"]: row["admitted_packets"] for row in tiny.counters()}
    # long enough that a tenth of a second without the CPU at its end is little
    said = say("iperf h0 h3 -u -b 20Gbit -t 3 --path p1/0")
    line = (
        r"h0 to h3 over p1/0, udp, [\d.]+ s of wall time: sent (.*) Gb/s, arrived (.*) Gb/s, "
        r"lost (.*) %, jitter (.*) ms of wall time\n"
    )
    found = re.fullmatch(line, said)
    assert found, said
    assert 18 < float(found[1]) < 22 and float(found[2]) <= float(found[1]) and float(found[3]) < 5
    used = {row["port"] for row in tiny.counters() if row["admitted_packets"] > before[row["port"]]}
    assert {port for port in used if "t1" in port} == {"p1-t1-0-d0", "p1-t1-0-d1"}
    line = (
        r"h0 to h3 over p1/1, tcp, [\d.]+ s of wall time: sent .* Gb/s, arrived .* Gb/s, \d+ "
        r"retransmits\n"
    )
    assert re.match(line, say("iperf -b 10Gbit -t 1"))


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("iperf h0", "usage: iperf3 [HOST HOST] [-u] [-b RATE]"),
        ("iperf h0 h9", "fabric 'tiny' has no host 'h9'"),
        ("iperf h0 h0", "'h0' is given twice: give it once"),
        (
            "iperf h0 h3 --path p0/7",
            "there is no path 'p0/7' from h0 to h3: the first are p0/0, p0/1, p1/0, p1/1",
        ),
        ("iperf h0 h3 --path x", "there is no path 'x' from h0 to h3"),
        ("iperf h0 h3 -u", "iperf3: UDP sends at a rate: say which, like -b 20Gbit"),
        ("iperf h0 h3 -b 110Gbit", "more than a port carries (100 Gbit/s)"),
        ("iperf h0 h3 -b many", "iperf3: -b = 'many' is not a rate"),
        ("iperf h0 h3 -t soon", "usage: iperf3"),
        ("iperf h0 h3 --plane 1", "no such option"),
    ],
)
def test_bad_input_is_one_line(say: Callable[[str], str], line: str, answer: str) -> None:
    said = say(line)
    assert answer in said and said.count("\n") == 1
