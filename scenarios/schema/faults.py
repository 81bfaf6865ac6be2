"""The ``[[fault]]`` entries of a scenario file: when, for how long, and the keys of the kind, which are the catalogue's.

Used by scenarios.schema.scenario. Pure; docs/faults.md is the manual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.schema.values import Values, parse_duration
from scenarios.schema.workloads import Workload
from testbed.faults.kinds import KINDS, USED_BY_QP, FaultError, kind_named, read_keys, resolve
from topologies import Fabric, FabricError


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str  # of the catalogue, testbed/faults/kinds
    on: str  # what the kind asks for, by name, or "used-by-qp"
    at_ns: int | None  # after the first measured step began; None: by step, or before
    step: int | None  # begins with this measured step, from 0
    for_ns: int | None  # None: until the run ends
    ranks: tuple[int, int] | None = None  # whose QP, for "used-by-qp"; None: the first ring edge across T0s
    before: bool = False  # there before the agents start; then ``for_ns`` counts from the first measured step
    keys: dict[str, Any] = field(default_factory=dict)  # the kind's own, as written


class FaultValues(Values):
    """Reads them."""

    def faults(self, entries: Sequence[Any], fabrics: Sequence[Fabric], workload: Workload) -> tuple[Fault, ...]:
        """All of a scenario whose transports run on ``fabrics``. Raises :class:`ScenarioError`."""
        made = tuple(self.fault(entry, f"fault[{i}]", fabrics, workload) for i, entry in enumerate(entries))
        if len({fault.name for fault in made}) < len(made):
            raise self.fail("fault", f"names are not unique ({', '.join(fault.name for fault in made)}): give each its own name")
        return made

    def fault(self, data: Any, where: str, fabrics: Sequence[Fabric], workload: Workload) -> Fault:
        common = ("name", "kind", "on", "at", "step", "before", "for", "ranks")
        kind = self.kind_of(data, where)
        entry = KINDS[kind]
        self.table(data, where, (*common, *(key.name for key in entry.keys)), ("kind", "on"))
        before = self.switch(data, "before", where, False)
        if ("at" in data) + ("step" in data) + before != 1:
            when = "'at' (seconds after the first measured step began), 'step' (a step's number) or before = true"
            raise self.fail(where, f"needs either {when}, and one of them")
        if "step" in data and workload.is_pattern:
            raise self.fail(f"{where}.step", f"is for collectives, {workload.kind} has no steps: say 'at' (seconds after its flows' t0)")
        keys = {key: value for key, value in data.items() if key not in common}
        on = str(data["on"])
        self.fault_fits(kind, on, keys, where, fabrics)
        for_ns = self.parsed(parse_duration, data["for"], f"{where}.for") if "for" in data else None
        if for_ns == 0:
            raise self.fail(f"{where}.for", f"= {data['for']!r} must be longer than nothing")
        if for_ns is not None and not entry.heals:
            raise self.fail(f"{where}.for", f"is not for kind {kind!r}, which cannot be taken back")
        if for_ns is None and (what := entry.needs_for(keys)):
            raise self.fail(where, f"needs 'for', {what}")
        if before and (on == USED_BY_QP or not entry.heals):
            lasting = ", ".join(repr(name) for name, each in KINDS.items() if not each.heals)
            raise self.fail(
                f"{where}.before", f"is not for {USED_BY_QP!r} or kind {lasting}: before the agents there is nothing to look at"
            )  # fmt: skip
        step = self.whole(data, "step", where, 0, 0, workload.steps - 1) if "step" in data else None
        return Fault(
            name=str(data.get("name", f"{kind} {on}{entry.suffix}")),
            kind=kind,
            on=on,
            at_ns=self.parsed(parse_duration, data["at"], f"{where}.at") if "at" in data else None,
            step=step,
            for_ns=for_ns,
            ranks=self.fault_ranks(data, on, where, fabrics),
            before=before,
            keys=keys,
        )

    def kind_of(self, data: Any, where: str) -> str:
        kind = self.table(data, where, tuple(data) if isinstance(data, dict) else (), ("kind",))["kind"]
        try:
            kind_named(kind)
        except FaultError as error:
            raise self.fail(f"{where}.{error.key}", error.text) from None
        return str(kind)

    def fault_ranks(self, data: dict[str, Any], on: str, where: str, fabrics: Sequence[Fabric]) -> tuple[int, int] | None:
        ranks = data.get("ranks")
        if ranks is None:
            return None
        fewest = min(fabric.host_count for fabric in fabrics)
        good = isinstance(ranks, list) and len(ranks) == 2 and all(type(r) is int and 0 <= r < fewest for r in ranks)
        if not good or ranks[0] == ranks[1] or on != USED_BY_QP:
            raise self.fail(f"{where}.ranks", f"= {ranks!r} must be two different ranks below {fewest}, with on = {USED_BY_QP!r}")
        return ranks[0], ranks[1]

    def fault_fits(self, kind: str, on: str, keys: dict[str, Any], where: str, fabrics: Sequence[Fabric]) -> None:
        """Its keys must be right, and what it is on must exist in one fabric at least."""
        lacking: FabricError | None = None
        try:
            if on == USED_BY_QP:
                read_keys(kind, keys)
                if not KINDS[kind].used:
                    following = ", ".join(name for name, entry in KINDS.items() if entry.used)
                    raise self.fail(f"{where}.on", f"= {USED_BY_QP!r} is for kinds {following}")
                return
            for fabric in fabrics:
                try:
                    resolve(fabric, kind, on, keys, 0)
                    return
                except FabricError as error:
                    lacking = lacking or error
        except FaultError as error:
            raise self.fail(f"{where}.{error.key}", error.text) from None
        raise self.fail(f"{where}.on", f": {lacking}")
