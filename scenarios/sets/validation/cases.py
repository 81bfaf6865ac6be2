"""The cases of validation: scenarios of a few seconds, each run in both worlds."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.schema.dilation import at_dilation
from scenarios.schema.scenario import Scenario
from scenarios.sets.paper.figure import Part
from testbed.errors import UserError
from testbed.world import EMULATED, WORLDS

HERE = Path(__file__).parent
SEEDS = (1, 2, 3)
SLOWER = "slower"
"""Column of emulated runs at :data:`SLOWER_BY` times the dilation: what differs there is the
machine's."""
SLOWER_BY = 2


class Slower(Part, frozen=True):
    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario:
        scenario = super().load(quick, seeds)
        return at_dilation(scenario, SLOWER_BY * scenario.dilation)


@dataclass(frozen=True)
class Case:
    """``scenario``: a file beside this module. ``full`` and ``quick`` as in ``--set``. ``slower``:
    emulated a second time, slower."""

    id: str
    title: str
    scenario: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    transport: str = "mrc"
    worlds: tuple[str, ...] = WORLDS
    slower: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        form = (
            str(HERE / self.scenario),
            self.full,
            (*self.full, *self.quick),
            SEEDS,
            (self.transport,),
        )
        slower = (
            (Slower(SLOWER, *form, world=EMULATED),)
            if self.slower and EMULATED in self.worlds
            else ()
        )
        return (*(Part(world, *form, world=world) for world in self.worlds), *slower)

    def directory(self, part: Part, out: Path) -> Path:
        return out / self.id / part.name


_FEWER = ("workload.steps=21",)  # as many steps as a median needs


def _ring(
    id: str, title: str, size: str, transport: str = "mrc", steps: int = 34, slower: bool = False
) -> Case:
    full = (f"workload.message_bytes={size}", f"workload.steps={steps}")
    return Case(id, title, "ring.toml", full, _FEWER, transport, slower=slower)


CASES = (
    Case(
        "idle",
        "One message at a time on an idle path",
        "idle.toml",
        quick=tuple(f"workload.flow.{f}.for=900us" for f in "ab"),
        slower=True,
    ),
    _ring("ring-50", "Ring all-reduce, ports half idle", "320KiB"),
    _ring("ring-80", "Ring all-reduce, ports idle a fifth of the time", "640KiB", slower=True),
    _ring("ring-100", "Ring all-reduce, sending without pause", "1280KiB"),
    _ring("ring-roce", "Ring all-reduce over RoCE, one path per queue pair", "640KiB", "roce", 21),
    Case("all-to-all", "All-to-all, everyone at once", "all-to-all.toml", quick=_FEWER),
    Case(
        "permutation",
        "Permutation across T1s, every link full",
        "permutation.toml",
        quick=("workload.duration=500us",),
        slower=True,
    ),
    Case(
        "incast",
        "Incast of 6 to 1, with trimming",
        "incast.toml",
        quick=("workload.duration=500us",),
    ),
    Case(
        "link-failure",
        "A cable dies under a ring all-reduce, and comes back",
        "link-failure.toml",
        quick=("workload.steps=20",),
        slower=True,
    ),
)


def chosen(names: Sequence[str], worlds: Sequence[str] = WORLDS) -> list[Case]:
    """Return the named cases in order; without names all. ``ring`` means all that begin with
    ``ring-``.

    Raises :class:`UserError`, which names the nearest case.
    """
    selected: set[str] = set()
    ids = [case.id for case in CASES]
    for name in names:
        matches = [id for id in ids if id == name or (name and id.startswith(f"{name}-"))]
        if not matches:
            nearest = difflib.get_close_matches(name, ids, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            raise UserError(f"there is no case {name!r}: there are {', '.join(ids)}{hint}")
        selected |= set(matches)
    return [
        replace(case, worlds=tuple(worlds)) for case in CASES if not names or case.id in selected
    ]


def parse_worlds(text: str) -> tuple[str, ...]:
    """Parse ``emulated,simulated``. Raises :class:`UserError`."""
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in WORLDS]
    if unknown:
        raise UserError(
            f"--worlds {text}: there is no world {unknown[0]!r}: write {' or '.join(WORLDS)}, or "
            "both with a comma between"
        )
    return tuple(world for world in WORLDS if world in names)
