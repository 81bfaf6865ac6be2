"""Reads the ``[workload]`` of a scenario: a collective in steps, or a pattern of flows, and who sends to whom.

Called by scenarios.schema.scenario to read it and by the runner to resolve it on a fabric. Pure: a fabric and a seed give the same flows
everywhere. docs/scenarios.md is the manual.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from agents.collectives.flows import parse, places
from agents.collectives.group import CollectiveError
from agents.collectives.registry import find
from scenarios.jobs.describe import Job, plan_of
from scenarios.jobs.plan import PlanError, rehearse
from testbed.units import Duration, Size, Span
from topologies import Fabric, FabricError
from topologies.structs import Doc, Refused, convert, join, one_of, text
from topologies.theory import COLLECTIVES, PLACEMENTS, collective_phases, place_ranks, ring_edges

PATTERNS = ("incast", "permutation", "flows")
DTYPES = ("float32", "int32")
SLOTS_PER_MESSAGE = 2
"""Slots of a receiver per message that its sender may have in flight (agents.collectives.flows)."""
SWAPS = 20
"""Random swaps per flow that mix a permutation [ours]."""


class WorkloadError(ValueError):
    """A workload that a fabric cannot carry. One line that begins with the key."""


@dataclass(frozen=True)
class NamedFlow:
    """One ``[[workload.flow]]``: hosts by name."""

    name: str
    src: str
    dst: str
    start_ns: int
    for_ns: int | None  # posts messages for this time,
    messages: int | None  # or this many messages
    evs: int = 0  # EVs per plane that its queue pairs may use; 0: all


@dataclass(frozen=True)
class Flow:
    """A flow between ranks; times from the run's t0."""

    name: str
    group: str  # whose figures are added up
    src: int
    dst: int
    start_ns: int
    for_ns: int | None
    messages: int | None
    evs: int = 0

    @property
    def end_ns(self) -> int | None:
        """When it posts its last message; None if it posts a number of messages."""
        return None if self.for_ns is None else self.start_ns + self.for_ns

    def for_agents(self) -> dict[str, Any]:
        """Return the flow as agents receive it."""
        fields = {k: v for k, v in asdict(self).items() if k not in ("group", "evs")}
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
    duration_ns: int | None = None
    messages: int | None = None  # of each flow
    senders: int = 0  # of an incast
    victim: bool = False
    victim_alone_ns: int = 0  # how long the victim runs before the incast begins
    settle_ns: int = 0  # of the duration, what figures leave out at its beginning
    flows: tuple[NamedFlow, ...] = ()
    # jobs
    jobs: tuple[Job, ...] = ()
    alone_steps: int = 0  # that each job makes before, while the others wait

    @property
    def is_pattern(self) -> bool:
        return self.kind in PATTERNS


# --- the table -----------------------------------------------------------------------------------------------------

Dtype = Annotated[str, one_of(DTYPES)]
Placement = Annotated[str, one_of(PLACEMENTS)]
Places = Annotated[list[Placement], Meta(min_length=1)] | Placement
PLACEMENT_DOC = Doc(
    "packed: ring neighbours under one T0; interleaved: every ring edge across the T1s", example='["packed", "interleaved"]'
)
Degree = Annotated[int, Meta(ge=1, le=1024)]
Messages = Annotated[int, Meta(ge=1, le=1 << 24)]


class _Flow(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[workload.flow]]``."""

    src: Annotated[str, Doc("host that sends", example='"h1"')]
    dst: Annotated[str, Doc("host that receives", example='"h5"')]
    name: Annotated[
        str, text("[^']{1,30}", "some 30 characters at most, without '"), Doc("its name in results", default="src-dst", example='"B"')
    ] = ""
    start: Annotated[Duration | None, Doc("network time after the first flow's begin", default="0")] = None
    for_: Annotated[Span | None, Doc("network time for which it posts messages", default="see messages")] = field(name="for", default=None)
    messages: Annotated[Messages | None, Doc("number of messages that it sends", default="see for", example="100")] = None
    evs: Annotated[int, Meta(ge=0, le=1024), Doc("EVs per plane that its queue pairs use; 0: all")] = 0

    def __post_init__(self) -> None:
        if (self.for_ is None) == (self.messages is None):
            raise Refused("", "needs either 'for' (like '800us') or 'messages' (how many)")

    def named(self) -> NamedFlow:
        return NamedFlow(self.name or f"{self.src}-{self.dst}", self.src, self.dst, self.start or 0, self.for_, self.messages, self.evs)


class _Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys that all kinds of ``[workload]`` have."""

    kind: Annotated[str, Doc("collective or pattern", example='"ring-allreduce"')]
    message_bytes: Annotated[Size, Doc("a collective's size as nccl-tests prints it; of each message of a pattern")]

    def __post_init__(self) -> None:
        if self.message_bytes % 4 or self.message_bytes < 4:
            raise Refused("message_bytes", f"= {self.message_bytes} must be a multiple of 4")

    def workload(self) -> Workload:
        raise NotImplementedError


class _Steps(_Table, frozen=True, kw_only=True):
    """A collective."""

    steps: Annotated[int, Meta(ge=1, le=1_000_000), Doc("measured steps; p50 in the data needs 20, p99 1000", example="20")]
    warmup_steps: Annotated[int, Meta(ge=0, le=1000), Doc("steps before the measured ones, in no figure")] = 1
    slices: Annotated[int, Meta(ge=1, le=64), Doc("pipelined parts of a chunk")] = 4
    placement: Annotated[Places, PLACEMENT_DOC] = "packed"
    dtype: Annotated[Dtype, Doc("type of an element")] = "float32"

    def workload(self) -> Workload:
        places = [self.placement] if isinstance(self.placement, str) else self.placement
        return Workload(self.kind, tuple(dict.fromkeys(places)), self.message_bytes, self.dtype, self.steps, self.warmup_steps, self.slices)


class _Pattern(_Table, frozen=True, kw_only=True):
    outstanding: Annotated[int, Meta(ge=1, le=256), Doc("messages that a sender has posted at once")] = 4


class _Flows(_Pattern, frozen=True, kw_only=True):
    flow: Annotated[list[_Flow], Doc("the flows, one table each")] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [flow.named().name for flow in self.flow]
        if not names:
            raise Refused("flow", 'is empty: add a [[workload.flow]] with src = "h0", dst = "h1", for = "400us"')
        if len(set(names)) < len(names):
            raise Refused("flow", f"names are not unique ({', '.join(names)}): give each its own name")

    def workload(self) -> Workload:
        flows = tuple(flow.named() for flow in self.flow)
        return Workload(self.kind, message_bytes=self.message_bytes, outstanding=self.outstanding, flows=flows)


class _Permutation(_Pattern, frozen=True, kw_only=True):
    duration: Annotated[Span | None, Doc("network time for which flows post messages", default="see messages", example='"800us"')] = None
    messages: Annotated[Messages | None, Doc("number of messages of each flow", default="see duration", example="100")] = None
    settle: Annotated[
        Duration | None, Doc("part of duration, at its beginning, that figures leave out", default="20 base RTTs", example='"8ms"')
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.duration is None) == (self.messages is None):
            raise Refused("", "needs either 'duration' (like '800us') or 'messages' (how many)")
        if self.settle and self.settle >= (self.duration or 0):
            raise Refused("settle", "must be shorter than 'duration': it is the part of it that figures leave out")

    def workload(self) -> Workload:
        return Workload(
            self.kind,
            message_bytes=self.message_bytes,
            outstanding=self.outstanding,
            duration_ns=self.duration,
            messages=self.messages,
            settle_ns=self.settle or 0,
        )


class _Incast(_Permutation, frozen=True, kw_only=True):
    senders: Annotated[int, Meta(ge=1, le=1 << 20), Doc("hosts that send to the target", example="7")]
    victim: Annotated[bool, Doc("one more flow, to a neighbour of the target")] = False
    victim_alone: Annotated[
        Duration | None, Doc("network time for which the victim flow runs before the others begin", default="0", example='"200us"')
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.victim_alone and not self.victim:
            raise Refused("victim_alone", "needs victim = true")
        if self.victim and self.duration is None:
            raise Refused("victim", "needs 'duration': nobody knows when the last of 'messages' arrives")

    def workload(self) -> Workload:
        return replace(super().workload(), senders=self.senders, victim=self.victim, victim_alone_ns=self.victim_alone or 0)


class _Job(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One ``[[workload.job]]``."""

    name: Annotated[str, text("[a-z][a-z0-9_]{0,30}", "small letters, digits or '_'"), Doc("its name in results", example='"a"')]
    ranks: Annotated[int, Meta(ge=2, le=1024), Doc("its ranks, on the hosts after those of the job before", example="8")]
    compute: Annotated[Duration, Doc("network time that a rank computes in a step, a third of it forward", example='"160us"')]
    gradient: Annotated[Size, Doc("gradients of a rank, all-reduced among data-parallel ranks in a call per layer")]
    tensor: Annotated[Degree, Doc("tensor parallel ranks")] = 1
    pipeline: Annotated[Degree, Doc("pipeline stages")] = 1
    expert: Annotated[Degree, Doc("expert parallel ranks")] = 1
    layers: Annotated[int, Meta(ge=1, le=256), Doc("layers of all stages together")] = 4
    microbatches: Annotated[int, Meta(ge=1, le=256), Doc("microbatches of a step")] = 1
    activation: Annotated[
        Size | None, Doc("of a microbatch: all-reduced among tensor parallel ranks, sent between stages", default="0", example='"128KiB"')
    ] = None
    experts: Annotated[Size | None, Doc("of a microbatch: all-to-all among expert parallel ranks", default="0", example='"128KiB"')] = None
    overlap: Annotated[bool, Doc("gradients are summed while earlier layers still compute")] = True

    def job(self) -> Job:
        return Job(
            self.name, self.ranks, self.compute, self.gradient, self.tensor, self.pipeline, self.expert, self.layers, self.microbatches,
            self.activation or 0, self.experts or 0, self.overlap,
        )  # fmt: skip


class _Jobs(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Training jobs, whose ranks are programs on the hosts."""

    kind: Annotated[str, Doc("collective or pattern", example='"job"')]
    job: Annotated[list[_Job], Meta(min_length=1), Doc("the jobs, one table each")]
    steps: Annotated[int, Meta(ge=1, le=100_000), Doc("measured steps", example="10")]
    warmup_steps: Annotated[int, Meta(ge=1, le=1000), Doc("steps before the measured ones; ranks begin together only then")] = 1
    alone_steps: Annotated[int, Meta(ge=0, le=1000), Doc("steps that each of several jobs runs alone first")] = 0
    placement: Annotated[Places, PLACEMENT_DOC] = "packed"

    def __post_init__(self) -> None:
        names = [job.name for job in self.job]
        if len(set(names)) < len(names):
            raise Refused("job", f"names are not unique ({', '.join(names)}): give each its own name")
        if self.alone_steps and len(names) == 1:
            raise Refused("alone_steps", "is for several jobs")

    def workload(self) -> Workload:
        places = [self.placement] if isinstance(self.placement, str) else self.placement
        jobs = tuple(job.job() for job in self.job)
        return Workload(
            self.kind, tuple(dict.fromkeys(places)), 0, steps=self.steps, warmup_steps=self.warmup_steps, jobs=jobs,
            alone_steps=self.alone_steps,
        )  # fmt: skip


TABLES: dict[str, type[_Table | _Jobs]] = {
    **dict.fromkeys(COLLECTIVES, _Steps), "incast": _Incast, "permutation": _Permutation, "flows": _Flows, "job": _Jobs,
}  # fmt: skip


class _Kind(Struct):
    kind: Annotated[str, one_of(TABLES)]


def read_workload(data: Any, where: str) -> Workload:
    """Read the ``[workload]`` table. Raises :class:`topologies.structs.Refused`."""
    kind = convert(data, _Kind, where).kind
    own_keys = TABLES[kind].__struct_encode_fields__
    all_keys = {key for table in TABLES.values() for key in table.__struct_encode_fields__}
    for key in data:
        if key in all_keys and key not in own_keys:
            raise Refused(join(where, key), f"is not for kind = {kind!r}, which has {', '.join(own_keys[2:])}")
    return convert(data, TABLES[kind], where).workload()


# --- on a fabric ---------------------------------------------------------------------------------------------------


def check_fits(work: Workload, fabric: Fabric, seeds: Sequence[int]) -> None:
    """Raise :class:`WorkloadError` or :class:`topologies.FabricError` if the fabric, or the memory of an agent, cannot carry it."""
    if work.jobs:
        try:
            rehearse(plan_of(work.jobs, fabric.host_count, fabric.dilation), lambda node: 1.0)
        except PlanError as error:
            raise WorkloadError(f"workload.job : {error}") from None
        return
    size = work.message_bytes
    if work.is_pattern:
        for seed in seeds:
            flows = resolve_flows(work, fabric, place_ranks(fabric, "packed"), seed)
            flow_list = parse([flow.for_agents() for flow in flows], fabric.host_count)
            try:
                for rank in range(fabric.host_count):
                    places(flow_list, rank, size, SLOTS_PER_MESSAGE * work.outstanding)
            except CollectiveError as error:
                raise WorkloadError(f"workload.message_bytes = {size} : {error}") from None
        return
    for placement in work.placement:
        try:
            place_ranks(fabric, placement)
        except FabricError as error:
            raise WorkloadError(f"workload.placement : {error}") from None
    try:
        find(work.kind).check(fabric.host_count, work.slices, size, work.dtype, work.steps, work.warmup_steps)
    except CollectiveError as error:
        raise WorkloadError(f"workload.{error}" if str(error).startswith("message_bytes") else f"workload.kind : {error}") from None


def resolve_flows(work: Workload, fabric: Fabric, hosts: Sequence[int], seed: int) -> list[Flow]:
    """Return the flows of a pattern between ranks (``hosts`` in rank order); [] for a collective. Raises :class:`WorkloadError`."""
    if work.jobs:
        return []
    if work.kind == "incast":
        flows = _incast(work, fabric)
    elif work.kind == "permutation":
        receivers = _permutation(fabric, seed)
        flows = [Flow(f"h{a}-h{b}", "permutation", a, b, 0, work.duration_ns, work.messages) for a, b in enumerate(receivers)]
    else:
        flows = [_between(f, fabric, f"workload.flow[{i}]") for i, f in enumerate(work.flows)]
    rank_of = {host: rank for rank, host in enumerate(hosts)}
    return [Flow(**{**asdict(f), "src": rank_of[f.src], "dst": rank_of[f.dst]}) for f in flows]


def _between(flow: NamedFlow, fabric: Fabric, where: str) -> Flow:
    try:
        src, dst = fabric.host_number(flow.src), fabric.host_number(flow.dst)
    except FabricError as error:
        raise WorkloadError(f"{where} : {error}") from None
    if src == dst:
        raise WorkloadError(f"{where} : {flow.src} cannot send to itself")
    return Flow(flow.name, "flows", src, dst, flow.start_ns, flow.for_ns, flow.messages, flow.evs)


def _incast(work: Workload, fabric: Fabric) -> list[Flow]:
    """Return the flows of an incast. Roles [ours]: the target is the first host under the last T0; senders are first hosts under other T0s,
    then neighbours of the target.

    The victim flow goes from a host under another T0 that sends no incast to a neighbour of the target: it shares T0s, T1s and
    every path's switches with the incast, but not its last hop.
    """
    target = (fabric.t0_per_plane - 1) * fabric.hosts_per_t0
    far, near = list(range(target)), list(range(target + 1, fabric.host_count))
    if work.victim and (not near or work.senders >= len(far)):
        raise WorkloadError(
            f"workload.senders = {work.senders}: a victim needs a host under another T0 that sends no incast, and a neighbour of the "
            f"target; fabric {fabric.name!r} has {len(far)} hosts under other T0s and {len(near)} neighbours"
        )
    if work.senders > len(far) + len(near):
        raise WorkloadError(f"workload.senders = {work.senders}: fabric {fabric.name!r} has {len(far) + len(near)} hosts beside the target")
    start_ns = work.victim_alone_ns
    flows = [Flow(f"h{h}-h{target}", "incast", h, target, start_ns, work.duration_ns, work.messages) for h in (far + near)[: work.senders]]
    if work.victim:
        assert work.duration_ns is not None
        flows.append(Flow("victim", "victim", far[work.senders], near[0], 0, start_ns + work.duration_ns, None))
    return flows


def _permutation(fabric: Fabric, seed: int) -> list[int]:
    """Draw by the seed: host -> the host that it sends to, never itself and, with several T0s, never one under the same T0."""
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


def edges_of(work: Workload, fabric: Fabric, hosts: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """Return (sender rank, receiver rank) of every pair that has a queue pair, ring neighbours in rank order first."""
    if work.is_pattern:
        return list(dict.fromkeys((f.src, f.dst) for f in resolve_flows(work, fabric, hosts, seed)))
    ranks = range(len(hosts))
    if work.jobs:
        return ring_edges(ranks)
    pairs = dict.fromkeys(pair for phase in collective_phases(work.kind, ranks) for pair in phase.traffic)
    return [pair for pair in ring_edges(ranks) if pair in pairs] + [pair for pair in pairs if pair not in set(ring_edges(ranks))]


def watched_ports(flows: Sequence[Flow], fabric: Fabric, hosts: Sequence[int]) -> dict[str, str]:
    """Return last-hop switch port -> group, for queues to sample: those of an incast's target and of its victim's destination."""
    groups = {hosts[f.dst]: f.group for f in flows if f.group in ("incast", "victim")}
    return {
        link.b.name: groups[host] for host in sorted(groups) for link in fabric.links if link.kind == "nic" and link.a.node == f"h{host}"
    }
