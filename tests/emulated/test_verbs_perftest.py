"""perftest's ib_write_bw and ib_write_lat, and ibverbs-utils, unmodified, on emulated hosts:
healthy, and while something breaks.

perftest itself takes no events (``-e``) for WRITEs, and no inline data on a device that it does not
know by its vendor's number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.emulated.verbs_rig import Cues, Ended, Verbs, needs
from topologies.units import US

pytestmark = [
    pytest.mark.sandbox,
    needs("ib_write_bw", "ibv_devinfo", package="perftest and ibverbs-utils"),
]
MIB = 1 << 20
SIZE = 65536
SERVER, CLIENT = 0, 2
"""Hosts below different T0s."""


@pytest.fixture(scope="module", params=["mrc", "roce"])
def verbs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Verbs]:
    with Verbs.up(request.param, tmp_path_factory.mktemp("logs")) as up:
        yield up


def tables(ended: Ended) -> list[list[float]]:
    """Rows of numbers that the server has printed, then the client's: bytes, iterations, and the
    columns that follow."""
    assert ended.failed == {}, ended.text()
    rows = [
        line.split()
        for rank in (0, 1)
        for line in ended.said[rank]
        if re.fullmatch(r"\s*\d+\s+\d+(\s+[\d.]+){3,7}\s*", line)
    ]
    assert rows, ended.text()
    return [[float(word) for word in row] for row in rows]


def bandwidth(
    verbs: Verbs, messages: int, *words: str, size: int = SIZE, cues: Cues = ()
) -> tuple[float, float]:
    """Run ib_write_bw with these options; (peak, average) that it prints, in bytes per second of
    the network. Checks its size and iterations, and by the client's log that it has sent just
    that."""
    with verbs.heard(CLIENT, messages) as rows:
        ended = verbs.run(
            ("ib_write_bw", "-s", str(size), *words, "{server}"), (SERVER, CLIENT), cues
        )
    server, client = tables(ended)
    # the client tells the server
    assert server == client and client[:2] == [size, messages], ended.text()
    assert [sum(row[key] for row in rows) for key in ("messages", "bytes")] == [
        messages,
        messages * size,
    ]
    assert all(0 < seen < messages for seen in ended.cued), "what breaks has to do so in the middle"
    network = MIB * verbs.cluster.clock.dilation
    return client[2] * network, client[3] * network


@pytest.mark.quiet
def test_its_bandwidth_is_that_of_the_log_and_below_the_line_rate(verbs: Verbs) -> None:
    """It measures from the first post to the last completion, so that a latency counts once: below
    2 % of this time."""
    before = len(verbs.logged(CLIENT))
    peak, average = bandwidth(verbs, 160, "-n", "160")
    whole = verbs.logged(CLIENT)[before:][1:-1]  # the first and the last bin are not full of it
    begin, end = whole[0]["t"], whole[-1]["t"] + whole[-1]["bin_ps"]
    assert len(whole) > 10
    assert average == pytest.approx(
        sum(row["bytes"] for row in whole) / (end - begin) * 1e12, rel=0.05
    )
    assert average <= peak < verbs.line_bytes


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (16, ("-n", "16", "--use_old_post_send", "-Q", "4")),
        (40, ("-n", "5", "-q", "8")),
        (16, ("-n", "16", "-l", "4", "-x", "0", "--ipv6", "--mr_per_qp", "-m", "1024")),
    ],
)  # fmt: skip
def test_options(verbs: Verbs, messages: int, words: tuple[str, ...]) -> None:
    peak, average = bandwidth(verbs, messages, *words)
    assert 0 < average <= peak


def test_both_directions(verbs: Verbs) -> None:
    with verbs.heard(SERVER, 16) as rows:
        _, average = bandwidth(verbs, 16, "-n", "16", "-b")
    assert sum(row["bytes"] for row in rows) == 16 * SIZE and average < 2 * verbs.line_bytes


def test_small_messages_and_a_large_one(verbs: Verbs) -> None:
    bandwidth(verbs, 200, "-n", "200", size=8)
    bandwidth(verbs, 5, "-n", "5", size=(1 << 18) + 1)


def test_latency(verbs: Verbs) -> None:
    """Half a round trip each, and never less than light takes."""
    with verbs.heard(SERVER, 20), verbs.heard(CLIENT, 20):
        ended = verbs.run(("ib_write_lat", "-n", "20", "-s", "2", "{server}"), (SERVER, CLIENT))
    for size, iterations, least, most, typical, *_ in tables(ended):
        assert (size, iterations) == (2, 20) and least <= typical <= most
        assert verbs.fabric.delay_ps < least * US / verbs.cluster.clock.dilation


@pytest.mark.parametrize("kind", ["cable", "NIC port", "plane", "T1"])
def test_while_something_breaks(verbs: Verbs, kind: str) -> None:
    """A network that has another way re-routes RoCE's flows; its only port or plane comes back."""
    cluster = verbs.cluster
    cues: Cues = {
        "cable": [(6, lambda: cluster.set_link("p0-t0-0:p0-t1-0", False))],
        "T1": [(6, lambda: cluster.set_switch("p0-t1-1", False))],
        "NIC port": verbs.flap(6, 20, "port", "h2-p0"),
        "plane": verbs.flap(6, 20, "plane", "p0"),
    }[kind]
    bandwidth(verbs, 28, "-n", "7", "-q", "4", cues=cues)
    if kind == "NIC port":
        ended = verbs.run(("ib_write_lat", "-n", "20", "{server}"), (SERVER, CLIENT), cues)
        assert [row[1] for row in tables(ended)] == [20, 20]


def test_a_peer_that_is_cut_off_is_an_error_after_the_programs_timeout(verbs: Verbs) -> None:
    """8 times 4.096 us x 2^2 of the network without progress; perftest's status 12 is
    RETRY_EXC_ERR."""

    def cut_off() -> None:
        for plane in range(verbs.fabric.planes):
            verbs.cluster.inject("port", f"h{SERVER}-p{plane}")

    ended = verbs.run(
        ("ib_write_bw", "-n", "5000", "-u", "2", "{server}"), (SERVER, CLIENT), [(6, cut_off)]
    )
    assert sorted(ended.failed) == [0, 1] and any(
        "Failed status 12" in line for line in ended.said[1]
    ), ended.text()
    assert not any(agent.call("verbs") for agent in verbs.cluster.agents)


def test_an_operation_that_there_is_not_is_refused_in_one_line(verbs: Verbs) -> None:
    ended = verbs.run(("ib_read_lat", "-n", "5", "{server}"), (SERVER, CLIENT))
    lines = [line for line in ended.said[1] if line.startswith("mrcbed:")]
    assert len(lines) == 1 and re.search(
        "RDMA READ: .* RDMA WRITE and WRITE with immediate alone", lines[0]
    ), ended.text()
    assert ended.failed.keys() == {0, 1}


@pytest.mark.soak
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_write_lat"])
def test_all_sizes(verbs: Verbs, program: str) -> None:
    """The largest take minutes."""
    ended = verbs.run((program, "-a", "-n", "5", "{server}"), (SERVER, CLIENT))
    assert [row[:2] for row in tables(ended)][-23:] == [[1 << power, 5] for power in range(1, 24)]


def test_the_device_as_ibverbs_utils_show_it(verbs: Verbs) -> None:
    listed = verbs.run(("ibv_devices",))
    assert [lines[-1].split() for _, lines in sorted(listed.said.items())] == [
        ["mrcbed0", f"024d52fffe00000{host}"] for host in (0, 2)
    ]
    shown = verbs.run(("ibv_devinfo", "-v"))
    for rank, host in enumerate((0, 2)):
        found = dict(
            re.findall(r"^\s*([\w\[\] ]+):\s+(.+?)$", "\n".join(shown.said[rank]), re.MULTILINE)
        )
        told = {
            "hca_id": "mrcbed0",
            "node_guid": f"024d:52ff:fe00:000{host}",
            "phys_port_cnt": "1",
            "max_qp": "4096",
            "max_sge": "16",
            "atomic_cap": "ATOMIC_NONE (0)",
            "max_srq": "0",
            "state": "PORT_ACTIVE (4)",
            "active_mtu": "4096 (5)",
            "link_layer": "Ethernet",
            "phys_state": "LINK_UP (5)",
            "GID[  0]": f"fd6d:7263::{host + 1}, RoCE v2",
            "GID[  1]": f"::ffff:10.78.0.{host + 1}, RoCE v2",
            "active_width": "4X (2)",
            "active_speed": "50.0 Gbps (64)",
        }
        assert {key: found.get(key) for key in told} == told
    assert not any(agent.call("verbs") for agent in verbs.cluster.agents), (
        "nothing of a program that has ended is left"
    )


def test_a_port_that_is_down_is_shown(verbs: Verbs) -> None:
    verbs.cluster.inject("port", "h2-p0")
    for plane in range(1, verbs.fabric.planes):
        verbs.cluster.inject("port", f"h2-p{plane}")
    shown = verbs.run(("ibv_devinfo",))
    assert "PORT_ACTIVE (4)" in "".join(shown.said[0]) and "PORT_DOWN (1)" in "".join(shown.said[1])
