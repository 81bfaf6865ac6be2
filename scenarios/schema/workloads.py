"""A scenario's workload: a collective in steps, a pattern of flows, or jobs; and on a fabric, who
sends to whom.

A fabric and a seed give the same flows everywhere.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agents.collectives.flows import FlowTable, check_room, parse, share
from agents.collectives.group import CollectiveError
from agents.collectives.registry import find
from scenarios.jobs.describe import Job, plan_of
from scenarios.jobs.plan import PlanError, rehearse
from topologies import Fabric, FabricError
from topologies.theory import collective_phases, place_ranks, ring_edges

PATTERNS = ("incast", "permutation", "flows")
DTYPES = ("float32", "int32")
SLOTS_PER_MESSAGE = 2  # per message in flight, of a receiver (agents.collectives.flows)
MOST_QPS = 1 << 18  # of a collective on all hosts: an all-to-all of 512 has as many [ours]
SWAPS = 20  # per flow, which mix a permutation [ours]


class WorkloadError(ValueError):
    """A fabric cannot carry a workload. The text is one line that begins with the key."""


@dataclass(frozen=True)
class NamedFlow:
    name: str
    src: str
    dst: str
    start_ps: int
    for_ps: int | None  # posts messages for this time,
    messages: int | None  # or this many messages
    evs: int = 0  # EVs per plane that its queue pairs may use; 0: all


@dataclass(frozen=True)
class Flow:
    """A flow between ranks; times from the run's t0."""

    name: str
    group: str  # whose figures are added up
    src: int
    dst: int
    start_ps: int
    for_ps: int | None
    messages: int | None
    evs: int = 0

    @property
    def end_ps(self) -> int | None:
        """When it posts its last message, if it has an end."""
        return None if self.for_ps is None else self.start_ps + self.for_ps

    def for_agents(self) -> FlowTable:
        fields: FlowTable = {
            "name": self.name, "src": self.src, "dst": self.dst, "start_ps": self.start_ps,
            "for_ps": self.for_ps, "messages": self.messages,
        }  # fmt: skip
        return {**fields, "evs": self.evs} if self.evs else fields


@dataclass(frozen=True)
class Workload:
    kind: str = "ring-allreduce"
    placement: tuple[str, ...] = ("packed",)
    message_bytes: int = 1 << 20  # as nccl-tests' "size"; of each message of a pattern
    # collectives
    dtype: str = "float32"
    steps: int = 0  # measured ones
    warmup_steps: int = 0
    slices: int = 4  # pipelined parts of each chunk
    # patterns
    outstanding: int = 4  # messages that a sender has posted at once
    duration_ps: int | None = None
    messages: int | None = None  # of each flow
    senders: int = 0  # of an incast
    stagger_ps: int = 0  # from one sender's begin to the next one's
    victim: bool = False
    victim_alone_ps: int = 0  # how long the victim runs before the incast begins
    settle_ps: int = 0  # of the duration, what figures leave out at its beginning
    flows: tuple[NamedFlow, ...] = ()
    # jobs
    jobs: tuple[Job, ...] = ()
    alone_steps: int = 0  # that each job makes before, while the others wait

    @property
    def lasts_ps(self) -> int:
        return (
            self.victim_alone_ps
            + max(0, self.senders - 1) * self.stagger_ps
            + (self.duration_ps or 0)
        )

    @property
    def is_pattern(self) -> bool:
        return self.kind in PATTERNS


# --- on a fabric ----------------------------------------------------------------------------------


def most_senders(work: Workload, fabric: Fabric, seed: int) -> int:
    """Count the most hosts that send to one, also at different times; 0 where only a run can
    tell."""
    if work.jobs:
        return 0
    ranks = place_ranks(fabric, work.placement[0])
    if work.is_pattern:
        return max(
            Counter(flow.dst for flow in resolve_flows(work, fabric, ranks, seed)).values(),
            default=0,
        )
    peers = find(work.kind).peers
    n = len(ranks)
    return max(
        sum(rank in peers(n, other) for other in range(n) if other != rank) for rank in (0, n - 1)
    )


def check_fits(work: Workload, fabric: Fabric, seeds: Sequence[int], qps: int = 1) -> None:
    """``qps``: per pair of ranks. Raises :class:`WorkloadError` or :class:`topologies.FabricError`
    for what the fabric or an agent's memory cannot carry."""
    if work.jobs:
        try:
            rehearse(plan_of(work.jobs, fabric.host_count), lambda node: 1.0)
        except PlanError as error:
            raise WorkloadError(f"workload.job : {error}") from None
        return
    size = work.message_bytes
    if work.is_pattern:
        for seed in seeds:
            flows = resolve_flows(work, fabric, place_ranks(fabric, "packed"), seed)
            flow_list = parse([flow.for_agents() for flow in flows], fabric.host_count)
            try:
                for rank, own in enumerate(share(flow_list, fabric.host_count)):
                    check_room(own, rank, size, SLOTS_PER_MESSAGE * work.outstanding)
            except CollectiveError as error:
                raise WorkloadError(f"workload.message_bytes = {size} : {error}") from None
        return
    for placement in work.placement:
        try:
            place_ranks(fabric, placement)
            if fabric.sites > 1 and work.kind == "hierarchical-allreduce" and placement != "packed":
                raise FabricError(
                    f"{placement!r} mixes the sites, whose hosts are the halves of {work.kind}: "
                    "use 'packed'"
                )
        except FabricError as error:
            raise WorkloadError(f"workload.placement : {error}") from None
    try:
        find(work.kind).check(
            fabric.host_count, work.slices, size, work.dtype, work.steps, work.warmup_steps
        )
    except CollectiveError as error:
        raise WorkloadError(
            f"workload.{error}"
            if str(error).startswith("message_bytes")
            else f"workload.kind : {error}"
        ) from None
    total = fabric.host_count * len(find(work.kind).peers(fabric.host_count, 0)) * qps
    if total > MOST_QPS:
        raise WorkloadError(
            f"workload.kind : {work.kind} on {fabric.host_count} hosts with qps = {qps}: "
            f"{total:,} queue pairs of {MOST_QPS:,}"
        )


def resolve_flows(work: Workload, fabric: Fabric, hosts: Sequence[int], seed: int) -> list[Flow]:
    """Return a pattern's flows between ranks (``hosts`` in rank order), else []. Raises
    :class:`WorkloadError`."""
    if work.jobs:
        return []
    if work.kind == "incast":
        flows = _incast(work, fabric)
    elif work.kind == "permutation":
        receivers = _permutation(fabric, seed)
        flows = [
            Flow(f"h{a}-h{b}", "permutation", a, b, 0, work.duration_ps, work.messages)
            for a, b in enumerate(receivers)
        ]
    else:
        flows = [_between(f, fabric, f"workload.flow[{i}]") for i, f in enumerate(work.flows)]
    rank_of = {host: rank for rank, host in enumerate(hosts)}
    return [Flow(**{**asdict(f), "src": rank_of[f.src], "dst": rank_of[f.dst]}) for f in flows]


def _between(flow: NamedFlow, fabric: Fabric, where: str) -> Flow:
    ends = []
    for key, host in (("src", flow.src), ("dst", flow.dst)):
        try:
            ends.append(fabric.host_number(host))
        except FabricError as error:
            raise WorkloadError(f"{where} : {error} ({key})") from None
    src, dst = ends
    if src == dst:
        raise WorkloadError(f"{where} : {flow.src} cannot send to itself")
    return Flow(flow.name, "flows", src, dst, flow.start_ps, flow.for_ps, flow.messages, flow.evs)


def _incast(work: Workload, fabric: Fabric) -> list[Flow]:
    """Choose the roles [ours]. The target is the first host under the last T0; senders are first
    hosts under other T0s, then neighbours of the target. The victim flow goes from a host under
    another T0 that sends no incast to a neighbour of the target: it shares T0s, T1s and every
    path's switches with the incast, but not its last hop."""
    target = (fabric.t0_per_plane - 1) * fabric.hosts_per_t0
    far, near = list(range(target)), list(range(target + 1, fabric.host_count))
    if work.victim and (not near or work.senders >= len(far)):
        raise WorkloadError(
            f"workload.senders = {work.senders}: a victim needs a host under another T0 that "
            f"sends no incast, and a neighbour of the target; fabric {fabric.name!r} has "
            f"{len(far)} hosts under other T0s and {len(near)} neighbours"
        )
    if work.senders > len(far) + len(near):
        raise WorkloadError(
            f"workload.senders = {work.senders}: fabric {fabric.name!r} has "
            f"{len(far) + len(near)} hosts beside the target"
        )
    start_ps, late_ps = work.victim_alone_ps, (work.senders - 1) * work.stagger_ps
    flows = []
    for i, h in enumerate((far + near)[: work.senders]):
        after_ps = i * work.stagger_ps
        for_ps = None if work.duration_ps is None else work.duration_ps + late_ps - after_ps
        flows.append(
            Flow(f"h{h}-h{target}", "incast", h, target, start_ps + after_ps, for_ps, work.messages)
        )
    if work.victim:
        assert work.duration_ps is not None
        flows.append(
            Flow(
                "victim",
                "victim",
                far[work.senders],
                near[0],
                0,
                start_ps + late_ps + work.duration_ps,
                None,
            )
        )
    return flows


def _permutation(fabric: Fabric, seed: int) -> list[int]:
    """Draw: host -> the host that it sends to, never itself and, with several T0s, never one under
    the same T0."""
    n, rng = fabric.host_count, random.Random(seed)
    shift = fabric.hosts_per_t0 if fabric.t0_per_plane > 1 else 1
    receivers = [(h + shift) % n for h in range(n)]

    def allowed(a: int, b: int) -> bool:
        return fabric.t0_of(a) != fabric.t0_of(b) if fabric.t0_per_plane > 1 else a != b

    for _ in range(SWAPS * n):
        a, b = rng.randrange(n), rng.randrange(n)
        if a != b and allowed(a, receivers[b]) and allowed(b, receivers[a]):
            receivers[a], receivers[b] = receivers[b], receivers[a]
    return receivers


def edges_of(
    work: Workload, fabric: Fabric, hosts: Sequence[int], seed: int
) -> list[tuple[int, int]]:
    """Return (sender rank, receiver rank), ring neighbours in rank order first."""
    if work.is_pattern:
        return list(dict.fromkeys((f.src, f.dst) for f in resolve_flows(work, fabric, hosts, seed)))
    ranks = range(len(hosts))
    if work.jobs:
        return ring_edges(ranks)
    pairs = dict.fromkeys(
        pair for phase in collective_phases(work.kind, ranks) for pair in phase.traffic
    )
    ring = dict.fromkeys(ring_edges(ranks))
    return [pair for pair in ring if pair in pairs] + [pair for pair in pairs if pair not in ring]


def watched_ports(flows: Sequence[Flow], fabric: Fabric, hosts: Sequence[int]) -> dict[str, str]:
    """Return last-hop port -> group: those of an incast's target and of its victim's
    destination."""
    groups = {hosts[f.dst]: f.group for f in flows if f.group in ("incast", "victim")}
    return {
        link.b.name: groups[host]
        for host in sorted(groups)
        for link in fabric.links
        if link.kind == "nic" and link.a.node == f"h{host}"
    }
