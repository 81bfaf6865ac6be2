"""Carries out calls of a program on its agent: shared memory, groups of ranks, collectives and
messages on the program's own data.

The agent moves all data in its own loop, whether or not the program computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agents.collectives.channel import Channel
from agents.collectives.group import CollectiveError, Group, LostError, Wanted
from agents.transport import NEVER, Completion, Note, Region, Remote

MOST_MEMORY = 1 << 30
"""Most memory of a program, bytes [ours]."""
MOST_GROUPS = 64
"""Most groups of a program [ours]."""
MOST_QPS = 4096
"""Most queue pairs of a program: one to each peer in each group, on 64 hosts [ours]."""
MOST_OUTSTANDING = 1 << 16
"""Most calls of a program that wait [ours]."""
MOST_TOLD = 1 << 26
"""Most bytes that a program may report [ours]."""
MOST_NAME = 100
"""Letters of a group's name, at most [ours]."""


class Calls:
    """``share(size)`` makes memory that another process may map, and its descriptor or -1.
    ``notify(owner, note)``: to the program."""

    def __init__(
        self,
        device: Any,
        clock: Callable[[], int],
        share: Callable[[int], tuple[Any, int]],
        notify: Callable[[Any, Note], None],
    ) -> None:
        self.device, self.clock, self.share, self.notify = device, clock, share, notify
        self.memory: memoryview | None = None
        self.region = Region(0, 0, 0)
        self.groups: dict[str, Group] = {}
        self.channels: dict[str, Channel] = {}
        self.channel_of: dict[int, Channel] = {}  # by QPN
        self.reported: set[str] = set()  # groups whose failure was reported
        self.owner: Any = None  # the program
        self.told_bytes = 0
        # hosts whose program has ended, and why, for groups that come later
        self.lost: dict[int, str] = {}

    # --- requests ---------------------------------------------------------------------------------

    def memory_of(self, size: int) -> dict[str, int]:
        """Returns the memory's descriptor, -1 where program and agent are one process."""
        if self.memory is not None:
            raise CollectiveError("there is a program already")
        if not 4096 <= size <= MOST_MEMORY:
            raise CollectiveError(f"memory of {size} bytes: 4096 to {MOST_MEMORY}")
        made, fd = self.share(size)
        self.memory = memoryview(made).cast("B")
        self.region = self.device.register(self.memory)
        return {"fd": fd, "size": size}

    def group(
        self, name: str, ranks: list[int], rank: int, qps: int, slices: int
    ) -> dict[str, dict[str, list[Remote]]]:
        if self.memory is None:
            raise CollectiveError("memory comes before group")
        if name in self.groups or len(self.groups) >= MOST_GROUPS:
            raise CollectiveError(f"group {name!r} is there already, or there are {MOST_GROUPS}")
        gone = next((host for host in ranks if host in self.lost), None)
        if gone is not None:
            raise LostError(ranks.index(gone), gone, self.lost[gone])
        if len(name) > MOST_NAME or len(self.channel_of) + len(ranks) * qps > MOST_QPS:
            raise CollectiveError(
                f"a group's name has up to {MOST_NAME} characters, and a program's groups "
                f"{MOST_QPS} queue pairs in all"
            )
        wanted = [Wanted(peer) for peer in range(len(ranks)) if peer != rank]
        group = Group(self.device, ranks, rank, wanted, qps, self.clock, self.region)
        self.groups[name] = group
        channel = Channel(group, slices, self.memory)
        self.channels[name] = channel
        for qpn in group.bundle_of:
            self.channel_of[qpn] = channel
        return {"qps": group.local}

    def join(self, name: str, remotes: dict[str, list[Remote]]) -> None:
        self._channel(name).group.connect(remotes)

    def _channel(self, name: str) -> Channel:
        if name not in self.channels:
            raise CollectiveError(f"there is no group {name!r}")
        return self.channels[name]

    def usable(self, name: str) -> Channel:
        """Raises :class:`CollectiveError`, with the rank that was lost."""
        channel = self._channel(name)
        if channel.failure is not None:
            rank = channel.failure["peer_rank"]
            raise LostError(rank, channel.group.ranks[rank], channel.failure["reason"])
        if not channel.group.connected:
            raise CollectiveError(f"group {name!r} is not connected: join comes first")
        if sum(each.outstanding for each in self) >= MOST_OUTSTANDING:
            raise CollectiveError(f"{MOST_OUTSTANDING} calls are waiting: wait for some of them")
        return channel

    def lose(self, host: int, reason: str, steps: dict[str, int]) -> None:
        """Calls after so many collectives of each group, and messages to and from that host,
        fail."""
        counts = {name: int(steps.get(name, 0)) for name in self.channels}
        self.lost[host] = str(reason)
        for name, channel in self.channels.items():
            if host in channel.group.ranks:
                channel.lose(channel.group.ranks.index(host), reason, counts[name])

    def steps(self) -> dict[str, int]:
        return {
            name: channel.step + len(channel.waiting) for name, channel in self.channels.items()
        }

    # --- as time goes by --------------------------------------------------------------------------

    def take(self, completions: list[Completion]) -> list[Completion]:
        """Returns the others' completions."""
        rest: list[Completion] = []
        own: dict[str, list[Completion]] = {}
        names = {channel: name for name, channel in self.channels.items()}
        for c in completions:
            channel = self.channel_of.get(c.qpn)
            if channel is None:
                rest.append(c)
            else:
                own.setdefault(names[channel], []).append(c)
        for name, part in own.items():
            channel = self.channels[name]
            channel.completed(channel.group.take(part))
        return rest

    def advance(self) -> None:
        for name, channel in self.channels.items():
            channel.idle()
            if channel.over:
                self.notify(self.owner, {"event": "over", "group": name, "calls": channel.over})
                channel.over = []
            if channel.failure is not None and name not in self.reported:
                self.reported.add(name)
                self.notify(
                    self.owner,
                    {
                        "event": "lost",
                        "group": name,
                        "host": channel.group.ranks[channel.failure["peer_rank"]],
                        **channel.failure,
                    },
                )

    def deadline(self) -> int:
        at = NEVER
        if not self.channels:
            return at
        # no generator: this is asked at every turn of a host
        for channel in self.channels.values():
            at = min(at, channel.deadline())
        return at

    def __iter__(self) -> Iterator[Channel]:
        return iter(self.channels.values())
