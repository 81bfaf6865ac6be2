"""``mrcbed lesson [NUMBER] [KEY=ANSWER...]``: a lesson's questions, and the judgement of
answers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.errors import UserError
from testbed.options import argument, option

if TYPE_CHECKING:
    from scenarios.lessons.question import Lesson, Opened

WIDTH = 96  # columns of prose, for any terminal; the lessons' pages show the same lines


@click.command(name="lesson")
@argument("number", type=click.IntRange(1), required=False)
@argument("answers", nargs=-1, metavar="[KEY=ANSWER]...")
@option(
    "--results",
    "parent",
    metavar="DIR",
    default="results",
    show_default=True,
    help="Folder in which the lesson's runs are.",
)
@option("--show", is_flag=True, help="Print the right answers of these results, for teachers.")
@option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON, for teachers.")
def command(
    number: int | None, answers: tuple[str, ...], parent: str, show: bool, as_json: bool
) -> None:
    """List the lessons; with NUMBER print the questions of that lesson; with answers check them
    against your own results.

    mrcbed lesson 2 a=120 d=timer

    Needs no root. Exit status: 0 all given answers are right, 1 one is not, 2 bad input or a run is
    missing.
    """
    from scenarios.lessons.course import LESSONS

    if number is None:
        for lesson in LESSONS.values():
            click.echo(f"{lesson.number}  {lesson.title}  ({lesson.page})")
        return
    if number not in LESSONS:
        raise UserError(f"there is no lesson {number}: there are {', '.join(map(str, LESSONS))}")
    lesson = LESSONS[number]
    given = parse_answers(lesson, answers)
    if show:
        results = lesson.open(Path(parent))
        for question in lesson.questions:
            click.echo(f"{question.key}  {question.spell(question.answer(results))}")
    elif given:
        verdicts = judge(lesson, given, lesson.open(Path(parent)))
        click.echo(json.dumps(verdicts, indent=2) if as_json else spelled(lesson, verdicts))
        raise SystemExit(0 if all(verdicts["right"].values()) else 1)
    else:
        click.echo(questions(lesson))


def parse_answers(lesson: Lesson, answers: Sequence[str]) -> dict[str, float | str]:
    """Raises :class:`UserError` for a key that the lesson does not ask, and for what is no
    number."""
    given: dict[str, float | str] = {}
    for text in answers:
        key, equals, value = text.partition("=")
        key = key.strip().lower()
        if not equals:
            raise UserError(f"{text}: write an answer as KEY=ANSWER, like a=12")
        if key not in lesson.by_key:
            raise UserError(
                f"{text}: lesson {lesson.number} has no question {key!r}: it has "
                f"{', '.join(lesson.by_key)}"
            )
        given[key] = lesson.by_key[key].parse(value)
    return given


def judge(lesson: Lesson, given: Mapping[str, float | str], results: Opened) -> dict[str, Any]:
    """Return a contract for teachers' scripts (``--json``)."""
    right = {
        key: (q := lesson.by_key[key]).is_right(answer, q.answer(results))
        for key, answer in given.items()
    }
    return {
        "lesson": lesson.number,
        "questions": len(lesson.questions),
        "seeds": results.seeds,
        "given": dict(given),
        "right": right,
    }


def questions(lesson: Lesson) -> str:
    lines = [f"Lesson {lesson.number}: {lesson.title} ({lesson.page})", "", "Run first:"]
    lines += [f"  {planned.command}" for planned in lesson.runs]
    lines += [
        "",
        "Then answer, all or some: "
        + f"mrcbed lesson {lesson.number} "
        + " ".join(f"{key}=..." for key in lesson.by_key),
        "",
    ]
    lines += [wrapped(f"{question.key}  {question.text}") for question in lesson.questions]
    return "\n".join(lines)


def wrapped(line: str) -> str:
    return textwrap.fill(
        line, WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
    )


def spelled(lesson: Lesson, verdicts: Mapping[str, Any]) -> str:
    lines = []
    for key, right in verdicts["right"].items():
        question = lesson.by_key[key]
        answer = question.spell(verdicts["given"][key])
        reply = f"right. {question.why}" if right else f"not right yet. Look here: {question.look}"
        lines.append(wrapped(f"{key}  {answer}: {reply}"))
    todo = [key for key in lesson.by_key if not verdicts["right"].get(key)]
    seeds = ", ".join(map(str, verdicts["seeds"]))
    count = (
        f"{len(lesson.questions) - len(todo)} of {len(lesson.questions)} right (results of seed "
        f"{seeds})"
    )
    return "\n".join(
        [*lines, "", f"{count}; open: {', '.join(todo)}" if todo else f"{count}. Well done."]
    )
