"""What a limit of processes leaves for jobs, and what the refusal advises."""

from __future__ import annotations

import threading

import pytest

from testbed.errors import UserError
from testbed.machine.limits import check_room


@pytest.mark.parametrize(
    ("room", "each", "least", "advice"),
    [
        (12, 4, 1, None),
        (11, 4, 1, "use --jobs 1, or "),
        (3, 4, 1, "use --jobs 1, or "),
        (0, 4, 1, "use --jobs 1, or "),
        (17, 6, 0, "use --jobs 1, or "),
        (11, 6, 0, ""),
        (0, 6, 0, ""),
    ],
)
def test_so_many_jobs_as_there_is_room_for(
    room: int, each: int, least: int, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, started = threading.Thread.start, list[threading.Thread]()

    def start(thread: threading.Thread) -> None:
        if len(started) == room:
            raise RuntimeError("can't start new thread")
        begin(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    if advice is None:
        check_room(2, each, least)
    else:
        with pytest.raises(UserError) as refused:
            check_room(2, each, least)
        needed = (
            f"{3 * each} processes and threads are needed for --jobs 2, and only {room} may "
            "start here: "
        )
        assert str(refused.value).startswith(f"{needed}{advice}raise the limit")
    assert len(started) == room and not any(thread.is_alive() for thread in started)
