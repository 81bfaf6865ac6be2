"""Probers in the virtual network: real frames over every link, judged at their deadline, and the
broken link named."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from agents.clustermapper import probes
from agents.clustermapper.localise import CLEAR_STATE, DEAD, Localiser
from agents.clustermapper.mapper import Mapper
from agents.clustermapper.options import Options
from agents.mrc.endpoint import Endpoint
from agents.nic.device import Nic
from agents.packets import headers
from agents.process.agent import Agent
from agents.transport import NEVER, Engine
from tests.agents.virtual import VirtualNetwork
from tests.fuzz.control import NoPorts
from topologies import Fabric, load_fabric
from topologies.units import US, S, wire_time

TINY = load_fabric("tiny")


def world(
    fabric: Fabric, options: Options | None = None, seed: int = 1
) -> tuple[VirtualNetwork, list[Mapper]]:
    mappers = [Mapper(fabric, h, options or Options(), seed, 77) for h in range(fabric.host_count)]
    net = VirtualNetwork(fabric, cast(list[Engine], mappers), seed=seed)
    for mapper in mappers:
        mapper.start(net.now)
    return net, mappers


class Runner:
    """What the runner does: all hosts' reports into one localiser."""

    def __init__(self, fabric: Fabric, mappers: list[Mapper]) -> None:
        self.mappers = mappers
        self.localiser = Localiser(fabric, Options(), range(fabric.host_count))
        self.named: list[tuple[int, str, str]] = []

    def look(self, now: int) -> None:
        for mapper in self.mappers:
            for note in mapper.take_reports():
                self.localiser.add(
                    note["host"], note["bucket"], note["sent"], note["lost"], note["carrier"]
                )
        self.named += [(now, v.link, v.state) for v in self.localiser.judge(now)]


def play(
    net: VirtualNetwork, runner: Runner, rtts: int, until: Callable[[], bool] = lambda: False
) -> None:
    fabric = net.fabric
    for _ in range(rtts // 4):
        net.run(net.now + 4 * fabric.base_rtt_ps)
        runner.look(net.now)
        if until():
            return


def test_on_a_healthy_fabric_every_probe_comes_back() -> None:
    net, mappers = world(TINY)
    runner = Runner(TINY, mappers)
    play(net, runner, 400)
    assert runner.named == [] and net.dropped == 0
    rounds = 400 * TINY.base_rtt_ps // mappers[0].interval
    for mapper in mappers:
        told = mapper.counters()
        assert abs(told["mapper_tx"] - rounds * 2 * TINY.planes) <= 4 * TINY.planes
        assert told["mapper_tx"] - told["mapper_rx"] <= 2 * TINY.planes  # on their way
        assert (
            told["mapper_lost"]
            == told["mapper_foreign"]
            == told["mapper_corrupt"]
            == told["mapper_late"]
            == 0
        )
        assert min(mapper.sent_by) > 0, "every path has had its turn"


def test_the_link_that_is_named_is_the_link_that_was_broken() -> None:
    for number, link in enumerate(TINY.links):
        rate, upwards = (0.3, 1.0)[number % 2], number % 4 < 2
        net, mappers = world(TINY, seed=number)
        runner = Runner(TINY, mappers)
        rng = Random(number)
        lossy_port = (link.a if upwards else link.b).name
        at: list[str] = []
        net.trace = lambda now, port, frame, at=at: at.append(port)  # type: ignore[misc]
        net.fate = lambda frame, name, now, at=at, rng=rng, bad=lossy_port, rate=rate: (  # type: ignore[misc]
            at[-1] != bad or rng.random() >= rate
        )
        play(net, runner, 600, lambda runner=runner: bool(runner.named))  # type: ignore[misc]
        play(net, runner, 40)
        assert {name for _, name, _ in runner.named} == {link.name}
        assert runner.localiser.verdicts[link.name].state != CLEAR_STATE
        if rate == 1.0:
            assert [(f.name, f.state) for f in runner.localiser.findings()] == [(link.name, DEAD)]
            assert runner.named[0][0] - US < 16 * TINY.base_rtt_ps + probes.deadline_ps(TINY)


def test_full_queues_are_no_loss_and_a_dead_link_under_load_is_found() -> None:
    """Standing queues at the trimming threshold, both ways, on everything that h0's probes of plane
    0 pass."""
    net, mappers = world(TINY)
    runner = Runner(TINY, mappers)
    extra = {
        port: 2 * wire_time(TINY.trim_bytes(True), TINY.nic_rate)
        for port in ("p0-t0-0-d0", "p0-t0-0-u0", "p0-t1-0-d0")
    }
    at: list[str] = []
    net.trace = lambda now, port, frame: at.append(port)
    net.jitter = lambda frame, link, now: extra.get(link_port(net, link), 0)

    def link_port(net: VirtualNetwork, link: str) -> str:
        return next((p for p in extra if net.link_of[p] == link), "")

    # each link delays both ways: what three full queues make in all
    extra = {k: v * 7 // 24 for k, v in extra.items()}
    play(net, runner, 200)
    assert runner.named == [] and all(m.counters()["mapper_lost"] == 0 for m in mappers)
    net.down.add("h0:p0-t0-0")
    play(net, runner, 60)
    assert {name for _, name, _ in runner.named} == {"h0:p0-t0-0"}


def test_what_comes_after_its_deadline_is_late_and_no_loss() -> None:
    net, mappers = world(TINY)
    mapper = mappers[0]
    runner = Runner(TINY, mappers)
    net.jitter = lambda frame, link, now: mapper.patience if link == "h0:p0-t0-0" else 0
    play(net, runner, 300)
    assert mapper.frames.late > 50 and sum(mapper.lost_by) < 12, "those on their way"
    net.jitter = lambda frame, link, now: 0
    play(net, runner, 100)
    assert sum(mapper.lost_by) == 0
    assert runner.localiser.findings() == []


def test_a_damaged_probe_is_lost_and_said_to_be_damaged() -> None:
    net, mappers = world(TINY)
    mapper = mappers[1]
    hurt = 0

    class Hurting:
        def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
            nonlocal hurt
            # every other pair of sequence numbers
            if port == 0 and buffer[start + headers.HEAD + 19] & 2:
                buffer[start + headers.HEAD + 27] ^= 4
                hurt += 1
            Mapper.receive(mapper, now, port, buffer, start, length)

        def __getattr__(self, name: str) -> Any:
            return getattr(mapper, name)

    net.engines[1] = cast(Engine, Hurting())
    runner = Runner(TINY, mappers)
    play(net, runner, 300)
    assert hurt > 10 and mapper.frames.corrupt == hurt
    told = mapper.counters()
    assert told["mapper_foreign"] == 0 and 0 < sum(mapper.corrupt_by) == sum(mapper.lost_by) <= hurt


def test_a_port_that_is_down_is_dead_and_its_probes_say_nothing() -> None:
    net, mappers = world(TINY)
    runner = Runner(TINY, mappers)
    play(net, runner, 40)
    net.down.add("h0:p1-t0-0")
    mappers[0].port_state(net.now, 1, False)
    play(net, runner, 8)
    assert [(name, state) for _, name, state in runner.named] == [("h0:p1-t0-0", DEAD)]
    (finding,) = runner.localiser.findings()
    assert not finding.carrier
    play(net, runner, 40)
    assert sum(mappers[0].lost_by) == 0, "what the port lost is no measurement"
    net.down.clear()
    mappers[0].port_state(net.now, 1, True)
    play(net, runner, 200)
    assert runner.localiser.findings() == [] and len(runner.named) == 2


def test_a_refused_probe_tells_of_the_port_and_is_no_loss() -> None:
    mapper = Mapper(TINY, 0, Options(), 1, 77)
    mapper.start(0)
    now = 0
    for _ in range(400):
        now = mapper.deadline()
        mapper.timer(now)
        while (port := mapper.transmit(now)) >= 0:
            mapper.sent(now, port, port == 0)
    told = mapper.take_reports()[-1]
    assert told["carrier"] == [True, False] and mapper.frames.refused > 20
    assert all(sent == 0 for sent in told["sent"][TINY.t1_per_plane + 1 :])
    assert sum(told["lost"]) == sum(told["sent"]) > 20  # of those that left none came back
    rows = {row["link"]: row for row in mapper.table()["links"]}
    assert not rows["h0:p1-t0-0"]["carrier"] and rows["h0:p0-t0-0"]["carrier"]


def test_after_a_pause_of_the_process_nothing_is_lost() -> None:
    net, mappers = world(TINY)
    runner = Runner(TINY, mappers)
    play(net, runner, 40)
    net.run(net.now + TINY.base_rtt_ps // 2)
    asleep = mappers[2]
    pending: list[tuple[int, bytes]] = []

    class Asleep:
        tx_frame, tx_payload, tx_trailer = asleep.tx_frame, None, b""

        def timer(self, now: int) -> None: ...
        def transmit(self, now: int) -> int:
            return -1

        def deadline(self) -> int:
            return NEVER

        def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
            pending.append((port, bytes(buffer[start : start + length])))

    net.engines[2] = cast(Engine, Asleep())
    net.run(net.now + 100 * TINY.base_rtt_ps)
    net.engines[2] = cast(Engine, asleep)
    assert pending, "probes came back meanwhile"
    asleep.timer(net.now)  # before it has read them
    for port, frame in pending:
        asleep.receive(net.now, port, bytearray(frame), 0, len(frame))
    play(net, runner, 60)
    assert sum(asleep.lost_by) == 0 and runner.named == []


def test_foreign_and_hostile_frames_change_nothing() -> None:
    net, mappers = world(TINY)
    other = Mapper(TINY, 0, Options(), 1, 78)
    other.start(0)
    frame = probes.frame(other.probed[0], 78, 1, 0)
    rng = Random(3)
    mapper = mappers[0]
    runner = Runner(TINY, mappers)
    play(net, runner, 20)
    before = list(mapper.sent_by), list(mapper.lost_by)
    mapper.receive(net.now, 0, frame, 0, len(frame))
    for length in (0, 50, 101, 102, probes.LENGTH, 300):
        mapper.receive(net.now, 0, bytearray(rng.randbytes(length)), 0, length)
    assert mapper.frames.foreign >= 6 and (list(mapper.sent_by), list(mapper.lost_by)) == before
    # a copy of one that came back already is not counted twice
    good = probes.frame(mapper.probed[0], 77, 1, 0)
    mapper.receive(net.now, 0, good, 0, len(good))
    play(net, runner, 20)
    assert sum(mapper.lost_by) == 0


def test_a_stopped_mapper_is_silent() -> None:
    net, mappers = world(TINY)
    net.run(net.now + 20 * TINY.base_rtt_ps)
    for mapper in mappers:
        mapper.stop()
    assert all(m.deadline() == NEVER for m in mappers)
    before = [m.frames.tx for m in mappers]
    net.run(net.now + 20 * TINY.base_rtt_ps)
    assert [m.frames.tx for m in mappers] == before
    assert mappers[0].table()["running"] is False


def test_what_was_counted_is_told_before_the_answer_that_probing_has_ended() -> None:
    """Whoever then starts the next mapper would take it for that one's."""
    now, notes = S, []
    nic = Nic(TINY, 0, cast(Engine, Endpoint(TINY, 0, {}, 1)), cast(Any, NoPorts()), lambda: now)
    agent = Agent(TINY, 0, nic, lambda line: None, notes.append, lambda: now)
    assert "ok" in agent.answer({"op": "mapper_start", "seed": 1})
    now += 2 * nic.mapper.bucket_ps
    # a bucket is full, and the loop hears of the request before it passes on what was found
    nic.mapper.timer(now)
    assert "ok" in agent.answer({"op": "mapper_stop"})
    assert [note["event"] for note in notes] == ["mapper"]
    agent.advance()
    assert len(notes) == 1
