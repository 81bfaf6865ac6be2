"""One queue pair: its state, its two halves, and what it owes the wire. Sans-IO; owned by the
endpoint."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from agents.mrc.framing import Route
from agents.mrc.paths.path import Path
from agents.mrc.paths.plane_health import PlaneHealth
from agents.mrc.receiver.responder import Responder
from agents.mrc.sender.requester import Requester
from agents.transport import LONG_AGO, NEVER, Event

RESET: Final = 0
INIT: Final = 1
RTR: Final = 2
RTS: Final = 3
ERROR: Final = 4
PROBE_IDS: Final = 0x7FFF
"""Largest id of Reliability Probes: a SACK's signed offset can echo it [ours]."""
STATE_NAMES: Final = ("RESET", "INIT", "RTR", "RTS", "ERROR")


class QueuePair:
    """INIT when made, RTS when connected, ERROR once and for ever (states of the specification)."""

    def __init__(
        self,
        qpn: int,
        peer: int,
        psn: int,
        route: Route,
        health: PlaneHealth,
        requester: Requester,
        responder: Responder,
        log: list[Event],
    ) -> None:
        self.qpn = qpn
        self.peer = peer
        self.first_psn = psn
        self.remote_qpn = 0
        self.route: Route = route
        self.placed = 0  # payload bytes
        self.cause = -1  # a completion status once the QP has to fail
        self.state = INIT
        self.health = health
        self.requester = requester
        self.responder = responder
        self.log = log
        self.due: i64 = LONG_AGO  # its deadline when the endpoint last looked
        self.listed = False  # in the endpoint's queue of QPs that owe a control packet
        # probes to answer: EV, probe id, timestamp, arrival, marked
        self.answers: list[tuple[int, int, int, int, int]] = []
        self.answer_bases: list[int] = []  # bitmap bases still to tell for the first of them
        self.nacks: list[tuple[int, int, int, int]] = []  # reason, psn, EV, timestamp
        # Reliability Probes out: id -> (path, seq, sent ps, urgent)
        self.probes: dict[int, tuple[Path, int, int, bool]] = {}
        # not from 1: who sees none of our packets must not know them [ours]
        self.next_probe_id = 1 + psn % PROBE_IDS
        self.to_probe: list[Path] = []  # now
        self.unexpected_nack_ps = LONG_AGO
        # the neighbours see to EV Probes while it receives, or need not
        self.watched = not requester.config.reverse_probes

    def to(self, now: int, state: int, cause: str) -> None:
        self.state = state
        self.log.append(
            (
                now,
                "qp",
                {"peer": self.peer, "qpn": self.qpn, "state": STATE_NAMES[state], "cause": cause},
            )
        )

    def silence(self) -> None:
        r = self.responder
        r.sack_due = r.ack_due = False
        r.nak = 0
        r.bases.clear()
        self.answers.clear()
        self.answer_bases.clear()
        self.nacks.clear()
        self.to_probe.clear()

    def asked(self, pid: int, ev: int, ts: int, shift: int) -> bool:
        probe = self.probes.get(pid)
        return probe is not None and probe[0].ev == ev and probe[2] >> shift & 0xFFFF == ts

    def owes(self) -> bool:
        r = self.responder
        return r.sack_due or r.ack_due or r.nak != 0 or len(self.answers) > 0 or len(self.nacks) > 0

    def deadline(self) -> int:
        if self.state != RTS:
            return NEVER
        if self.requester.timers.starting:
            return LONG_AGO  # posted after idling: the timers need to learn the time
        r = self.requester
        at = min(r.rto_at(), r.probe_at())  # two by two: that much the compiler does without a call
        at = min(at, self.responder.flush_at)
        at = min(at, r.paths.next_probe)
        at = min(at, self.health.next_at)
        return min(at, r.doubts.at)
