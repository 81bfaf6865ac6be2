"""``mrcbed up --on`` as people call it, on two machines: the prompt over both, and its refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.emulated.command import mrcbed
from tests.emulated.machines import Machine, machines, on, reach

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def two() -> Iterator[list[Machine]]:
    with machines() as both:
        yield both


PROMPT = """
pingall
trace h0 h3 0:1
break p0-t0-1:p0-t1-1
broken
trace h0 h3 0:1
mend all
break p1-t1-0
broken
heal
fault loss h3-p1 probability=1 direction=down
faults
heal 1
faults
allreduce steps=3 bytes=65536
h0 ping -c 1 h2
status
xterm h0
net
nosuchthing
"""


def test_the_prompt_works_over_both(two: list[Machine]) -> None:
    done = mrcbed("up", "tiny", "--on", on(two), "--reach", reach(), input=PROMPT)
    assert done.returncode == 1, "two of its lines are refused"
    said = done.stdout
    # where Mininet prints what its own commands say
    assert "0% dropped (12/12 received)" in done.stderr
    way = [
        "h0-p0",
        "p0-t0-0-d0",
        "p0-t0-0-u1",
        "p0-t1-1-d0",
        "p0-t1-1-d1",
        "p0-t0-1-u1",
        "p0-t0-1-d1",
        "h3-p0",
    ]
    rows = re.findall(r"^ \d+ +([\w-]+) +(?:in|out) ", said, re.MULTILINE)
    assert rows == [*way, *way[:4]], said
    assert "lost after p0-t1-1-d0: seen arriving at p0-t1-1, then no more" in said
    assert "p0-t0-1:p0-t1-1\nmrcbed>" in said
    assert "p1-t0-0:p1-t1-0\np1-t0-1:p1-t1-0\nmrcbed>" in said
    assert "fault 1: loss h3-p1: h3:p1-t0-1" in said and "no faults;" in said
    assert "every sum right" in " ".join(said.split()), said
    assert "1 received, 0% packet loss" in done.stderr
    assert "lost between machines: nothing" in said
    for name in ("xterm", "net"):
        assert f"{name} needs interfaces and shells at hand" in said
    assert "no command 'nosuchthing'" in said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--on", "nohost.invalid,other.invalid"), "mrcbed: nohost.invalid: "),
        (
            ("--on", "a=10.9.0.1,b=10.9.0.2", "--reach", "false {host}"),
            "mrcbed: a is not reached (ended with status 1): `false a` must work from here",
        ),
        (
            ("--on", "a=10.9.0.1,b=10.9.0.2,c=10.9.0.3"),
            "mrcbed: fabric 'tiny' has 2 T0 per plane, and each machine needs one: give at most 2",
        ),
        (
            ("--on", "a=10.9.0.1,b=10.9.0.2", "--switch", "ovs"),
            "mrcbed: --on: several machines have eBPF switches",
        ),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], line: str) -> None:
    done = mrcbed("up", "tiny", *words)
    assert done.returncode == 2
    complaints = [said for said in done.stderr.splitlines() if said.startswith("mrcbed: ")]
    assert len(complaints) == 1 and complaints[0].startswith(line), done.stderr


def test_a_wire_with_too_small_frames_is_refused_with_the_fix() -> None:
    with machines(mtu=1500) as both:
        done = mrcbed("up", "tiny", "--on", on(both), "--reach", reach())
        assert done.returncode == 2
        said = done.stderr.splitlines()[-1]
        assert said == (
            f"mrcbed: {both[0].name}: the way to 10.9.0.2 (wire) carries 1500 bytes, and fabric "
            "'tiny' needs 4338: raise its MTU, or set a smaller mtu in the fabric"
        )


def test_an_address_of_another_machine_is_refused(two: list[Machine]) -> None:
    done = mrcbed(
        "up", "tiny", "--on", f"{two[0].name}=10.9.0.9,{two[1].name}=10.9.0.2", "--reach", reach()
    )
    assert done.returncode == 2
    assert "would leave from 10.9.0.1, not from 10.9.0.9" in done.stderr.splitlines()[-1]


def test_a_wire_that_loses_a_frame_in_three_is_no_closed_port(two: list[Machine]) -> None:
    with two[1].wire("lose_many"):
        done = mrcbed("up", "tiny", "--on", on(two), "--reach", reach())
    assert done.returncode == 0, done.stderr


def test_a_wire_that_lets_nothing_through_is_named(two: list[Machine]) -> None:
    with two[1].wire("lose"):
        done = mrcbed("up", "tiny", "--on", on(two), "--reach", reach())
    assert done.returncode == 2
    said = done.stderr.splitlines()[-1]
    assert (
        f"no frame came from {two[0].name} to {two[1].name} and back: let UDP port 47908 "
        "pass between them"
    ) in said
