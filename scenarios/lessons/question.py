"""A lesson's questions. Answers are judged against the student's own results, never against a
stored answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scenarios.figures.results import Results, load
from testbed.errors import UserError
from testbed.results.summary import Run
from testbed.results.values import number_at

_NUMBER = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(.*)")
_SPELLINGS = {"us": "µs", "μs": "µs", "percent": "%", "x": "×", "times": "×"}
"""The second key is the Greek letter, the value the micro sign; they look alike."""


@dataclass(frozen=True)
class Question:
    """``answer`` computes the right answer from results by run name. A text is compared as a word,
    a number with a tolerance: ``within`` is a share of it, ``slack`` an amount; either is enough.
    Both 0: exact."""

    key: str
    text: str
    answer: Callable[[Mapping[str, Results]], float | str]
    look: str  # hint after a wrong answer, which must not contain the answer
    why: str  # explanation after a right answer
    unit: str = ""
    within: float = 0.0
    slack: float = 0.0
    choices: tuple[str, ...] = ()  # empty for a number

    def parse(self, text: str) -> float | str:
        """Read a number in :attr:`unit` or a word. Raises :class:`UserError`."""
        text = text.strip()
        if self.choices:
            if text.lower() not in self.choices:
                some = (
                    f"one of {', '.join(self.choices)}"
                    if len(self.choices) < 6
                    else f"a name like {self.choices[-1]}"
                )
                raise UserError(f"{self.key}={text}: answer {some}")
            return text.lower()
        match = _NUMBER.fullmatch(text)
        wanted = (
            f"write a number{f' of {self.unit}' if self.unit else ''}, like {self.key}=12.5"
            if self.within or self.slack
            else (f"write a whole number, like {self.key}=12")
        )
        if match is None or "," in text:
            raise UserError(
                f"{self.key}={text}: {wanted}{' (a point, no comma)' if ',' in text else ''}"
            )
        unit = _SPELLINGS.get(match[2].strip(), match[2].strip())
        if unit not in ("", self.unit):
            raise UserError(
                f"{self.key}={text}: the unit here is {self.unit or 'none, it is a count'}: "
                f"{wanted}"
            )
        return float(match[1])

    def is_right(self, given: float | str, right: float | str) -> bool:
        if isinstance(given, str) or isinstance(right, str):
            return given == right
        return abs(given - right) <= max(self.within * abs(right), self.slack, 1e-9)

    def spell(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        digits = f"{value:.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"
        return f"{digits} {self.unit}".strip()


def figure(run: Run, key: str) -> float:
    """Raises :class:`UserError` if the run lacks the key of summary.json."""
    if (value := number_at(run, key)) is None:
        raise UserError(
            f"the run {run.run} has no {key}: nothing in it gives an answer, make it again"
        )
    return value


@dataclass(frozen=True)
class Planned:
    """A run that a lesson needs: its folder below results/, its command, and what must be in it."""

    folder: str
    command: str
    scenario: str = ""  # empty for any but a shipped one
    transports: tuple[str, ...] = ()

    def open(self, parent: Path) -> Results:
        """Raises :class:`UserError` with the command to run if results are missing or another
        scenario's."""
        directory = parent / self.folder
        if not (directory / "summary.json").is_file():
            raise UserError(f"{directory} has no results yet: run this first: {self.command}")
        results = load(directory)
        found = results.summary.scenario
        if self.scenario and found != self.scenario:
            raise UserError(
                f"{directory} holds results of {found!r}, this lesson needs {self.scenario!r}: "
                f"{self._again(directory)}"
            )
        if results.summary.verdict == "interrupted":
            raise UserError(
                f"{directory} holds a run that was interrupted: {self._again(directory)}"
            )
        there = {run.transport for run in results.summary.runs}
        missing = [name for name in self.transports if name not in there]
        if missing:
            raise UserError(f"{directory} has no run of {missing[0]}: {self._again(directory)}")
        return results

    def _again(self, directory: Path) -> str:
        return f"delete {directory}, then run: {self.command}"


class Opened(Mapping[str, Results]):
    """Results of runs, each opened when first asked for: a student may answer before all runs are
    there. Raises :class:`UserError` as
    :meth:`Planned.open`."""

    def __init__(self, runs: Sequence[Planned], parent: Path) -> None:
        self._planned = {planned.folder: planned for planned in runs}
        self._parent = parent
        self._results: dict[str, Results] = {}

    def __getitem__(self, folder: str) -> Results:
        if folder not in self._results:
            self._results[folder] = self._planned[folder].open(self._parent)
        return self._results[folder]

    def __iter__(self) -> Iterator[str]:
        return iter(self._planned)

    def __len__(self) -> int:
        return len(self._planned)

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for results in self._results.values() for seed in results.seeds})


@dataclass(frozen=True)
class Lesson:
    number: int
    title: str
    page: str
    runs: tuple[Planned, ...]
    questions: tuple[Question, ...]

    def open(self, parent: Path) -> Opened:
        return Opened(self.runs, parent)

    @cached_property
    def by_key(self) -> dict[str, Question]:
        return {question.key: question for question in self.questions}
