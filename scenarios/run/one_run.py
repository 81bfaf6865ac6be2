"""Carries out one run (transport, placement, seed) on a running cluster: agents up, workload,
faults, counters, agents down.

Every failure becomes an outcome; only KeyboardInterrupt and bugs are raised, after ``run.json`` and
``runner.jsonl`` are written.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.collectives.steer import CutOff, connect, wait_for_all
from agents.process.control import AgentError
from agents.transport import LONG_AGO, Note
from scenarios.figures.books import balanced, books
from scenarios.figures.writing import replacing
from scenarios.jobs.describe import plan_of, ranks_of
from scenarios.jobs.plan import Plan, estimate, rehearse
from scenarios.jobs.replay import GPT_RANK, RANK, training_text, write_plan
from scenarios.run.breaking import Breaking
from scenarios.run.iperf_flows import BackgroundRun
from scenarios.run.mapping import Mapping
from scenarios.run.port_log import PortLog
from scenarios.run.timeline import NEVER, Timeline, busiest_edge, fault_ranks, resolve_used
from scenarios.run.watch import LOOKS_PER_RTT, Watch
from scenarios.schema.scenario import SINGLE_PATH, USED_BY_QP, Scenario, Transport
from scenarios.schema.sweep import suffix
from scenarios.schema.workloads import edges_of, resolve_flows, watched_ports
from testbed.errors import UserError
from testbed.faults.kinds import KINDS
from testbed.faults.targets import Injected
from testbed.machine.awake import kept_awake
from testbed.reconvergence import Reconvergence
from testbed.results.record import Counted
from testbed.view.read import BEGUN
from testbed.world import Agent, Program, RunWatch, World
from topologies import Fabric
from topologies.theory import place_ranks
from topologies.units import BYTE, MS, NS, S

CHECK_EVERY_S = 0.3
LEAD_S = 0.05
"""Machine time from the first start request to the flows' t0, so that every agent gets it in
time."""
# of queues: shortest interval for a machine, and most per base RTT
SAMPLE_S, SAMPLES_PER_RTT = 0.005, 8
PAUSE_S = 0.001  # least time between two looks, for a machine
BOOKS_TRIES = 25
BOOKS_WAIT_S = 0.1  # while the books are open although nothing is on its way
QUEUES = 5 * MS
"""Longest time that queues get to drain after a run [ours]: a slow fault could make it hours."""


def serves_again(world: World, outcome: str) -> bool:
    """Whether the next run may have this world. Else agents may hang, the controller be missing, or
    virtual time have to begin anew."""
    return outcome == "done" and not world.controller_lost and not world.clock.virtual


def drain_ps(fabric: Fabric, faults: Sequence[Injected]) -> int:
    """Return how long a packet and its answer may still take once nobody sends.

    This is the delay both ways, plus a full queue on each of four links (between sites five) at the
    rate that faults leave, twice, since each class is sure of half the rate only. The queues' part
    is at most :data:`QUEUES`.
    """
    drains = [(1.0, 0), *(KINDS[fault.target.kind].drain(fault.target.keys) for fault in faults)]
    rate_share, pause = min(share for share, _ in drains), max(time for _, time in drains)
    queues = (
        4 * 2 * fabric.buffer_bytes * BYTE / (min(fabric.nic_rate, fabric.fabric_rate) * rate_share)
    )
    if fabric.sites > 1:
        queues += 2 * fabric.buffer_bytes * BYTE / (fabric.long_haul_rate * rate_share)
    return 2 * (fabric.delay_ps + fabric.long_haul_delay_ps + pause) + min(int(queues), QUEUES)


@dataclass
class Spec:
    scenario: Scenario
    transport: Transport
    placement: str
    seed: int
    # fault number -> target, once resolved; shared by the runs of a fabric
    used: dict[int, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # of the sweep: key -> value
    cpu_s: float = 0.0  # CPU time of this process from the run's start to its end

    @property
    def key(self) -> str:
        where = f"{self.transport.fabric.name}-{self.placement}"
        return f"{self.transport.name}-{where}-s{self.seed}{suffix(self.settings)}"


@dataclass
class _Due:
    """When something is due, ps."""

    sample: int
    check: int = 0
    rest: int = LONG_AGO  # anything but a sample, without faults; LONG_AGO: to be looked at


class OneRun:
    def __init__(
        self, cluster: World, spec: Spec, directory: Path, progress: Callable[[float, str], None]
    ) -> None:
        """``progress(share, trouble)``: how much is done, and what stops the run, or ""."""
        self.cluster, self.spec, self.directory, self._progress = cluster, spec, directory, progress
        self.share, self.trouble = 0.0, ""
        self.clock = cluster.clock
        delay = spec.transport.reconvergence_ps
        self.network = (
            None if delay is None else Reconvergence(cluster, delay, spec.transport.repair_ps)
        )
        self.timeout, self.pause = (
            self.clock.patience(spec.scenario.timeout_s),
            self.clock.patience(PAUSE_S),
        )
        self.fabric = spec.transport.fabric
        self.hosts = place_ranks(self.fabric, spec.placement)
        self.work = spec.scenario.workload
        self.flows = resolve_flows(self.work, self.fabric, self.hosts, spec.seed)
        self.edges = edges_of(self.work, self.fabric, self.hosts, spec.seed)
        self.queues = watched_ports(self.flows, self.fabric, self.hosts)
        self.phases: list[tuple[range, int]] = []  # of jobs: which ranks make how many steps
        if self.work.jobs:
            own = ranks_of(self.work.jobs)
            self.phases = [(ranks, self.work.alone_steps) for ranks in own if self.work.alone_steps]
            self.phases.append((range(own[-1].stop), self.work.warmup_steps + self.work.steps))
        self.outcome, self.reason = "done", ""
        self.cut_off = CutOff(self.hosts)
        self.window = [0, 0]
        self.finished_ranks: set[int] = set()
        self.step_count = 0  # steps that have ended, summed over ranks
        self.latest_step = -1  # the latest measured step that a rank has begun
        self.timeline = Timeline(self.fabric, spec.scenario.faults, spec.seed)
        # A network that re-routes reacts to cables only.
        self.breaking = Breaking(
            cluster,
            self.timeline,
            self.journal,
            *(() if self.network is None else (self.network.changed,)),
        )
        self.record: dict[str, Any] = {"kind": spec.transport.kind}
        directory.mkdir(parents=True, exist_ok=True)
        self.journal_file = open(directory / "runner.jsonl", "w", encoding="utf-8", buffering=1)
        self.queue_file = (
            open(directory / "queues.jsonl", "w", encoding="utf-8") if self.queues else None
        )
        self.due = _Due(0 if self.queues else NEVER)
        self.port_log = PortLog(cluster, directory / "ports.jsonl")
        self.created_ps = self.clock.now()
        # A simulation may take any time: the machine need not be watched.
        interval = self.fabric.base_rtt_ps // LOOKS_PER_RTT
        self.watch: RunWatch | None = None
        if not self.clock.virtual:
            self.watch = cluster.run_watch(interval) or Watch(
                cluster.clock, cluster.processes, cluster.port_watch(), interval
            )
        self.mapping = Mapping(cluster, spec.transport.clustermapper, spec.seed, self.journal)
        self.background = BackgroundRun(
            cluster, spec.scenario.backgrounds, self.timeout, directory, self.journal
        )

    def journal(self, t: int, kind: str, **fields: Any) -> None:
        self.journal_file.write(json.dumps({"t": t, "kind": kind, **fields}) + "\n")

    def go(self) -> str:
        """Return the outcome: done, failed, timeout or died."""
        if self.clock.virtual:
            return self._go()
        with kept_awake():
            return self._go()

    def _go(self) -> str:
        transport = self.spec.transport
        watch = self.watch
        if watch is not None:
            watch.start()
        try:
            self.record["counters_before"] = self.cluster.counters()
            self.breaking.begin_before()
            kinds = [KINDS[fault.kind] for fault in self.spec.scenario.faults]
            # they act on a host's process
            alone = any(kind.stalls or not kind.heals for kind in kinds)
            options, policy = dict(transport.options), transport.controller
            self.cluster.start_agents(
                transport.kind, options, self.directory, self.spec.seed, policy, alone
            )
            self.mapping.start()
            self.connect()
            self.resolve()
            self.check_links()
            self.background.prepare()
            self.workload()
            self.settle()
        except KeyboardInterrupt:
            self.outcome, self.reason = "interrupted", "stopped by the user"
            raise
        except Exception as error:
            if (killed := self.breaking.killed_hosts) and isinstance(
                error, (UserError, AgentError, OSError)
            ):
                # a fault of the scenario killed the agent: the run ends without an error of ours
                host = killed[0]
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
                self.breaking.heal(self.mapping.release)
            finally:  # the calls above journal, and the disk may be full
                if watch is not None:
                    watch.stop()
                    self.record.update(
                        cpu=watch.samples,
                        wall_wake_delay_max_ns=watch.delay_max_ns,
                        watch=watch.result(),
                    )
                self.write()
        return self.outcome

    # --- before -----------------------------------------------------------------------------------

    def ranked(self) -> list[Agent]:
        return [self.cluster.agents[host] for host in self.hosts]

    @property
    def collective(self) -> str:
        """For agents every pattern is a list of flows."""
        return "flows" if self.work.is_pattern else self.work.kind

    def connect(self) -> None:
        if self.work.jobs:
            return  # their ranks connect themselves
        flows = [flow.for_agents() for flow in self.flows] or None
        connect(
            self.ranked(),
            self.hosts,
            self.collective,
            self.spec.transport.qps,
            self.work.slices,
            flows,
        )

    def paths_of(self, agent: Agent) -> list[dict[str, Any]]:
        answer = agent.call("paths")
        return list(answer["paths"] if isinstance(answer, dict) else answer)

    def resolve(self) -> None:
        self.record["paths"] = {
            str(host): self.paths_of(agent)
            for host, agent in zip(self.hosts, self.ranked(), strict=True)
        }
        for number, fault in enumerate(self.spec.scenario.faults):
            if fault.on != USED_BY_QP:
                continue
            source = "what an earlier run of this fabric resolved"
            if number not in self.spec.used:
                can_say = self.spec.transport.kind in SINGLE_PATH
                paths = {int(host): rows for host, rows in self.record["paths"].items()}
                context = (self.fabric, self.hosts, fault, self.edges)
                edge = busiest_edge(*context, paths) if can_say else fault_ranks(*context)
                self.spec.used[number], source = resolve_used(
                    self.fabric,
                    self.hosts,
                    edge,
                    paths[self.hosts[edge[0]]],
                    self.spec.seed,
                    can_say,
                    fault.kind,
                    [(flow.src, flow.dst) for flow in self.flows],
                )
            self.journal(
                self.clock.now(), "resolved", name=fault.name, on=self.spec.used[number], how=source
            )
            self.timeline.follow(number, self.spec.used[number])

    def check_links(self) -> None:
        """Probe before the workload begins, so that bad links are denied by then (paper, section
        2.4)."""
        if until := self.mapping.start_check_ps:
            wait_for_all(
                self.ranked(),
                self.handle_note,
                lambda: self.mapping.tick(self.clock.now()),
                until,
                self.clock,
            )

    # --- during -----------------------------------------------------------------------------------

    def begin(self) -> int:
        """Return the time at which agents start."""
        work, timeline = self.work, self.timeline
        request: dict[str, Any] = {
            "collective": self.collective,
            "message_bytes": work.message_bytes,
            "seed": self.spec.seed,
        }
        # drawing inputs takes an agent some time: no agent must wait for a peer that still draws
        if not self.flows:
            request |= {"dtype": work.dtype, "steps": work.steps, "warmup": work.warmup_steps}
            for agent in self.ranked():
                agent.call("prepare", **request)
        if self.watch is not None:
            self.watch.mark()
        start = self.clock.now() + (self.clock.patience(LEAD_S) if self.flows else 0)
        if self.flows:
            request |= {"outstanding": work.outstanding, "at": start}
            self.record["t0"] = start
        self.window = [start, start]
        self.announce()
        self.journal(start, "start", key=self.spec.key)
        self.background.start(start)
        for agent in self.ranked():
            agent.call("start", **request)
        if work.is_pattern:
            timeline.measured_step_began(0, start)
        elif work.warmup_steps == 0:
            self.note_step_begin(0, start)
        return start

    def jobs(self) -> None:
        work, fabric = self.work, self.fabric
        plan = plan_of(work.jobs, len(self.hosts))
        duration = estimate(fabric, self.hosts)
        self.record["jobs"] = [
            {
                "name": job.name, "ranks": list(ranks), "compute_ps": job.compute_ps,
                "estimate_ps": round(rehearse(plan_of([job], len(self.hosts)), duration).ns * NS),
            }
            for job, ranks in zip(work.jobs, ranks_of(work.jobs), strict=True)
        ]  # fmt: skip
        first = work.jobs[0]
        words: tuple[object, ...]
        if first.trains:
            text = training_text(self.directory.parents[1])
            words = (
                GPT_RANK,
                self.phases[-1][1],
                self.spec.seed,
                first.compute_ps / S,
                first.ranks,
                text,
            )
        else:
            words = (
                RANK,
                write_plan(Plan(rehearse(plan, duration).ranks), self.directory, self.phases),
            )
        if self.watch is not None:
            self.watch.mark()
        start = self.clock.now()
        end = start + self.timeout
        self.window = [start, start]
        self.announce()
        self.journal(start, "start", key=self.spec.key)
        self.background.start(start)
        lines: list[str] = []
        cpu_began = time.process_time()

        def look() -> int:
            if self.clock.now() > end:
                raise TimeoutError
            return self.tick()

        programs = self.cluster.programs(
            Program(tuple(map(str, words)), qps=self.spec.transport.qps), self.hosts
        )
        try:
            failed = programs.run(
                lambda rank, line: lines.append(f"rank {rank}: {line}"), self.handle_note, look
            )
            for rank, reason in failed.items():
                said = f" ({lines[-1]})" if lines else ""
                self.journal(self.clock.now(), "failed", rank=rank, reason=reason)
                self.end("failed", f"rank {rank} (h{self.hosts[rank]}): {reason}{said}")
        except TimeoutError:
            self.end(
                "timeout",
                f"no end after {self.spec.scenario.timeout_s:g} s: raise 'timeout' or make the "
                "jobs shorter",
            )
        finally:
            programs.end()
        self.ended(cpu_began)

    def workload(self) -> None:
        if self.work.jobs:
            self.jobs()
            return
        agents = self.ranked()
        start, cpu_began = self.begin(), time.process_time()
        remaining = start + self.timeout - self.clock.now()
        if (
            not wait_for_all(agents, self.handle_note, self.tick, remaining, self.clock)
            and self.outcome == "done"
        ):
            closed_ranks = [
                rank for rank, agent in enumerate(agents) if getattr(agent, "closed", False)
            ]
            if closed_ranks:
                self.cluster.check()  # raises with the name of the dead process
                self.end(
                    "failed",
                    f"the agent of rank {closed_ranks[0]} (h{self.hosts[closed_ranks[0]]}) hung up",
                )
            pending = [rank for rank in range(len(agents)) if rank not in self.finished_ranks]
            advice = self.cut_off.line or "raise 'timeout' or make the workload shorter"
            self.end(
                "timeout",
                f"no end after {self.spec.scenario.timeout_s:g} s: ranks {pending} not done; "
                f"{advice}",
            )
        self.ended(cpu_began)

    def ended(self, cpu_began: float) -> None:
        self.spec.cpu_s = time.process_time() - cpu_began
        self.window[1] = self.clock.now()
        if self.watch is not None:
            self.watch.mark()
        self.check_controller(self.window[1])
        self.port_log.sample(self.window[1])
        self.journal(self.window[1], "end", outcome=self.outcome, reason=self.reason)

    def tick(self) -> int:
        """Return the time until something is due again."""
        now = self.clock.now()
        # as a rule, with queues sampled eight times per RTT
        if now < self.due.rest and now < self.port_log.due_ps:
            self.sample(now)
            return self._wait(now, self.due.rest)
        self.apply(now)
        if now >= self.due.check:
            self.cluster.check()
            self.check_controller(now)
            self.show_progress(now)
            self.show_trouble()
            self.due.check = now + self.clock.patience(CHECK_EVERY_S)
        self.sample(now)
        self.port_log.tick(now)
        self.mapping.tick(now)
        self.background.tick(now)
        due = [self.timeline.next_ps(), self.due.check, self.background.next_check_ps]
        if self.network is not None:
            due += self.network.due()
        if not self.timeline.entries:  # a fault may tell its own times
            self.due.rest = min(due)
        return self._wait(now, min(due))

    def _wait(self, now: int, due: int) -> int:
        soonest = max(min(due, self.due.sample), now + self.pause)
        sample = max(self.port_log.due_ps, now + self.pause)
        # else it waits: a sample must not make anything else late
        if sample <= soonest - self.pause:
            soonest = sample
        return soonest - now

    def sample(self, now: int) -> None:
        if now < self.due.sample or self.queue_file is None:
            return
        for port in self.queues:
            self.queue_file.write(
                f'{{"t":{now},"port":"{port}","bytes":{self.cluster.backlog(port)}}}\n'
            )
        self.due.sample = now + max(
            self.clock.patience(SAMPLE_S), self.fabric.base_rtt_ps // SAMPLES_PER_RTT
        )

    def show_progress(self, now: int) -> None:
        ends = [flow.end_ps for flow in self.flows]
        if ends and None not in ends:
            self.progress(
                max(
                    0.0,
                    min(1.0, (now - self.window[0]) / max(end for end in ends if end is not None)),
                )
            )
        elif ends:
            self.progress(len(self.record.get("flow_notes", ())) / len(ends))

    def progress(self, share: float) -> None:
        self.share = share
        self._progress(share, self.trouble)

    def show_trouble(self) -> None:
        if self.cut_off.line != self.trouble:
            self.trouble = self.cut_off.line
            self.journal(self.clock.now(), "cut-off", reason=self.trouble)
            self.progress(self.share)

    def end(self, outcome: str, reason: str) -> None:
        if self.outcome == "done":
            self.outcome, self.reason = outcome, reason

    def handle_note(self, rank: int, note: Note) -> None:
        self.due.rest = LONG_AGO
        kind = note.get("event")
        if kind == "step":
            step = int(note["step"])
            self.step_count += 1
            self.note_step_begin(step + 1 - self.work.warmup_steps, int(note["end_ps"]))
            self.progress(
                self.step_count / (len(self.hosts) * (self.work.steps + self.work.warmup_steps))
            )
        elif kind == "told" and "step" in note["note"]:
            phase, number, _, end, _, wrong = note["note"]["step"]
            self.step_count += 1
            self.record.setdefault("wrong", {})[str(rank)] = wrong
            if phase == len(self.phases) - 1 and rank in ranks_of(self.work.jobs)[0]:
                if number + 1 == self.work.warmup_steps and self.latest_step < 0:
                    # what the programs' start-up cost the agents is not the run's
                    for agent in self.ranked():
                        agent.call("lag", forget=True)
                self.note_step_begin(number + 1 - self.work.warmup_steps, round(end * S))
            self.progress(self.step_count / sum(len(ranks) * steps for ranks, steps in self.phases))
        elif kind == "cut-off":
            self.cut_off.hear(note)
        elif kind == "mapper":
            self.mapping.hear(note)
        elif kind == "flow":
            self.record.setdefault("flow_notes", []).append(
                {k: v for k, v in note.items() if k != "event"}
            )
        elif kind == "done":
            self.finished_ranks.add(rank)
            self.record.setdefault("wrong", {})[str(rank)] = int(note.get("wrong", 0))
        elif kind == "failed":
            self.journal(
                self.clock.now(), "failed", **{k: v for k, v in note.items() if k != "event"}
            )
            cut_off = f" ({self.cut_off.line})" if self.cut_off.line else ""
            self.end(
                "failed",
                f"rank {note.get('rank', rank)} lost rank {note.get('peer_rank')}: "
                f"{note.get('reason')}{cut_off}",
            )

    def note_step_begin(self, step: int, begin_ps: int) -> None:
        if self.latest_step < step < self.work.steps:
            self.latest_step = step
            self.timeline.measured_step_began(step, begin_ps)

    def check_controller(self, now: int) -> None:
        if self.cluster.controller_lost and not self.record.get("notes"):
            self.record["notes"] = [
                (
                    "the controller is gone: forwarding does not need it, but nobody watched the "
                    "links any more"
                )
            ]
            self.journal(now, "controller", phase="gone")

    def apply(self, now: int) -> None:
        due = min(
            [
                self.timeline.planned_ps(),
                *(t for t, *_ in (self.network.coming if self.network is not None else ())),
            ]
        )
        if due < now:
            self.record["acts_late_ps"] = max(self.record.get("acts_late_ps", 0), now - due)
        self.breaking.act(now)
        for dead in self.network.act(now) if self.network is not None else ():
            self.journal(self.clock.now(), "reconverged", dead_links=dead)

    # --- after ------------------------------------------------------------------------------------

    def raise_if_process_died(self) -> None:
        """Raise :class:`testbed.errors.ClusterDied` with the agent's name and the cause."""
        self.clock.sleep(self.clock.patience(0.2))  # until the kernel has reported its end
        self.cluster.check()

    def settle(self) -> None:
        """Count packets until the books balance, or no packet can still be on its way
        (:func:`drain_ps`). Then books may stay open."""
        self.record["dead_at_end"] = [
            link for link, up in self.cluster.link_states().items() if not up
        ]
        self.mapping.stop()  # the books do not count probes on their way
        self.background.end()  # nor packets that would still be sent
        for agent in self.ranked():
            with contextlib.suppress(AgentError, OSError):  # the count below reports it
                # else data of an unfinished run, and probes of dead paths, would always be on their
                # way
                agent.call("quiesce")
        deadline = self.clock.now() + drain_ps(self.fabric, self.cluster.faults())
        tries = BOOKS_TRIES
        while tries:
            self.cluster.quiesce(self.clock.patience(1.0))
            try:
                agents = {
                    str(host): dict(agent.call("counters"))
                    for host, agent in zip(self.hosts, self.ranked(), strict=True)
                }
            except (AgentError, OSError) as error:
                self.journal(self.clock.now(), "uncounted", reason=str(error))
                # if the scenario killed it, the run ends without an error
                if not self.breaking.killed_hosts:
                    self.raise_if_process_died()
                break
            agents = {host: counters.get("counters", counters) for host, counters in agents.items()}
            before, after = self.record["counters_before"], self.cluster.counters()
            packets = books(
                Counted(
                    kind=self.spec.transport.kind,
                    agent_counters=agents,
                    counters_before=before,
                    counters_after=after,
                )
            )
            self.record.update(agent_counters=agents, counters_after=after)
            if not packets.on_the_way:
                if balanced(packets):
                    break
                tries -= 1
            elif self.clock.now() >= deadline:
                break
            self.clock.sleep(self.clock.patience(BOOKS_WAIT_S))
        for agent in self.ranked():
            try:
                agent.call("stop")
            except (AgentError, OSError):
                # the agent died: the cluster's check reports it, and its log stays
                pass
        self.cluster.stop_agents()

    def announce(self) -> None:
        """Describe the run for whoever follows it (testbed.view)."""
        self.describe()
        with replacing(self.directory / BEGUN) as part:
            part.write_text(json.dumps(self.record), encoding="utf-8")

    def describe(self) -> None:
        spec, work = self.spec, self.work
        self.record.update(
            world=self.cluster.name,
            key=spec.key,
            transport=spec.transport.name,
            kind=spec.transport.kind,
            fabric=self.fabric.to_dict(),
            placement=spec.placement,
            settings=spec.settings,
            seed=spec.seed,
            ranks=self.hosts,
            workload=work.kind,
            message_bytes=work.message_bytes,
            dtype=work.dtype,
            steps=work.steps,
            warmup_steps=work.warmup_steps,
            settle_ps=work.settle_ps,
            flows=[asdict(flow) for flow in self.flows],
            queue_ports=self.queues,
            reconvergence_ps=spec.transport.reconvergence_ps,
            qps=spec.transport.qps,
            options=spec.transport.options,
            controller=spec.transport.controller,
            clustermapper=spec.transport.clustermapper.to_dict()
            if spec.transport.clustermapper
            else None,
            window=self.window,
        )

    def write(self) -> None:
        timeline = self.timeline
        self.describe()
        self.record.update(
            outcome=self.outcome, reason=self.reason, fault_links=timeline.all_links(),
            faults_missed=timeline.never_began() + timeline.absent,
        )  # fmt: skip
        if self.background.flows:
            self.record["background"] = self.background.records()
            self.record["notes"] = [*self.record.get("notes", []), *self.background.complaints()]
        try:
            with open(self.directory / "controller.jsonl", "w", encoding="utf-8") as file:
                file.writelines(
                    json.dumps(entry) + "\n"
                    for entry in self.cluster.controller_journal(self.created_ps)
                )
        finally:
            self.journal_file.close()
            self.port_log.close()
            if self.queue_file is not None:
                self.queue_file.close()
            # written last and at once: where run.json exists, the run is complete
            with replacing(self.directory / "run.json") as part:
                part.write_text(json.dumps(self.record), encoding="utf-8")
            (self.directory / BEGUN).unlink(missing_ok=True)
