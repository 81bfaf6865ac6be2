"""Deliberate bugs in the MRC engine, each as small as a slip of the pen, each of which some test has to catch.

An edit is an exact piece of source and what stands there instead; the piece must occur exactly once, so a change of the engine that
moves one is noticed (test_catalogue.py). ``first``: the tests that guard it, run before all others.
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
        """The file's text with the bug in it. Raises ValueError unless every piece occurs exactly once."""
        for old, new in self.edits:
            found = source.count(old)
            if found != 1:
                raise ValueError(f"mutation {self.name!r} no longer applies: {self.file} has {found} times: {old.strip()!r}")
            source = source.replace(old, new)
        return source


def _bug(name: str, file: str, first: str, *edits: tuple[str, str]) -> Mutation:
    """``first``: words of tests/agents/mrc/test_<word>.py."""
    return Mutation(name, f"agents/mrc/{file}", edits, tuple(f"tests/agents/mrc/test_{word}.py" for word in first.split()))


MUTATIONS = (
    # What a SACK says, and what is believed of it.
    _bug("last SACK bit never sent", "responder.py", "responder", ("_FULL: Final = (1 << 64) - 1", "_FULL: Final = (1 << 63) - 1")),
    _bug("first SACK bit not read", "requester.py", "requester", ("new = bitmap & ~known\n", "new = bitmap & ~known & ~1\n")),
    _bug("bitmap base read one too high", "requester.py", "requester", ("base = edge - 1 + offset", "base = edge + offset")),
    _bug("bitmap base sent one too low", "departures.py", "sack_frames", (">> 7, base - cack,", ">> 7, base - cack - 1,")),
    _bug("clear bits of an old SACK believed", "requester.py", "requester", ("fresh = units >= 0", "fresh = True")),
    _bug("RTT taken of any copy", "requester.py", "requester", ("self.count[slot] != (2 if rtx else 1)", "self.count[slot] < 1")),
    # Paths and planes.
    _bug("lossy EV not dropped", "path_set.py", "path_set", ("self._give_up(now, i, LOST, cause)", "pass")),
    _bug(
        "EV replaced from another plane", "path_set.py", "path_set",
        ('(now, self.plane_of[i], "replaces")', '(now, (self.plane_of[i] + 1) % self.planes, "replaces")'),
    ),
    _bug("SKIP EV carries data", "path_set.py", "path_set", ("if s == SKIP:", "if s == DENIED:")),
    _bug("revival after one probe", "path_set.py", "path_set", ("self.clean[i] >= self.need[i] or (", "self.clean[i] >= 1 or (")),
    _bug(
        "flapping path not kept out longer", "path_set.py", "path_set",
        ("min(self.config.probe_successes << (self.flaps[i] - 1), MAX_PROOF)", "self.config.probe_successes"),
    ),
    _bug("no floor under the EVs in use", "path_set.py", "path_set", ("self.in_rotation <= self.floor() and", "self.in_rotation < 1 and")),
    _bug("overdue EV not held", "path_set.py", "path_set", ("return now - self.oldest_ns[i] >", "return self.oldest_ns[i] - now >")),
    _bug("plane not rotated", "requester.py", "requester", ("self.plane = plane + 1 if plane + 1 < n else 0", "self.plane = plane")),
    _bug(
        "lost packet again by the same plane", "requester.py", "requester",
        ("paths.plane_of[avoid] if avoid >= 0 and paths.live_planes() > 1 else -1", "-1"),
    ),
    _bug(
        "trim taken for a dead path", "returned.py", "trims",
        ("        r.paths.marked(i)", '        r.paths.lost(now, i, now, r.rtt.srtt, "trimmed")'),
    ),
    _bug(
        "NACK ignored", "arrivals.py", "trims",
        ("if reason in (wire.TRIMMED, wire.TRIMMED_LASTHOP):\n            self.nacks_rx += 1\n",
         "if reason in (wire.TRIMMED, wire.TRIMMED_LASTHOP):\n            self.nacks_rx += 1\n            return None\n"),
    ),
    _bug(
        "NACK for an older copy obeyed", "returned.py", "trims",
        ("& 0xFFFF != ts:\n            return", "& 0xFFFF < 0:\n            return"),
    ),
    # Windows and timers.
    _bug("receive window one too large", "responder.py", "responder", ("if i >= self.size:", "if i > self.size:")),
    _bug(
        "peer's window one too large", "requester.py", "requester",
        ("self.limit = psn + min(mpr, self.size)", "self.limit = psn + min(mpr, self.size) + 1"),
    ),
    _bug("one packet more than the window", "requester.py", "requester", ("self.in_flight + full > self", "self.in_flight > self")),
    _bug(
        "lost bytes stay in flight", "requester.py", "requester trims",
        ("        self.state[slot] = LOST\n        self.in_flight -= self.bytes[slot]\n", "        self.state[slot] = LOST\n"),
    ),
    _bug("RTO not doubled", "loss.py", "requester", ("c.rto << min(n - c.linear + 1, 32))", "c.rto)")),
    _bug("timer of doubts forgotten", "queue_pair.py", "trims failures", ("self.health.next_at, r.doubts.at)", "self.health.next_at)")),
    # Memory and completions.
    _bug("end of a region unchecked", "memory.py", "responder", (" and va + length <= base + len(self.views[rkey])", "")),
    _bug("start of a region unchecked", "memory.py", "responder", (" and va >= base and", " and")),
    _bug("duplicate placed again", "responder.py", "responder", ("if i < 0 or self.received >> i & 1:", "if i < 0:")),
    _bug(
        "immediate delivered when it arrives", "responder.py", "responder delivery",
        ("                self.completions.append(Completion(self.qpn, wr, RECEIVE, OK, self.imm[slot], 0))\n", ""),
        (
            "        if i == 0:\n            self._advance()\n",
            "        if imm >= 0 and self.recv_head < len(self.recv_queue):\n"
            "            self.completions.append(Completion(self.qpn, self.recv_queue[self.recv_head], RECEIVE, OK, imm, 0))\n"
            "        if i == 0:\n            self._advance()\n",
        ),
    ),
    _bug(
        "memory written after a NAK", "responder.py", "responder",
        ("        if self.nak:\n            return R", "        if self.nak < 0:\n            return R"),
    ),
    _bug("message numbers not compared", "responder.py", "responder", ("self.msn_of[slot] != self.msn & 0xFFFF or ", "")),
    # What a stranger may do.
    _bug("iCRC not checked", "arrivals.py", "hostile", ("if not trimmed and wire.icrc_in_place(", "if length < 0 and wire.icrc_in_place(")),
    _bug("another host's frame for the QP taken", "arrivals.py", "hostile", ("qp is None or qp.peer != src - 1 or", "qp is None or")),
    _bug(
        "acknowledgement of what was never sent believed", "requester.py", "requester hostile",
        ("if last >= self.next:\n            self.bad_sacks += 1\n", "if last < 0:\n            self.bad_sacks += 1\n"),
    ),
)  # fmt: skip
