"""The event stream: replay, then news; a reader that is behind loses entries, is told so, and holds
nobody up."""

from __future__ import annotations

import json
import threading

import pytest

from testbed.controller import journal as module
from testbed.controller.journal import (
    JOURNAL_LENGTH,
    MAX_READERS,
    READER_LENGTH,
    Journal,
    TooManyReaders,
)


def test_times_are_unique_so_that_a_reader_can_say_where_it_left_off() -> None:
    journal = Journal()
    for now in (5, 5, 5, 4, 9):
        journal.add(now, "x")
    assert [entry["t_ps"] for entry in journal.entries] == [5, 6, 7, 8, 9]
    assert [entry["t_ps"] for entry in journal.since(7)] == [8, 9]
    assert journal.since(9) == [] and len(journal.since(-1)) == 5


def test_it_keeps_the_latest() -> None:
    journal = Journal()
    for now in range(JOURNAL_LENGTH + 10):
        journal.add(now, "x")
    assert len(journal.entries) == JOURNAL_LENGTH and journal.entries[0]["t_ps"] == 10


def test_replay_then_news_each_once() -> None:
    journal = Journal()
    journal.add(1, "before", n=1)
    journal.add(2, "before", n=2)
    reader, news_only = journal.follow(1), journal.follow(None)
    journal.add(3, "after", n=3)
    lines = iter(reader)
    assert [json.loads(line) for line in next(lines).splitlines()] == [
        {"t_ps": 2, "event": "before", "n": 2},
        {"t_ps": 3, "event": "after", "n": 3},
    ]
    assert [e["n"] for e in news_only.take()] == [3]
    journal.add(4, "after", n=4)
    assert json.loads(next(lines)) == {"t_ps": 4, "event": "after", "n": 4}


def test_news_wakes_a_reader_that_waits() -> None:
    journal = Journal()
    reader = journal.follow(None)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(next(iter(reader))), daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive() and not got
    journal.add(1, "x")
    thread.join(2)
    assert got == [b'{"t_ps": 1, "event": "x"}\n']


def test_a_slow_reader_is_told_how_many_it_missed_and_goes_on() -> None:
    journal = Journal()
    slow, prompt = journal.follow(None), journal.follow(None)
    seen = 0
    for now in range(1, READER_LENGTH + 8):
        journal.add(now, "x")
        seen += len(prompt.take())
    assert seen == READER_LENGTH + 7
    taken = slow.take()
    assert [e["t_ps"] for e in taken[:-1]] == list(range(1, READER_LENGTH + 1))
    assert taken[-1] == {"t_ps": READER_LENGTH, "event": "missed", "count": 7}
    assert [e["t_ps"] for e in journal.since(taken[-1]["t_ps"])] == list(
        range(READER_LENGTH + 1, READER_LENGTH + 8)
    ), "it can ask for them"
    journal.add(10**6, "y")
    assert [e["event"] for e in slow.take()] == ["y"]


def test_silence_is_broken_by_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEPALIVE_S", 0.01)
    assert next(iter(Journal().follow(None))) == b"\n"


def test_readers_are_few_and_leave() -> None:
    journal = Journal()
    readers = [journal.follow(None) for _ in range(MAX_READERS)]
    with pytest.raises(TooManyReaders):
        journal.follow(None)
    readers[0].close()
    readers[0].close()
    assert journal.readers == MAX_READERS - 1
    journal.follow(None)
