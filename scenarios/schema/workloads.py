"""What a scenario's ``[workload]`` says: a collective in steps, or a pattern of flows, and who sends to whom.

Called by scenarios.schema.scenario to read it and by the runner to resolve it on a fabric. Pure: a fabric and a seed give the same flows
everywhere. docs/scenarios.md is the manual.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.collectives.flows import parse, places
from agents.collectives.group import CollectiveError
from agents.collectives.registry import find
from scenarios.schema.values import Values, parse_duration, parse_size
from topologies import Fabric, FabricError
from topologies.theory import COLLECTIVES, PLACEMENTS, collective_phases, place_ranks, ring_edges

PATTERNS = ("incast", "permutation", "flows")
DTYPES = ("float32", "int32")
_STEPPED = ("placement", "dtype", "steps", "warmup_steps", "slices")
_ENDING = ("duration", "messages", "outstanding")
_KEYS = {
    **dict.fromkeys(COLLECTIVES, _STEPPED),
    "incast": ("senders", "victim", "victim_alone", *_ENDING),
    "permutation": _ENDING,
    "flows": ("flow", "outstanding"),
}
_FLOW_KEYS = ("name", "src", "dst", "start", "for", "messages", "evs")
SLOTS_PER_MESSAGE = 2
"""Slots that a receiver has per message that its sender may have in flight (agents.collectives.flows)."""
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
    for_ns: int | None  # posts messages for so long,
    messages: int | None  # or so many of them
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
        """When it posts its last message; None if it counts them."""
        return None if self.for_ns is None else self.start_ns + self.for_ns

    def for_agents(self) -> dict[str, Any]:
        """What agents are told."""
        told = {k: v for k, v in asdict(self).items() if k not in ("group", "evs")}
        return {**told, "evs": self.evs} if self.evs else told


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
    flows: tuple[NamedFlow, ...] = ()

    @property
    def is_pattern(self) -> bool:
        return self.kind in PATTERNS


def read_workload(values: Values, data: Any) -> Workload:
    """The ``[workload]`` table. Raises :class:`scenarios.schema.values.ScenarioError`."""
    w = "workload"
    every = ("kind", "message_bytes", *dict.fromkeys(key for keys in _KEYS.values() for key in keys))
    values.table(data, w, every, ("kind", "message_bytes"))
    kind = values.one_of(data["kind"], (*COLLECTIVES, *PATTERNS), f"{w}.kind")
    for key in data:
        if key not in ("kind", "message_bytes", *_KEYS[kind]):
            raise values.fail(f"{w}.{key}", f"is not for kind = {kind!r}, which has {', '.join(_KEYS[kind])}")
    size = values.parsed(parse_size, data["message_bytes"], f"{w}.message_bytes")
    if size % 4 or size < 4:
        raise values.fail(f"{w}.message_bytes", f"= {size} must be a multiple of 4")
    if kind in COLLECTIVES:
        return _collective(values, data, kind, size)
    return _pattern(values, data, kind, size)


def _collective(values: Values, data: dict[str, Any], kind: str, size: int) -> Workload:
    w = "workload"
    if "steps" not in data:
        raise values.fail(f"{w}.steps", "is missing")
    placement = data.get("placement", ["packed"])
    places = placement if isinstance(placement, list) and placement else [placement]
    return Workload(
        kind=kind,
        placement=tuple(dict.fromkeys(values.one_of(p, PLACEMENTS, f"{w}.placement") for p in places)),
        message_bytes=size,
        dtype=values.one_of(data.get("dtype", "float32"), DTYPES, f"{w}.dtype"),
        steps=values.whole(data, "steps", w, 0, 1, 1_000_000),
        warmup_steps=values.whole(data, "warmup_steps", w, 1, 0, 1000),
        slices=values.whole(data, "slices", w, 4, 1, 64),
    )


def _pattern(values: Values, data: dict[str, Any], kind: str, size: int) -> Workload:
    w = "workload"
    outstanding = values.whole(data, "outstanding", w, 4, 1, 256)
    if kind == "flows":
        flows = tuple(_named_flow(values, f, f"{w}.flow[{i}]") for i, f in enumerate(values.list_of(data, "flow", f"{w}.")))
        if not flows:
            raise values.fail(f"{w}.flow", 'is empty: add a [[workload.flow]] with src = "h0", dst = "h1", for = "5s"')
        if len({f.name for f in flows}) < len(flows):
            raise values.fail(f"{w}.flow", f"names are not unique ({', '.join(f.name for f in flows)}): give each its own name")
        return Workload(kind, message_bytes=size, outstanding=outstanding, flows=flows)
    duration, messages = _ending(values, data, w, "duration")
    senders, victim, alone = 0, False, 0
    if kind == "incast":
        if "senders" not in data:
            raise values.fail(f"{w}.senders", "is missing")
        senders = values.whole(data, "senders", w, 0, 1, 1 << 20)
        victim = values.switch(data, "victim", w, False)
        alone = values.parsed(parse_duration, data.get("victim_alone", 0), f"{w}.victim_alone")
        if alone and not victim:
            raise values.fail(f"{w}.victim_alone", "needs victim = true")
        if victim and duration is None:
            raise values.fail(f"{w}.victim", "needs 'duration': nobody knows when the last of 'messages' arrives")
    return Workload(
        kind, message_bytes=size, outstanding=outstanding, duration_ns=duration, messages=messages, senders=senders, victim=victim,
        victim_alone_ns=alone,
    )  # fmt: skip


def _ending(values: Values, data: dict[str, Any], where: str, key: str) -> tuple[int | None, int | None]:
    """(ns, number of messages), one of them None."""
    if (key in data) == ("messages" in data):
        raise values.fail(where, f"needs either {key!r} (like '10s') or 'messages' (how many)")
    if key not in data:
        return None, values.whole(data, "messages", where, 0, 1, 1 << 24)
    ns = values.parsed(parse_duration, data[key], f"{where}.{key}")
    if not ns:
        raise values.fail(f"{where}.{key}", "= 0 leaves no time to send")
    return ns, None


def _named_flow(values: Values, data: Any, where: str) -> NamedFlow:
    values.table(data, where, _FLOW_KEYS, ("src", "dst"))
    src, dst = str(data["src"]), str(data["dst"])
    for_ns, messages = _ending(values, data, where, "for")
    name = data.get("name", f"{src}-{dst}")
    if not isinstance(name, str) or not 0 < len(name) <= 30 or "'" in name:
        raise values.fail(f"{where}.name", f"= {name!r} must be some 30 characters at most, without '")
    start = values.parsed(parse_duration, data.get("start", 0), f"{where}.start")
    return NamedFlow(name, src, dst, start, for_ns, messages, values.whole(data, "evs", where, 0, 0, 1024))


# --- on a fabric ---------------------------------------------------------------------------------------------------


def check_fits(work: Workload, fabric: Fabric, seeds: Sequence[int]) -> None:
    """Raises :class:`WorkloadError` or :class:`topologies.FabricError` if the fabric, or an agent's memory, cannot carry it."""
    size = work.message_bytes
    if work.is_pattern:
        for seed in seeds:
            flows = resolve_flows(work, fabric, place_ranks(fabric, "packed"), seed)
            told = parse([flow.for_agents() for flow in flows], fabric.host_count)
            try:
                for rank in range(fabric.host_count):
                    places(told, rank, size, SLOTS_PER_MESSAGE * work.outstanding)
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
    """The flows of a pattern between ranks (``hosts`` in rank order); [] for a collective. Raises :class:`WorkloadError`."""
    if work.kind == "incast":
        flows = _incast(work, fabric)
    elif work.kind == "permutation":
        to = _permutation(fabric, seed)
        flows = [Flow(f"h{a}-h{b}", "permutation", a, b, 0, work.duration_ns, work.messages) for a, b in enumerate(to)]
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
    """Cast [ours]: the target is the first host under the last T0, senders are hosts under other T0s first, then its neighbours.

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
    alone = work.victim_alone_ns
    flows = [
        Flow(f"h{h}-h{target}", "incast", h, target, alone, work.duration_ns, work.messages) for h in (far + near)[: work.senders]
    ]
    if work.victim:
        assert work.duration_ns is not None
        flows.append(Flow("victim", "victim", far[work.senders], near[0], 0, alone + work.duration_ns, None))
    return flows


def _permutation(fabric: Fabric, seed: int) -> list[int]:
    """Host -> host it sends to: nobody to itself, and with several T0s nobody under his own T0. Drawn by the seed."""
    n, rng = fabric.host_count, random.Random(seed)
    shift = fabric.hosts_per_t0 if fabric.t0_per_plane > 1 else 1
    to = [(h + shift) % n for h in range(n)]

    def allowed(a: int, b: int) -> bool:
        return fabric.t0_of(a) != fabric.t0_of(b) if fabric.t0_per_plane > 1 else a != b

    for _ in range(SWAPS * n):
        a, b = rng.randrange(n), rng.randrange(n)
        if a != b and allowed(a, to[b]) and allowed(b, to[a]):
            to[a], to[b] = to[b], to[a]
    return to


def edges_of(work: Workload, fabric: Fabric, hosts: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """(sender rank, receiver rank) of every pair that has a queue pair, ring neighbours in rank order first."""
    if work.is_pattern:
        return list(dict.fromkeys((f.src, f.dst) for f in resolve_flows(work, fabric, hosts, seed)))
    ranks = range(len(hosts))
    pairs = dict.fromkeys(pair for phase in collective_phases(work.kind, ranks) for pair in phase.traffic)
    return [pair for pair in ring_edges(ranks) if pair in pairs] + [pair for pair in pairs if pair not in set(ring_edges(ranks))]


def watched_ports(flows: Sequence[Flow], fabric: Fabric, hosts: Sequence[int]) -> dict[str, str]:
    """Last-hop switch ports whose queue is worth sampling -> group: those of an incast's target and of its victim's destination."""
    ends = {hosts[f.dst]: f.group for f in flows if f.group in ("incast", "victim")}
    return {link.b.name: ends[h] for h in sorted(ends) for link in fabric.links if link.kind == "nic" and link.a.node == f"h{h}"}
