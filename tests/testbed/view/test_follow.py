"""A run that is followed while it grows gives the frames that a replay has; what a page has missed,
keyframes stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.view.fold import Frame, State
from testbed.view.follow import Follower, Following
from testbed.view.history import History
from testbed.view.read import BEGUN, read_frames, read_run
from tests.testbed.view.conftest import Growing


def in_order(frames: list[Frame]) -> list[str]:
    return sorted(json.dumps(frame, sort_keys=True) for frame in frames if frame["f"] != "run")


@pytest.mark.parametrize("parts", [1, 12])
def test_the_frames_of_a_run_that_grows_are_those_of_its_replay(
    growing: Growing, parts: int
) -> None:
    growing.begin()
    follower = Follower(growing.raw, read_run(growing.directory, growing.key))
    frames = []
    for part in range(parts):
        growing.grow((part + 1) / parts)
        frames += list(follower.look())
    assert not follower.over
    growing.end()
    frames += list(follower.look())
    assert follower.over and frames[0]["f"] == "run" and list(follower.look()) == []
    assert in_order(frames) == in_order(
        list(read_frames(growing.directory, read_run(growing.directory, growing.key)))
    )


def test_runs_are_found_when_they_begin_and_those_that_are_over_are_left_alone(
    growing: Growing, complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.view.follow.LAG_S", 0.0)
    following = Following(growing.directory)
    assert list(following.look()) == []
    growing.begin()
    assert [(source, frame["f"]) for source, frame in following.look()] == [(growing.key, "run")]
    growing.grow(1.0)
    assert len(list(following.look())) > 20
    assert list(Following(complete).look()) == []


def test_a_run_that_is_made_again_is_another_source(growing: Growing) -> None:
    growing.begin()
    following = Following(growing.directory)
    assert [source for source, _ in following.look()] == [growing.key]
    record = json.loads((growing.raw / BEGUN).read_text())
    record["window"][0] += 1_000_000
    (growing.raw / BEGUN).write_text(json.dumps(record) + " ")
    assert [source for source, frame in following.look() if frame["f"] == "run"] == [
        f"{growing.key}+"
    ]


def test_half_a_description_is_read_again(growing: Growing) -> None:
    growing.begin()
    whole = (growing.raw / BEGUN).read_text()
    following = Following(growing.directory)
    (growing.raw / BEGUN).write_text(whole[:100])
    assert list(following.look()) == []
    (growing.raw / BEGUN).write_text(whole)
    assert [frame["f"] for _, frame in following.look()] == ["run"]


# --- history --------------------------------------------------------------------------------------


def state_of(lines: list[Any]) -> list[Frame]:
    state = State()
    for _, frame in lines:
        if frame["f"] != "run":
            state.apply(frame)
    return sorted(state.keyframe(), key=lambda frame: json.dumps(frame, sort_keys=True))


def read(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_page_that_is_slow_begins_anew_and_ends_in_the_same_state(
    complete: Path, growing: Growing
) -> None:
    frames = list(read_frames(complete, read_run(complete, growing.key)))
    history = History(kept=60, behind=20)
    place, quick = -1, []
    for frame in frames:
        history.add("a", frame)
        text, place = history.since(place)
        quick += read(text)
    assert quick == [["a", frame] for frame in frames]  # who keeps up reads every frame, once
    assert history.end - history.first <= 60
    text, _ = history.since(3)  # long behind
    slow = read(text)
    assert slow[0] == ["", {"f": "missed"}] and slow[1][1]["f"] == "run" and len(slow) < len(frames)
    assert state_of(slow[1:]) == state_of(quick)
    text, _ = history.since(-1)
    assert read(text) == slow[1:]  # a page that opens late has missed nothing


def test_memory_is_bounded_whatever_comes(complete: Path, growing: Growing) -> None:
    frames = [
        frame
        for frame in read_frames(complete, read_run(complete, growing.key))
        if frame["f"] in ("run", "ports", "rate")
    ]
    history = History(kept=50)
    for _ in range(30):
        for frame in frames:
            history.add("a", frame)
    text, _ = history.since(-1)
    assert (
        len(read(text))
        < 50
        + len({str(frame.get("host")) + str(frame.get("rows", [[0]])[0][0]) for frame in frames})
        + 200
    )
