"""Reads the ``[workload]`` table of a scenario file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from scenarios.jobs.describe import Job
from scenarios.schema.workloads import DTYPES, NamedFlow, Workload
from topologies.structs import Doc, Refused, convert, join, one_of, text
from topologies.theory import COLLECTIVES, PLACEMENTS, Placement
from topologies.units import Duration, Size, Span

Dtype = Annotated[str, one_of(DTYPES)]
# Literals: of a text that may also be a list, msgspec 0.22 frees the pattern as if it were a type,
# and may crash at exit.
Place = Annotated[Placement, Meta(extra={"names": PLACEMENTS})]
Places = Place | Annotated[list[Place], Meta(min_length=1)]
PLACEMENT_DOC = Doc(
    "packed: ring neighbours under one T0; interleaved: every ring edge across the T1s",
    example='["packed", "interleaved"]',
)
Degree = Annotated[int, Meta(ge=1, le=1024)]
MAX_TABLES = 1000  # flows or jobs of a workload [ours]
Messages = Annotated[int, Meta(ge=1, le=1 << 24)]


class FlowTable(Struct, frozen=True, forbid_unknown_fields=True):
    src: Annotated[str, Doc("host that sends", example='"h1"')]
    dst: Annotated[str, Doc("host that receives", example='"h5"')]
    name: Annotated[
        str,
        text(
            r"[^'\x00-\x1f\x7f-\x9f\u2028\u2029]{1,30}",
            "30 characters at most, without ' and control characters",
        ),
        Doc("its name in results", default="src-dst", example='"B"'),
    ] = ""
    start: Annotated[
        Duration | None, Doc("network time after the first flow's begin", default="0")
    ] = None
    for_: Annotated[
        Span | None, Doc("network time for which it posts messages", default="see messages")
    ] = field(name="for", default=None)
    messages: Annotated[
        Messages | None, Doc("number of messages that it sends", default="see for", example="100")
    ] = None
    evs: Annotated[
        int, Meta(ge=0, le=1024), Doc("EVs per plane that its queue pairs use; 0: all")
    ] = 0

    def __post_init__(self) -> None:
        if (self.for_ is None) == (self.messages is None):
            raise Refused("", "needs either 'for' (like '800us') or 'messages' (how many)")

    def named(self) -> NamedFlow:
        return NamedFlow(
            self.name or f"{self.src}-{self.dst}",
            self.src,
            self.dst,
            self.start or 0,
            self.for_,
            self.messages,
            self.evs,
        )


class _Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Annotated[str, Doc("collective or pattern", example='"ring-allreduce"')]
    message_bytes: Annotated[
        Size, Doc("a collective's size as nccl-tests prints it; of each message of a pattern")
    ]

    def __post_init__(self) -> None:
        if self.message_bytes % 4 or self.message_bytes < 4:
            raise Refused("message_bytes", f"= {self.message_bytes} must be a multiple of 4")

    def workload(self) -> Workload:
        raise NotImplementedError


class _Steps(_Table, frozen=True, kw_only=True):
    steps: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        Doc("measured steps; p50 in the data needs 20, p99 1000", example="20"),
    ]
    warmup_steps: Annotated[
        int, Meta(ge=0, le=1000), Doc("steps before the measured ones, in no figure")
    ] = 1
    slices: Annotated[int, Meta(ge=1, le=64), Doc("pipelined parts of a chunk")] = 4
    placement: Annotated[Places, PLACEMENT_DOC] = "packed"
    dtype: Annotated[Dtype, Doc("type of an element")] = "float32"

    def workload(self) -> Workload:
        places = [self.placement] if isinstance(self.placement, str) else self.placement
        return Workload(
            self.kind,
            tuple(dict.fromkeys(places)),
            self.message_bytes,
            self.dtype,
            self.steps,
            self.warmup_steps,
            self.slices,
        )


class _Pattern(_Table, frozen=True, kw_only=True):
    outstanding: Annotated[
        int, Meta(ge=1, le=256), Doc("messages that a sender has posted at once")
    ] = 4
    settle: Annotated[
        Duration | None,
        Doc(
            "part of the flows' time, at its beginning, that figures leave out",
            default="20 base RTTs",
            example='"8ms"',
        ),
    ] = None


class _Flows(_Pattern, frozen=True, kw_only=True):
    flow: Annotated[
        list[FlowTable], Meta(max_length=MAX_TABLES), Doc("the flows, one table each")
    ] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [flow.named().name for flow in self.flow]
        if not names:
            raise Refused(
                "flow",
                'is empty: add a [[workload.flow]] with src = "h0", dst = "h1", for = "400us"',
            )
        if len(set(names)) < len(names):
            raise Refused(
                "flow", f"names are not unique ({', '.join(names)}): give each its own name"
            )
        if self.settle and self.settle >= min(flow.for_ or 0 for flow in self.flow):
            raise Refused(
                "settle",
                "must be shorter than each flow's 'for': it is the part of it that figures leave "
                "out",
            )

    def workload(self) -> Workload:
        flows = tuple(flow.named() for flow in self.flow)
        return Workload(
            self.kind,
            message_bytes=self.message_bytes,
            outstanding=self.outstanding,
            settle_ps=self.settle or 0,
            flows=flows,
        )


class _Permutation(_Pattern, frozen=True, kw_only=True):
    duration: Annotated[
        Span | None,
        Doc(
            "network time for which flows post messages", default="see messages", example='"800us"'
        ),
    ] = None
    messages: Annotated[
        Messages | None,
        Doc("number of messages of each flow", default="see duration", example="100"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.duration is None) == (self.messages is None):
            raise Refused("", "needs either 'duration' (like '800us') or 'messages' (how many)")
        if self.settle and self.settle >= (self.duration or 0):
            raise Refused(
                "settle",
                "must be shorter than 'duration': it is the part of it that figures leave out",
            )

    def workload(self) -> Workload:
        return Workload(
            self.kind,
            message_bytes=self.message_bytes,
            outstanding=self.outstanding,
            duration_ps=self.duration,
            messages=self.messages,
            settle_ps=self.settle or 0,
        )


class _Incast(_Permutation, frozen=True, kw_only=True):
    senders: Annotated[
        int, Meta(ge=1, le=1 << 20), Doc("hosts that send to the target", example="7")
    ]
    stagger: Annotated[
        Duration | None,
        Doc(
            "network time from one sender's begin to the next one's; duration counts from the last",
            default="0",
        ),
    ] = None
    victim: Annotated[bool, Doc("one more flow, to a neighbour of the target")] = False
    victim_alone: Annotated[
        Duration | None,
        Doc(
            "network time for which the victim flow runs before the others begin",
            default="0",
            example='"200us"',
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.victim_alone and not self.victim:
            raise Refused("victim_alone", "needs victim = true")
        if self.stagger and self.duration is None:
            raise Refused("stagger", "needs 'duration': all send together for so long")
        if self.victim and self.duration is None:
            raise Refused(
                "victim", "needs 'duration': nobody knows when the last of 'messages' arrives"
            )

    def workload(self) -> Workload:
        return replace(
            super().workload(),
            senders=self.senders,
            stagger_ps=self.stagger or 0,
            victim=self.victim,
            victim_alone_ps=self.victim_alone or 0,
        )


class JobTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[
        str,
        text("[a-z][a-z0-9_]{0,30}", "small letters, digits or '_'"),
        Doc("its name in results", example='"a"'),
    ]
    ranks: Annotated[
        int,
        Meta(ge=2, le=1024),
        Doc("its ranks, on the hosts after those of the job before", example="8"),
    ]
    compute: Annotated[
        Duration,
        Doc(
            "network time that a rank computes in a step, a third of it forward", example='"160us"'
        ),
    ]
    gradient: Annotated[
        Size, Doc("gradients of a rank, all-reduced among data-parallel ranks in a call per layer")
    ]
    tensor: Annotated[Degree, Doc("tensor parallel ranks")] = 1
    pipeline: Annotated[Degree, Doc("pipeline stages")] = 1
    expert: Annotated[Degree, Doc("expert parallel ranks")] = 1
    layers: Annotated[int, Meta(ge=1, le=256), Doc("layers of all stages together")] = 4
    microbatches: Annotated[int, Meta(ge=1, le=256), Doc("microbatches of a step")] = 1
    activation: Annotated[
        Size | None,
        Doc(
            "of a microbatch: all-reduced among tensor parallel ranks, sent between stages",
            default="0",
            example='"128KiB"',
        ),
    ] = None
    experts: Annotated[
        Size | None,
        Doc(
            "of a microbatch: all-to-all among expert parallel ranks",
            default="0",
            example='"128KiB"',
        ),
    ] = None
    overlap: Annotated[bool, Doc("gradients are summed while earlier layers still compute")] = True
    trains: Annotated[
        bool, Doc("a small GPT is really trained; needs gradient = 841216 and layers = 1")
    ] = False

    def job(self) -> Job:
        return Job(
            self.name,
            self.ranks,
            self.compute,
            self.gradient,
            self.tensor,
            self.pipeline,
            self.expert,
            self.layers,
            self.microbatches,
            self.activation or 0,
            self.experts or 0,
            self.overlap,
            self.trains,
        )


class _Jobs(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Annotated[str, Doc("collective or pattern", example='"job"')]
    job: Annotated[
        list[JobTable], Meta(min_length=1, max_length=MAX_TABLES), Doc("the jobs, one table each")
    ]
    steps: Annotated[int, Meta(ge=1, le=100_000), Doc("measured steps", example="10")]
    warmup_steps: Annotated[
        int,
        Meta(ge=1, le=1000),
        Doc("steps before the measured ones; ranks begin together only then"),
    ] = 1
    alone_steps: Annotated[
        int, Meta(ge=0, le=1000), Doc("steps that each of several jobs runs alone first")
    ] = 0
    placement: Annotated[Places, PLACEMENT_DOC] = "packed"

    def __post_init__(self) -> None:
        names = [job.name for job in self.job]
        if len(set(names)) < len(names):
            raise Refused(
                "job", f"names are not unique ({', '.join(names)}): give each its own name"
            )
        if len(names) > 1 and any(job.trains for job in self.job):
            raise Refused("job", f"one that trains is the only one; there are {', '.join(names)}")
        if self.alone_steps and len(names) == 1:
            raise Refused("alone_steps", "is for several jobs")

    def workload(self) -> Workload:
        places = [self.placement] if isinstance(self.placement, str) else self.placement
        jobs = tuple(job.job() for job in self.job)
        return Workload(
            self.kind,
            tuple(dict.fromkeys(places)),
            0,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            jobs=jobs,
            alone_steps=self.alone_steps,
        )


TABLES: dict[str, type[_Table | _Jobs]] = {
    **dict.fromkeys(COLLECTIVES, _Steps),
    "incast": _Incast,
    "permutation": _Permutation,
    "flows": _Flows,
    "job": _Jobs,
}


class _Kind(Struct):
    kind: Annotated[str, one_of(TABLES)]


def read_workload(data: Any) -> Workload:
    """Raises :class:`topologies.structs.Refused`."""
    kind = convert(data, _Kind, "workload").kind
    own_keys = TABLES[kind].__struct_encode_fields__
    all_keys = {key for table in TABLES.values() for key in table.__struct_encode_fields__}
    for key in data:
        if key in all_keys and key not in own_keys:
            raise Refused(
                join("workload", key),
                f"is not for kind = {kind!r}, which has {', '.join(own_keys[2:])}",
            )
    return convert(data, TABLES[kind], "workload").workload()
