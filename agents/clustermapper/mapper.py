"""The prober of one host: sends its probes, judges those that do not come back, and localises on
its own counts. Sans-IO.

Times are ps. A probe is judged at its deadline, so that counts are comparable. A later one counts
as late, not as lost.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, Final

from agents.clustermapper.localise import Localiser
from agents.clustermapper.options import Options
from agents.clustermapper.probes import (
    cells,
    cells_of_round,
    deadline_ps,
    frame,
    interval_ps,
    paths,
    read,
)
from agents.transport import LONG_AGO, NEVER, Event, FrameIO, Note
from topologies.clos import Fabric

BUCKET_ROUNDS: Final = 2
"""Counts are judged once per so many intervals [ours]."""
REMEMBERED: Final = 4096
"""Most lost probes that are remembered, in case they arrive after all."""
KEPT: Final = 16
_OUT, _BACK, _CORRUPT, _VOID = 0, 1, 2, 3


class Frames:
    def __init__(self) -> None:
        self.tx = 0
        self.rx = 0
        self.refused = 0  # by the kernel
        self.foreign = 0
        self.corrupt = 0
        self.late = 0


class Mapper(FrameIO):
    """``nonce`` (64 bits) distinguishes this run's probes. ``seed`` must be the same on all
    hosts."""

    def __init__(self, fabric: Fabric, host: int, options: Options, seed: int, nonce: int) -> None:
        super().__init__()
        self.fabric = fabric
        self.host = host
        self.options = options
        self.seed = seed
        self.nonce = nonce
        self.interval = interval_ps(fabric, options)
        self.bucket_ps = BUCKET_ROUNDS * self.interval
        self.patience = deadline_ps(fabric)
        self.rng = Random(f"{seed}/{nonce}/{host}")
        self.probed = paths(fabric, host)
        self.running = False
        self.up = [True] * fabric.planes  # as the kernel reported
        self.refused = [False] * fabric.planes  # the last probe was
        self.slots: list[tuple[int, list[int]]] = []  # (when, cells) of this round, latest first
        self.round = -1
        self.due: list[int] = []  # cells to send now
        self.building = -1  # the cell of the frame in tx_frame
        self.sequence = 0
        self.waiting: deque[int] = deque()  # sequence numbers, oldest first
        self.probes: dict[int, list[int]] = {}  # sequence number -> deadline, cell, fate
        self.missed: dict[int, int] = {}  # sequence number -> cell: judged lost
        self.checked = LONG_AGO  # when timer was last called
        self.bucket = -1
        n = cells(fabric)
        self.sent_by, self.lost_by, self.late_by, self.corrupt_by = (
            [0] * n,
            [0] * n,
            [0] * n,
            [0] * n,
        )
        self.frames = Frames()
        self.localiser = Localiser(fabric, options, [host])
        self.log: list[Event] = []
        self.reports: list[Note] = []

    # --- the loop's side --------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self.running = True
        self.checked = now
        self.round = now // self.interval
        self.bucket = now // self.bucket_ps
        self.slots = []

    def stop(self) -> None:
        """Stop sending; probes on the way are not judged."""
        self.running = False
        self.due = []
        self.slots = []
        self.waiting.clear()
        self.probes.clear()

    def timer(self, now: int) -> None:
        if not self.running:
            return
        lag = now - self.deadline()
        self.checked = now
        if lag > self.fabric.base_rtt_ps:
            # This process was delayed; frames that came meanwhile have not been read yet, and their
            # probes must not be judged before.
            for entry in self.probes.values():
                entry[0] += lag
        while self.waiting and self.probes[self.waiting[0]][0] <= now:
            self._judge(self.waiting.popleft())
        number = now // self.interval
        if number != self.round:
            self.round = number
            begin, half = number * self.interval, self.interval // 2
            first, second = cells_of_round(self.fabric, self.options, self.seed, self.host, number)
            times = [begin + self.rng.randrange(half), begin + half + self.rng.randrange(half)]
            self.slots = [
                (t, picked) for t, picked in zip(times, (first, second), strict=True) if picked
            ][::-1]
        while self.slots and self.slots[-1][0] <= now:
            self.due += self.slots.pop()[1]
        if now // self.bucket_ps != self.bucket:
            self.bucket = now // self.bucket_ps
            self._look(now)

    def transmit(self, now: int) -> int:
        while self.due:
            path = self.probed[self.due.pop()]
            if self.up[path.plane]:
                self.sequence = self.sequence + 1 & 0xFFFFFFFF
                self.building = path.cell
                self.tx_frame = frame(path, self.nonce, self.sequence, now)
                return path.plane
        return -1

    def sent(self, now: int, port: int, ok: bool) -> None:
        """A refused probe says something about the port only."""
        self.frames.tx += 1
        self.refused[port] = not ok
        if ok:
            self.probes[self.sequence] = [now + self.patience, self.building, _OUT]
            self.waiting.append(self.sequence)
        else:
            self.frames.refused += 1

    def deadline(self) -> int:
        if not self.running:
            return NEVER
        soonest = (self.round + 1) * self.interval
        if self.due:
            return self.checked
        if self.slots:
            soonest = min(soonest, self.slots[-1][0])
        if self.waiting:
            soonest = min(soonest, self.probes[self.waiting[0]][0])
        return soonest

    def receive(self, now: int, port: int, buffer: Any, start: int, length: int) -> None:
        """Take a frame with a probe's UDP port. Never raises on hostile input."""
        self.frames.rx += 1
        probe = read(buffer, start, length)
        if probe is None or (probe.sound and probe.nonce != self.nonce):
            self.frames.foreign += 1
            return
        entry = self.probes.get(probe.sequence)
        expected = (
            entry is not None and entry[1] == probe.cell and self.probed[probe.cell].plane == port
        )
        if not probe.sound:
            self.frames.corrupt += 1
            # the damage is in other fields
            if entry is not None and expected and probe.nonce == self.nonce and entry[2] == _OUT:
                entry[2] = _CORRUPT
        elif entry is not None and expected:
            if entry[2] == _OUT:
                entry[2] = _BACK
        elif self.missed.pop(probe.sequence, -1) == probe.cell:
            self.frames.late += 1
            self.late_by[probe.cell] += 1
            self.lost_by[probe.cell] -= 1

    def port_state(self, now: int, port: int, up: bool) -> None:
        """Probes on the way through a port that loses its carrier are not judged."""
        self.up[port] = up
        self.refused[port] = False
        if not up:
            for entry in self.probes.values():
                if entry[2] == _OUT and self.probed[entry[1]].plane == port:
                    entry[2] = _VOID

    # --- judging ----------------------------------------------------------------------------------

    def _judge(self, sequence: int) -> None:
        _, cell, fate = self.probes.pop(sequence)
        if fate == _VOID:
            return
        self.sent_by[cell] += 1
        if fate == _BACK:
            return
        self.lost_by[cell] += 1
        if fate == _CORRUPT:
            self.corrupt_by[cell] += 1
            return
        self.missed[sequence] = cell
        if len(self.missed) > REMEMBERED:
            del self.missed[next(iter(self.missed))]

    def _look(self, now: int) -> None:
        carrier = [up and not refused for up, refused in zip(self.up, self.refused, strict=True)]
        self.localiser.add(self.host, self.bucket, self.sent_by, self.lost_by, carrier)
        changed = [verdict.row() for verdict in self.localiser.judge(now)]
        for row in changed:
            self.log.append((now, "mapper", row))
        del self.reports[:-KEPT]
        self.reports.append(
            {
                "event": "mapper",
                "host": self.host,
                "links": changed,
                "bucket": self.bucket,
                "sent": list(self.sent_by),
                "lost": list(self.lost_by),
                "carrier": carrier,
            }
        )

    # --- results ----------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        events, self.log = self.log, []
        return events

    def take_reports(self) -> list[Note]:
        reports, self.reports = self.reports, []
        return reports

    def table(self) -> dict[str, object]:
        return {
            "running": self.running,
            "interval_ps": self.interval,
            "deadline_ps": self.patience,
            "links": self.localiser.table(),
            "sent": list(self.sent_by),
            "lost": list(self.lost_by),
            "late": list(self.late_by),
            "corrupt": list(self.corrupt_by),
            "carrier": [
                up and not refused for up, refused in zip(self.up, self.refused, strict=True)
            ],
            "bucket": self.bucket,
        }

    def counters(self) -> dict[str, int]:
        return {
            "mapper_tx": self.frames.tx,
            "mapper_rx": self.frames.rx,
            "mapper_refused": self.frames.refused,
            "mapper_sent": sum(self.sent_by),
            "mapper_lost": sum(self.lost_by),
            "mapper_late": self.frames.late,
            "mapper_corrupt": self.frames.corrupt,
            "mapper_foreign": self.frames.foreign,
        }
