"""Injected losses and corruptions on real interfaces: which packets, how many, the same ones again,
and books that balance."""

from __future__ import annotations

import math
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator

import pytest

from agents.packets import dscp
from testbed.dataplane import layout, loader
from testbed.dataplane.maps import BpfMap
from testbed.emulated.cluster import Cluster
from tests.emulated.frames import Wire, arrived, at_rest, mrc, wires_of
from tests.emulated.ring import PATIENCE_S, quiet
from topologies import addressing, load_fabric
from topologies.addressing import ev
from topologies.fabrics import DILATION

pytestmark = pytest.mark.sandbox
CABLE = "p0-t0-0:p0-t1-0"
FRAMES = 1000
SIGMAS = 4.5
BTH = 102


@pytest.fixture(scope="module", params=["ebpf", "ovs"])
def fast(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """`tiny`, fast: thousands of frames take well under a second. Faults are the fabric's, whatever
    forwards."""
    if request.param == "ovs" and shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed")
    rate = 10**13 if request.param == "ebpf" else 10**12  # in user space packets take longer
    fabric = load_fabric("tiny").with_(nic_rate=rate, fabric_rate=rate, delay_ps=-1)
    with Cluster(fabric, dilation=DILATION, controller=False, switch=request.param) as cluster:
        yield cluster


@pytest.fixture
def wires(fast: Cluster) -> Iterator[list[Wire]]:
    """Of all hosts; whatever a test did, it is healed and the books balance after it."""
    with wires_of(fast) as made:
        yield made
    fast.heal()
    assert at_rest(fast)


def numbered(
    cluster: Cluster,
    src: int,
    dst: int,
    value: int,
    count: int,
    size: int = 40,
    dscp_class: int = dscp.NO_TRIM,
) -> list[bytes]:
    path = addressing.path_address(cluster.fabric, src, dst, value)
    return [
        mrc(src, dst, path, struct.pack("!I", i) + bytes(size - 4), dscp_class=dscp_class)
        for i in range(count)
    ]


def carry(wires: list[Wire], src: int, dst: int, plane: int, frames: list[bytes]) -> list[bytes]:
    """Send a batch at a time; what arrived, in order. The first goes alone: the kernel's datapath
    of Open vSwitch asks its daemon what to do with a new flow, and what comes meanwhile overtakes
    what has been asked for."""
    assert wires[src].send(plane, frames[0])
    assert at_rest(wires[src].cluster)
    for at in range(1, len(frames), 100):
        for frame in frames[at : at + 100]:
            assert wires[src].send(plane, frame)
        assert quiet(wires[src].cluster)
    return [got.frame for got in arrived(wires[dst])]


def numbers(got: list[bytes]) -> list[int]:
    return [struct.unpack_from("!I", frame, BTH)[0] for frame in got]


def moved(cluster: Cluster, before: list[dict[str, int]], column: str) -> dict[str, int]:
    return {
        str(b["port"]): b[column] - a[column]
        for a, b in zip(before, cluster.counters(), strict=True)
        if b[column] != a[column]
    }


def within(count: int, of: int, probability: float) -> bool:
    """Whether a number of hits is what chance allows."""
    return abs(count - of * probability) <= SIGMAS * math.sqrt(of * probability * (1 - probability))


@pytest.mark.parametrize("probability", [0.01, 0.3])
def test_loss_follows_its_probability_and_its_seed_packet_by_packet(
    fast: Cluster, wires: list[Wire], probability: float
) -> None:
    frames = numbered(fast, 0, 2, ev(0, 0), FRAMES)
    seen = []
    for seed in (7, 7, 8):
        before = fast.counters()
        fault = fast.inject("loss", CABLE, probability=probability, direction="up", seed=seed)
        got = numbers(carry(wires, 0, 2, 0, frames))
        fast.clear(fault.number)
        assert got == sorted(got)
        assert moved(fast, before, "drop_fault_loss") == {"p0-t1-0-d0": FRAMES - len(got)}
        assert within(FRAMES - len(got), FRAMES, probability)
        seen.append(got)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("on", "direction", "at"),
    [
        (CABLE, "up", {"p0-t1-0-d0"}),
        (CABLE, "down", {"p0-t0-0-u0"}),
        (CABLE, "both", {"p0-t1-0-d0", "p0-t0-0-u0"}),
        ("h0-p0", "up", {"p0-t0-0-d0"}),
        ("h0:p0-t0-0", "down", {"h0-p0"}),
    ],
)
def test_a_direction_is_hit_and_the_other_is_not(
    fast: Cluster, wires: list[Wire], on: str, direction: str, at: set[str]
) -> None:
    before = fast.counters()
    fast.inject("loss", on, probability=1, direction=direction)
    there = carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 0), 100))
    back = carry(wires, 2, 0, 0, numbered(fast, 2, 0, ev(0, 0), 100))
    assert (len(there), len(back)) == (
        0 if direction in ("up", "both") else 100,
        0 if direction in ("down", "both") else 100,
    )
    assert moved(fast, before, "drop_fault_loss") == dict.fromkeys(at, 100)
    other = carry(wires, 0, 2, 1, numbered(fast, 0, 2, ev(1, 0), 100))
    assert len(other) == 100


def test_two_losses_on_a_link_add_up_and_go_one_by_one(fast: Cluster, wires: list[Wire]) -> None:
    frames = numbered(fast, 0, 2, ev(0, 0), FRAMES)
    first = fast.inject("loss", CABLE, probability=0.3, direction="up", seed=1)
    second = fast.inject("loss", CABLE, probability=0.5, direction="up", seed=2)
    assert within(len(carry(wires, 0, 2, 0, frames)), FRAMES, 0.7 * 0.5)
    fast.clear(first.number)
    assert within(len(carry(wires, 0, 2, 0, frames)), FRAMES, 0.5)
    fast.clear(second.number)
    assert len(carry(wires, 0, 2, 0, frames)) == FRAMES


def expected(frame: bytes) -> bytes:
    """What three hops make of a frame."""
    out = bytearray(frame)
    out[21] -= 3
    out[38:54] = out[38:42] + out[48:54] + bytes(6)
    return bytes(out)


@pytest.mark.parametrize(
    ("size", "low"), [(500, layout.TRIM_BYTES), (36, BTH)], ids=["data", "control"]
)
def test_corruption_changes_one_byte_that_a_checksum_covers(
    fast: Cluster, wires: list[Wire], size: int, low: int
) -> None:
    frames = numbered(fast, 0, 2, ev(0, 0), FRAMES, size, dscp.TRIMMABLE)
    runs, places = [], set()
    for _ in range(2):
        before = fast.counters()
        fault = fast.inject("corrupt", CABLE, probability=0.25, direction="up", seed=3)
        got = carry(wires, 0, 2, 0, frames)
        fast.clear(fault.number)
        assert len(got) == FRAMES, "a corrupt frame still arrives"
        wrong = 0
        for frame, sent in zip(got, frames, strict=True):
            differing = [
                i for i, (a, b) in enumerate(zip(frame, expected(sent), strict=True)) if a != b
            ]
            assert len(differing) <= 1
            wrong += len(differing)
            places.update(differing)
        assert moved(fast, before, "corrupted") == {"p0-t1-0-d0": wrong}
        assert within(wrong, FRAMES, 0.25)
        runs.append(got)
    assert runs[0] == runs[1], "the same seed, the same bytes"
    assert min(places) >= low and max(places) < BTH + size
    assert BTH + 4 not in places, "the iCRC leaves that one out"
    assert len(places) > 20


def test_a_trimmed_packet_has_no_checksum_and_is_spared(fast: Cluster, wires: list[Wire]) -> None:
    before = fast.counters()
    fast.inject("corrupt", CABLE, probability=1)
    frames = numbered(fast, 0, 2, ev(0, 0), 50, 36, dscp.TRIMMED)
    assert carry(wires, 0, 2, 0, frames) == [expected(frame) for frame in frames]
    assert moved(fast, before, "corrupted") == {}


def test_one_path_is_a_blackhole_and_no_other(fast: Cluster, wires: list[Wire]) -> None:
    before = fast.counters()
    fast.inject("path-loss", "h0>h2@p0/1")
    assert carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 1), 40)) == []
    for src, dst, value in [
        (0, 2, ev(0, 0)),
        (0, 2, ev(1, 1)),
        (0, 3, ev(0, 1)),
        (1, 2, ev(0, 1)),
        (2, 0, ev(0, 1)),
        (0, 1, ev(0, 0)),
    ]:
        assert (
            len(carry(wires, src, dst, value >> 16, numbered(fast, src, dst, value, 40))) == 40
        ), (src, dst, value)
    assert moved(fast, before, "drop_fault_path") == {"p0-t0-0-d0": 40}


def test_a_path_under_one_t0_may_lose_too_with_a_probability(
    fast: Cluster, wires: list[Wire]
) -> None:
    frames = numbered(fast, 0, 1, ev(1, 0), FRAMES)
    seen = []
    for seed in (5, 5, 6):
        fault = fast.inject("path-loss", "h0>h1@p1/0", probability=0.2, seed=seed)
        seen.append(numbers(carry(wires, 0, 1, 1, frames)))
        fast.clear(fault.number)
        assert within(FRAMES - len(seen[-1]), FRAMES, 0.2)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("switch", "through"), [("p0-t1-1", ev(0, 1)), ("p0-t0-1", None), ("p0-t0-0", None)]
)
def test_a_switch_loses_what_goes_to_one_host(
    fast: Cluster, wires: list[Wire], switch: str, through: int | None
) -> None:
    fast.inject("destination-loss", switch, to="h2")
    for src, value in [(0, ev(0, 0)), (0, ev(0, 1)), (3, ev(0, 0)), (0, ev(1, 1))]:
        crosses = value >> 16 == 0 and (
            switch == "p0-t0-1" or (src == 0 and through in (None, value))
        )
        got = carry(wires, src, 2, value >> 16, numbered(fast, src, 2, value, 20))
        assert len(got) == (0 if crosses else 20), (src, value)
    assert len(carry(wires, 0, 3, 0, numbered(fast, 0, 3, ev(0, 1), 20))) == 20
    assert len(carry(wires, 2, 0, 0, numbered(fast, 2, 0, ev(0, 1), 20))) == 20


def test_what_a_slow_switch_holds_is_waited_for(fast: Cluster, wires: list[Wire]) -> None:
    """Open vSwitch without a core for a while, as on a busy machine: nothing waits at any port
    meanwhile, and nothing is lost."""
    if fast.net.ovs is None:
        pytest.skip("eBPF forwards in the sender's own turn")
    daemon = fast.net.ovs.processes[-1][1]
    daemon.send_signal(signal.SIGSTOP)
    again = threading.Timer(0.5, daemon.send_signal, [signal.SIGCONT])
    again.start()
    assert len(carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 0), 20))) == 20
    again.join()


def test_a_silent_switch_keeps_its_links_up(fast: Cluster, wires: list[Wire]) -> None:
    before = fast.counters()
    fast.inject("silent", "p0-t1-0")
    assert all(fast.link_states().values())
    assert carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 0), 30)) == []
    assert moved(fast, before, "drop_silent") == {"p0-t1-0-d0": 30}
    assert len(carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 1), 30))) == 30


@pytest.mark.parametrize(
    ("on", "direction", "src", "dst"), [("h0-p0", "up", 0, 2), (CABLE, "down", 2, 0)]
)
@pytest.mark.quiet
def test_a_slow_link_goes_at_its_share(
    fast: Cluster, wires: list[Wire], on: str, direction: str, src: int, dst: int
) -> None:
    size = 4000
    rate = 8 * 10**10 / fast.fabric.nic_rate
    frames = numbered(fast, src, dst, ev(0, 0), 60, size)
    fault = fast.inject("slow", on, rate=rate, direction=direction)

    def took(a: int, b: int, batch: list[bytes]) -> float:
        """The quickest of three: a port may wait for this process, and never be faster than it
        is."""
        times = []
        for _ in range(3):
            for frame in batch:
                assert wires[a].send(0, frame)
            got = wires[b].receive(len(batch))
            assert len(got) == len(batch)
            times.append(got[-1].at - got[20].at)
        return min(times)

    ideal = (len(frames) - 21) * (BTH + size) * 8 / (fast.fabric.nic_rate * rate) * DILATION
    assert took(src, dst, frames) == pytest.approx(ideal, rel=0.15)
    assert took(dst, src, numbered(fast, dst, src, ev(0, 0), 60, size)) < ideal / 3, (
        "the other direction is as fast as before"
    )
    fast.clear(fault.number)
    assert took(src, dst, frames) < ideal / 3


def test_layouts_match_the_kernels(fast: Cluster) -> None:
    for name, words in (
        ("port_fault", layout.FAULT_WORDS),
        ("path_fault", layout.PATH_FAULT_WORDS),
    ):
        held = BpfMap(loader.PINS / name)
        assert held.value_size == 8 * len(words), name
        held.close()


def test_a_capture_of_the_far_end_is_a_witness(fast: Cluster, wires: list[Wire]) -> None:
    """A frame lost by a fault was on the cable: who listens there sees it."""
    command = [
        "nsenter",
        f"--net={fast.net.switch_namespace}",
        "--",
        "tcpdump",
        "-i",
        "p0-t1-0-d0",
        "-c",
        "5",
        "-Q",
        "in",
    ]
    command.append("--immediate-mode")
    dump = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert dump.stderr is not None
    while "listening" not in dump.stderr.readline():
        pass
    fast.inject("loss", CABLE, probability=1, direction="up")
    assert carry(wires, 0, 2, 0, numbered(fast, 0, 2, ev(0, 0), 5)) == []
    out, _ = dump.communicate(timeout=PATIENCE_S)
    assert out.count("IP6") >= 5
