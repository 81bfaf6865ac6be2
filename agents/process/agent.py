"""Does a host's work, however its packets and messages are carried: collectives and flows over one
device, their log, and its answers. No socket, file or clock of its own."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from mypy_extensions import mypyc_attr

from agents.collectives.base import Collective
from agents.collectives.flows import Flow, Flows, FlowTable, Slots, bundles_for, parse
from agents.collectives.group import MOST_KEPT, CollectiveError, Group, LostError, SetUp
from agents.collectives.registry import FLOWS, find
from agents.process.calls import MOST_TOLD, Calls
from agents.process.control import Answer, Message
from agents.process.flow_log import FlowLog, PathLog
from agents.transport import Completion, Note, PathRow, Remote, Reports
from agents.verbs.faults import Rule
from agents.verbs.server import Server
from topologies.clos import Fabric
from topologies.denylist import check_entry

_ENCODER = msgspec.json.Encoder()
BIN_RTTS = 2


_NOT_ARGUMENTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""Exceptions that wrong arguments raise: they become an answer."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Agent:
    """``log`` takes a line, ``notify`` a notification; ``clock`` gives ps."""

    def __init__(
        self,
        fabric: Fabric,
        number: int,
        device: Any,
        log: Callable[[bytes], Any],
        notify: Callable[[Note], None],
        clock: Callable[[], int],
    ) -> None:
        self.fabric = fabric
        self.number = number
        self.name = f"h{number}"
        self.device = device
        self.engine: Reports = device.engine
        self.log, self.notify, self.clock = log, notify, clock
        self.groups: list[Group] = []  # all that are connected and sound; the last one is in use
        self.slices = 1
        self.flows: list[Flow] = []
        self.job: Collective | Flows | None = None
        self.prepared: tuple[tuple[Any, ...], Collective] | None = None
        self.flow_log: FlowLog | None = None
        self.path_log = PathLog(self.engine, self.write)  # of whatever is no flow
        self.accounted: dict[int, int] = {}  # payload bytes by QPN that earlier flows account for
        self.pending: list[Completion] = []  # what peers sent before we began
        self.running = True
        self.bin_ps = BIN_RTTS * fabric.base_rtt_ps
        self.bin_end = self._bin_after(clock())
        self.last_tx = [0] * fabric.planes
        self.last_rx = [0] * fabric.planes
        self.denied: list[str] = []
        # hosts that the job sends to, and that the denylist leaves no path to
        self.cut_off: list[int] = []
        self.asking: Any = None  # whose request is being answered
        self.calls = Calls(device, clock, self.share_memory, self.notify_program)
        self.verbs: Server | None = None  # where programs may use RDMA verbs
        self.reports = False  # whether the mapper's counts are sent as notifications

    def share_memory(self, size: int) -> tuple[Any, int]:
        """Returns the memory and its descriptor, -1 in this process."""
        return mmap.mmap(-1, size), -1  # which commits only what is touched

    def flow_slots(self) -> Slots | None:
        """Return an arena for flows that keeps nothing, or None: a real network's packets have to
        be somewhere."""
        return None

    def notify_program(self, owner: Any, note: Note) -> None:
        self.notify(note)

    # --- log --------------------------------------------------------------------------------------

    def write(self, t: int, kind: str, fields: Mapping[str, object]) -> None:
        self.log(_ENCODER.encode({"t": t, "kind": kind, "host": self.number, **fields}) + b"\n")

    def record(self, now: int) -> None:
        for t, kind, fields in self.device.events():
            self.write(t, kind, fields)
            if self.verbs is not None and kind == "qp" and fields["state"] == "ERROR":
                self.verbs.failed(t, fields["qpn"])
        if now >= self.bin_end:
            tx, rx = self.engine.goodput()
            if tx != self.last_tx or rx != self.last_rx:
                self.write(
                    self.bin_end - self.bin_ps,
                    "goodput",
                    {
                        "bin_ps": self.bin_ps,
                        "tx": [a - b for a, b in zip(tx, self.last_tx, strict=True)],
                        "rx": [a - b for a, b in zip(rx, self.last_rx, strict=True)],
                    },
                )
                self.last_tx, self.last_rx = tx, rx
            if self.verbs is not None:
                for row in self.verbs.done():
                    self.write(self.bin_end - self.bin_ps, "verbs", {"bin_ps": self.bin_ps, **row})
            log: PathLog = self.path_log if self.flow_log is None else self.flow_log
            log.bin(self.bin_end - self.bin_ps, self.bin_ps)
            self.bin_end = self._bin_after(now)

    def _bin_after(self, now: int) -> int:
        """Bins are aligned to the clock that all agents share: they add up across hosts."""
        return (now // self.bin_ps + 1) * self.bin_ps

    # --- what it answers --------------------------------------------------------------------------

    def answer(self, request: Message) -> Answer:
        """Returns ``{"id", "ok": ...}``, or ``{"id", "error": "one line"}``."""
        op = str(request.pop("op", ""))
        number = request.pop("id", 0)
        handler = getattr(self, f"op_{op}", None)
        try:
            if handler is None:
                raise CollectiveError(f"agent {self.name} knows no request {op!r}")
            return {"id": number, "ok": handler(**request)}
        except LostError as lost:
            return {
                "id": number,
                "error": f"{self.name}: {op}: {lost}",
                "rank": lost.rank,
                "lost": lost.host,
            }
        except _NOT_ARGUMENTS as error:
            return {"id": number, "error": f"{self.name}: {op}: {error}"}

    def op_setup(
        self,
        collective: str,
        ranks: list[int],
        rank: int,
        qps: int = 1,
        slices: int = 4,
        flows: list[FlowTable] | None = None,
    ) -> SetUp:
        if self.job is not None:
            raise CollectiveError("a collective is running")
        self.slices = slices
        slots: Slots | None = None
        if collective == FLOWS:
            self.flows = parse(flows, len(ranks))
            needed = bundles_for(self.flows, rank)
            slots = self.flow_slots()
        else:
            needed = find(collective).wanted(len(ranks), rank)
        self._end_flow_log()
        # bytes from now on belong to the next flows, even before these are started here
        self.accounted = dict(self.engine.placed())
        before = self.groups[-1] if self.groups else None
        self.groups = [g for g in self.groups if g.connected]
        group = next(
            (g for g in self.groups if g.is_for(ranks, rank, needed, qps, slots is not None)), None
        )
        standing = group is not None
        if group is None:
            group = Group(self.device, ranks, rank, needed, qps, self.clock, slots=slots)
        else:
            self.groups.remove(group)
        self.groups.append(group)
        if group is not before:
            self.pending = []  # of other queue pairs
        return {"qps": group.local, "connected": standing}

    def op_connect(self, remotes: dict[str, list[Remote]]) -> None:
        if not self.groups:
            raise CollectiveError("setup comes before connect")
        self.groups[-1].connect(remotes)

    def op_prepare(
        self,
        collective: str,
        message_bytes: int,
        dtype: str = "int32",
        steps: int = 1,
        warmup: int = 0,
        seed: int = 0,
    ) -> None:
        """Draw inputs and expected results for an :meth:`op_start` with the same arguments.
        Meanwhile, for hundreds of milliseconds, this agent answers nobody."""
        if not self.groups or self.job is not None:
            raise CollectiveError("prepare comes after setup and connect, before start")
        arguments = (collective, message_bytes, dtype, steps, warmup, seed)
        self.prepared = (
            arguments,
            find(collective)(
                self.groups[-1], self.slices, message_bytes, dtype, steps, warmup, seed
            ),
        )

    def op_start(
        self,
        collective: str,
        message_bytes: int,
        seed: int = 0,
        flows: list[FlowTable] | None = None,
        outstanding: int = 4,
        at: int | None = None,
        **more: Any,
    ) -> None:
        """Only flows take ``flows`` (other ones than those set up), ``outstanding`` (messages of
        each at once) and ``at`` (ps; None: now). Only collectives take ``more``: see
        :meth:`_collective`."""
        if not self.groups or not self.groups[-1].connected:
            raise CollectiveError("setup and connect come before start")
        if self.job is not None:
            raise CollectiveError("a collective is running already")
        job: Collective | Flows
        flow_log = None
        if collective == FLOWS:
            group = self.groups[-1]
            job = Flows(
                group,
                parse(flows, group.n) if flows else self.flows,
                message_bytes,
                outstanding,
                seed,
                at,
            )
            flow_log = FlowLog(self.engine, job, self.write, self.accounted)
        else:
            job = self._collective(collective, message_bytes, seed, **more)
        self._end_flow_log()
        job.begin()
        self.flow_log = flow_log
        self.job = job
        self.cut_off = []
        self._look_for_cut_off()
        pending, self.pending = self.pending, []
        job.completed(pending)

    def _collective(
        self,
        name: str,
        message_bytes: int,
        seed: int,
        dtype: str = "int32",
        steps: int = 1,
        warmup: int = 0,
    ) -> Collective:
        prepared, self.prepared = self.prepared, None
        if (
            prepared is not None
            and prepared[0] == (name, message_bytes, dtype, steps, warmup, seed)
            and prepared[1].group is self.groups[-1]
        ):
            return prepared[1]
        return find(name)(self.groups[-1], self.slices, message_bytes, dtype, steps, warmup, seed)

    def op_abort(self) -> None:
        """The next set-up makes new queue pairs; the old ones finish what is in flight."""
        self.job = None
        self.prepared = None
        self._end_flow_log()
        self.groups = []
        self.pending = []

    def _end_flow_log(self) -> None:
        if self.flow_log is not None:
            self.flow_log.bin(self.bin_end - self.bin_ps, self.bin_ps)
            self.accounted = dict(self.engine.placed())
            self.path_log = PathLog(self.engine, self.write)
        self.flow_log = None

    def op_counters(self) -> dict[str, int]:
        return dict(self.device.counters())

    def op_lag(self, forget: bool = False) -> dict[str, int]:
        """Return how late this agent was since the last job's warm-up, or since it was last asked
        to ``forget``."""
        lag = dict(self.device.lag())
        if forget:
            self.device.forget_lag()
        return lag

    def op_verbs(self) -> list[dict[str, int]]:
        return [] if self.verbs is None else self.verbs.table()

    def op_verbs_fault(self, number: int, rule: dict[str, Any] | None) -> int:
        if self.verbs is None:
            raise CollectiveError("this transport has no RDMA verbs: use mrc or roce")
        now = self.clock()
        if rule is not None:
            self.verbs.begin(number, Rule(**rule))
            self.write(now, "verbs-fault", {"number": number, "phase": "begin", **rule})
        elif (hits := self.verbs.end(number)) >= 0:
            self.write(now, "verbs-fault", {"number": number, "phase": "heal", "hits": hits})
        return now

    def op_paths(self) -> list[PathRow]:
        return list(self.engine.paths())

    def op_reroute(self, dead_links: list[str]) -> None:
        self.engine.reroute(self.clock(), dead_links)

    def op_quiesce(self) -> None:
        self.engine.quiesce()

    def op_mapper_start(
        self, seed: int, options: dict[str, object] | None = None, report: bool = True
    ) -> None:
        """``report``: counts go as notifications to the client that steers this agent."""
        self.reports = report
        self.device.start_mapper(options or {}, seed)

    def op_mapper_stop(self) -> None:
        """Reports the last counts before the answer: the next mapper may run afterwards."""
        self.device.stop_mapper()
        self._report()

    def op_mapper(self) -> dict[str, object]:
        return {} if self.device.mapper is None else dict(self.device.mapper.table())

    def op_deny(self, entries: list[str]) -> int:
        """Returns the time at which the complete denylist took effect."""
        entries = [check_entry(self.fabric, entry) for entry in entries]
        now = self.clock()
        self.engine.deny(now, entries)
        self.denied = entries
        self.write(now, "deny", {"entries": entries})
        self._look_for_cut_off()
        return now

    def _look_for_cut_off(self) -> None:
        if self.job is None or not (self.denied or self.cut_off):
            return
        group = self.job.group
        rows = [row for row in self.engine.paths() if row.get("qpn") in group.bundle_of]
        reached = {row["peer"] for row in rows if row.get("state") != "DENIED"}
        cut_off = sorted({row["peer"] for row in rows} - reached)
        if cut_off != self.cut_off:
            self.cut_off = cut_off
            self.notify(
                {"event": "cut-off", "rank": group.rank, "peers": cut_off, "entries": self.denied}
            )

    def op_denied(self) -> list[str]:
        return self.denied

    def op_hint(self, links: list[str]) -> int:
        """Returns the time at which the engine got the list of dead links."""
        links = [self.fabric.link(link).name for link in links]
        now = self.clock()
        self.engine.hint(now, links)
        self.write(now, "hint", {"links": links})
        return now

    def op_program(self, size: int) -> dict[str, int]:
        self.calls.owner = self.asking
        return self.calls.memory_of(size)

    def op_group(
        self, group: str, ranks: list[int], rank: int, qps: int = 1, slices: int = 4
    ) -> dict[str, dict[str, list[Remote]]]:
        return self.calls.group(group, ranks, rank, qps, slices)

    def op_join(self, group: str, remotes: dict[str, list[Remote]]) -> None:
        self.calls.join(group, remotes)

    def op_call(self, group: str, call: int, name: str, dtype: str, size: int, **more: Any) -> None:
        """Call a collective; a notification with its number ends it."""
        self.calls.usable(group).call(call, name, dtype, size, **more)

    def op_send(self, group: str, call: int, peer: int, offset: int, size: int) -> None:
        self.calls.usable(group).send(call, peer, offset, size)

    def op_recv(
        self, group: str, call: int, peer: int, offset: int, size: int, at_most: bool = False
    ) -> None:
        self.calls.usable(group).recv(call, peer, offset, size, at_most)

    def op_tell(self, note: dict[str, object]) -> None:
        now = self.clock()
        told = json.dumps(note, separators=(",", ":")).encode()
        self.calls.told_bytes += len(told)
        if self.calls.told_bytes > MOST_TOLD:
            raise CollectiveError(f"a program may tell {MOST_TOLD} bytes: tell less")
        # a program may write numbers and letters that the encoder writes otherwise
        self.write(now, "told", {"note": msgspec.Raw(told)})
        self.notify({"event": "told", "host": self.number, "t_ps": now, "note": note})

    def op_lose(self, host: int, reason: str, steps: dict[str, int]) -> None:
        self.calls.lose(host, reason, steps)

    def op_steps(self) -> dict[str, int]:
        return self.calls.steps()

    def op_stop(self) -> dict[str, int]:
        self.running = False
        return dict(self.device.counters())

    # --- as time goes by --------------------------------------------------------------------------

    def advance(self) -> None:
        self._report()
        completions = self.engine.completions()
        if self.verbs is not None:
            completions = self.verbs.take(completions)
            self.verbs.advance()
        if self.calls.channels:
            completions = self.calls.take(completions)
            self.calls.advance()
        if completions:
            completions = self.groups[-1].take(completions) if self.groups else []
        job = self.job
        if job is None:
            self.pending += completions[: MOST_KEPT - len(self.pending)]  # a peer has begun earlier
            return
        if completions:
            job.completed(completions)
        job.idle()
        for t, kind, fields in job.logged:
            self.write(t, kind, fields)
        job.logged.clear()
        for note in job.notes:
            self.notify(note)
        job.notes.clear()
        if job.warm:
            job.warm = False
            self.device.forget_lag()  # lateness of the start-up does not belong to the run
        if job.failure is not None:
            failure: Note = {"rank": job.group.rank, **job.failure}
            self.write(self.clock(), "failed", failure)
            self.notify({"event": "failed", **failure})
            self.job = None
        elif job.finished:
            self.notify(job.done())
            self.pending.extend(job.leftover)
            self.job = None

    def _report(self) -> None:
        if self.reports:
            for note in self.device.mapper_reports():
                self.notify(note)

    def wake_at(self, now: int) -> int:
        if self.verbs is not None and self.verbs.awake:
            return now
        due = min(self.bin_end, self.calls.deadline())
        if self.verbs is not None:
            due = min(due, self.verbs.due())
        due = max(now, due)
        return due if self.job is None else min(due, self.job.deadline())

    def write_final_log(self, cpu_ns: int) -> None:
        now = self.clock()
        self.record(self.bin_end)  # the bin that is not over yet, under its own time
        if rotation := self.engine.rotation():
            self.write(now, "rotation", rotation)
        self.write(now, "counters", self.device.counters())
        self.write(now, "loop", {**self.device.lag(), "cpu_ns": cpu_ns})
