"""The frames of a living view, kept for pages that open later or read slowly. Sans-IO.

A page is a place in the list of lines. One that has fallen behind what is kept gets ``missed``, and
keyframes that stand for the dropped lines. So a slow page costs no memory.
"""

from __future__ import annotations

import json

from testbed.view.fold import Frame, State

KEPT = 20_000
BEHIND = 2_000


def line(source: str, frame: Frame) -> str:
    return json.dumps([source, frame], separators=(",", ":")) + "\n"


class History:
    def __init__(self, kept: int = KEPT, behind: int = BEHIND) -> None:
        self.kept, self.behind = kept, behind
        self.first = 0  # the number of the oldest line that is kept
        self._lines: list[str] = []
        self._frames: list[tuple[str, Frame]] = []
        self._headers: dict[str, Frame] = {}  # of the sources of dropped lines
        self._states: dict[str, State] = {}

    @property
    def end(self) -> int:
        return self.first + len(self._lines)

    def add(self, source: str, frame: Frame) -> None:
        self._lines.append(line(source, frame))
        self._frames.append((source, frame))
        if len(self._lines) > self.kept:
            self._drop(self.kept // 2)

    def _drop(self, count: int) -> None:
        for source, frame in self._frames[:count]:
            if frame["f"] == "run":
                self._headers[source], self._states[source] = frame, State()
            else:
                self._states[source].apply(frame)
        del self._frames[:count], self._lines[:count]
        self.first += count

    def since(self, place: int) -> tuple[str, int]:
        fresh = place < 0
        if fresh or place < self.first or self.end - place > self.behind:
            begin = "" if fresh else json.dumps(["", {"f": "missed"}]) + "\n"
            old = [
                line(source, frame)
                for source, header in self._headers.items()
                for frame in (header, *self._states[source].keyframe())
            ]
            return begin + "".join(old) + "".join(self._lines), self.end
        return "".join(self._lines[place - self.first :]), self.end
