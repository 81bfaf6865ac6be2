"""The set: scenarios of a few seconds, each run in both worlds. What a case is for stands in its title."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.sets.paper.figure import Part
from testbed.errors import UserError
from testbed.simulated import WORLDS

HERE = Path(__file__).parent
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Case:
    """``scenario``: a file beside this module. ``full`` and ``quick`` as ``--set`` has them."""

    id: str
    title: str
    scenario: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    transport: str = "mrc"
    worlds: tuple[str, ...] = WORLDS

    @property
    def parts(self) -> tuple[Part, ...]:
        """One per world, by its name: the same scenario with the same seeds."""
        what = (self.full, (*self.full, *self.quick), SEEDS, SEEDS[:1], (self.transport,))
        return tuple(Part(world, str(HERE / self.scenario), *what) for world in self.worlds)

    def directory(self, part: Part, out: Path) -> Path:
        return out / self.id / part.name


_FEWER = ("workload.steps=21",)
"""As many as a median in the data needs."""


def _ring(id: str, title: str, size: str, transport: str = "mrc", steps: int = 34) -> Case:
    return Case(id, title, "ring.toml", (f"workload.message_bytes={size}", f"workload.steps={steps}"), _FEWER, transport)


CASES = (
    Case("idle", "One message at a time on an idle path", "idle.toml", quick=tuple(f"workload.flow.{f}.for=3s" for f in "ab")),
    _ring("ring-50", "Ring all-reduce, ports half idle", "128KiB"),
    _ring("ring-80", "Ring all-reduce, ports idle a fifth of the time", "256KiB"),
    _ring("ring-100", "Ring all-reduce, sending without pause", "512KiB"),
    _ring("ring-roce", "Ring all-reduce over RoCE, one path per queue pair", "256KiB", "roce", 21),
    Case("all-to-all", "All-to-all, everyone at once", "all-to-all.toml", quick=_FEWER),
    Case("permutation", "Permutation across T1s, every link full", "permutation.toml", quick=("workload.duration=4s",)),
    Case("incast", "Incast of 6 to 1, with trimming", "incast.toml", quick=("workload.duration=4s",)),
    Case("link-failure", "A cable dies under a ring all-reduce, and comes back", "link-failure.toml", quick=("workload.steps=20",)),
)


def chosen(names: Sequence[str], worlds: Sequence[str] = WORLDS) -> list[Case]:
    """Those asked for, in order; all without any. ``ring`` means all that begin with ``ring-``.

    Raises :class:`UserError` naming the nearest.
    """
    wanted: set[str] = set()
    every = [case.id for case in CASES]
    for name in names:
        found = [id for id in every if id == name or (name and id.startswith(f"{name}-"))]
        if not found:
            near = difflib.get_close_matches(name, every, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"there is no case {name!r}: there are {', '.join(every)}{hint}")
        wanted |= set(found)
    return [replace(case, worlds=tuple(worlds)) for case in CASES if not names or case.id in wanted]


def parse_worlds(text: str) -> tuple[str, ...]:
    """``simulated`` or ``emulated,simulated``, in this order. Raises :class:`UserError`."""
    asked = [word.strip() for word in text.split(",")]
    unknown = [word for word in asked if word not in WORLDS]
    if unknown:
        raise UserError(f"--worlds {text}: there is no world {unknown[0]!r}: write {' or '.join(WORLDS)}, or both with a comma between")
    return tuple(world for world in WORLDS if world in asked)
