"""The fuzzers' targets without a fuzzer: the committed corpus, stories that hypothesis makes up,
and faults that must be found."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mininet.cli import CLI
from rich.console import Console

from agents.collectives import base, flows, group
from agents.collectives.reduce_scatter import ReduceScatter
from agents.kernel import framing
from agents.mrc import wire
from agents.mrc.arrivals import Arrivals
from agents.mrc.sender.rtt import RttTracker
from agents.packets.memory import Memory
from agents.process import agent
from agents.roce.counters import Counters
from mrcbed.prompt.cli import Prompt
from mrcbed.prompt.help import GROUPS
from testbed import terminal
from testbed.emulated.prompt import MAX_LINE, REFUSED
from testbed.emulated.prompt import Prompt as FabricPrompt
from tests.fuzz.pair import Pair
from tests.fuzz.run import CORPUS, TARGETS, corpus, make

MOST_FILES, MOST_BYTES = 300, 200 << 10


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two targets make arenas small, for good: not for the tests after these."""
    for module in (group, base, flows):
        monkeypatch.setattr(module, "ARENA", module.ARENA)
    monkeypatch.setattr(group, "RECEIVES", group.RECEIVES)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_in_the_corpus(name: str) -> None:
    target, inputs = make(name), corpus(name)
    assert inputs and max(map(len, inputs)) <= target.max_len
    for data in inputs:
        target.one(data)


def test_the_corpus_is_small_and_has_a_folder_for_each_target() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(TARGETS)
    assert len(files) <= MOST_FILES and sum(path.stat().st_size for path in files) <= MOST_BYTES


def _bit_lost(m: int, probe: bool) -> int:
    return 0


def _anywhere(memory: framing.Memory, va: int, rkey: int, length: int) -> memoryview:
    return next(iter(memory._regions.values()))[1][:length]


FAULTS: list[tuple[str, object, str, object]] = [
    ("codec", wire, "seth_word", _bit_lost),
    ("mrc", Memory, "allowed", lambda memory, rkey, va, length: True),
    ("mrc", Arrivals, "_sack", lambda *a: 1 // 0),
    ("mrc", Arrivals, "counters", lambda a: {"rx_packets": a.rx_packets, "rx_too_many": 0}),
    ("roce", Memory, "allowed", lambda memory, rkey, va, length: True),
    ("roce", Counters, "as_dict", lambda c: dict.fromkeys(dir(c), 1)),
    ("mrc-frame", Memory, "allowed", lambda memory, rkey, va, length: True),
    ("mrc-frame", Arrivals, "_sack", lambda *a: 1 // 0),
    ("roce-frame", Counters, "as_dict", lambda c: dict.fromkeys(dir(c), 1)),
    ("stream", framing.Memory, "at", _anywhere),
    ("control", agent, "_NOT_ARGUMENTS", ()),
    ("immediates", ReduceScatter, "sends", lambda job, peer, stage: True),
    ("prompt", FabricPrompt, "onecmd", CLI.onecmd),
    ("prompt", FabricPrompt, "do_source", CLI.do_source),
    ("prompt", terminal, "console", lambda width, file: Console(width=width, file=file)),
    ("prompt", Prompt, "_peers", lambda rows: 1 // 0),
]


@pytest.mark.parametrize(
    "name, where, what, instead", FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS]
)
def test_a_fault_in_the_code_is_found_by_the_corpus(
    name: str,
    where: object,
    what: str,
    instead: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where the code is source: compiled, it does not look its own functions up again."""
    if not str(
        sys.modules[getattr(where, "__module__", getattr(where, "__name__", ""))].__file__
    ).endswith(".py"):
        pytest.skip("this part is compiled; the pass over interpreted code has it")
    target = make(name)
    monkeypatch.setattr(where, what, instead)
    with pytest.raises((AssertionError, ArithmeticError, ValueError, LookupError, TypeError)):
        for data in corpus(name):
            getattr(target, "renew", int)()  # so that an input does not depend on those before it
            target.one(data)


def test_the_hang_that_was_found_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smoothed round trip of nothing made timers due for ever (agents/mrc/sender/rtt.py): the
    world's own rule says so before it hangs."""
    target = make("mrc")
    assert isinstance(target, Pair)
    for engine in target.engines:
        for qp in engine.order:
            assert isinstance(qp.requester.rtt, RttTracker)
            qp.requester.rtt.srtt = 0
    with pytest.raises(AssertionError, match="timers"):
        target.one(b"\0")


steps = st.one_of(
    st.integers(0, 31).map(lambda n: bytes([n << 3])),
    st.integers(0, 3).map(lambda n: bytes([n << 3 | 1])),
    st.integers(10, 31).map(lambda n: bytes([n << 3 | 2])),
    st.builds(
        lambda n, size: bytes([n << 3 | 3]) + size.to_bytes(2, "big"),
        st.integers(0, 31),
        st.integers(0, 20_000),
    ),
    st.builds(
        lambda how, flags, pick, edits, more: bytes([4 | how, flags, pick, *edits, *more]),
        st.integers(0, 3),
        st.integers(0, 255),
        st.integers(0, 255),
        st.lists(st.integers(0, 255), max_size=6),
        st.binary(max_size=8),
    ),
)


@pytest.mark.parametrize("name", ["mrc", "roce"])
def test_no_story_of_honest_and_hostile_frames_breaks_an_endpoint(name: str) -> None:
    """In the middle of a transfer: no exception, no byte outside a region, bounded state, and a
    name for every frame (pair.py)."""
    target = make(name)

    @settings(deadline=None, max_examples=80, database=None)
    @given(st.lists(steps, max_size=25))
    def tell(story: list[bytes]) -> None:
        target.one(b"".join(story))

    tell()


COMMANDS = [
    *(name for names in GROUPS.values() for name in names),
    *REFUSED,
    "h0",
    "p0-t0-0",
    "h9",
    "!",
    "?",
    "EOF",
    "time time",
    "AGAIN",
]
ARGUMENTS = [
    "h0",
    "h3",
    "h4",
    "p0-t1-0",
    "p0-t0-0:p0-t1-0",
    "p0-t1-0:p0-t0-0",
    "h0-p1",
    "p0",
    "p9",
    "h0>h2@p0/1",
    "0:1",
    "9:9",
    "0x10001",
    "up",
    "down",
    "start",
    "stop",
    "on",
    "off",
    "all",
    "ring-allreduce",
    "steps=1",
    "bytes=64",
    "qps=3",
    "slices=9",
    "dtype=float32",
    "placement=",
    "loss",
    "flap",
    "straggler",
    "path-loss",
    "controller",
    "probability=0.5",
    "period=1",
    "interval=nan",
    "-u",
    "-b",
    "2Mbit",
    "-t",
    "--path",
    "-c",
    "0",
    "-1",
    "1",
    "1e9",
    "inf",
    "\u00b2",
    "\u0663",
    "9" * 5000,
    "/nosuch",
    "/",
    "/dev/zero",
    "AGAIN",
    "exit",
    "eval",
    "(",
    "$(exit)",
    "`",
    ";",
    "&",
    "|",
    ">",
    "#",
    "%s",
    "{0}",
    "[/]",
    "[/red]",
    "[red]",
    "[link=x]",
    "\\[",
    "[[",
    "]",
    ":bomb:",
    "'",
    '"',
    "\\",
    "\t",
    "\0",
    "\r",
    "\x1b[31m",
    "\x7f",
    "\u202e",
    "\u2028",
    "\U0001f4a3",
    "e\u0301",
    "\ufeff",
    "\udcff",
    "A" * (MAX_LINE + 1),
    "\u00e9" * 2500,
    "time",
    "source",
    "=",
    ":",
]
typed = st.builds(
    lambda command, between, arguments: between.join([command, *arguments]),
    st.sampled_from(COMMANDS) | st.text(max_size=5),
    st.sampled_from([" ", " ", " ", "=", ":", "\t"]),
    st.lists(st.sampled_from(ARGUMENTS) | st.text(max_size=5), max_size=4),
)


def test_nothing_that_is_typed_ends_the_prompt() -> None:
    """No exception, no internal error, and the fabric's agents alive (prompt.py)."""
    target = make("prompt")

    @settings(deadline=None, max_examples=150, database=None)
    @given(st.lists(typed, min_size=1, max_size=8))
    def tell(lines: list[str]) -> None:
        target.one("\n".join(lines).encode("utf-8", "surrogatepass"))

    tell()
