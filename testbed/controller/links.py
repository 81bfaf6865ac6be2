"""Keeps the failed links, since when each is failed, and the journal of what happened.

A link is failed while either of its ends is down or has no carrier. Host ports, on which nobody
reports, count as up: a cable pulled there takes the carrier of the switch's side away too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

from topologies import Fabric, Link

JOURNAL_LENGTH = 10_000


@dataclass(frozen=True)
class LinkChange:
    link: str
    up: bool
    port: str
    heard_ps: int
    """When the kernel's message was read: netlink stamps none of its own."""


@dataclass(frozen=True)
class Failure:
    since_ps: int
    detected_ps: int


class PortStates:
    def __init__(self, fabric: Fabric) -> None:
        self._link_of: dict[str, Link] = {
            end.name: link for link in fabric.links for end in (link.a, link.b)
        }
        self._down: set[str] = set()

    def report(self, port: str, up: bool, heard_ps: int) -> LinkChange | None:
        link = self._link_of[port]
        ends = {link.a.name, link.b.name}
        before = not ends & self._down
        if up:
            self._down.discard(port)
        else:
            self._down.add(port)
        after = not ends & self._down
        return None if before == after else LinkChange(link.name, after, port, heard_ps)


class FailedLinks:
    def __init__(self, fabric: Fabric, now: int) -> None:
        self._since = dict.fromkeys(fabric.links_by_name, now)
        self.failed: dict[str, Failure] = {}
        self.journal: deque[dict[str, str | bool | int]] = deque(maxlen=JOURNAL_LENGTH)

    def apply(self, change: LinkChange, now: int) -> None:
        self._since[change.link] = change.heard_ps
        if change.up:
            self.failed.pop(change.link, None)
        else:
            self.failed[change.link] = Failure(change.heard_ps, now)
        self.journal.append({**asdict(change), "handled_ps": now})

    def state(self, link: str) -> tuple[bool, int]:
        return link not in self.failed, self._since[link]
