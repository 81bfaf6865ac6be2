"""Target ``immediates``: a rank of a collective or of flows hears any immediates, in any order,
from peers that need not be honest.

Whatever comes, the job goes on, ends, or says which peer broke it, in one line; it never raises,
never writes outside its peers' arenas, and keeps no more than a bounded number of things for later.
"""

from __future__ import annotations

from typing import Any

from agents.collectives import base, flows, group
from agents.collectives.base import Collective
from agents.collectives.flows import Flow, Flows, bundles_for
from agents.collectives.group import Group
from agents.collectives.registry import collectives
from agents.transport import OK, RECEIVE, WRITE, Completion, Region
from tests.fuzz.reader import Reader

SMALL_ARENA = 1 << 14
HOSTS = 4
MESSAGE = 256
STEPS = 3
KEPT = 1024
"""Immediates of a peer that a job may keep for later: as many as the peer may have under way
(agents/collectives/group.py)."""
FLOWS = (Flow("a", 0, 1, messages=3), Flow("b", 2, 0, messages=3), Flow("c", 0, 3, for_ps=4000))


class Verbs:
    """Takes what a rank posts and keeps it, to be acknowledged when the story says so."""

    host = 0

    def __init__(self) -> None:
        self.posted: list[tuple[int, int, int]] = []
        self.qpns = 0
        self.wild = False

    def register(self, memory: Any) -> Region:
        return Region(1 << 40, 1, len(memory))

    def create_qp(self, peer: int, evs: int = 0) -> dict[str, Any]:
        self.qpns += 1
        return {"qpn": self.qpns, "host": 0}

    def connect_qp(self, qpn: int, remote: dict[str, Any]) -> None:
        """Nobody is there."""

    def post_recv(self, qpn: int, wr_id: int) -> None:
        """There is always room."""

    def post_write(
        self, qpn: int, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int = -1
    ) -> None:
        assert -1 <= imm < 1 << 32
        assert va >= 1 << 41 and va + len(memory) <= (1 << 41) + SMALL_ARENA, (
            "a write outside the peer's arena"
        )
        self.posted.append((qpn, wr_id, imm))


class Immediates:
    """One execution: one job and what it hears. The first byte chooses the job."""

    max_len = 256
    words = ()

    def __init__(self) -> None:
        for module in (group, base, flows):
            module.ARENA = SMALL_ARENA  # type: ignore[attr-defined]
        group.RECEIVES = 1  # type: ignore[misc]
        self.now = 0
        self.names = sorted(collectives().keys() - {"ping-pong"})  # which is between two
        self.groups: dict[int, tuple[Verbs, Group]] = {}

    def _group(self, job: int) -> tuple[Verbs, Group]:
        """One per job, kept."""
        if job not in self.groups:
            verbs = Verbs()
            needed = (
                bundles_for(FLOWS, 0)
                if job == len(self.names)
                else collectives()[self.names[job]].wanted(HOSTS, 0)
            )
            made = Group(verbs, list(range(HOSTS)), 0, needed, 1, lambda: self.now)
            theirs = {
                str(p): [{"qpn": 1, "arena": [1 << 41, 1, SMALL_ARENA]}] * 4
                for p in range(1, HOSTS)
            }
            made.connect(theirs)
            self.groups[job] = verbs, made
        return self.groups[job]

    def one(self, data: bytes) -> None:
        """Raises AssertionError, or whatever the code under test lets out."""
        r = Reader(data)
        which = r.u8() % (len(self.names) + 1)
        verbs, made = self._group(which)
        verbs.posted.clear()
        self.now = 1_000_000
        job: Collective | Flows
        if which == len(self.names):
            job = Flows(made, FLOWS, MESSAGE, 2, 1, 0)
        else:
            job = collectives()[self.names[which]](made, 1, MESSAGE, "int32", STEPS, 0, 1)
        job.begin()
        heard = 0
        qpns = list(made.bundle_of)
        while r.more and not job.failure and not job.finished:
            k = r.u8()
            self.now += 1000
            if k & 3 == 0 and verbs.posted:
                qpn, wr_id, imm = verbs.posted.pop(0)
                job.completed([Completion(qpn, wr_id, WRITE, OK, imm, 0)])
            elif k & 3 == 1:
                job.idle()
            else:
                heard += 1
                qpn = qpns[(k >> 2) % len(qpns)]
                imm = (
                    self._honest(which, r.u8(), r.u8())
                    if k & 3 == 2
                    else int.from_bytes(r.take(4).ljust(4, b"\0"), "big")
                )
                for _ in range(1 + (k >> 5)):
                    if not job.failure:
                        job.completed([Completion(qpn, 0, RECEIVE, OK, imm, 0)])
        if job.failure:
            assert job.failure["peer_rank"] in range(1, HOSTS) and "\n" not in job.failure["reason"]
        assert len(verbs.posted) <= 4096 and len(job.leftover) <= KEPT
        if isinstance(job, Collective):
            assert sum(map(len, job.early.values())) <= KEPT

    def _honest(self, which: int, step: int, rest: int) -> int:
        """An immediate as peers send them: small numbers in each field."""
        if which == len(self.names):
            return (step & 3) << 30 | rest
        return (
            step % 8 << (base.STAGE_BITS + base.SLICE_BITS)
            | (rest >> 4) << base.SLICE_BITS
            | rest & 15
        )

    def seeds(self) -> list[bytes]:
        """For each job: everything that comes in order, and floods."""
        made = []
        for job in range(len(self.names) + 1):
            for lane in range(3):
                front = bytes([job])
                made.append(
                    front
                    + b"".join(
                        bytes([2 | lane << 2, s, x, 0, 1]) for s in range(3) for x in (0, 16, 32, 1)
                    )
                )
                made.append(front + bytes([2 | lane << 2, 0, 0xF0]))
            made.append(bytes([job]) + b"\xe2\1\0" * 20)
            made.append(bytes([job]) + b"\xe3\xff\xff\xff\xff" * 3)
        return made
