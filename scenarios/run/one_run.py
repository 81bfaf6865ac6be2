"""One transport, one placement, one seed on a running cluster: agents up, the workload, the faults, the counters, agents down.

Called by the runner. It writes ``run.json`` and ``runner.jsonl`` beside the agents' logs and computes no figure: scenarios.figures.measure
does
that from those files alone. Whatever goes wrong becomes an outcome; only KeyboardInterrupt and bugs pass through, with the files written.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.collectives.steer import CutOff, connect, wait_for_all
from agents.process.control import AgentError
from scenarios.figures.background_books import balanced
from scenarios.figures.measure import books
from scenarios.figures.writing import replacing
from scenarios.run.background import BackgroundRun
from scenarios.run.faults import NEVER, Action, Timeline, busiest_edge, fault_ranks, resolve_used
from scenarios.run.mapping import Mapping
from scenarios.run.watch import LOOKS_PER_RTT, Watch
from scenarios.schema.scenario import SINGLE_PATH, USED_BY_QP, Scenario, Transport
from scenarios.schema.sweep import suffix
from scenarios.schema.workloads import edges_of, resolve_flows, watched_ports
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.faults.targets import Injected
from testbed.world import Agent, World
from topologies import Fabric
from topologies.theory import place_ranks

MS = 1_000_000
CHECK_EVERY_NS = 300 * MS
LEAD_NS = 50 * MS
"""Flows' t0 lies so far ahead of the first request to start: time enough for every agent to hear of it."""
SAMPLE_NS, SAMPLES_PER_RTT = 5 * MS, 8
"""Queues are sampled so often, but not more often than so many times per base RTT."""
BOOKS_TRIES = 25
BOOKS_WAIT_S = 0.1
"""Counting is tried so often, so long apart, while books are open though nothing is on its way."""
QUEUES_NS = 60_000 * MS
"""Queues get so long to drain when a run is over, at most [ours]: a slow fault could make it hours."""


def drain_ns(fabric: Fabric, faults: Sequence[Injected]) -> int:
    """How long a packet and its answer may still take once nobody sends: the delay both ways, and on each of four links a full queue at the
    rate that faults leave it, twice over, since each class is sure of half the rate. Of queues at most :data:`QUEUES_NS`.
    """
    drains = [(1.0, 0), *(KINDS[fault.target.kind].drain(fault.target.keys) for fault in faults)]
    left, pause = min(share for share, _ in drains), max(ns for _, ns in drains)
    queues = 4 * 2 * fabric.buffer_bytes * 8e9 / (min(fabric.nic_rate, fabric.fabric_rate) * left)
    return 2 * (fabric.delay_ns + pause) + min(int(queues), QUEUES_NS)


@dataclass
class Spec:
    """What to run."""

    scenario: Scenario
    transport: Transport
    placement: str
    seed: int
    used: dict[int, str] = field(default_factory=dict)  # fault number -> cable, once resolved; shared by the runs of a fabric
    settings: dict[str, Any] = field(default_factory=dict)  # of the sweep: key -> value

    @property
    def key(self) -> str:
        return f"{self.transport.name}-{self.transport.fabric.name}-{self.placement}-s{self.seed}{suffix(self.settings)}"


class OneRun:
    """State of one run; :meth:`go` does it."""

    def __init__(self, cluster: World, spec: Spec, directory: Path, progress: Callable[[float, str], None]) -> None:
        """``progress(share, trouble)``: how far it is, and in one line what holds it up, if anything does."""
        self.cluster, self.spec, self.directory, self._progress = cluster, spec, directory, progress
        self.share, self.trouble = 0.0, ""
        self.clock = cluster.clock
        self.fabric = spec.transport.fabric
        self.hosts = place_ranks(self.fabric, spec.placement)
        self.work = spec.scenario.workload
        self.flows = resolve_flows(self.work, self.fabric, self.hosts, spec.seed)
        self.edges = edges_of(self.work, self.fabric, self.hosts, spec.seed)
        self.queues = watched_ports(self.flows, self.fabric, self.hosts)
        self.outcome, self.reason = "done", ""
        self.cut_off = CutOff(self.hosts)
        self.window = [0, 0]
        self.done: set[int] = set()
        self.ended = 0  # steps, of each rank
        self.began = -1  # latest measured step that any rank began
        self.reroutes: list[tuple[int, list[str]]] = []
        self.timeline = Timeline(self.fabric, spec.scenario.faults, spec.seed)
        self.injected: dict[int, Injected] = {}  # by the fault's place in the scenario
        self.killed: list[int] = []  # hosts whose agents a fault has killed
        self.dead: list[str] = []  # cables that were down when last looked at
        self.record: dict[str, Any] = {"kind": spec.transport.kind}
        directory.mkdir(parents=True, exist_ok=True)
        self.journal_file = open(directory / "runner.jsonl", "w", encoding="utf-8", buffering=1)
        self.queue_file = open(directory / "queues.jsonl", "w", encoding="utf-8") if self.queues else None
        self.sample_at = 0 if self.queues else NEVER
        self.check_at = 0
        self.made_ns = self.clock.now()
        # A simulation may take as long as it likes: nobody watches the machine.
        look_s = self.fabric.base_rtt_ns / LOOKS_PER_RTT / 1e9
        self.watch = None if self.clock.virtual else Watch(cluster.processes, cluster.port_watch(), look_s)
        self.mapping = Mapping(cluster, spec.transport.clustermapper, spec.seed, self.journal)
        self.background = BackgroundRun(cluster, spec.scenario.backgrounds, spec.scenario.timeout_ns, directory, self.journal)

    def journal(self, t: int, kind: str, **fields: Any) -> None:
        self.journal_file.write(json.dumps({"t": t, "kind": kind, **fields}) + "\n")

    def go(self) -> str:
        """Do it; returns the outcome: done, failed, timeout or died."""
        transport = self.spec.transport
        watch = self.watch
        if watch is not None:
            watch.start()
        try:
            self.record["counters_before"] = self.cluster.counters()
            self.cluster.fault_events()  # those of a run before are not ours
            for action in self.timeline.begin_before():
                self.change(action)
            self.hear_faults()
            self.cluster.start_agents(transport.kind, dict(transport.options), self.directory, self.spec.seed, transport.controller)
            self.mapping.start()
            self.connect()
            self.resolve()
            self.background.prepare()
            self.workload()
            self.settle()
        except KeyboardInterrupt:
            self.outcome, self.reason = "interrupted", "stopped by the user"
            raise
        except Exception as error:
            if self.killed and isinstance(error, (UserError, AgentError, OSError)):
                host = self.killed[0]  # as the scenario wanted: the run has ended, nothing of ours is wrong
                self.window[1] = self.clock.now()
                self.end("failed", f"rank {self.hosts.index(host)} (h{host}) is gone: {error}")
                self.journal(self.window[1], "end", outcome=self.outcome, reason=self.reason)
                return self.outcome
            self.outcome, self.reason = "died", f"{type(error).__name__}: {error}"
            if isinstance(error, AgentError):
                self.raise_if_process_died()
            raise
        finally:
            try:
                self.background.end()
                self.heal()
            finally:  # they journal, and the disk may be full
                if watch is not None:
                    watch.stop()
                    self.record.update(cpu=watch.samples, wake_delay_max_ns=watch.delay_max_ns, watch=watch.result())
                self.write()
        return self.outcome

    # --- before ----------------------------------------------------------------------------------------------

    def ranked(self) -> list[Agent]:
        """Agents by rank."""
        return [self.cluster.agents[host] for host in self.hosts]

    @property
    def collective(self) -> str:
        """What agents call it: to them every pattern is a list of flows."""
        return "flows" if self.work.is_pattern else self.work.kind

    def connect(self) -> None:
        flows = [flow.for_agents() for flow in self.flows] or None
        connect(self.ranked(), self.hosts, self.collective, self.spec.transport.qps, self.work.slices, flows)

    def paths_of(self, agent: Agent) -> list[dict[str, Any]]:
        answer = agent.call("paths")
        return list(answer["paths"] if isinstance(answer, dict) else answer)

    def resolve(self) -> None:
        """Turn "what this transport's QP uses" into a cable or a path, and journal which."""
        self.record["paths"] = {str(host): self.paths_of(agent) for host, agent in zip(self.hosts, self.ranked(), strict=True)}
        for i, fault in enumerate(self.spec.scenario.faults):
            if fault.on != USED_BY_QP:
                continue
            how = "what an earlier run of this fabric resolved"
            if i not in self.spec.used:
                can_say = self.spec.transport.kind in SINGLE_PATH
                paths = {int(host): rows for host, rows in self.record["paths"].items()}
                at = (self.fabric, self.hosts, fault, self.edges)
                edge = busiest_edge(*at, paths) if can_say else fault_ranks(*at)
                self.spec.used[i], how = resolve_used(
                    self.fabric, self.hosts, edge, paths[self.hosts[edge[0]]], self.spec.seed, can_say, fault.kind,
                    [(flow.src, flow.dst) for flow in self.flows],
                )  # fmt: skip
            self.journal(self.clock.now(), "resolved", name=fault.name, on=self.spec.used[i], how=how)
            self.timeline.follow(i, self.spec.used[i])

    # --- during ----------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Tell every agent to start; returns when they do (monotonic ns)."""
        work, timeline = self.work, self.timeline
        what: dict[str, Any] = {"collective": self.collective, "message_bytes": work.message_bytes, "seed": self.spec.seed}
        if not self.flows:  # drawing inputs takes an agent a while: none is to wait for a peer that draws
            what |= {"dtype": work.dtype, "steps": work.steps, "warmup": work.warmup_steps}
            for agent in self.ranked():
                agent.call("prepare", **what)
        if self.watch is not None:
            self.watch.mark()
        start = self.clock.now() + (LEAD_NS if self.flows else 0)
        if self.flows:
            what |= {"flows": [flow.for_agents() for flow in self.flows], "outstanding": work.outstanding, "at": start}
            self.record["t0"] = start
        self.window = [start, start]
        self.journal(start, "start", key=self.spec.key)
        self.background.start(start)
        for agent in self.ranked():
            agent.call("start", **what)
        if work.is_pattern:
            timeline.measured_step_began(0, start)
        elif work.warmup_steps == 0:
            self.note_begin(0, start)
        return start

    def workload(self) -> None:
        agents = self.ranked()
        start = self.begin()
        timeout = self.spec.scenario.timeout_ns
        left = (start + timeout - self.clock.now()) / 1e9
        if not wait_for_all(agents, self.heard, self.tick, left, self.clock) and self.outcome == "done":
            gone = [rank for rank, agent in enumerate(agents) if getattr(agent, "closed", False)]
            if gone:
                self.cluster.check()  # says who died
                self.end("failed", f"the agent of rank {gone[0]} (h{self.hosts[gone[0]]}) hung up")
            late = [rank for rank in range(len(agents)) if rank not in self.done]
            why = self.cut_off.line or "raise 'timeout' or make the workload shorter"
            self.end("timeout", f"no end after {timeout / 1e9:g} s: ranks {late} not done; {why}")
        self.window[1] = self.clock.now()
        if self.watch is not None:
            self.watch.mark()
        self.look_for_the_controller(self.window[1])
        self.journal(self.window[1], "end", outcome=self.outcome, reason=self.reason)

    def tick(self) -> float:
        """Do what is due; returns the seconds until there is something again."""
        now = self.clock.now()
        self.apply(now)
        if now >= self.check_at:
            self.cluster.check()
            self.look_for_the_controller(now)
            self.show_progress(now)
            self.show_trouble()
            self.check_at = now + CHECK_EVERY_NS
        self.sample(now)
        self.mapping.tick(now)
        self.background.tick(now)
        due = [self.timeline.next_ns(), self.reroutes[0][0] if self.reroutes else NEVER, self.sample_at, self.check_at]
        due.append(self.background.look_at)
        if self.spec.transport.reconvergence_ns is not None:  # a network that re-routes answers to each change of a flapping link
            due += [fault.due_ns for fault in self.cluster.faults() if fault.due_ns is not None and fault.target.links]
        return (max(min(due), now + MS) - now) / 1e9

    def sample(self, now: int) -> None:
        """Write down what waits at the ports worth watching, if it is time."""
        if now < self.sample_at or self.queue_file is None:
            return
        for port in self.queues:
            self.queue_file.write(f'{{"t":{now},"port":"{port}","bytes":{self.cluster.backlog(port)}}}\n')
        self.sample_at = now + max(SAMPLE_NS, self.fabric.base_rtt_ns // SAMPLES_PER_RTT)

    def show_progress(self, now: int) -> None:
        """Of flows: by the clock where all end by it, else by how many are complete."""
        ends = [flow.end_ns for flow in self.flows]
        if ends and None not in ends:
            self.progress(max(0.0, min(1.0, (now - self.window[0]) / max(end for end in ends if end is not None))))
        elif ends:
            self.progress(len(self.record.get("flow_notes", ())) / len(ends))

    def progress(self, share: float) -> None:
        self.share = share
        self._progress(share, self.trouble)

    def show_trouble(self) -> None:
        """Say that the denylist stops a rank, and when it does so no more."""
        if self.cut_off.line != self.trouble:
            self.trouble = self.cut_off.line
            self.journal(self.clock.now(), "cut-off", reason=self.trouble)
            self.progress(self.share)

    def end(self, outcome: str, reason: str) -> None:
        if self.outcome == "done":
            self.outcome, self.reason = outcome, reason

    def heard(self, rank: int, note: dict[str, Any]) -> None:
        kind = note.get("event")
        if kind == "step":
            step = int(note["step"])
            self.ended += 1
            self.note_begin(step + 1 - self.work.warmup_steps, int(note["end_ns"]))
            self.progress(self.ended / (len(self.hosts) * (self.work.steps + self.work.warmup_steps)))
        elif kind == "cut-off":
            self.cut_off.hear(note)
        elif kind == "mapper":
            self.mapping.hear(note)
        elif kind == "flow":
            self.record.setdefault("flow_notes", []).append({k: v for k, v in note.items() if k != "event"})
        elif kind == "done":
            self.done.add(rank)
            self.record.setdefault("wrong", {})[str(rank)] = int(note.get("wrong", 0))
        elif kind == "failed":
            self.journal(self.clock.now(), "failed", **{k: v for k, v in note.items() if k != "event"})
            why = f" ({self.cut_off.line})" if self.cut_off.line else ""
            self.end("failed", f"rank {note.get('rank', rank)} lost rank {note.get('peer_rank')}: {note.get('reason')}{why}")

    def note_begin(self, step: int, at: int) -> None:
        if self.began < step < self.work.steps:
            self.began = step
            self.timeline.measured_step_began(step, at)

    def look_for_the_controller(self, now: int) -> None:
        """Its death changes nothing for traffic, but whoever reads the results should know."""
        if self.cluster.controller_lost and not self.record.get("notes"):
            self.record["notes"] = ["the controller is gone: forwarding does not need it, but nobody watched the links any more"]
            self.journal(now, "controller", phase="gone")

    def apply(self, now: int) -> None:
        """Faults that are due, and a re-routing network's late answer to them."""
        for action in self.timeline.due(now):
            self.change(action)
        self.hear_faults()
        while self.reroutes and self.reroutes[0][0] <= now:
            _, dead = self.reroutes.pop(0)
            self.cluster.reroute(dead)  # where the hosts' kernels route
            for agent in self.ranked():
                agent.call("reroute", dead_links=dead)
            self.journal(self.clock.now(), "reconverged", dead_links=dead)

    def change(self, action: Action) -> None:
        """Inject a fault or take it back."""
        fault, target = action.fault, action.target
        if action.phase == "heal":
            self.cluster.clear(self.injected[action.number].number)
            return
        self.injected[action.number] = self.cluster.inject(fault.kind, target.on, run_seed=self.spec.seed, **fault.keys)
        if target.host >= 0 and not KINDS[fault.kind].heals:
            self.killed.append(target.host)

    def hear_faults(self, over: bool = False) -> None:
        """Journal what faults did; with ``over``, their end with the run's. A network that re-routes hears of cables only."""
        by_number = {made.number: number for number, made in self.injected.items()}
        for event in self.cluster.fault_events():
            if event.number not in by_number:
                continue  # somebody else's
            number = by_number[event.number]
            fault, target = self.spec.scenario.faults[number], self.injected[number].target
            self.journal(
                event.t, "fault", name=fault.name, fault=fault.kind, on=target.on, phase="end" if over else event.phase,
                links=list(event.links), keys=target.keys,
            )  # fmt: skip
            dead = [link for link, up in self.cluster.link_states().items() if not up]
            if self.spec.transport.reconvergence_ns is not None and dead != self.dead:
                self.reroutes.append((event.t + self.spec.transport.reconvergence_ns, dead))
            self.dead = dead

    def heal(self) -> None:
        """Every fault of the run ends with it, whatever became of the run. One that lasted until then ends in phase "end"."""
        try:
            self.mapping.release()
            self.hear_faults()
            self.cluster.heal()
            self.hear_faults(over=True)
        except Exception as error:  # of a cluster that is falling apart: it goes as a whole, and with it the fault
            self.journal(self.clock.now(), "unhealed", reason=f"{type(error).__name__}: {error}")

    # --- after -----------------------------------------------------------------------------------------------

    def raise_if_process_died(self) -> None:
        """An agent is gone. Raises :class:`testbed.errors.ClusterDied` with who it was, and of what."""
        self.clock.sleep(0.2)  # until the kernel has told of its end
        self.cluster.check()

    def settle(self) -> None:
        """Count until the books of a quiet moment balance. Waits for packets on their way, no longer than they can take (:func:`drain_ns`);
        what is still open after some tries stays open.
        """
        self.record["dead_at_end"] = [link for link, up in self.cluster.link_states().items() if not up]
        self.mapping.stop()  # probes on their way have no place in the books
        self.background.end()  # nor has what would still be sent
        for agent in self.ranked():
            with contextlib.suppress(AgentError, OSError):  # the count below says so
                agent.call("quiesce")  # else data of a run that has not ended, and probes of dead paths, are always on their way
        until = self.clock.now() + drain_ns(self.fabric, self.cluster.faults())
        tries = BOOKS_TRIES
        while tries:
            self.cluster.quiesce(1.0)
            try:
                agents = {str(host): dict(agent.call("counters")) for host, agent in zip(self.hosts, self.ranked(), strict=True)}
            except (AgentError, OSError) as error:
                self.journal(self.clock.now(), "uncounted", reason=str(error))
                if not self.killed:  # unless the scenario wanted that: then it is somebody else's doing, and the run ends with it
                    self.raise_if_process_died()
                break
            agents = {host: c.get("counters", c) for host, c in agents.items()}
            self.record.update(agent_counters=agents, counters_after=self.cluster.counters())
            packets = books(self.record)
            if not packets["on_the_way"]:
                if balanced(packets):
                    break
                tries -= 1
            elif self.clock.now() >= until:
                break
            self.clock.sleep(BOOKS_WAIT_S)
        for agent in self.ranked():
            try:
                agent.call("stop")
            except (AgentError, OSError):  # it died: the cluster's check says so, its log stays
                pass
        self.cluster.stop_agents()

    def write(self) -> None:
        spec, timeline = self.spec, self.timeline
        work = spec.scenario.workload
        self.record.update(
            world="simulated" if self.clock.virtual else "emulated",
            key=spec.key, transport=spec.transport.name, kind=spec.transport.kind, fabric=self.fabric.to_dict(), placement=spec.placement,
            settings=spec.settings, seed=spec.seed, ranks=self.hosts, workload=work.kind, message_bytes=work.message_bytes,
            dtype=work.dtype, steps=work.steps, warmup_steps=work.warmup_steps, flows=[asdict(flow) for flow in self.flows],
            queue_ports=self.queues, reconvergence_ns=spec.transport.reconvergence_ns, qps=spec.transport.qps,
            options=spec.transport.options, controller=spec.transport.controller,
            clustermapper=spec.transport.clustermapper.to_dict() if spec.transport.clustermapper else None,
            outcome=self.outcome, reason=self.reason, window=self.window,
            fault_links=timeline.all_links(),
            faults_missed=timeline.never_began() + timeline.absent,
        )  # fmt: skip
        if self.background.made:
            self.record["background"] = self.background.records()
            self.record["notes"] = [*self.record.get("notes", []), *self.background.complaints()]
        try:
            with open(self.directory / "controller.jsonl", "w", encoding="utf-8") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in self.cluster.controller_journal(self.made_ns))
        finally:
            self.journal_file.close()
            if self.queue_file is not None:
                self.queue_file.close()
            with replacing(self.directory / "run.json") as part:  # last and at once: who finds run.json finds all of the run
                part.write_text(json.dumps(self.record), encoding="utf-8")
