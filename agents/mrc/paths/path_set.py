"""The EVs of one QP: which exist, which are in use, which rest, and whose turn it is.

Used by the requester only. Planes rotate strictly, so that they stay equally loaded (paper); inside a plane a shuffled lap over
the active EVs, in which one pair of neighbours changes places each time round [ours]: no two senders stay in step for long, and an EV's
turns stay a lap apart (shuffling all of it each time queued more: 93 % against 95 % of line rate in a permutation at full load).
Knows nothing of packets: it is told what became of them.
An EV is known here by its index; ``evs[i]`` is its 32-bit value.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, Final

from agents.mrc.config import Config
from agents.mrc.paths.ev_state import ALLOW, ASSUMED_BAD, DENIED, DENY, GOOD, LOST, MARKED, PROVEN, ROTATED, SKIP, STATE_NAMES, next_state
from agents.transport import LONG_AGO, NEVER, Event, known_ns

WAIT: Final = -2
MAX_PROOF: Final = 32
"""Most clean answers in a row that a flapping path has to give [ours]."""


def jittered(gap: int, rng: Random) -> int:
    """A gap between probes, ns, by up to a quarter longer or shorter [ours]: senders that lost a path together do not probe in step."""
    return int(gap * (0.75 + 0.5 * rng.random()))


class PathSet:
    """State and rotation of the EVs towards one peer. ``evs`` must be grouped by plane in the order of ``planes``."""

    def __init__(self, config: Config, peer: int, evs: list[int], planes: list[int], rng: Random, log: list[Event]) -> None:
        n = len(evs)
        self.config = config
        self.peer = peer
        self.qpn = 0  # for the log; the endpoint says so
        self.evs = evs
        self.plane_of = planes
        self.planes = max(planes) + 1
        self.rng = rng
        self.log = log
        self.state = [GOOD] * n
        self.in_use = [False] * n  # active, as opposed to backup
        self.flying = [0] * n  # packets in flight on it
        self.share = 2  # how many that may be: the requester's, from its window
        self.outstanding: list[deque[int]] = [deque() for _ in range(n)]  # transmissions in order (seq), stale ones included
        self.oldest_ns = [NEVER] * n  # when the oldest packet in flight on it was sent; NEVER without one
        self.last_data_ns = [LONG_AGO] * n
        self.gap_ns = [0] * n  # between the last two packets on it
        self.data_tx = [0] * n
        self.losses = [0] * n
        # Probing of what is ASSUMED_BAD.
        self.flaps = [0] * n
        self.clean = [0] * n  # answers in a row
        self.need = [config.probe_successes] * n
        self.most_flaps = 1  # after which no more answers are asked for
        while config.probe_successes << (self.most_flaps - 1) < MAX_PROOF:
            self.most_flaps += 1
        self.undone = [False] * n  # the verdict proved wrong; one clean answer brings it back
        self.probe_at = [NEVER] * n
        self.probe_gap = [0] * n
        self.probe_pending = [False] * n
        self.doubts = [0] * n  # losses on it that a NACK may yet explain: out of use while there are any
        self.lost_before = [False] * n  # without trimming: its latest packet heard of was lost
        self.spared = [False] * n  # kept in use by the floor although lost
        self.standing = [0] * n  # verdicts since it was GOOD that have not proved wrong
        self.lost_ns = [LONG_AGO] * n  # the last of them
        self.proven_ns = [LONG_AGO] * n  # when probes last brought it back
        self.given_up_ns = [LONG_AGO] * n  # when it last became ASSUMED_BAD
        self.next_probe = NEVER
        # Rotation.
        self.rtt_limit = [NEVER] * self.planes  # set by the requester from recent RTTs; none yet: nothing is overdue
        self.open = [True] * self.planes  # may carry data: set by PlaneHealth
        self.srtt = config.base_rtt  # the requester's, for the log
        self.window = 0  # likewise, bytes
        self.active: list[list[int]] = [[] for _ in range(self.planes)]
        self.backup: list[list[int]] = [[] for _ in range(self.planes)]
        self.turn = [0] * self.planes
        self.usable = [0] * self.planes  # EVs in the plane's lap
        per_plane = max(1, config.active_evs // self.planes)
        self.few = config.active_evs < self.planes  # then some planes only stand by
        first = int(rng.random() * self.planes) if self.few else 0
        for p in range(self.planes):
            mine = [i for i in range(n) if planes[i] == p]
            rng.shuffle(mine)
            here = per_plane if not self.few or (p - first) % self.planes < config.active_evs else 0
            self.active[p], self.backup[p] = mine[:here], mine[here:]
            for i in self.active[p]:
                self.in_use[i] = True
            self.usable[p] = len(self.active[p])
        self.wanted = [len(a) for a in self.active]
        self.in_rotation = sum(self.usable)  # EVs that carry data now: those in use on open planes

    def live_planes(self) -> int:
        count = 0
        for p in range(self.planes):
            if self.open[p] and self.usable[p] > 0:
                count += 1
        return count

    def floor(self) -> int:
        """Fewest EVs that verdicts of loss may leave in use: ``ev_min_active``, or a quarter of those wanted on open planes."""
        if self.config.ev_min_active:
            return self.config.ev_min_active
        wanted = 0
        for p in range(self.planes):
            if self.open[p]:
                wanted += self.wanted[p]
        return max(1, wanted // 4)

    def pick(self, now: int, plane: int, avoid: int) -> int:
        """The plane's next EV that may carry data, or -1 for none. ``avoid`` is passed over if there is another.

        A SKIP EV becomes GOOD when its turn comes, but this packet takes the next one; one packet restores at most one EV; if
        all are SKIP, the one just restored is used (guidance of the specification). Held EVs are passed over, and so are EVs that have
        their share of the window in flight: the path is slow, or dead and not known to be. WAIT if nothing but that stands in the way:
        planes stay equally loaded, so the others wait for this one until it is held [ours].
        """
        lap = self.active[plane]
        n = len(lap)
        if self.config.oblivious:
            return self._next_blindly(lap)
        restored = -1
        second = -1
        full = False
        # The rest of this lap and a whole new one: after the swap the first n looks may meet an EV twice and its neighbour not at all.
        for _ in range(2 * n - self.turn[plane]):
            k = self.turn[plane]
            if k >= n:
                if n > 1:
                    j = int(self.rng.random() * (n - 1))
                    lap[j], lap[j + 1] = lap[j + 1], lap[j]
                k = 0
            self.turn[plane] = k + 1
            i = lap[k]
            s = self.state[i]
            if s == SKIP:
                if restored < 0:
                    self.state[i] = next_state(s, ROTATED)
                    restored = i
                continue
            if i == restored or self.held(now, i):
                continue
            if i == avoid:
                second = i
                continue
            if self.flying[i] >= self.share:
                full = True
                continue
            return i
        if full:
            return WAIT
        if second >= 0:
            return second
        if restored >= 0 and not self.held(now, restored):
            return restored
        return -1

    def _next_blindly(self, lap: list[int]) -> int:
        """The next of the lap, in an order that is drawn anew for each, as switches spray that know nothing of what lies ahead."""
        return lap[int(self.rng.random() * len(lap))] if lap else -1

    def held(self, now: int, i: int) -> bool:
        """Whether the EV gets no new data for the moment; reversible, no verdict [ours]. A loss on it waits for its verdict, or its oldest
        packet is overdue: later than its plane's recent RTT plus one inter-packet gap of that EV.
        """
        if self.doubts[i]:
            return True
        return now - self.oldest_ns[i] > self.rtt_limit[self.plane_of[i]] + self.gap_ns[i]

    # --- verdicts --------------------------------------------------------------------------------------------

    def marked(self, i: int) -> None:
        """The receiver saw an ECN mark on this path, or a switch trimmed a packet there."""
        if self.config.skip and not self.config.oblivious:
            self.state[i] = next_state(self.state[i], MARKED)

    def lost(self, now: int, i: int, sent: int, srtt: int, cause: str) -> None:
        """A packet sent at ``sent`` vanished on this path: out of use at once, unless that would leave fewer than the floor.

        A backup EV of the same plane replaces it; without one, the plane's others share its load. What was sent before probes
        brought the path back says nothing about it any more.
        """
        self.losses[i] += 1
        if sent < self.proven_ns[i] or self.config.oblivious:
            return
        if not self.config.trimming and not self.lost_before[i] and self.state[i] in (GOOD, SKIP):
            # Full queues drop, too, where none is trimmed: the first loss is taken for a mark, the second in a row for a dead path [ours].
            self.lost_before[i] = True
            self.state[i] = next_state(self.state[i], MARKED)
            return
        self.standing[i] += 1
        self.lost_ns[i] = now
        self.clean[i] = 0
        old = self.state[i]
        new = next_state(old, LOST)
        if new == old:
            if self.undone[i]:  # so the path is bad after all
                self._flapped(now, i)
            return
        if self.in_use[i] and self.in_rotation <= self.floor() and not self.backup[self.plane_of[i]]:
            if not self.spared[i]:  # else it is being probed already, and losses must not put the probe off
                self.spared[i] = True
                self._start_probing(now, i, srtt)
            return
        self._give_up(now, i, LOST, cause)
        self._flapped(now, i)
        self._start_probing(now, i, srtt)

    def _flapped(self, now: int, i: int) -> None:
        self.undone[i] = False
        if self.flaps[i] and now - self.proven_ns[i] > self.config.forgive_rtts * self.config.base_rtt:
            self.flaps[i] = 0
        self.flaps[i] += 1
        self.need[i] = min(self.config.probe_successes << (self.flaps[i] - 1), MAX_PROOF)

    def undo(self, now: int, i: int) -> None:
        """A verdict was wrong, and unless other verdicts on the path stand, so was giving it up: the flap is forgotten.

        What arrived late was sent before the verdict and may have been the last to get through, so the path is probed at once and one
        answer is enough [ours].
        """
        if self.standing[i] > 0:
            self.standing[i] -= 1
        if self.state[i] == ASSUMED_BAD and self.standing[i] == 0:
            self.undone[i] = True
            self.flaps[i] = max(0, self.flaps[i] - 1)
            self.need[i] = 1
            self.clean[i] = 0
            self.probe_pending[i] = False
            self.probe_gap[i] = self.config.base_rtt
            self.probe_at[i] = now
            self.next_probe = now

    def suspected(self, now: int, i: int, srtt: int, need: int) -> None:
        """Its whole plane seems dead: out of use with the others, and back after ``need`` clean answers."""
        if self.state[i] in (GOOD, SKIP):
            self._give_up(now, i, LOST, "suspect plane")
            self.need[i] = need
            self._start_probing(now, i, srtt)

    def hinted(self, now: int, i: int, srtt: int) -> None:
        """Somebody who watches the fabric says that a link of it is down: as good as a loss."""
        if self.state[i] in (GOOD, SKIP) and not self.config.oblivious:
            self._give_up(now, i, LOST, "hint")
            self._flapped(now, i)
            self._start_probing(now, i, srtt)

    def _give_up(self, now: int, i: int, event: int, cause: str) -> None:
        """Out of use, whether active or backup, by an event that says so."""
        self.spared[i] = False
        self._set(now, i, next_state(self.state[i], event), cause)
        if self.in_use[i]:
            self._withdraw(i)
            self._promote(now, self.plane_of[i], "replaces")
        elif i in self.backup[self.plane_of[i]]:
            self.backup[self.plane_of[i]].remove(i)

    def acquit(self, now: int, i: int, cause: str) -> None:
        """What was lost on it is explained otherwise: as if nothing had been."""
        self.flaps[i] = max(0, self.flaps[i] - 1)
        self.undone[i] = False
        self._readmit(now, i, cause)

    def void_verdicts(self, now: int, plane: int, since: int, cause: str) -> None:
        """Acquit those of a plane that were given up at or after ``since``."""
        for i in range(len(self.evs)):
            if self.plane_of[i] == plane and self.state[i] == ASSUMED_BAD and self.given_up_ns[i] >= since:
                self.acquit(now, i, cause)

    def probe_soon(self, now: int, i: int) -> None:
        """There is reason to think that it works again."""
        if self.probe_at[i] != NEVER:
            self.probe_gap[i] = self.config.base_rtt
            self.probe_at[i] = now
            self.next_probe = now

    def deny(self, now: int, i: int) -> None:
        """An operator's word: not this path."""
        if self.state[i] != DENIED:
            self._give_up(now, i, DENY, "denied")
            self.probe_at[i] = NEVER

    def allow(self, now: int, i: int, srtt: int) -> None:
        """The operator's denial ends; the path proves itself before use."""
        if self.state[i] == DENIED:
            self._set(now, i, next_state(DENIED, ALLOW), "allowed")
            self._start_probing(now, i, srtt)

    def _set(self, now: int, i: int, new: int, cause: str) -> None:
        self.log.append(
            (
                now,
                "ev",
                {"peer": self.peer, "qpn": self.qpn, "ev": self.evs[i], "from": STATE_NAMES[self.state[i]], "to": STATE_NAMES[new],
                 "cause": cause, "last_data_ns": known_ns(self.last_data_ns[i]), "srtt_ns": self.srtt,
                 "evs": sum(self.usable), "window": self.window},
            )
        )  # fmt: skip
        self.state[i] = new
        if new == ASSUMED_BAD:
            self.given_up_ns[i] = now

    def _withdraw(self, i: int) -> None:
        plane = self.plane_of[i]
        k = self.active[plane].index(i)
        self.active[plane].pop(k)
        if k < self.turn[plane]:
            self.turn[plane] -= 1
        self.in_use[i] = False
        self._recount(plane)

    def _promote(self, now: int, plane: int, cause: str) -> None:
        if self.backup[plane] and len(self.active[plane]) < self.wanted[plane]:
            self._enter(self.backup[plane].pop())

    def _enter(self, i: int) -> None:
        plane = self.plane_of[i]
        self.active[plane].append(i)
        self.in_use[i] = True
        self._recount(plane)

    def _recount(self, plane: int) -> None:
        """The plane's lap, or whether it is open, has changed."""
        self.usable[plane] = len(self.active[plane])
        self.in_rotation = sum([self.usable[p] for p in range(self.planes) if self.open[p]])

    def _readmit(self, now: int, i: int, cause: str) -> None:
        self._set(now, i, next_state(self.state[i], PROVEN), cause)
        self.probe_at[i] = NEVER
        self.probe_pending[i] = False
        self.standing[i] = 0
        plane = self.plane_of[i]
        if len(self.active[plane]) < self.wanted[plane]:
            self._enter(i)
        else:
            self.backup[plane].append(i)

    # --- probing back ----------------------------------------------------------------------------------------

    def _start_probing(self, now: int, i: int, srtt: int) -> None:
        self.probe_gap[i] = srtt
        self.clean[i] = 0
        self.probe_pending[i] = False
        self._schedule(now, i, srtt)

    def _schedule(self, now: int, i: int, gap: int) -> None:
        self.probe_at[i] = now + jittered(gap, self.rng)
        if self.probe_at[i] < self.next_probe:
            self.next_probe = self.probe_at[i]

    def due_probe(self, now: int) -> int:
        """An EV whose Reliability Probe is due, or -1. Call when ``next_probe`` has come; a plane whose port is down waits."""
        found = -1
        soonest = NEVER
        for i in range(len(self.evs)):
            at = self.probe_at[i]
            if at == NEVER:
                continue
            if at <= now and found < 0 and self.open[self.plane_of[i]]:
                found = i
                continue
            if at < soonest:
                soonest = at if at > now else now + self.config.base_rtt
        self.next_probe = soonest
        return found

    def probe_sent(self, now: int, i: int) -> None:
        """A probe left; the one before it, if unanswered, breaks the row of clean answers."""
        if self.probe_pending[i]:
            self.clean[i] = 0
            self.probe_gap[i] = min(2 * self.probe_gap[i], self.config.probe_cap)
        self.probe_pending[i] = True
        # An answer takes an RTT, under load more than that: the next probe must not break the row by coming too soon.
        self._schedule(now, i, max(self.probe_gap[i], 2 * self.srtt))

    def probe_answered(self, now: int, i: int, sent: int, srtt: int) -> None:
        """The answer to a probe sent at ``sent`` came back. The first of an otherwise empty plane readmits at once, unless the EV is one
        that comes and goes: a plane that loses at random would be in use nearly all the time.
        """
        if sent < self.lost_ns[i]:
            return  # it left before the loss was known, maybe before the path died: a loss outranks it
        self.probe_pending[i] = False
        if self.spared[i]:
            self.clean[i] += 1
            if self.clean[i] >= self.need[i]:
                self.spared[i] = False
                self.standing[i] = 0
                self.proven_ns[i] = now
                self.probe_at[i] = NEVER
            return
        if self.state[i] != ASSUMED_BAD:
            return
        self.clean[i] += 1
        self.probe_gap[i] = srtt
        if self.clean[i] >= self.need[i] or (self.usable[self.plane_of[i]] == 0 and self.flaps[i] <= 1):
            self.proven_ns[i] = now
            self._readmit(now, i, "spurious" if self.undone[i] else "probed")
            self.undone[i] = False
            self._swap_spared(now, srtt)
        else:
            # A path that flaps on although all answers are asked of it is asked at longer intervals.
            more = self.flaps[i] - self.most_flaps
            gap = srtt if more <= 0 else min(srtt * (1 + more), max(srtt, 2 * self.config.probe_cap))
            self._schedule(now, i, gap)

    def _swap_spared(self, now: int, srtt: int) -> None:
        """Another path is proven: one that only the floor kept in use goes out in its stead."""
        for j in range(len(self.evs)):
            if self.spared[j]:
                # As if lost now; the floor decides anew.
                self.losses[j] -= 1
                self.standing[j] -= 1
                self.lost(now, j, now, srtt, "swapped")
                return

    def set_open(self, now: int, plane: int, opened: bool) -> None:
        """A plane may carry data from now on, or must not. Where only some planes do, another takes over."""
        self.open[plane] = opened
        self._recount(plane)
        if self.few and not opened and self.wanted[plane]:
            for p in range(self.planes):
                if self.open[p] and not self.wanted[p] and self.backup[p]:
                    self.wanted[p], self.wanted[plane] = self.wanted[plane], 0
                    for i in list(self.active[plane]):
                        self._withdraw(i)
                        self.backup[plane].append(i)
                    while self.backup[p] and len(self.active[p]) < self.wanted[p]:
                        self._promote(now, p, "replaces")
                    return

    def rows(self) -> list[dict[str, Any]]:
        """One row per EV, for people."""
        return [
            {"peer": self.peer, "ev": self.evs[i], "plane": self.plane_of[i], "uplink": self.evs[i] & 0xFFFF,
             "state": STATE_NAMES[self.state[i]], "active": self.in_use[i], "in_flight": len(self.outstanding[i]),
             "data_tx": self.data_tx[i], "losses": self.losses[i], "flaps": self.flaps[i]}
            for i in range(len(self.evs))
        ]  # fmt: skip
