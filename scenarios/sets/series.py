"""A set of scenarios run into one directory, one after the other: what is finished is kept, what fails is told and left behind.

``mrcbed paper`` and ``mrcbed validate`` are such sets, of figures and of cases. Nothing here needs root: whoever calls says how a
scenario is run, and what follows from an item's files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from scenarios.run.resume import write_json
from scenarios.run.runner import plan
from scenarios.schema.scenario import Scenario, ScenarioError

FORMAT = 1
INTERRUPTED = 130


class PartLike(Protocol):
    """One scenario of an item."""

    @property
    def name(self) -> str: ...
    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario: ...


class Item(Protocol):
    """A figure, or a case: scenarios to run, and something to conclude from them."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def parts(self) -> Sequence[Any]: ...  # of PartLike
    def directory(self, part: Any, out: Path) -> Path: ...


AnItem = TypeVar("AnItem", bound=Item)
RunOne = Callable[[Scenario, Path, bool], int]
"""(scenario, directory, whether to go on there) -> exit status of what ran it; 130: the user stopped it."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Form:
    """Which set a directory holds."""

    quick: bool = False
    seeds: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "quick": self.quick, "seeds": list(self.seeds)}

    def words(self) -> str:
        seeds = f" with seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"the {'--quick' if self.quick else 'full'} set{seeds}"


@dataclass(frozen=True)
class Kind:
    """What a command's directories are known by. ``file`` holds the form; the rest is for people: an item, items, items of what."""

    file: str
    item: str
    items: str
    of: str
    command: str

    def open_directory(self, out: Path, form: Form, resume: bool) -> None:
        """Make it, or go on in it. Raises :class:`ScenarioError` if it holds anything else than this set."""
        known = out / self.file
        if known.is_file():
            was = self.read_form(out)
            if was != form:
                raise ScenarioError(f"--out {out} holds {was.words()}, not {form.words()}: give a new directory")
            if not resume:
                raise ScenarioError(f"--out {out} holds {self.items} already: add --resume to go on there, or give a new directory")
            return
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ScenarioError(f"--out {out}: it exists and is not empty, and holds no {self.items} of {self.of}: give a new directory")
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_json(known, form.to_dict())
        except OSError as error:
            raise ScenarioError(f"cannot make the results directory {out}: {error.strerror}") from None

    def read_form(self, out: Path) -> Form:
        """Raises :class:`ScenarioError` if the directory is not one of this command's."""
        path = out / self.file
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise ScenarioError(f"{path} is of format {found['format']}, this version writes {FORMAT}: run the {self.items} again")
            return Form(bool(found["quick"]), tuple(int(seed) for seed in found["seeds"]))
        except FileNotFoundError:
            raise ScenarioError(f"{out} holds no {self.items} (no {self.file}): give a directory that {self.command} wrote") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ScenarioError(f"{path} cannot be read ({error}): run the {self.items} again") from None


def finished(directory: Path, scenario: Scenario) -> bool:
    """Whether all runs of a part are over, and its summary written."""
    try:
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        over = summary["verdict"] != "interrupted" and "stopped_by" not in summary
        return over and len(summary["runs"]) == len(plan(scenario))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def run_part(item: Item, part: PartLike, out: Path, form: Form, run: RunOne) -> tuple[int, str]:
    """(exit status, what went wrong in words, if anything)."""
    directory = item.directory(part, out)
    try:
        scenario = part.load(form.quick, form.seeds)
        if finished(directory, scenario):
            return 0, ""
        begun = (directory / "manifest.json").is_file()
        directory.mkdir(parents=True, exist_ok=True)
        status = run(scenario, directory, begun)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return 1, f"{part.name}: {type(error).__name__}: {first}"
    if status == INTERRUPTED:
        return status, "stopped by the user"
    if not finished(directory, scenario):
        return status or 1, f"{part.name}: its runs did not all end (exit status {status}); --resume tries again"
    return 0, ""


def run_series(
    kind: Kind,
    items: Sequence[AnItem],
    out: Path,
    form: Form,
    run: RunOne,
    conclude: Callable[[AnItem, Path], Any],
    tell: Tell = lambda line: None,
) -> int:
    """Run what is missing, item by item, and conclude each. 0: all there; 1: some item is not; 130: stopped."""
    worst = 0
    for number, item in enumerate(items):
        tell(f"{kind.item} {item.id} ({number + 1} of {len(items)}): {item.title}")
        said = []
        for part in item.parts:
            status, why = run_part(item, part, out, form, run)
            if why:
                said.append(why)
                tell(f"{kind.item} {item.id}: {why}")
            if status == INTERRUPTED:
                conclude(item, out)
                return INTERRUPTED
        worst = max(worst, 1 if said else 0)
        try:
            conclude(item, out)
        except Exception as error:
            worst = 1
            tell(f"{kind.item} {item.id}: {type(error).__name__}: {error}")
    return worst


def concluded(out: Path, items: Sequence[Item], name: str) -> list[dict[str, Any]]:
    """What was concluded of each item, in order: its file ``name``. Those that are missing or cannot be read are left out."""
    found = []
    for item in items:
        try:
            found.append(json.loads((out / item.id / name).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found


def doubts_of(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """In words: why which runs are not to be believed, and how those ended that did not end well."""
    doubts = [f"{run['run']}: {reason}" for run in runs for reason in run["distrust"]]
    return doubts + [f"{run['run']}: {run['outcome']}: {run['reason']}" for run in runs if run["outcome"] != "done"]
