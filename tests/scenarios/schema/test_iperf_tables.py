"""[[background]]: what a file may say, when its flows run, what theory leaves beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from scenarios.figures.iperf_flows import fill, link_rates
from scenarios.figures.measure import Run as Raw
from scenarios.run.iperf_flows import BackgroundRun
from scenarios.schema.scenario import ScenarioError, load_scenario
from scenarios.show.run_tables import BACKGROUND
from testbed.emulated.bringup import link_mtu, spread
from testbed.emulated.iperf_flows import command_lines, datagram_bytes, route_lines
from testbed.results.record import Background, Record
from testbed.results.summary import Run
from testbed.world import Stream
from tests.made import made
from topologies import addressing, load_fabric
from topologies.addressing import ev
from topologies.theory import bus_bandwidth, traffic_bandwidth
from topologies.units import MS, US

TINY = load_fabric("tiny")
RECORDED = Path(__file__).parents[2] / "testbed" / "emulated" / "data" / "iperf3"
GOOD = {"tool": '"iperf3"', "src": '"h0"', "dst": '"h3"', "protocol": '"udp"', "rate": '"20Gbit"'}


def scenario(
    tmp_path: Path,
    *entries: dict[str, str],
    fabric: str = "tiny",
    transports: str = '[[transport]]\nkind = "mrc"',
) -> Any:
    text = (
        f'format = 3\nfabric = "{fabric}"\n[workload]\nkind = "ring-allreduce"\n'
        f'message_bytes = "64KiB"\nsteps = 2\n{transports}\n'
    )
    for entry in entries:
        text += "[[background]]\n" + "".join(f"{key} = {value}\n" for key, value in entry.items())
    file = tmp_path / "x.toml"
    file.write_text(text)
    return load_scenario(str(file))


# --- reading a scenario ---------------------------------------------------------------------------


def test_an_entry_with_everything_and_one_with_little(tmp_path: Path) -> None:
    full = {
        **GOOD,
        "name": '"cross"',
        "start": '"50us"',
        "for": '"200us"',
        "path": '"p1/0"',
        "parallel": "2",
    }
    one, two = scenario(
        tmp_path, full, {**GOOD, "protocol": '"tcp"', "rate": '"10Gbit"', "congestion": '"bbr"'}
    ).backgrounds
    assert (one.name, one.src, one.dst, one.rate_bps, one.for_ps, one.parallel) == (
        "cross",
        0,
        3,
        20 * 10**9,
        200 * US,
        2,
    )
    assert one.start_ps == 50 * US
    assert one.ev_on(TINY) == ev(1, 0) and one.path_on(TINY) == "p1/0"
    assert (two.name, two.start_ps, two.for_ps, two.congestion) == (
        "h0-h3",
        0,
        None,
        "bbr",
    ) and two.ev_on(TINY) == spread(TINY, 0, 3)
    assert two.stream(TINY, 7, 6 * MS) == Stream(
        7, 0, 3, "tcp", 10**10, 6 * MS, spread(TINY, 0, 3), 1, "bbr"
    )
    free = {key: value for key, value in GOOD.items() if key != "rate"} | {"protocol": '"tcp"'}
    assert scenario(tmp_path, free).backgrounds[0].rate_bps is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tool": '"netperf"'}, "background[0].tool = 'netperf': there are iperf3"),
        ({"src": '"h9"'}, "background[0].src : fabric 'tiny' has no host 'h9'"),
        ({"dst": "3"}, "background[0].dst = 3 must be a host, like 'h3'"),
        ({"dst": '"h0"'}, "goes from h0 to itself"),
        ({"rate": None}, "background[0].rate is missing: UDP sends at a rate"),
        (
            {"rate": '"99.9Gbit"'},
            (
                "99.9Gbit is 102.36 Gb/s on the wire, more than a port of fabric 'tiny' carries "
                "(100 Gb/s): lower it"
            ),
        ),
        ({"rate": '"10"'}, "is less than 1 Mbit/s: raise it"),
        ({"path": '"p0-3"'}, "background[0].path = 'p0-3' must be plane and uplink, like 'p0/3'"),
        (
            {"path": '"p2/0"'},
            "background[0].path : EV 0x20000: fabric 'tiny' has planes 0..1, not 2",
        ),
        ({"path": '"p0/2"'}, "fabric 'tiny' has uplinks 0..1, not 2"),
        ({"dst": '"h1"', "path": '"p0/1"'}, "h0 and h1 share a T0, their EVs have uplink 0"),
        ({"for": "0"}, "must be longer than 0"),
        ({"congestion": '"cubic"'}, "background[0].congestion is TCP's"),
        ({"name": '"a/b"'}, "must be letters, digits"),
    ],
)
def test_one_clear_line_about_what_is_wrong(
    tmp_path: Path, change: dict[str, str | None], said: str
) -> None:
    entry = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ScenarioError) as caught:
        scenario(tmp_path, entry)
    assert (
        said in str(caught.value)
        and "\n" not in str(caught.value)
        and "x.toml" in str(caught.value)
    )


def test_names_are_unique_and_paths_must_be_there_for_every_transport(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"background names are not unique \(h0-h3, h0-h3\)"):
        scenario(tmp_path, GOOD, GOOD)
    both = '[[transport]]\nkind = "mrc"\n[[transport]]\nkind = "roce"\nfabric = "twin"'
    with pytest.raises(ScenarioError, match=r"background\[0\].path : EV .*planes 0..0, not 1"):
        scenario(tmp_path, {**GOOD, "path": '"p1/0"'}, transports=both)


# --- what is started ------------------------------------------------------------------------------


def test_a_full_datagram_makes_a_full_frame() -> None:
    assert datagram_bytes(TINY) + 14 + 40 + 40 + 8 == TINY.frame_bytes <= link_mtu(TINY) + 14
    server, client = command_lines(
        TINY, WallClock(10_000), Stream(1, 0, 3, "udp", 20_000_010_000, 400 * US, ev(0, 0), 2)
    )
    assert (
        client[client.index("-l") + 1] == str(datagram_bytes(TINY))
        and client[client.index("-b") + 1] == "1000000"
    )
    assert "-1" in server and server[server.index("-B") + 1] == client[client.index("-c") + 1]
    assert (
        "-b"
        not in command_lines(
            TINY, WallClock(10_000), Stream(1, 0, 3, "tcp", None, 400 * US, ev(0, 0))
        )[1]
    )


def test_both_directions_are_pinned_to_the_path_on_addresses_of_its_own() -> None:
    there, back = route_lines(TINY, Stream(5, 0, 3, "udp", 1, 1, ev(1, 1)))
    mine, yours = map(addressing.text, addressing.background_addresses(5))
    assert (
        there[0] == f"addr add {mine}/128 dev lo nodad"
        and back[0] == f"addr add {yours}/128 dev lo nodad"
    )
    for line, src, dst, target in ((there[1], 0, 3, yours), (back[1], 3, 0, mine)):
        segment = addressing.text(addressing.path_address(TINY, src, dst, ev(1, 1)))
        assert (
            line.startswith(f"route add {target}/128 ")
            and f" segs {segment} " in line
            and f" dev h{src}-p1 " in line
        )
    hosts = {addressing.inner_address(host) for host in range(64)}
    every = {address for n in range(64) for address in addressing.background_addresses(n)}
    assert len(every) == 128 and hosts.isdisjoint(every)
    assert all(address.startswith(addressing.BACKGROUND_PREFIX) for address in every)


class FakeFlow:
    def __init__(self, over_after: int = 0) -> None:
        self.cut, self.begun, self.looks, self.over_after, self.ends = (
            False,
            False,
            0,
            over_after,
            0,
        )

    def prepare(self) -> None: ...

    def begin(self) -> None:
        self.begun = True

    @property
    def over(self) -> bool:
        self.looks += self.begun
        return self.begun and bool(self.over_after) and self.looks > self.over_after

    def ask(self) -> None:
        self.cut = self.begun and not self.over

    def end(self) -> None:
        self.ends += 1


class FakeCluster:
    fabric = TINY
    clock = WallClock(10_000)

    def __init__(self) -> None:
        self.flows: list[FakeFlow] = []

    def background(self, stream: Stream, stem: Path) -> FakeFlow:
        self.flows.append(FakeFlow(over_after=2 if stream.length == 100 * US else 0))
        return self.flows[-1]


def test_flows_begin_when_due_and_end_with_the_run(tmp_path: Path) -> None:
    later = {**GOOD, "name": '"late"', "start": '"200us"', "for": '"100us"'}
    never = {**GOOD, "name": '"never"', "start": '"5ms"'}
    made = scenario(tmp_path, GOOD, later, never)
    cluster = FakeCluster()
    lines: list[tuple[str, str]] = []

    def journal(_t: int, _kind: str, **fields: Any) -> None:
        lines.append((fields["name"], fields["phase"]))

    run = BackgroundRun(cluster, made.backgrounds, 10 * MS, tmp_path, journal)
    run.prepare()
    second = cluster.clock.patience(1.0)
    run.start(second)
    run.tick(second)
    assert [flow.begun for flow in cluster.flows] == [
        True,
        False,
        False,
    ] and run.next_check_ps <= 2 * second
    run.tick(3 * second - 1)
    assert not cluster.flows[1].begun
    run.tick(3 * second)
    for t in range(4, 9):
        run.tick(t * second)
    assert lines == [("h0-h3", "begin"), ("late", "begin"), ("late", "end")]
    run.end()
    assert lines[3:] == [("h0-h3", "end")] and all(flow.ends == 1 for flow in cluster.flows)
    assert [(r["name"], r["cut"], r["began_ps"] is None) for r in run.records()] == [
        ("h0-h3", True, False), ("late", False, False), ("never", False, True),
    ]  # fmt: skip
    assert [line for line in run.complaints() if "never" in line] == [
        "background never: it was never begun, the run had ended"
    ]


# --- theory ---------------------------------------------------------------------------------------


def flow(src: int, dst: int, value: int, wire: float | None, **more: Any) -> Background:
    told = {
        "name": "udp",
        "protocol": "udp",
        "path": "p0/0",
        "rate_bps": None if wire is None else wire * 0.97,
        **more,
    }
    return Background(src=src, dst=dst, ev=value, wire_bps=wire, **told)


def entry(directory: Path, workload: str, *flows: Background, **more: Any) -> Run:
    """A run's entry with what background flows add to it."""
    run = Raw(directory)
    run.record = made(Record, fabric=TINY, workload=workload, ranks=[0, 2, 1, 3], background=flows)
    row = made(Run, **more)
    fill(row, run)
    return row


def test_taken_is_per_direction_and_adds_up() -> None:
    made = link_rates(TINY, [flow(0, 2, ev(0, 1), 1e6), flow(1, 3, ev(0, 1), 2e6)])
    assert made == {
        ("h0:p0-t0-0", "h0"): 1e6,
        ("h1:p0-t0-0", "h1"): 2e6,
        ("p0-t0-0:p0-t1-1", "p0-t0-0"): 3e6,
        ("p0-t0-1:p0-t1-1", "p0-t1-1"): 3e6,
        ("h2:p0-t0-1", "p0-t0-1"): 1e6,
        ("h3:p0-t0-1", "p0-t0-1"): 2e6,
    }


def test_theory_beside_background_by_hand() -> None:
    """h0 alone sends to h2, 100 Gbit/s per plane. 40 of them are taken on plane 0, and planes stay
    equal: 60 per plane are left."""
    one = {(0, 2): 1.0}
    payload = TINY.payload_share
    assert traffic_bandwidth(
        TINY, one, taken=link_rates(TINY, [flow(0, 3, ev(0, 1), 4e10)])
    ) == pytest.approx(12e10 * payload)
    # From another host the same 40 only narrow one of two uplinks: the other takes what is left
    # over.
    assert traffic_bandwidth(
        TINY, one, taken=link_rates(TINY, [flow(1, 3, ev(0, 1), 4e10)])
    ) == pytest.approx(20e10 * payload)
    # In the other direction nothing is in the way; more than there is leaves nothing.
    assert traffic_bandwidth(
        TINY, one, taken=link_rates(TINY, [flow(3, 0, ev(0, 1), 4e10)])
    ) == pytest.approx(20e10 * payload)
    assert traffic_bandwidth(
        TINY, one, taken=link_rates(TINY, [flow(0, 2, ev(0, 1), 12e10)])
    ) == pytest.approx(0)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Reports of iperf3 as clients at a dilation of 10,000 leave them."""
    for file in RECORDED.glob("*.json"):
        report = json.loads(file.read_text())
        (tmp_path / file.name).write_text(
            json.dumps(report | {"extra_data": json.dumps({"dilation": 10_000})})
        )
    return tmp_path


def test_figures_of_a_run(recorded: Path) -> None:
    ring, known = "ring-allreduce", flow(0, 3, ev(0, 1), 4e10, rate_bps=4e10)
    row = entry(recorded, ring, known)
    (told,) = row.background
    assert (told.src, told.dst, told.path, told.protocol) == ("h0", "h3", "p0/0", "udp")
    assert row.background_sent_share == pytest.approx(1, abs=0.01)
    assert row.beside_background_busbw_bps == pytest.approx(
        0.6 * bus_bandwidth(TINY, ring, [0, 2, 1, 3])
    )
    assert entry(recorded, ring) == made(Run)
    unknown = entry(recorded, ring, known, flow(1, 2, ev(1, 1), None, name="refused"))
    assert unknown.beside_background_busbw_bps is None and unknown.background_sent_share is not None
    assert (
        entry(recorded, ring, flow(1, 2, ev(1, 1), 1e6, name="refused")).background_sent_share
        is None
    )


def test_a_line_per_flow_and_run_for_people(recorded: Path) -> None:
    flows = {
        name: flow(0, 3, ev(0, 1), 4e6, name=name, protocol=name) for name in ("tcp", "refused")
    }
    runs = [
        entry(recorded, "flows", flows[name], transport=kind)
        for name, kind in (("tcp", "mrc"), ("refused", "roce"))
    ]
    rows = [(run, row) for run in runs for row in run.background]
    assert [[cell(row) for _, cell in BACKGROUND] for row in rows] == [
        ["tcp beside mrc", "h0–h3", "tcp p0/0", "129.2", "97.5", "–", "–", "0", "2.0"],
        ["refused beside roce", "h0–h3", "refused p0/0", "–", "–", "–", "–", "–", "–"],
    ]
