"""Plans jobs described in a scenario: data, tensor, pipeline and expert parallelism, layers,
computing and bytes.

Ranks are numbered as in Megatron: tensor parallel next to each other, experts next among
data-parallel ranks, pipeline stages last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scenarios.jobs.plan import (
    COMPUTE,
    MOST_BYTES,
    MOST_NODES,
    RECV,
    SEND,
    Node,
    Plan,
    PlanError,
    checked,
)
from topologies.units import NS

FORWARD = 1 / 3  # of a step's computing: the backward pass computes two gradients [usual]
GPT_BYTES = 841_216  # of the model in scenarios.jobs.gpt


@dataclass(frozen=True)
class Job:
    """``compute_ps``: of a rank in a step. ``gradient_bytes``: of a rank, reduced over
    data-parallel ranks in as many calls as a stage has layers. ``activation_bytes``: of a
    microbatch, all-reduced among tensor-parallel ranks twice per layer and direction, and sent
    between stages. ``expert_bytes``: exchanged among expert-parallel ranks, twice per layer and
    direction. ``overlap``: gradients are reduced while earlier layers still compute. ``trains``: a
    model is really trained."""

    name: str
    ranks: int
    compute_ps: int
    gradient_bytes: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    layers: int = 4
    microbatches: int = 1
    activation_bytes: int = 0
    expert_bytes: int = 0
    overlap: bool = True
    trains: bool = False

    @property
    def data(self) -> int:
        return self.ranks // (self.tensor * self.pipeline)

    def check(self) -> None:
        """Raises :class:`PlanError` if the numbers do not fit together."""
        shape = f"job {self.name!r}: {self.ranks} ranks"
        if self.trains and self != Job(
            self.name, self.ranks, self.compute_ps, GPT_BYTES, layers=1, trains=True
        ):
            raise PlanError(
                f"job {self.name!r} trains: it needs gradient = {GPT_BYTES} and layers = 1, and "
                "no more than ranks and compute"
            )
        if self.ranks % (self.tensor * self.pipeline):
            raise PlanError(
                f"{shape} are no multiple of tensor {self.tensor} times pipeline {self.pipeline}"
            )
        if self.data % self.expert:
            raise PlanError(
                f"{shape}: expert {self.expert} does not divide {self.data} data-parallel ranks"
            )
        if self.layers % self.pipeline:
            raise PlanError(
                f"{shape}: {self.layers} layers are no multiple of {self.pipeline} stages"
            )
        if (self.tensor > 1 or self.pipeline > 1) and not self.activation_bytes:
            raise PlanError(
                f"{shape}: tensor and pipeline parallelism need 'activation', the bytes that "
                "they exchange"
            )
        if self.expert > 1 and not self.expert_bytes:
            raise PlanError(
                f"{shape}: expert parallelism needs 'experts', the bytes that it exchanges"
            )
        if self.ranks == self.tensor == 1 or self.ranks < 2:
            raise PlanError(f"{shape}: two or more")
        sizes = {
            "gradient": self.gradient_bytes * self.pipeline // self.layers,
            "activation": self.activation_bytes,
        }
        for key, size in {**sizes, "experts": self.expert_bytes}.items():
            if size > MOST_BYTES:
                raise PlanError(
                    f"{shape}: '{key}' makes calls of {size:,} bytes: {MOST_BYTES:,} at most"
                )

    @property
    def nodes(self) -> int:
        """About how many nodes all ranks have in a step."""
        return (
            self.ranks
            * 2
            * self.microbatches
            * self.layers
            // self.pipeline
            * (1 + 2 * (self.tensor > 1) + 2 * (self.expert > 1))
        )


def schedule(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Yield (direction, microbatch) of a stage: one forward, one backward (PipeDream-Flush, as
    Megatron-LM)."""
    ahead = min(stages - stage - 1, microbatches)
    order = [("forward", m) for m in range(ahead)]
    for m in range(microbatches - ahead):
        order += [("forward", ahead + m), ("backward", m)]
    return order + [("backward", m) for m in range(microbatches - ahead, microbatches)]


def nodes_of(job: Job, rank: int, first: int) -> tuple[Node, ...]:
    """``first``: the job's first rank among all."""
    t, rest = rank % job.tensor, rank // job.tensor
    d, stage = rest % job.data, rest // job.data

    def at(tensor: int, data: int, pipeline: int) -> int:
        return first + (pipeline * job.data + data) * job.tensor + tensor

    tensor_group = tuple(at(i, d, stage) for i in range(job.tensor))
    data_group = tuple(at(t, i, stage) for i in range(job.data))
    expert_group = tuple(at(t, d - d % job.expert + i, stage) for i in range(job.expert))
    layers = job.layers // job.pipeline
    share = job.compute_ps / NS / job.microbatches / layers
    nodes: list[Node] = []
    last: tuple[int, ...] = ()

    def add(node: Node, wait: bool = True) -> int:
        nonlocal last
        number = len(nodes)
        nodes.append(replace(node, number=number))
        if wait:
            last = (number,)
        return number

    for direction, m in schedule(stage, job.pipeline, job.microbatches):
        forward = direction == "forward"
        source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
        if 0 <= source < job.pipeline:
            number = add(
                Node(0, RECV, f"{direction} {m}", size=job.activation_bytes, peer=at(t, d, source)),
                wait=False,
            )
            last = (*last, number)
        for layer in range(layers):
            name = (
                f"{direction} {m}, layer "
                f"{stage * layers + (layer if forward else layers - 1 - layer)}"
            )
            add(
                Node(
                    0, COMPUTE, name, last, ns=round(share * (FORWARD if forward else 1 - FORWARD))
                )
            )
            for group, kind, size in (
                (tensor_group, "all_reduce", job.activation_bytes),
                (expert_group, "all_to_all", job.expert_bytes),
            ):
                if len(group) > 1 and size:
                    for _ in range(2):
                        add(Node(0, kind, name, last, size=size, group=group))
            if not forward and m == job.microbatches - 1 and job.overlap:
                _reduce(job, add, name, last, layers, data_group)
        if 0 <= target < job.pipeline:
            add(
                Node(
                    0,
                    SEND,
                    f"{direction} {m}",
                    last,
                    size=job.activation_bytes,
                    peer=at(t, d, target),
                ),
                wait=False,
            )
    if not job.overlap:
        after = last
        for layer in range(layers):
            _reduce(job, add, f"gradient {layer}", after, layers, data_group)
    return tuple(nodes)


def _reduce(
    job: Job,
    add: Callable[..., int],
    name: str,
    after: tuple[int, ...],
    layers: int,
    group: tuple[int, ...],
) -> None:
    if len(group) > 1 and job.gradient_bytes:
        add(
            Node(
                0, "all_reduce", name, after, size=max(4, job.gradient_bytes // layers), group=group
            ),
            wait=False,
        )


def ranks_of(jobs: Sequence[Job]) -> list[range]:
    begins = [sum(job.ranks for job in jobs[:number]) for number in range(len(jobs))]
    return [range(begin, begin + job.ranks) for begin, job in zip(begins, jobs, strict=True)]


def plan_of(jobs: Sequence[Job], hosts: int) -> Plan:
    """Plan a step of all jobs on the first ranks; others do nothing. Raises :class:`PlanError`."""
    for job in jobs:
        job.check()
    total = sum(job.ranks for job in jobs)
    if total > hosts:
        raise PlanError(f"the jobs have {total} ranks, the fabric {hosts} hosts")
    if (nodes := sum(job.nodes for job in jobs)) > MOST_NODES:  # before they are made
        raise PlanError(
            f"{nodes:,} nodes that do something: {MOST_NODES:,} at most: use fewer ranks, layers "
            "or microbatches"
        )
    ranks = [
        nodes_of(job, rank, own[0])
        for job, own in zip(jobs, ranks_of(jobs), strict=True)
        for rank in range(job.ranks)
    ]
    return checked(Plan((*ranks, *[()] * (hosts - total))))
