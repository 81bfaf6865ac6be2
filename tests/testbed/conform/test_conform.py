"""Cases for any endpoint: the right engine passes all, a wrong one fails some, and there is none
that cannot fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrcbed import cli
from mrcbed.cli.conform import played
from testbed.conform.cases import SHIPPED, Case, every
from testbed.conform.play import Outcome
from testbed.conform.targets import OurEngine, Virtual
from tests.testbed.conform.wrong import NAMES, Wrong, fields, flipped, make
from topologies import load_fabric

FABRIC = load_fabric("demo")
LONG = ("sends/gives-up", "sends/gives-up-on-one")
"""A thousand base RTTs each: played last."""
CASES = {case.name: case for case in sorted(every([]), key=lambda case: case.name in LONG)}
FILES = sorted({case.name.partition("/")[0] for case in CASES.values()})


def play(case: Case, endpoint: Any) -> Outcome:
    return played(case, Virtual(endpoint, FABRIC.host_count - 1), FABRIC, FABRIC.base_rtt_ps)


def failing(new: Callable[[], Any], files: tuple[str, ...] = ()) -> str:
    """The first case that an endpoint fails; "" if none."""
    names = (name for name in CASES if not files or name.startswith(files))
    return next((name for name in names if play(CASES[name], new()).verdict == "fail"), "")


@pytest.mark.dear("every case")
@pytest.mark.parametrize("file", FILES)
def test_our_engine_passes(file: str) -> None:
    outcomes = [
        play(case, OurEngine(FABRIC, 0)) for case in CASES.values() if case.name.startswith(file)
    ]
    assert [(o.case.name, o.why) for o in outcomes if o.verdict != "pass"] == [] and len(
        outcomes
    ) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_endpoint_fails_a_case(name: str) -> None:
    assert failing(lambda: make(name, FABRIC))


NOT_TOLD = ("restore_cwnd", "rcv_cwnd_pen", "mpr")
"""Fields whose lowest bit may be either, as far as single packets tell; of an opcode: its own
timestamp and id, a's wish."""
ITS_OWN = {0xCA: ("ackreq", "tx_ts"), 0xD8: ("tx_ts", "psn"), 0xDE: ("tx_ts",)}
SAID = {
    0xCA: ("sends",),
    0xD1: ("write",),
    0xDC: ("sack", "probes"),
    0xDD: ("trims", "refused"),
    0xD8: ("sends",),
    0xD9: ("probes",),
    0xDE: ("sends",),
}
"""Opcode of what a target sends, and the cases in which it does."""
EVERY_FIELD = [
    (opcode, what, bit)
    for opcode in SAID
    for what, bit in fields(opcode)
    if what.split()[1] not in (*NOT_TOLD, *ITS_OWN.get(opcode, ()))
]


@pytest.mark.parametrize(
    ("opcode", "what", "bit"),
    EVERY_FIELD,
    ids=[f"{opcode:02X} {what}" for opcode, what, _ in EVERY_FIELD],
)
def test_a_wrong_bit_of_any_field_fails_a_case(opcode: int, what: str, bit: int) -> None:
    kind = {
        0xCA: "write",
        0xD1: "ack",
        0xDC: "sack",
        0xDD: "nack",
        0xD8: "request",
        0xD9: "response",
        0xDE: "probe",
    }[opcode]
    assert failing(lambda: Wrong(FABRIC, 0, out=flipped(kind, bit)), SAID[opcode])


@pytest.mark.dear("every case against wrong endpoints until one fails it")
@pytest.mark.parametrize("file", FILES)
def test_there_is_no_case_that_cannot_fail(file: str) -> None:
    """By an endpoint that is wrong in one thing and not dumb: who says nothing fails most."""
    wrong = [name for name in NAMES if not name.endswith("nothing")]
    for case in CASES.values():
        if case.name.startswith(file):
            assert any(play(case, make(name, FABRIC)).verdict == "fail" for name in wrong), (
                case.name
            )


def report(
    tmp_path: Path, text: str, *words: str, status: int, capsys: pytest.CaptureFixture[str]
) -> str:
    file = tmp_path / "mine.txt"
    file.write_text(text)
    assert cli.execute(["conform", *(words or ("engine",)), "--file", str(file)]) == status
    said = capsys.readouterr()
    return said.out + said.err


def test_what_fails_is_shown_beside_what_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = report(
        tmp_path,
        "== x | A wish | 4\nsend write k=0 of=2 a=1\nexpect sack cack=7 ooo_count>=3\n",
        status=1,
        capsys=capsys,
    )
    assert (
        "fail: mine/x: A wish (section 4)" in said
        and "line 3: expect sack cack=7 ooo_count>=3: did not come" in said
    )
    rows = [line.split() for line in said.splitlines()]
    assert (
        ["cack", "7", "0"] in rows
        and ["ooo_count", "at", "least", "3", "0"] in rows
        and "1 cases: 0 passed, 1 failed" in said
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("send write\n", "mine.txt:1: 'send': a step of a case begins with peer, send, "),
        (
            "== x | no section\n",
            "mine.txt:1: a case begins with '== NAME | WHAT IT SAYS | SECTION'",
        ),
        ("== x | y | 1\njump\n", "mine.txt:2: 'jump': a step"),
        ("== x | y | 1\nsend 'write\n", "mine.txt:2: No closing quotation"),
        ("== x | y | 1\n== x | z | 1\n", "two cases are called mine/x"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = report(tmp_path, text, status=2, capsys=capsys)
    assert said in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "step",
    [
        "send cake",
        "send write k=many",
        "expect sack cack=$nobody.psn",
        "send write ev=9:9",
        "memory 0 x written",
    ],
)
def test_a_step_that_makes_no_sense_fails_its_case_alone(
    tmp_path: Path, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = report(
        tmp_path,
        f"== x | y | 1\n{step}\n== z | y | 1\nsend write\nexpect ack\n",
        status=1,
        capsys=capsys,
    )
    assert (
        "fail: mine/x" in said and "2 cases: 1 passed, 1 failed" in said and "Traceback" not in said
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["engine", "nothing/*"], "no case is called 'nothing/*'"),
        (["no_such_module:make"], "no_such_module:make: No module named"),
        (["eth0"], "eth0: give --connect"),
        (["engine", "--connect", "x"], "--connect is for interfaces"),
        (["engine", "--base-rtt", "soon"], "--base-rtt soon is not a time"),
        (["eth0", "--connect", "no-such-command-here"], "eth0, no-such-command-here: "),
        (["engine", "--file", "no-such-file"], "no-such-file: "),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute(["conform", *words]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"mrcbed: {said}") and line.count("\n") == 1


def test_outcomes_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["conform", "engine", "write/one-*", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"case": name, "verdict": "pass", "why": "", "fields": []}
        for name in ("write/one-packet", "write/one-byte")
    ]


def broken(fabric: object, host: int) -> object:
    """An endpoint that does nothing but raise."""

    class Raises:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            raise RuntimeError(f"no {name} here")

    return Raises()


def test_a_target_that_raises_fails_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["conform", f"{__name__}:broken", "write/one-*"]) == 1
    said = capsys.readouterr().out
    assert (
        said.count("the target raised RuntimeError: no register here") == 2
        and "0 passed, 2 failed" in said
    )


def test_shipped_cases_are_in_the_wheel() -> None:
    assert len(CASES) >= 80 and {path.stem for path in SHIPPED.glob("*.txt")} == set(FILES)
