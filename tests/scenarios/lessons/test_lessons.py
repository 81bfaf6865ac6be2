"""A student's way through the lessons: every command of every page runs, in time, and says what the
page says that it says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mrcbed import cli
from scenarios.lessons.course import LESSONS
from scenarios.run.simulate import Worlds, simulate
from scenarios.schema.scenario import load_scenario
from tests.scenarios.lessons.pages import PAGES, SIMULATED, Typed, fits, typed
from tests.scenarios.small import undrawn


def changes(*values: str) -> tuple[str, ...]:
    return tuple(word for value in values for word in ("--set", value))


SHORTER = {
    "permutation": changes("workload.duration=400us"),
    "one-cable": changes("workload.message_bytes=512KiB"),
    "incast-victim": changes("workload.duration=900us"),
    "nic-ports-one-by-one": changes(
        "workload.duration=2.9ms",
        "fault.0.at=300us",
        "fault.0.for=2.2ms",
        "fault.1.at=700us",
        "fault.1.for=1.4ms",
        "fault.2.at=1.2ms",
        "fault.2.for=500us",
    ),
    "nic-link-lossy": changes("workload.duration=2.8ms", "fault.0.at=400us", "fault.0.for=1.8ms"),
}
"""By scenario: what the suite adds to a page's ``mrcbed run``: less time, and the same story. `make
soak` runs it as it is typed."""
FROM_TABLES = {
    1: {
        "c": r"^ mrc +16 × permutation +\S+ +\S+ +(\S+)%",
        "d": r"^ roce-1p +16 × permutation +\S+ +\S+ +(\S+)%",
    },
    2: {
        "a": r"^ mrc +1 +\S+ .* (\d+) µs \(\d+\)",
        "b": r"^ mrc +1 +(\S+)×",
        "c": r"^ roce +12/12 +\S+ +(\S+)",
    },
    3: {
        "a": r"^ mrc +7 × incast +\S+ +(\S+)%",
        "d": r"^ mrc +(?:\S+ +){5}(\S+) +\S+ +–",
        "e": r"^ mrc +victim .* (\S+)% *$",
        "f": r"^ roce +victim .* (\S+)% *$",
    },
    4: {"c": r"within 20 RTTs of the loss of carrier: .* seen (\S+)$"},
    5: {"f": r"^ mrc +1 +(\S+)× +\S+ %"},
}
"""Where the tables of the last ``mrcbed run`` have an answer: what a student reads there must be
right."""
IN_TABLES = {(2, "c"): 1e-3}
"""Factors of units, where table and question differ."""


def shortened(scenario: str) -> tuple[str, ...]:
    """What the suite adds to a run, which stays in this process: those of its own would each import
    everything again."""
    return ("--jobs", "1", *SHORTER.get(scenario, ()))


def inside(folder: Path, act: Callable[[], object]) -> tuple[object, str]:
    """What ``act`` returns, and what it prints, in a folder, on a terminal as wide as the pages."""
    capture = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(capture),
        contextlib.redirect_stderr(capture),
    ):
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        return act(), capture.getvalue()


def follow(item: Typed, folder: Path, shorter: bool) -> str:
    """Do what the page says. Returns what a run printed; asserts that replies are those of the
    page."""
    if item.file:
        (folder / item.file).write_text(item.text)
        return ""
    if item.python:
        _, printed = inside(folder, lambda: exec(compile(item.text, "page", "exec"), {}))
        assert printed
        return ""
    program, *words = shlex.split(item.text)
    assert program == "mrcbed", item.text
    running = words[0] == "run"
    status, printed = inside(
        folder, lambda: cli.execute([*words, *(shortened(words[1]) if running and shorter else ())])
    )
    if running:
        assert status == 0, printed
        return printed
    assert fits(item.replies, printed), f"{item.text}\n{printed}"
    return ""


@pytest.mark.dear("every run of a page, on the fabrics that the page names")
@pytest.mark.parametrize("page", SIMULATED, ids=lambda page: page.stem)
def test_a_lesson_from_its_page(page: Path, tmp_path: Path) -> None:
    with undrawn():
        play(page, tmp_path)


def play(page: Path, folder: Path, shorter: bool = True) -> None:
    """A student's whole way through a page: all its commands; then every answer, right, as tables
    have it, and wrong."""
    number = page.name[0]
    lesson = LESSONS[int(number)]
    tables = "".join(follow(item, folder, shorter) for item in typed(page))
    shown = dict(line.split("  ", 1) for line in asked(folder, number, "--show")[1].splitlines())
    assert list(shown) == list(lesson.by_key)
    status, text = asked(folder, number, *(f"{key}={value}" for key, value in shown.items()))
    assert status == 0 and "Well done." in text, text
    for key, pattern in FROM_TABLES.get(lesson.number, {}).items():
        found = re.findall(pattern, tables, re.MULTILINE)
        assert found, (key, tables)
        read = float(found[-1].replace(",", "")) * IN_TABLES.get((lesson.number, key), 1)
        assert asked(folder, number, f"{key}={read:g}")[0] == 0, (key, read, shown)
        assert asked(folder, number, f"{key}={read * 1.5 + 3:g}")[0] == 1, key


def asked(folder: Path, *arguments: str) -> tuple[object, str]:
    """(exit status, output) of ``mrcbed lesson`` with these arguments, over what the student has
    run in ``folder``."""
    return inside(folder, lambda: cli.execute(["lesson", *arguments]))


def test_every_lesson_has_its_page_and_every_page_its_commands() -> None:
    assert [f"docs/start/lessons/{page.name}" for page in PAGES] == [
        lesson.page for lesson in LESSONS.values()
    ]
    for page, lesson in zip(PAGES, LESSONS.values(), strict=True):
        assert page.read_text().startswith(f"# Lesson {lesson.number}: {lesson.title}\n")
        commands = [item.text for item in typed(page)]
        assert [planned.command for planned in lesson.runs] == [
            c for c in commands if c.startswith(("mrcbed run", "sudo mrcbed launch"))
        ]


# --- what a student may do otherwise --------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lesson 5's first run alone."""
    folder = tmp_path_factory.mktemp("student")
    (folder / "results" / "lesson-5").mkdir(parents=True)
    with undrawn():
        simulate(
            load_scenario("smoke"),
            folder / "results" / "lesson-5",
            worlds=Worlds(["p0-t0-0:p0-t1-0"]),
        )
    return folder


def test_questions_of_a_run_can_be_answered_before_the_other_run_is_there(smoke: Path) -> None:
    assert asked(smoke, "5", "a=4238")[0] == 0
    status, text = asked(smoke, "5", "f=2")
    assert (
        status == 2
        and "lesson-5-own has no results yet: run this first: mrcbed run mine.toml" in text
    )


def test_results_of_something_else_are_refused_with_the_command_to_run(
    smoke: Path, tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    for name in ("lesson-1", "lesson-5-own"):
        shutil.copytree(smoke / "results" / "lesson-5", tmp_path / "results" / name)
    status, text = asked(tmp_path, "1", "a=3")
    assert (
        status == 2
        and "holds results of 'smoke', this lesson needs 'permutation': delete" in text
        and text.count("\n") == 1
    )
    status, text = asked(tmp_path, "5", "f=3")
    assert status == 2 and "holds the shipped scenario 'smoke'" in text


OWN = """
format = 3
fabric = "tiny"
timeout = "60s"
[workload]
kind = "ring-allreduce"
placement = ["interleaved"]
message_bytes = "40KiB"
steps = 8
warmup_steps = 0
[[transport]]
kind = "mrc"
"""
FAULT = '[[fault]]\nname = "cable"\nkind = "link"\non = "p0-t0-0:p0-t1-0"\nstep = {step}\n'
EXPECT = '[[expect]]\ncheck = "mrc.wrong == 0"\n[[expect]]\ncheck = "mrc.wrong == 1"\n'


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (EXPECT, "nothing failed in it"),
        (FAULT.format(step=6), "it expects nothing"),
        (FAULT.format(step=2) + EXPECT, "fewer than 5 healthy steps"),
        (FAULT.format(step=6) + EXPECT, ""),
    ],
)
def test_a_scenario_of_ones_own_must_break_something_and_expect_something(
    more: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(OWN + more)
    directory = tmp_path / "results" / "lesson-5-own"
    directory.mkdir(parents=True)
    with undrawn():
        simulate(load_scenario(str(tmp_path / "mine.toml")), directory)
    status, text = asked(tmp_path, "5", "g=1")
    assert (status, says in text) == (2 if says else 0, True), text  # one of the two checks holds


def test_the_list_names_every_lesson_and_its_page(tmp_path: Path) -> None:
    status, text = asked(tmp_path)
    assert status == 0
    assert text.splitlines() == [
        f"{lesson.number}  {lesson.title}  ({lesson.page})" for lesson in LESSONS.values()
    ]


def test_a_teacher_gets_verdicts_and_seeds_as_json(smoke: Path) -> None:
    status, text = asked(smoke, "5", "a=4238", "E=Probe", "b=99", "--json")
    assert status == 1
    assert json.loads(text) == {
        "lesson": 5,
        "questions": 7,
        "seeds": [1],
        "given": {"a": 4238, "e": "probe", "b": 99},
        "right": {"a": True, "e": True, "b": False},
    }


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (["5", "a"], "write an answer as KEY=ANSWER"),
        (["5", "z=1"], "lesson 5 has no question 'z': it has a, b, c, d, e, f, g"),
        (["5", "e=data"], "answer one of write, probe"),
        (["5", "a=many"], "write a whole number, like a=12"),
        (["5", "a=12us"], "the unit here is none, it is a count"),
        (["5", "d=1.200,5"], "write a number of µs, like d=12.5 (a point, no comma)"),
        (["4", "f=h9"], "answer a name like h7:p3-t0-1"),
        (["9"], "there is no lesson 9: there are 1, 2, 3, 4, 5"),
    ],
)
def test_what_is_no_answer_is_refused_in_one_line(
    answers: list[str], says: str, tmp_path: Path
) -> None:
    status, text = asked(tmp_path, *answers)
    assert status == 2 and says in text and text.count("\n") == 1


def test_numbers_may_have_their_unit_and_are_right_within_a_tolerance() -> None:
    share = LESSONS[1].by_key["c"]
    assert [share.parse(text) for text in ("97", "97%", "97 percent", " 97.0 % ")] == [97.0] * 4
    assert [share.is_right(given, 96.9) for given in (95.8, 96.0, 97.9, 98.0)] == [
        False,
        True,
        True,
        False,
    ]
    count = LESSONS[1].by_key["a"]
    assert count.is_right(32.0, 32) and not count.is_right(31.0, 32)
    ratio = LESSONS[1].by_key["f"]
    assert ratio.is_right(8.8, 8.2) and not ratio.is_right(9.0, 8.2)
