"""Manages the paths of one QP: which are in use, which are backups, and which is next.

Planes rotate strictly, so that they stay equally loaded (paper). Inside a plane the active paths
form a shuffled lap, in which one pair of neighbours changes places each time round [ours]: no two
senders stay in step for long. Shuffling the whole lap queued more: 93 % against 95 % of line rate
in a permutation at full load.
"""

from __future__ import annotations

from random import Random

from librt.vecs import vec
from mypy_extensions import i64

from agents.mrc.config import STRICT, WEIGHTED, Config
from agents.mrc.paths.ev_state import (
    ALLOW,
    ASSUMED_BAD,
    DENIED,
    DENY,
    GOOD,
    LOST,
    MARKED,
    PROVEN,
    ROTATED,
    SKIP,
    STATE_NAMES,
    next_state,
)
from agents.mrc.paths.path import MAX_PROOF, Path, jittered
from agents.mrc.paths.reps import FREEZING_RTTS, Recycler
from agents.transport import NEVER, Event, PathRow, known_ps


class PathSet:
    """``evs`` are grouped by plane, ascending. ``in_order``: the first of each plane are in use at
    first, not drawn ones. ``first``: the first plane in use."""

    def __init__(
        self,
        config: Config,
        peer: int,
        evs: list[int],
        rng: Random,
        log: list[Event],
        qpn: int = 0,
        in_order: bool = False,
        first: int = 0,
    ) -> None:
        self.config = config
        self.peer = peer
        self.qpn = qpn  # for the log
        self.rng = rng
        self.log = log
        self.planes = (evs[-1] >> 16) + 1
        self.all = [Path(i, ev, ev >> 16, config.probe_successes) for i, ev in enumerate(evs)]
        self.by_ev: dict[int, Path] = {path.ev: path for path in self.all}
        self.forgive = config.forgive_rtts * config.base_rtt
        self.most_flaps = 1  # beyond this number no more answers are demanded
        while config.probe_successes << (self.most_flaps - 1) < MAX_PROOF:
            self.most_flaps += 1
        self.next_probe = NEVER
        # What the sender reports.
        self.plane_share = 2  # packets of the window, for one plane
        # a packet older than this is overdue; NEVER until an RTT is known
        self.rtt_limit = [NEVER] * self.planes
        self.srtt = config.base_rtt  # for the log
        self.window = 0  # likewise, bytes
        # Rotation, plane by plane.
        self.open = [True] * self.planes  # may carry data
        self.active: list[list[Path]] = [[] for _ in range(self.planes)]
        self.backup: list[list[Path]] = [[] for _ in range(self.planes)]
        self.turn = vec[i64]([0] * self.planes)
        self.usable = [0] * self.planes  # paths in the plane's lap
        self.recyclers: list[Recycler] = []  # by plane, with REPS
        self.swaps = 0  # of paths that were congested again and again
        self.full = False  # the last pick found nothing but paths with their share in flight
        per_plane = max(1, config.active_evs // self.planes)
        self.few = config.active_evs < self.planes  # then some planes only stand by
        for p in range(self.planes):
            lap = [path for path in self.all if path.plane == p]
            lowest = lap[0].index
            rng.shuffle(lap)
            count = min(per_plane, len(lap) - int(len(lap) * config.backup_share))
            if self.few and (p - first) % self.planes >= config.active_evs:
                count = 0
            if in_order:
                lap.sort(key=lambda path: path.index >= lowest + count)
            self.active[p], self.backup[p] = lap[:count], lap[count:]
            for path in self.active[p]:
                path.in_use = True
            self.usable[p] = len(self.active[p])
        if config.reps:
            explore = config.plane_bdp // config.mtu
            freezing = FREEZING_RTTS * config.base_rtt
            self.recyclers = [
                Recycler(self.active[p], explore, freezing, rng) for p in range(self.planes)
            ]
        self.wanted = [len(a) for a in self.active]
        self.strict = config.plane_load == STRICT
        self.weighted = config.plane_load == WEIGHTED
        self.weight = [0] * self.planes  # paths that are not given up, if planes are weighted
        self.heaviest = 1  # of these
        self.credit = [0] * self.planes  # towards a turn, in parts of ``heaviest``
        self.in_rotation = 0  # paths that carry data now: those in use on open planes
        self.live_planes = 0  # planes that are open and have a path in use
        self._count()

    # --- what the sender reports ------------------------------------------------------------------

    def share_window(self, window: int, packet: int) -> None:
        self.plane_share = -(-window // (packet * max(1, self.live_planes)))

    def note_window(self, window: int) -> None:
        self.window = window

    def measured(self, srtt: int, limits: list[int]) -> None:
        self.srtt = srtt
        self.rtt_limit = limits

    # --- which carry data -------------------------------------------------------------------------

    def floor(self) -> int:
        if self.config.ev_min_active:
            return self.config.ev_min_active
        count = 0
        for p in range(self.planes):
            if self.open[p]:
                count += self.wanted[p]
        return max(1, count // 4)

    def has_turn(self, plane: int) -> bool:
        if self.credit[plane] < self.heaviest:
            self.credit[plane] += self.weight[plane]
        return self.credit[plane] >= self.heaviest

    def took_turn(self, plane: int) -> None:
        self.credit[plane] -= self.heaviest

    def pick(self, now: int, plane: int, avoid: Path | None) -> Path | None:
        """Return the plane's next path that may carry data, or None. ``avoid`` is passed over if
        there is another.

        A SKIP path becomes GOOD when its turn comes, but this packet takes the next one. One packet
        restores at most one path; if all are SKIP, it uses the one just restored (guidance of the
        specification). Held paths, and paths with their share of the plane's packets in flight, are
        passed over. If only such are left, ``full`` is set: planes stay equally loaded, so the
        others wait for this one until it is held [ours].
        """
        self.full = False
        lap = self.active[plane]
        n = len(lap)
        if self.recyclers:
            return self.recyclers[plane].next()
        if self.config.oblivious:
            return self._next_blindly(lap)
        limit = self.rtt_limit[plane]
        share = -(-self.plane_share // n) + 1 if n else 0
        restored: Path | None = None
        second: Path | None = None
        full = False
        # The rest of this lap and a whole new one: after the swap the first n looks may meet a path
        # twice and its neighbour not at all.
        for _ in range(2 * n - self.turn[plane]):
            k = self.turn[plane]
            if k >= n:
                if n > 1:
                    j = int(self.rng.random() * (n - 1))
                    lap[j], lap[j + 1] = lap[j + 1], lap[j]
                k = 0
            self.turn[plane] = k + 1
            path = lap[k]
            if path.state == SKIP:
                if restored is None:
                    path.meet(ROTATED)
                    restored = path
                continue
            if path is restored or path.on_hold(now, limit):
                continue
            if path is avoid:
                second = path
                continue
            if path.flying >= share:
                full = True
                continue
            return path
        if full:
            self.full = True
            return None
        if second is not None:
            return second
        if restored is not None and not restored.on_hold(now, limit):
            return restored
        return None

    def _next_blindly(self, lap: list[Path]) -> Path | None:
        return lap[int(self.rng.random() * len(lap))] if lap else None

    # --- verdicts ---------------------------------------------------------------------------------

    def marked(self, path: Path) -> None:
        if self.config.skip and not self.config.blind:
            path.meet(MARKED)
            path.marks += 1
            if 0 < self.config.swap_marks <= path.marks and path.in_use and self.backup[path.plane]:
                self._swap(path)

    def unmarked(self, now: int, path: Path) -> None:
        path.marks = 0
        if self.recyclers:
            self.recyclers[path.plane].came_through(now, path)

    def lost(self, now: int, path: Path, sent: int, srtt: int, cause: str) -> None:
        """Take the path out of use, unless fewer than the floor would be left. A packet sent before
        probes brought the path back counts no more."""
        path.losses += 1
        if self.recyclers:
            self.recyclers[path.plane].lost(now)
        if sent < path.proven_ps or self.config.blind:
            return
        if not self.config.trimming and not path.lost_before and path.state in (GOOD, SKIP):
            # Full queues drop, too, where none is trimmed: the first loss is taken for a mark, the
            # second in a row for a dead path [ours].
            path.lost_before = True
            path.meet(MARKED)
            return
        path.condemned(now)
        if next_state(path.state, LOST) == path.state:
            if path.undone:  # so the path is bad
                path.flapped(now, self.forgive)
            return
        last = self.in_rotation <= self.floor() or (self.strict and self.usable[path.plane] == 1)
        if path.in_use and last and not self.backup[path.plane]:
            # else it is being probed already, and losses must not put the probe off
            if not path.spared:
                path.spared = True
                self._start_probing(now, path, srtt)
            return
        self._give_up(now, path, LOST, cause)
        path.flapped(now, self.forgive)
        self._start_probing(now, path, srtt)

    def undo(self, now: int, path: Path) -> None:
        """Take back a wrong verdict. The late packet may have been the last to get through, so the
        path is probed at once; one answer is enough [ours]."""
        if path.standing > 0:
            path.standing -= 1
        if path.state == ASSUMED_BAD and path.standing == 0:
            path.undone = True
            path.unflapped()
            path.need = 1
            path.probing(self.config.base_rtt)
            path.probe_at = now
            self.next_probe = now

    def suspected(self, now: int, path: Path, srtt: int, need: int) -> None:
        if path.state in (GOOD, SKIP):
            self._give_up(now, path, LOST, "suspect plane")
            path.need = need
            self._start_probing(now, path, srtt)

    def hinted(self, now: int, path: Path, srtt: int) -> None:
        if path.state in (GOOD, SKIP) and not self.config.blind:
            self._give_up(now, path, LOST, "hint")
            path.flapped(now, self.forgive)
            self._start_probing(now, path, srtt)

    def _give_up(self, now: int, path: Path, event: int, cause: str) -> None:
        path.spared = False
        self._meet(now, path, event, cause)
        if path.in_use:
            self._withdraw(path)
            self._promote(path.plane)
        elif path in self.backup[path.plane]:
            self.backup[path.plane].remove(path)
            self._count()

    def void_verdicts(self, now: int, plane: int, since: int, cause: str) -> None:
        for path in self.all:
            if path.plane == plane and path.state == ASSUMED_BAD and path.given_up_ps >= since:
                path.unflapped()
                path.undone = False
                self._readmit(now, path, cause)

    def probe_soon(self, now: int, path: Path) -> None:
        if path.probe_at != NEVER:
            path.probe_gap = self.config.base_rtt
            path.probe_at = now
            self.next_probe = now

    def deny(self, now: int, path: Path) -> None:
        if path.state != DENIED:
            self._give_up(now, path, DENY, "denied")
            path.probe_at = NEVER

    def allow(self, now: int, path: Path, srtt: int) -> None:
        if path.state == DENIED:
            self._meet(now, path, ALLOW, "allowed")
            self._start_probing(now, path, srtt)

    def _meet(self, now: int, path: Path, event: int, cause: str) -> None:
        old = path.state
        path.meet(event)
        self.log.append(
            (
                now,
                "ev",
                {
                    "peer": self.peer,
                    "qpn": self.qpn,
                    "ev": path.ev,
                    "from": STATE_NAMES[old],
                    "to": STATE_NAMES[path.state],
                    "cause": cause,
                    "last_data_ps": known_ps(path.last_data_ps),
                    "srtt_ps": self.srtt,
                    "evs": self.live_planes * self.usable[path.plane],
                    "window": self.window,
                },
            )
        )
        if path.state == ASSUMED_BAD:
            path.given_up_ps = now

    # --- into use and out of it -------------------------------------------------------------------

    def _withdraw(self, path: Path) -> None:
        plane = path.plane
        k = self.active[plane].index(path)
        self.active[plane].pop(k)
        if k < self.turn[plane]:
            self.turn[plane] -= 1
        path.in_use = False
        self._recount(plane)

    def _promote(self, plane: int) -> None:
        if self.backup[plane] and len(self.active[plane]) < self.wanted[plane]:
            self._enter(self.backup[plane].pop(0))

    def _swap(self, path: Path) -> None:
        plane = path.plane
        successor = self.backup[plane].pop(0)
        self.active[plane][self.active[plane].index(path)] = successor
        self.backup[plane].append(path)
        successor.in_use, path.in_use = True, False
        path.marks = 0
        self.swaps += 1

    def _enter(self, path: Path) -> None:
        self.active[path.plane].append(path)
        path.in_use = True
        self._recount(path.plane)

    def _recount(self, plane: int) -> None:
        self.usable[plane] = len(self.active[plane])
        self._count()

    def _count(self) -> None:
        self.in_rotation = self.live_planes = 0
        for p in range(self.planes):
            if self.open[p] and self.usable[p] > 0:
                self.in_rotation += self.usable[p]
                self.live_planes += 1
        if self.weighted:
            self.weight = [
                self.usable[p] + len(self.backup[p]) if self.open[p] and self.usable[p] else 0
                for p in range(self.planes)
            ]
            self.heaviest = max(1, max(self.weight))
            self.credit = [0] * self.planes

    def _readmit(self, now: int, path: Path, cause: str) -> None:
        self._meet(now, path, PROVEN, cause)
        path.readmitted()
        if len(self.active[path.plane]) < self.wanted[path.plane]:
            self._enter(path)
        else:
            self.backup[path.plane].append(path)
            self._count()

    def set_open(self, now: int, plane: int, opened: bool) -> None:
        self.open[plane] = opened
        self._recount(plane)
        if self.few and not opened and self.wanted[plane]:
            for p in range(self.planes):
                if self.open[p] and not self.wanted[p] and self.backup[p]:
                    self.wanted[p], self.wanted[plane] = self.wanted[plane], 0
                    for path in list(self.active[plane]):
                        self._withdraw(path)
                        self.backup[plane].append(path)
                    while self.backup[p] and len(self.active[p]) < self.wanted[p]:
                        self._promote(p)
                    return

    # --- probing back -----------------------------------------------------------------------------

    def _start_probing(self, now: int, path: Path, srtt: int) -> None:
        path.probing(srtt)
        self._schedule(now, path, srtt)

    def _schedule(self, now: int, path: Path, gap: int) -> None:
        path.probe_at = now + jittered(gap, self.rng)
        if path.probe_at < self.next_probe:
            self.next_probe = path.probe_at

    def due_probe(self, now: int) -> Path | None:
        due: Path | None = None
        soonest = NEVER
        for path in self.all:
            at = path.probe_at
            if at == NEVER:
                continue
            if at <= now and due is None and self.open[path.plane]:
                due = path
                continue
            if at < soonest:
                soonest = at if at > now else now + self.config.base_rtt
        self.next_probe = soonest
        return due

    def probe_sent(self, now: int, path: Path) -> None:
        path.probed(self.config.probe_cap)
        # An answer takes an RTT, under load more than that: the next probe must not break the row
        # by coming too soon.
        self._schedule(now, path, max(path.probe_gap, 2 * self.srtt))

    def probe_answered(self, now: int, path: Path, sent: int, srtt: int) -> None:
        """The first answer of an otherwise empty plane readmits the path, unless it comes and goes:
        a plane that loses at random would be in use nearly always."""
        if sent < path.lost_ps:
            # it left before the loss was known, maybe before the path died: a loss outranks it
            return
        path.probe_pending = False
        if path.spared:
            path.clean += 1
            if path.clean >= path.need:
                path.spared = False
                path.standing = 0
                path.proven_ps = now
                path.probe_at = NEVER
            return
        if path.state != ASSUMED_BAD:
            return
        path.clean += 1
        path.probe_gap = srtt
        if path.clean >= path.need or (self.usable[path.plane] == 0 and path.flaps <= 1):
            path.proven_ps = now
            self._readmit(now, path, "spurious" if path.undone else "probed")
            path.undone = False
            self._swap_spared(now, srtt)
        else:
            # A path that flaps on although all answers are asked of it is asked at longer
            # intervals.
            more = path.flaps - self.most_flaps
            gap = (
                srtt if more <= 0 else min(srtt * (1 + more), max(srtt, 2 * self.config.probe_cap))
            )
            self._schedule(now, path, gap)

    def _swap_spared(self, now: int, srtt: int) -> None:
        for path in self.all:
            if path.spared:
                # As if lost now; the floor decides anew.
                path.losses -= 1
                path.standing -= 1
                self.lost(now, path, now, srtt, "swapped")
                return

    def rows(self) -> list[PathRow]:
        return [
            {
                "peer": self.peer,
                "ev": path.ev,
                "plane": path.plane,
                "uplink": path.ev & 0xFFFF,
                "state": STATE_NAMES[path.state],
                "active": path.in_use,
                "in_flight": len(path.outstanding),
                "data_tx": path.data_tx,
                "losses": path.losses,
                "flaps": path.flaps,
            }
            for path in self.all
        ]
