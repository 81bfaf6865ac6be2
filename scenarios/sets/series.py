"""Runs a set of scenarios into one directory. It keeps what is finished, reports what fails, and
goes on.

Nothing here needs root: the caller passes functions that run a scenario and that conclude an item
from its files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from scenarios.run.planning import plan
from scenarios.run.resume import write_json
from scenarios.schema.scenario import Scenario, ScenarioError
from testbed.errors import first_line
from testbed.machine.caller import written
from testbed.results.reading import ResultsError, read
from testbed.results.summary import Run, Summary
from topologies.files import FileError, read_json

FORMAT = 1
INTERRUPTED = 130


class PartLike(Protocol):
    @property
    def name(self) -> str: ...
    def load(self, quick: bool = False, seeds: tuple[int, ...] = ()) -> Scenario: ...
    def simulated(self, scenario: Scenario) -> bool: ...


class Item(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def parts(self) -> Sequence[Any]: ...  # of PartLike
    def directory(self, part: Any, out: Path) -> Path: ...


AnItem = TypeVar("AnItem", bound=Item)
RunOne = Callable[[Any, Scenario, Path, bool], int]
"""(part, its scenario, directory, whether to resume) -> exit status; 130: the user stopped it."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Form:
    quick: bool = False
    seeds: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "quick": self.quick, "seeds": list(self.seeds)}

    def words(self) -> str:
        seeds = f" with seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"the {'--quick' if self.quick else 'full'} set{seeds}"


class _FormFile(msgspec.Struct):
    format: int
    quick: bool = False
    seeds: list[int] = []


@dataclass(frozen=True)
class Kind:
    """How a command's directories are recognised. ``file`` holds the form; the other fields are
    words for messages."""

    file: str
    item: str
    items: str
    of: str
    command: str

    def open_directory(self, out: Path, form: Form, resume: bool) -> None:
        """Raises :class:`ScenarioError` if the directory holds anything else."""
        form_file = out / self.file
        if form_file.is_file():
            former = self.read_form(out)
            if former != form:
                raise ScenarioError(
                    f"--out {out} holds {former.words()}, not {form.words()}: give a new directory"
                )
            if not resume:
                raise ScenarioError(
                    f"--out {out} holds {self.items} already: add --resume to go on there, or "
                    "give a new directory"
                )
            written(out, whole=True)
            return
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ScenarioError(
                f"--out {out}: it exists and is not empty, and holds no {self.items} of "
                f"{self.of}: give a new directory"
            )
        try:
            written(out, whole=True).mkdir(parents=True, exist_ok=True)
            write_json(form_file, form.to_dict())
        except OSError as error:
            raise ScenarioError(
                f"cannot make the results directory {out}: {error.strerror}"
            ) from None

    def read_form(self, out: Path) -> Form:
        """Raises :class:`ScenarioError` if this command did not write the directory."""
        path = out / self.file
        try:
            data = read_json(path, _FormFile)
        except FileNotFoundError:
            raise ScenarioError(
                f"{out} holds no {self.items} (no {self.file}): give a directory that "
                f"{self.command} wrote"
            ) from None
        except (OSError, FileError) as error:
            raise ScenarioError(
                f"{path} cannot be read ({error}): run the {self.items} again"
            ) from None
        if data.format != FORMAT:
            raise ScenarioError(
                f"{path} is of format {data.format}, this version writes {FORMAT}: run the "
                f"{self.items} again"
            )
        return Form(data.quick, tuple(data.seeds))


def finished(directory: Path, scenario: Scenario) -> bool:
    try:
        summary = read(directory / "summary.json", Summary)
        over = summary.verdict != "interrupted" and summary.stopped_by is None
        return over and len(summary.runs) == len(plan(scenario))
    except ResultsError:
        return False


def run_part(item: Item, part: PartLike, out: Path, form: Form, run: RunOne) -> tuple[int, str]:
    """Return (exit status, what went wrong, or "")."""
    directory = item.directory(part, out)
    try:
        scenario = part.load(form.quick, form.seeds)
        if finished(directory, scenario):
            return 0, ""
        resume = (directory / "manifest.json").is_file()
        directory.mkdir(parents=True, exist_ok=True)
        status = run(part, scenario, directory, resume)
    except Exception as error:
        return 1, f"{part.name}: {type(error).__name__}: {first_line(error)}"
    if status == INTERRUPTED:
        return status, "stopped by the user"
    if not finished(directory, scenario):
        return (
            status or 1,
            f"{part.name}: its runs did not all end (exit status {status}); --resume tries again",
        )
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
    """Conclude each item. Returns 0: all complete; 1: some item is not; 130: stopped."""
    status = 0
    for number, item in enumerate(items):
        tell(f"{kind.item} {item.id} ({number + 1} of {len(items)}): {item.title}")
        problems = []
        for part in item.parts:
            part_status, problem = run_part(item, part, out, form, run)
            if problem:
                problems.append(problem)
                tell(f"{kind.item} {item.id}: {problem}")
            if part_status == INTERRUPTED:
                conclude(item, out)
                return INTERRUPTED
        status = max(status, 1 if problems else 0)
        try:
            conclude(item, out)
        except Exception as error:
            status = 1
            tell(f"{kind.item} {item.id}: {type(error).__name__}: {error}")
    return status


def concluded(out: Path, items: Sequence[Item], name: str) -> list[dict[str, Any]]:
    conclusions = []
    for item in items:
        try:
            conclusions.append(read_json(out / item.id / name, dict[str, Any]))
        except (OSError, FileError):
            continue
    return conclusions


def doubts_of(runs: Sequence[Run]) -> list[str]:
    doubts = [f"{run.run}: {reason}" for run in runs for reason in run.distrust]
    return doubts + [
        f"{run.run}: {run.outcome}: {run.reason}" for run in runs if run.outcome != "done"
    ]
