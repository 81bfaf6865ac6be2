"""The prompt of `mrcbed up`, command by command, on a living cluster."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from mininet.log import lg, setLogLevel

from mrcbed.prompt.cli import Prompt
from mrcbed.prompt.help import GROUPS
from testbed import terminal
from testbed.emulated.cluster import Cluster
from tests.emulated.ring import wait_until
from tests.emulated.typing_at import typing_at
from topologies import addressing, load_fabric
from topologies.fabrics import DILATION
from topologies.paths import path_evs, path_nodes
from topologies.theory import bus_bandwidth

pytestmark = pytest.mark.sandbox

FABRIC = load_fabric("tiny")
Say = Callable[[str], str]
RING = "allreduce steps={} bytes=65536 placement=interleaved"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    logs = tmp_path_factory.mktemp("logs")
    logs.chmod(0o777)
    with Cluster(FABRIC, dilation=DILATION) as made:
        made.start_agents("mrc", {}, logs, seed=9)
        yield made


@pytest.fixture
def refused() -> list[bool]:
    """Of each line that was typed, whether a script with it ends with status 1."""
    return []


@pytest.fixture
def say(
    cluster: Cluster, refused: list[bool], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Say]:
    """Types a line; returns what was printed, by us and by Mininet."""
    text = io.StringIO()
    stream = lg.handlers[0].setStream(text)
    setLogLevel("output")
    try:
        with typing_at(cluster, tmp_path_factory.mktemp("script"), text, refused) as typed:
            yield typed
    finally:
        setLogLevel("warning")
        lg.handlers[0].setStream(stream)
        cluster.heal()


def rows(said: str) -> list[list[str]]:
    """A table's lines below its rule, cut at two or more blanks."""
    below = re.split(r"─ *\n", said)[-1]
    return [re.split(r"\s{2,}", line.strip()) for line in below.splitlines() if line.strip()]


def test_evs_before_any_collective_is_one_line(say: Say) -> None:
    assert (
        say("evs h0")
        == say("evs h0 h2")
        == "h0 has no queue pair yet: start a collective first, with allreduce\n"
    )
    assert say("evs") == "no host has a queue pair yet: start a collective first, with allreduce\n"


def held(cluster: Cluster) -> list[list[str]]:
    """What each agent takes for the denylist."""
    return [agent.call("denied") for agent in cluster.agents]


def test_deny_allow_denied(say: Say, cluster: Cluster) -> None:
    assert say("denied") == "nothing is denied\n"
    assert say("deny p0-t1-1:p0-t0-0 dirty optics") == ""
    assert say("deny h0>h2@p1/0") == ""
    assert wait_until(lambda: held(cluster) == [["p0-t0-0:p0-t1-1", "h0>h2@p1/0"]] * 4)
    assert rows(say("denied")) == [
        ["p0-t0-0:p0-t1-1", "operator", "dirty optics"],
        ["h0>h2@p1/0", "operator"],
    ]
    assert say("deny p0-t0-0:p0-t1-1") == "p0-t0-0:p0-t1-1 was denied already\n"
    assert say("deny p9") == "denylist entry 'p9': fabric 'tiny' has planes p0..p1\n"
    assert say("deny").startswith("usage: deny ENTRY") and say("allow").startswith(
        "usage: allow ENTRY"
    )
    assert say("allow p1") == "p1 is not denied: `denied` shows what is\n"
    assert say("allow p0-t0-0:p0-t1-1") == say("allow h0>h2@p1/0") == ""
    assert say("denied") == "nothing is denied\n" and wait_until(lambda: held(cluster) == [[]] * 4)


def test_status(say: Say, cluster: Cluster) -> None:
    said = say("status")
    assert "tiny: 4 hosts, 2 planes of 2 T0 and 2 T1, 4 paths across" in said
    assert "ports 100 Gb/s, base RTT 10.0 µs" in said
    assert f"controller: {cluster.rest_url}" in said and "http://127.0.0.1:" in said
    assert "down: nothing" in said
    cluster.set_link("p0-t0-0:p0-t1-1", False)
    assert "down: p0-t0-0:p0-t1-1" in say("status")


def test_paths(say: Say) -> None:
    found = rows(say("paths h0 h3"))[:4]
    evs = path_evs(FABRIC, 0, 3)
    assert [r[0] for r in found] == ["0:0", "0:1", "1:0", "1:1"]
    assert [r[1] for r in found] == [
        addressing.text(addressing.path_address(FABRIC, 0, 3, v)) for v in evs
    ]
    assert [r[2] for r in found] == [" ".join(path_nodes(FABRIC, 0, 3, v)[1:-1]) for v in evs]
    assert [r[3] for r in found] == ["up"] * 4
    assert "1400=p1-t0-0 1801=p1-t1-1 1401=p1-t0-1 1c01=d1" in say("paths h0 h3")
    say("break p0-t0-1:p0-t1-1")
    assert [r[3] for r in rows(say("paths h0 h3"))[:4]] == [
        "up",
        "down: p0-t0-1:p0-t1-1",
        "up",
        "up",
    ]


@pytest.mark.parametrize("src, dst", [(0, 3), (2, 1), (0, 1)])
def test_trace_shows_every_hop_with_its_address(say: Say, src: int, dst: int) -> None:
    for value in path_evs(FABRIC, src, dst):
        plane, uplink = addressing.ev_fields(value)
        said = say(f"trace h{src} h{dst} {plane}:{uplink}")
        assert "lost" not in said
        hops = [r[1:] for r in rows(said)]
        address = addressing.path_address(FABRIC, src, dst, value)
        nodes = path_nodes(FABRIC, src, dst, value)
        owner = {port.name: port.node for port in FABRIC.ports}
        expected, limit = [], 64
        for a, b in pairwise(nodes):
            expected += [
                (a, "out", addressing.text(address), str(limit)),
                (b, "in", addressing.text(address), str(limit)),
            ]
            address, limit = addressing.shift(address), limit - 1
        assert [
            (owner[port], way, where, hops_left) for port, way, where, hops_left in hops
        ] == expected
        times = [float(r[0]) for r in rows(said)]
        assert times == sorted(times) and times[0] == 0


def test_trace_on_a_broken_path_says_where(say: Say) -> None:
    say("break p0-t0-0:p0-t1-1")
    assert "lost after p0-t0-0-d0: seen arriving at p0-t0-0, then no more" in say("trace h0 h3 0:1")
    assert "lost" not in say("trace h0 h3 0:0")
    say("mend all")
    say("break p0-t0-1:p0-t1-1")
    assert "lost after p0-t1-1-d0: seen arriving at p0-t1-1, then no more" in say("trace h0 h3 0:1")
    say("mend all")
    say("break h0:p1-t0-0")
    assert "lost after h0-p1: seen leaving h0, then no more" in say("trace h0 h3 1:0")
    say("mend all")
    assert "lost" not in say("trace h0 h3 0:1") + say("trace h0 h3 1:0")


def test_break_and_mend_by_link_and_by_switch(say: Say, cluster: Cluster) -> None:
    def down() -> list[str]:
        return [name for name, up in cluster.link_states().items() if not up]

    assert say("broken") == "every link is up\n"
    assert say("break p0-t0-0:p0-t1-1 h3:p1-t0-1") == ""
    assert sorted(down()) == sorted(say("broken").split()) == ["h3:p1-t0-1", "p0-t0-0:p0-t1-1"]
    say("mend h3:p1-t0-1")
    assert down() == ["p0-t0-0:p0-t1-1"]
    say("break p1-t1-0")
    assert (
        say("broken").split() == down() == ["p0-t0-0:p0-t1-1", "p1-t0-0:p1-t1-0", "p1-t0-1:p1-t1-0"]
    )
    say("mend p1-t1-0")
    assert down() == ["p0-t0-0:p0-t1-1"]
    assert say("mend all") == "" and say("broken") == "every link is up\n"
    say("link h0 p0-t0-0 down")
    assert say("broken") == "h0:p0-t0-0\n", "Mininet's words act on the same cables"
    say("link h0 p0-t0-0 up")
    assert down() == []


def test_allreduce_evs_and_ports(say: Say, cluster: Cluster) -> None:
    before = {r["port"]: r["arrived_packets"] for r in cluster.counters()}
    said = say(RING.format(3))
    found = re.match(
        r"3 steps of 65536 B over 4 ranks: median ([\d.]+) µs, slowest ([\d.]+) µs, bus "
        r"bandwidth ([\d.]+) GB/s \(([\d.]+) % of what the links that are up allow\), every sum "
        r"right\n$",
        said,
    )
    assert found, said
    median, slowest, bus, share = map(float, found.groups())
    assert 0 < median <= slowest and bus == pytest.approx(65536 / median * 1.5 / 1000, rel=0.02)
    allowed = bus_bandwidth(cluster.fabric, "ring-allreduce", [0, 1, 2, 3]) / 8e9
    # how much it is, is the machine's affair
    assert share == pytest.approx(100 * bus / allowed, abs=0.6)
    evs = rows(say("evs h0 h2"))
    assert [(r[1], r[2], r[3], r[4]) for r in evs] == [
        ("h2", ev, "GOOD", "yes") for ev in ("0:0", "0:1", "1:0", "1:1")
    ]
    counts = [int(r[5]) for r in evs]
    assert min(counts) > 0 and abs(sum(counts[:2]) - sum(counts[2:])) <= 4
    assert {r[1] for r in rows(say("evs h0"))} == {"h2", "h3"}
    assert say("evs").splitlines()[0] == "h0 has queue pairs to h2 h3"
    assert say("evs h0 h1") == "h0 has no queue pair to 'h1': it has them to h2 h3\n"
    assert say("evs h0 [/red]") == "h0 has no queue pair to '[/red]': it has them to h2 h3\n"
    # frames still pass now and then: the table lies between two readings
    earlier = {r["port"]: r for r in cluster.counters()}
    ports = {r[0]: r for r in rows(say("ports p0-t0-0"))}
    later = {r["port"]: r for r in cluster.counters()}
    assert set(ports) == {"p0-t0-0-d0", "p0-t0-0-d1", "p0-t0-0-u0", "p0-t0-0-u1"}
    for name, row in ports.items():
        assert earlier[name]["arrived_packets"] > before[name] + 20 and row[3] == "0"
        for column, counter in ((1, "admitted_packets"), (2, "arrived_packets")):
            assert (
                earlier[name][counter]
                <= int(row[column])
                <= later[name][counter]
                <= earlier[name][counter] + 20
            )
    assert {r[0].rsplit("-", 1)[0] for r in rows(say("ports"))} >= {
        "h0",
        "h3",
        "p0-t0-0",
        "p1-t1-1",
    }


def test_a_broken_cable_shows_in_evs_and_not_in_sums(say: Say) -> None:
    say("break p0-t0-0:p0-t1-1")
    assert "every sum right" in say(RING.format(4))
    states = {r[2]: (r[3], r[4]) for r in rows(say("evs h0 h2"))}
    assert states["0:1"] == ("ASSUMED_BAD", "no")
    assert {v for ev, v in states.items() if ev != "0:1"} == {("GOOD", "yes")}
    lost = {r[0]: int(r[4]) for r in rows(say("ports p0-t0-0"))}
    assert lost["p0-t0-0-u1"] > 0 and lost["p0-t0-0-u0"] == 0


@pytest.mark.parametrize(
    "name",
    ["all-gather", "all-to-all", "reduce-scatter", "ring-allreduce", "send-recv", "tree-allreduce"],
)
def test_every_collective_runs(say: Say, name: str) -> None:
    said = say(f"collective {name} steps=2 bytes=30001 dtype=float32 slices=2")
    found = re.match(
        r"2 steps of (\d+) B over 4 ranks: median ([\d.]+) µs, slowest [\d.]+ µs, bus bandwidth "
        r"([\d.]+) GB/s \([\d.]+ % of what the links that are up allow\), every (sum|element) "
        r"right\n$",
        said,
    )
    assert found, said
    size = 30008 if name == "send-recv" else 30016
    factor = 1.0 if name == "send-recv" else 1.5 if "allreduce" in name else 0.75
    assert int(found[1]) == size
    assert float(found[3]) == pytest.approx(size / float(found[2]) * factor / 1000, rel=0.03)
    assert (found[4] == "sum") == ("allreduce" in name)


@pytest.mark.parametrize(
    "line, answer",
    [
        ("break", "usage: break LINK or SWITCH"),
        (
            "break p0-t0-0:p0-t1-9",
            "fabric 'tiny' has no link 'p0-t0-0:p0-t1-9'; near it: p0-t0-0:p0-t1-1",
        ),
        ("break nonsense", "fabric 'tiny' has no switch 'nonsense'; near it: "),
        ("paths", "usage: paths HOST HOST"),
        ("paths h0", "usage: paths HOST HOST"),
        ("paths h0 h0", "paths needs two different hosts"),
        ("trace h0 h3", "usage: trace"),
        ("trace h0 h3 9:9", "EV 0x90009: fabric 'tiny' has planes 0..1, not 9"),
        ("trace h0 h3 0:7", "EV 0x7: fabric 'tiny' has uplinks 0..1, not 7"),
        ("trace h0 h3 0:65536", "EV '0:65536': write it as plane:uplink"),
        ("evs p0-t0-0", "p0-t0-0"),
        ("ports nowhere", "fabric 'tiny' has no node 'nowhere'"),
        ("allreduce steps", "allreduce: 'steps' is not one of steps="),
        ("allreduce speed=3", "allreduce: 'speed=3' is not one of steps="),
        ("allreduce steps=0", "are whole numbers above 0"),
        ("allreduce bytes=99999999999", "message_bytes"),
        ("allreduce dtype=int8", "dtype 'int8': there are "),
        ("collective", "usage: collective NAME; there are all-gather, all-to-all, "),
        ("collective gossip", "no collective 'gossip': there are all-gather, "),
        ("break 'p0-t0-0", "'p0-t0-0: no closing quotation"),
        ("nosuchcommand", "no command 'nosuchcommand': "),
        ("pnig h0 h3", "no command 'pnig': did you mean ping"),
        ("dpctl show", "the switches have no dpctl: "),
        ("x h0", "x does not work from here: use xterm HOST"),
        ("iperfudp", "use iperf3 HOST HOST -u -b RATE"),
        ("source /proc", "source: /proc is no plain file"),
        ("break [/red]", "fabric 'tiny' has no switch '[/red]'; near it: "),
        (
            "fault loss h0-p1 [red]",
            "'[red]' is not key=value; usage: fault KIND ON [key=value...], like fault loss",
        ),
        ("h0", "h0: say what to run there"),
        ("ping h0", "usage: ping HOST HOST [OPTIONS]"),
        ("link h0 p0-t0-1 down", "fabric 'tiny' has no link 'h0:p0-t0-1'"),
        ("switch h0 stop", "fabric 'tiny' has no switch 'h0'"),
        ("pingall ;exit", "pingall: ';exit' is no time in seconds"),
        ("status \0", "the line holds the control character U+0000"),
        (
            "h0 echo " + "a" * 5000,
            "h0: the command has more than 4,000 bytes: put it into a script",
        ),
        ("py 1/0", "division by zero"),
        ("py exit()", "only `exit` leaves the prompt"),
        ("px raise KeyError('[/red]')", "[/red]"),
        ("h0 echo 'a", "unexpected EOF while looking for matching `''"),
    ],
)
def test_bad_input_is_one_line_and_counts_as_failed(
    say: Say, refused: list[bool], cluster: Cluster, line: str, answer: str
) -> None:
    said = say(line)
    assert refused[-1] == (line != "h0 echo 'a"), (
        "what a program in a host thinks of it is the program's affair"
    )
    assert answer in said
    assert said.count("\n") == 1 and said.endswith("\n") and "Traceback" not in said
    assert all(cluster.link_states().values())


def test_the_prompt_is_whole_after_bad_input(say: Say) -> None:
    assert "every sum right" in say(RING.format(1))


def test_hosts_live_on_after_what_would_end_their_shells(say: Say, cluster: Cluster) -> None:
    for line in (
        "h0 exit",
        "h0 true; exit 3",
        "h0 exec true",
        r"h0 printf '\377\001\376\n'",
        "h0 cat <<X",
    ):
        say(line)
    cluster.check()
    assert say("h0 cd /proc; pwd") == say("h0 pwd") == "/proc\r\n", "one shell, which remembers"
    assert say("h0 echo h3 [b] $((6*7)) | cat") == "fd6d:7263::4 [b] 42\r\n"


def test_ping_and_iperf3(say: Say) -> None:
    assert "4 packets transmitted, 4 received, 0% packet loss" in say("ping h0 h3 -i 0.05")
    assert "2 packets transmitted, 2 received" in say("ping h3 h0 -c 2 -i 0.05")
    assert "invalid argument: ';exit'" in say("ping h0 h3 '-c;exit'")
    for word in ("iperf3", "iperf"):
        said = say(f"{word} h0 h3 -t 1")
        assert re.match(
            r"h0 to h3 over p1/1, tcp, 1.0 s of wall time: sent .* Gb/s, arrived .* Gb/s, \d+ "
            r"retransmits\n",
            said,
        )


def test_a_command_that_fails_inside_is_one_line(
    say: Say, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "counters", lambda: {}["[/red]"])
    assert say("ports") == (
        "internal error (please report): KeyError: '[/red]' (MRCBED_DEBUG=1 shows the traceback)\n"
    )
    assert say("time broken").startswith("every link is up\ntook ")


def test_help_is_grouped_and_shows_every_command_on_one_line(say: Say) -> None:
    said = [line.rstrip() for line in say("help").splitlines()]
    assert [line.strip() for line in said if re.match(r" \S", line)] == list(GROUPS)
    shown = [re.split(r"\s{2,}", line.strip()) for line in said if line.startswith("  ")]
    assert sorted(usage.split()[0] for usage, _ in shown) == sorted(
        name for names in GROUPS.values() for name in names
    )
    assert "iperf3 [HOST HOST] [OPTIONS]" in {usage for usage, _ in shown}
    assert "[steps=10]" in say("help allreduce") and say("help dpctl") == say("dpctl")


def test_programs_in_hosts_and_switches(say: Say) -> None:
    assert " 0% packet loss" in say("h0 ping -c 1 -W 1 h2")
    text = say("p0-t0-0 ip -br link")
    assert "p0-t0-0-u0@" in text and "h0-p0@" not in text
    assert "fd6d:7263::4" in say("h3 ip -br -6 addr")
    assert say('py net["h0"].IP()') == "fd6d:7263::1\n"


def test_a_session_from_a_script(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As `mrcbed up` reads it: line by line, comments and blanks left out, until the end."""
    script = tmp_path_factory.mktemp("script") / "commands"
    script.write_text("status\n\nbreak p0-t1-1\nbroken\nmend all\nbroken\nbreak p9\n")
    text = io.StringIO()
    reader, writer = os.pipe()
    try:
        with open(reader) as stdin:
            Prompt(cluster, terminal.console(160, file=text), stdin=stdin, script=str(script))
    finally:
        os.close(writer)
    said = text.getvalue().splitlines()
    at = said.index("down: nothing")  # the status' last line
    assert said[at + 1 : at + 4] == ["p0-t0-0:p0-t1-1", "p0-t0-1:p0-t1-1", "every link is up"]
    assert "has no switch 'p9'" in text.getvalue()


def test_faults_of_the_catalogue_by_hand(say: Say, cluster: Cluster) -> None:
    assert say("faults").startswith("no faults")
    _, number, *rest = say("fault loss h0-p1 probability=0.25 direction=up").split()
    assert rest == ["loss", "h0-p1:", "h0:p1-t0-0"]
    number = number.rstrip(":")
    say("fault flap p0-t0-0:p0-t1-1 period=100us duty=0.5")
    say("fault path-loss h0>h2@p0/1")
    listed = [line for line in say("faults").splitlines() if "p0" in line or "p1" in line]
    assert [line.split()[1] for line in listed] == ["loss", "flap", "path-loss"]
    assert (
        "probability=0.25 direction=up seed=0" in listed[0]
        and "period=100us duty=0.5" in listed[1]
        and listed[1].split()[-1] == "down"
    )
    assert say("heal " + number) == ""
    assert len(cluster.faults()) == 2
    say("heal")
    assert cluster.faults() == [] and all(cluster.link_states().values())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fault lose h0-p1", "did you mean 'loss'?"),
        ("fault loss h0-p1", "probability is missing"),
        ("fault loss h0-p1 probability", "'probability' is not key=value"),
        ("fault loss h0-p1 probability=2", "probability = '2' must be a number in 0..1"),
        ("fault loss h0-p1 probability=1 run_seed=2", "run_seed is not a key"),
        ("heal 77", "there is no fault number 77"),
        ("heal link", "'link' is not a fault's number"),
    ],
)
def test_bad_faults_are_one_line(say: Say, cluster: Cluster, line: str, said: str) -> None:
    answer = say(line)
    assert said in answer and len(answer.strip().splitlines()) <= 2
    assert cluster.faults() == []


def test_faults_complete(say: Say, cluster: Cluster) -> None:
    (prompt,) = [
        cell.cell_contents
        for cell in say.__closure__ or ()
        if isinstance(cell.cell_contents, Prompt)
    ]
    complete = prompt.complete_fault

    def after(line: str, text: str) -> list[str]:
        return complete(text, line, len(line) - len(text), len(line))

    assert after("fault pat", "pat") == ["path-loss"]
    assert after("fault destination-l", "l") == ["loss"]
    assert after("fault port h0-", "") == ["p0", "p1"]
    assert after("fault plane ", "") == ["p0", "p1"]
    assert "controller" in after("fault kill ", "") and "h3" in after("fault kill ", "")
    assert after("fault flap h0-p0 period=1 ", "") == ["duty=", "for="]
    assert after("fault kill h0 ", "") == [] and after("fault verbs-r", "r") == ["refused"]
    assert after("fault nonsense ", "") == []


def test_the_catalogue_is_shown(say: Say) -> None:
    for line in ("fault", "help fault"):
        said = say(line)
        for word in ("dead-paths", "straggler", "path, like h0>h5@p0/3"):
            assert word in said
    assert "share of a period" in said
