"""Reads the ``[[fault]]`` entries of a scenario file; the catalogue defines a kind's keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct, field

from scenarios.schema.workloads import Workload
from testbed.faults.keys import Keys
from testbed.faults.kinds import KINDS, USED_BY_QP, FaultError, Kind, read_keys, target_of
from topologies import Fabric, FabricError
from topologies.structs import NAME, Doc, Refused, convert, join, nearest, one_of
from topologies.units import Duration, Span


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str  # of the catalogue, testbed/faults/kinds
    on: str  # the target that the kind needs, by name, or "used-by-qp"
    at_ps: int | None  # after the first measured step began; None: by step, or before
    step: int | None  # begins with this measured step, from 0
    for_ps: int | None  # None: until the run ends
    # whose QP, for "used-by-qp"; None: the first ring edge across T0s
    ranks: tuple[int, int] | None = None
    # begins before the agents start; then ``for_ps`` counts from the first measured step
    before: bool = False
    keys: Keys = dataclasses.field(default_factory=Keys)  # the kind's own, as read


class FaultTable(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[str, Doc("what happens", example='"link"')]
    on: Annotated[str, Doc(f"whom it hits, or {USED_BY_QP}", example='"p0-t0-0:p0-t1-3"')]
    name: Annotated[
        str, NAME, Doc("its name in results", default="kind and place", example='"cable pulled"')
    ] = ""
    at: Annotated[
        Duration | None,
        Doc(
            "network time after the first measured step, or the first flow, began",
            default="see step, before",
        ),
    ] = None
    step: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Doc("begins with this measured step", default="see at, before", example="5"),
    ] = None
    before: Annotated[bool, Doc("begins before the agents start")] = False
    for_: Annotated[
        Span | None, Doc("network time after which it is mended", default="it lasts")
    ] = field(name="for", default=None)
    ranks: Annotated[
        tuple[int, int] | None,
        Doc(
            f"whose queue pair {USED_BY_QP} means",
            default="the pair across T0s whose cable most others share",
            example="[0, 4]",
        ),
    ] = None

    def __post_init__(self) -> None:
        if (self.at is not None) + (self.step is not None) + self.before != 1:
            when = (
                "'at' (how long after the first measured step began, like '80us'), 'step' (a "
                "step's number) or before = true"
            )
            raise Refused("", f"needs either {when}, and one of them")
        if self.for_ is not None and not KINDS[self.kind].heals:
            raise Refused("for", f"is not for kind {self.kind!r}, which cannot be taken back")
        if self.before and (self.on == USED_BY_QP or not KINDS[self.kind].heals):
            lasting = ", ".join(repr(name) for name, entry in KINDS.items() if not entry.heals)
            raise Refused(
                "before",
                f"is not for {USED_BY_QP!r} or kind {lasting}: before the agents there is "
                "nothing to look at",
            )


class _Kind(Struct):
    kind: Annotated[str, one_of(KINDS)]


_COMMON = FaultTable.__struct_encode_fields__


def read_faults(
    entries: Sequence[Mapping[str, object]], fabrics: Sequence[Fabric], workload: Workload
) -> tuple[Fault, ...]:
    """``fabrics``: those of the transports. Raises :class:`topologies.structs.Refused`."""
    faults = tuple(
        _read(entry, f"fault[{i}]", fabrics, workload) for i, entry in enumerate(entries)
    )
    if len({fault.name for fault in faults}) < len(faults):
        raise Refused(
            "fault",
            f"names are not unique ({', '.join(fault.name for fault in faults)}): give each its "
            "own name",
        )
    return faults


def _read(
    data: Mapping[str, object], where: str, fabrics: Sequence[Fabric], workload: Workload
) -> Fault:
    kind = KINDS[convert(data, _Kind, where).kind]
    known = (*_COMMON, *(key.name for key in kind.keys))
    for key in data:
        if key not in known:
            raise Refused(join(where, key), nearest(key, known))
    keys = {key: value for key, value in data.items() if key not in _COMMON}
    entry = convert(
        {key: value for key, value in data.items() if key in _COMMON}, FaultTable, where
    )
    if entry.step is not None and workload.is_pattern:
        raise Refused(
            f"{where}.step",
            f"is for collectives, {workload.kind} has no steps: say 'at' (how long after its "
            "flows' t0, like '80us')",
        )
    if entry.step is not None and entry.step >= workload.steps:
        raise Refused(
            f"{where}.step", f"= {entry.step} must be a whole number in 0..{workload.steps - 1}"
        )
    if entry.on == USED_BY_QP and workload.jobs:
        raise Refused(
            f"{where}.on",
            f"= {USED_BY_QP!r} is not for jobs, whose queue pairs are made as their ranks begin: "
            "name a cable",
        )
    try:
        read = read_keys(kind.name, keys)
        if entry.for_ is None and (reason := kind.needs_for(read)):
            raise Refused(where, f"needs 'for', {reason}")
        if entry.ranks is not None:
            fewest = min(fabric.host_count for fabric in fabrics)
            a, b = entry.ranks
            if a == b or not (0 <= a < fewest and 0 <= b < fewest) or entry.on != USED_BY_QP:
                raise Refused(
                    f"{where}.ranks",
                    f"= [{a}, {b}] must be two different ranks below {fewest}, with on = "
                    f"{USED_BY_QP!r}",
                )
        _check_fits(kind, entry.on, read, where, fabrics)
    except FaultError as error:
        raise Refused(f"{where}.{error.key}", error.text) from None
    name = entry.name or f"{kind.name} {entry.on}{kind.suffix}"
    return Fault(
        name, kind.name, entry.on, entry.at, entry.step, entry.for_, entry.ranks, entry.before, read
    )


def _check_fits(kind: Kind, on: str, keys: Keys, where: str, fabrics: Sequence[Fabric]) -> None:
    if on == USED_BY_QP:
        if not kind.used:
            kinds = ", ".join(name for name, entry in KINDS.items() if entry.used)
            raise Refused(f"{where}.on", f"= {USED_BY_QP!r} is for kinds {kinds}")
        return
    first_error: FabricError | None = None
    for fabric in fabrics:
        try:
            target_of(fabric, kind.name, on, keys, 0)
            return
        except FabricError as error:
            first_error = first_error or error
    raise Refused(f"{where}.on", f": {first_error}")
