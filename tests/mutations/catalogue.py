"""Deliberate bugs in the MRC engine, each as small as a slip of the pen, each of which some test
has to catch.

An edit is an exact piece of source and what stands there instead; the piece must occur exactly
once, so a change of the engine that moves one is noticed (test_catalogue.py). ``first``: the tests
that guard it, run before all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutation:
    """One bug: ``edits`` to ``file``, (what stands there, what is put there)."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    first: tuple[str, ...]

    def mutated(self, source: str) -> str:
        """The file's text with the bug in it. Raises ValueError unless every piece occurs exactly
        once."""
        for old, new in self.edits:
            found = source.count(old)
            if found != 1:
                raise ValueError(
                    f"mutation {self.name!r} no longer applies: {self.file} has {found} times: "
                    f"{old.strip()!r}"
                )
            source = source.replace(old, new)
        return source


def _bug(name: str, file: str, first: str, *edits: tuple[str, str]) -> Mutation:
    """``file``: below agents. ``first``: words of test_<word>.py somewhere below
    tests/agents/mrc."""
    tests = [next((ROOT / "tests/agents/mrc").rglob(f"test_{word}.py")) for word in first.split()]
    return Mutation(
        name, f"agents/{file}", edits, tuple(str(path.relative_to(ROOT)) for path in tests)
    )


MUTATIONS = (
    # What a SACK says, and what is believed of it.
    _bug(
        "last SACK bit never sent",
        "mrc/receiver/responder.py",
        "responder",
        ("_FULL: Final = (1 << 64) - 1", "_FULL: Final = (1 << 63) - 1"),
    ),
    _bug(
        "first SACK bit not read",
        "mrc/sender/requester.py",
        "requester",
        (
            "new = bitmap & ~sent.arrived_bitmap(base)\n",
            "new = bitmap & ~sent.arrived_bitmap(base) & ~1\n",
        ),
    ),
    _bug(
        "bitmap base read one too high",
        "mrc/sender/requester.py",
        "requester",
        ("base = edge - 1 + offset", "base = edge + offset"),
    ),
    _bug(
        "bitmap base sent one too low",
        "mrc/departures.py",
        "sack_frames",
        ("<< 16 | base - cack & 0xFFFF", "<< 16 | base - cack - 1 & 0xFFFF"),
    ),
    _bug(
        "clear bits of an old SACK believed",
        "mrc/sender/requester.py",
        "requester",
        ("fresh = units >= 0", "fresh = True"),
    ),
    _bug(
        "RTT taken of any copy",
        "mrc/sender/requester.py",
        "requester",
        ("packet.count != (2 if rtx else 1)", "packet.count < 1"),
    ),
    # Paths and planes.
    _bug(
        "lossy EV not dropped",
        "mrc/paths/path_set.py",
        "path_set",
        ("self._give_up(now, path, LOST, cause)", "pass"),
    ),
    _bug(
        "EV replaced from another plane",
        "mrc/paths/path_set.py",
        "path_set",
        ("self._promote(path.plane)", "self._promote((path.plane + 1) % self.planes)"),
    ),
    _bug(
        "SKIP EV carries data",
        "mrc/paths/path_set.py",
        "path_set",
        ("if path.state == SKIP:", "if path.state == DENIED:"),
    ),
    _bug(
        "revival after one probe",
        "mrc/paths/path_set.py",
        "path_set",
        ("path.clean >= path.need or (", "path.clean >= 1 or ("),
    ),
    _bug(
        "flapping path not kept out longer",
        "mrc/paths/path.py",
        "path_set",
        ("min(self.first_need << (self.flaps - 1), MAX_PROOF)", "self.first_need"),
    ),
    _bug(
        "no floor under the EVs in use",
        "mrc/paths/path_set.py",
        "path_set",
        ("self.in_rotation <= self.floor() or", "self.in_rotation < 1 or"),
    ),
    _bug(
        "overdue EV not held",
        "mrc/paths/path.py",
        "path_set",
        ("or now - self.oldest_ps >", "or self.oldest_ps - now >"),
    ),
    _bug(
        "plane not rotated",
        "mrc/sender/requester.py",
        "requester",
        ("self.plane = after\n", "self.plane = plane\n"),
    ),
    _bug(
        "every queue pair begins on plane 0",
        "mrc/sender/requester.py",
        "rotation",
        (
            "self.plane = self.plane_again = self.deal.next(self.wish)",
            "self.plane = self.plane_again = 0",
        ),
    ),
    _bug(
        "first planes drawn, not dealt",
        "mrc/paths/rotation.py",
        "rotation",
        (
            "self.left = list(range(self.count))",
            "self.left = [self.rng.randrange(self.count) for _ in range(self.count)]",
        ),
    ),
    _bug(
        "wishes uneven at receivers",
        "mrc/paths/rotation.py",
        "rotation",
        ("+ own * host + host // n", "+ self.step * host"),
    ),
    _bug(
        "a retransmission takes a new packet's turn",
        "mrc/sender/requester.py",
        "rotation",
        ("self.plane_again = after\n", "self.plane_again = self.plane = after\n"),
    ),
    _bug(
        "control packets begin on plane 0",
        "mrc/receiver/reverse.py",
        "rotation",
        ("self.turn = plane", "self.turn = 0"),
    ),
    _bug(
        "queue pairs take turns by number",
        "mrc/departures.py",
        "rotation",
        ("qps.insert(turn, qps.pop(at))", "pass"),
        (
            "self.turn = turn + 1 if turn + 1 < len(qps) else 0\n\n    def forget",
            "\n    def forget",
        ),
    ),
    _bug(
        "an overtaking retransmission proves a loss",
        "mrc/sender/requester.py",
        "second_paper",
        ("if packet.path.arrived_urgent(packet.seq):", "if packet.path.arrived(packet.seq):"),
    ),
    _bug(
        "data behind a higher class not waited for",
        "mrc/sender/loss.py",
        "second_paper",
        ("window *= 2", "pass"),
    ),
    _bug(
        "a packet beyond the window refused all the same",
        "mrc/arrivals.py",
        "second_paper",
        (" and self.config.out_of_window == NACKED:", ":"),
    ),
    _bug(
        "lost packet again by the same plane",
        "mrc/sender/requester.py",
        "requester",
        ("avoid.plane if avoid is not None and paths.live_planes > 1 else -1", "-1"),
    ),
    _bug(
        "trim taken for a dead path",
        "mrc/sender/requester.py",
        "trims",
        (
            "            self.paths.marked(path)",
            '            self.paths.lost(now, path, now, self.rtt.srtt, "trimmed")',
        ),
    ),
    _bug(
        "NACK ignored",
        "mrc/arrivals.py",
        "trims",
        (
            "if reason in (wire.TRIMMED, wire.TRIMMED_LASTHOP):\n            self.nacks_rx += 1\n",
            (
                "if reason in (wire.TRIMMED, wire.TRIMMED_LASTHOP):\n"
                "            self.nacks_rx += 1\n            return None\n"
            ),
        ),
    ),
    _bug(
        "NACK for an older copy obeyed",
        "mrc/sender/resend.py",
        "trims",
        (
            "not packet.in_flight or not _is(packet, ev, ts, shift)",
            "not packet.in_flight or path.ev != ev",
        ),
    ),
    # Windows and timers.
    _bug(
        "receive window one too large",
        "mrc/receiver/responder.py",
        "responder",
        ("if i >= self.size:", "if i > self.size:"),
    ),
    _bug(
        "peer's window one too large",
        "mrc/sender/sent_packets.py",
        "requester",
        ("self.limit = psn + min(mpr, self.size)", "self.limit = psn + min(mpr, self.size) + 1"),
    ),
    _bug(
        "one packet more than the window",
        "mrc/sender/requester.py",
        "requester",
        ("sent.in_flight + self.full > self", "sent.in_flight > self"),
    ),
    _bug(
        "lost bytes stay in flight",
        "mrc/sender/sent_packets.py",
        "requester trims",
        (
            "self._requeue(packet, LOST)\n",
            "self._requeue(packet, LOST)\n        self.in_flight += packet.size\n",
        ),
    ),
    _bug(
        "RTO not doubled",
        "mrc/sender/timers.py",
        "requester",
        ("self.rto_ps << min(n - c.linear + 1, 32))", "self.rto_ps)"),
    ),
    _bug(
        "timer of doubts forgotten",
        "mrc/queue_pair.py",
        "trims failures",
        ("return min(at, r.doubts.at)", "return at"),
    ),
    # Memory and completions.
    _bug(
        "end of a region unchecked",
        "packets/memory.py",
        "responder",
        (" and va + length <= region.end", ""),
    ),
    _bug(
        "start of a region unchecked",
        "packets/memory.py",
        "responder",
        (" and region.base <= va and", " and"),
    ),
    _bug(
        "duplicate placed again",
        "mrc/receiver/responder.py",
        "responder",
        ("if i < 0 or self.received >> i & 1:", "if i < 0:"),
    ),
    _bug(
        "immediate delivered when it arrives",
        "mrc/receiver/responder.py",
        "responder delivery",
        (
            "                self.completions.append(\n"
            "                    Completion(\n"
            "                        self.qpn,\n"
            "                        wr,\n"
            "                        RECEIVE,\n"
            "                        OK,\n"
            "                        self.imm[slot] & _WORD,\n"
            "                        (self.imm[slot] >> 32) + _HALF,\n"
            "                    )\n"
            "                )\n",
            "",
        ),
        (
            "        if i == 0:\n            self._advance()\n",
            "        if p.imm >= 0 and self.recv_queue.ids:\n"
            "            own = self.recv_queue.ids[0]\n"
            "            self.completions.append(Completion(self.qpn, own, RECEIVE, OK, p.imm, "
            "p.dmalen))\n        if i == 0:\n            self._advance()\n",
        ),
    ),
    _bug(
        "memory written after a NAK",
        "mrc/receiver/responder.py",
        "responder",
        (
            "        if self.nak:\n            return R",
            "        if self.nak < 0:\n            return R",
        ),
    ),
    _bug(
        "message numbers not compared",
        "mrc/receiver/responder.py",
        "responder",
        (
            "                self.msn_of[slot] != self.msn & 0xFFFF\n                or self.rq",
            "                self.rq",
        ),
    ),
    # What a stranger may do.
    _bug(
        "iCRC not checked",
        "mrc/arrivals.py",
        "hostile",
        (
            "if not intact and not trimmed and not self.icrc.good(",
            "if length < 0 and not self.icrc.good(",
        ),
    ),
    _bug(
        "another host's frame for the QP taken",
        "mrc/arrivals.py",
        "hostile",
        ("qp is None or qp.peer != src - 1 or", "qp is None or"),
    ),
    _bug(
        "acknowledgement of what was never sent believed",
        "mrc/sender/requester.py",
        "requester hostile",
        (
            "if last >= self.sent.next:\n            self.bad_sacks += 1\n",
            "if last < 0:\n            self.bad_sacks += 1\n",
        ),
    ),
    _bug(
        "NACK that names nothing ends a queue pair",
        "mrc/arrivals.py",
        "unexpected",
        (
            "                self.bad_nacks += 1\n                return None  #",
            "                self.bad_nacks += 1  #",
        ),
    ),
)
