"""Log lines in, frames out: what a view shows of a run. Sans-IO; the same for a living run and for
one that is over.

- :meth:`Fold.feed` takes lines by file, in any portions, and keeps what is no whole line yet.
- Lines of all files are folded in order of time; those of one time by the file's name (the runner's
  first, which has the faults), then by their order. A follower says up to which time it has read
  everything (:meth:`Fold.frames`); a later line is folded then.
- A frame is a plain dictionary with its kind ``f`` and time ``t``, ns of the network since the run
  began. It says what holds from then on of one subject (a path, a fault, a port, a rank's step), so
  a view's state is the last frame of each subject: :class:`State`.
- Events that come by the hundreds (losses) are counted per path and bin.

So frames depend on the lines alone, not on how they were cut, and a :meth:`State.keyframe` stands
for all frames before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from testbed.results import log
from testbed.results.log import Line, Lines
from testbed.view.clock import whole_ns
from testbed.view.run import Run, touched
from testbed.view.words import begin_word, duration, end_word, path_names, since, verdict
from topologies.addressing import ev_fields
from topologies.clos import FabricError
from topologies.files import FileError
from topologies.units import NS, S

Frame = dict[str, Any]

BIN_RTTS = 2
"""Losses are counted over so many base RTTs, as the agents' goodput is."""
MOST_LINE = 1 << 24
"""Bytes of a log's longest line [ours]."""
FRAMES = {
    "run": (
        "the run, first of all",
        "v (format), key, transport, fabric, links (name kind plane a b gbps), ranks, jobs (name "
        "ranks each, if it runs jobs), pairs (src dst evs: EV, plane, uplink, state, cables by "
        "their place in links), theory's step, cost",
    ),
    "pair": ("a pair that connects later", "as in pairs"),
    "path": ("paths of a pair", "src dst evs state why"),
    "fault": ("a fault, by name", "name fault on phase links gone text"),
    "ports": (
        "ports",
        "ns, rows: port number, bytes that left in the ns before t, bytes waiting, marked, "
        "trimmed, dropped. Port 2n is end a of link n, 2n+1 its end b. Ten times a second of "
        "wall time, less often with over 512 ports, at most twice per base RTT",
    ),
    "rate": ("a host", "ns host tx rx: payload per plane in the ns from t on"),
    "evs": ("a pair", "ns src dst tx: [EV, packets] in the ns from t on"),
    "cwnd": ("a queue pair", "src dst qp window in_flight srtt_ns"),
    "loss": (
        "a path",
        (
            "ns src dst ev lost trimmed again: packets lost, trimmed, and sent again, in the ns "
            "from t on"
        ),
    ),
    "messages": ("a host", "ns count: messages of flows that were acknowledged"),
    "step": (
        "a rank",
        "rank step start ok; t is its end, negative steps are warm-up. Of jobs also phase: with "
        "alone_steps each job has one, and the last is of all together",
    ),
    "event": ("what happened", "what level host text, where what is the log line's kind"),
    "end": ("the run's end", "outcome reason text"),
}
"""Kind of a frame -> (subject, fields). Later versions add fields and kinds; a page ignores what it
does not know."""
_EV_STATES = {"GOOD": "used", "SKIP": "used", "ASSUMED_BAD": "died", "DENIED": "denied"}
OUT = ("died", "suspect", "denied", "closed", "probed")
# many, and no view shows them
_UNSEEN = (log.Flow, log.QuickAdapt, log.Counters, log.Loop, log.Rotation)
_GONE_PHASES = ("heal", "end", "up")


class Fold:
    def __init__(self, run: Run) -> None:
        self.run = run
        self._lines = Lines(run.fabric, len(run.ranks))
        self._partial: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self.newest = run.t0  # the latest time that a line has
        self._waiting: list[tuple[int, str, int, Line]] = []  # time, file, line, content
        # what verdicts on the EV itself say
        self._ev = {pair: dict.fromkeys(states, "used") for pair, states in run.pairs.items()}
        self._plane: dict[tuple[int, int, int], str] = {}
        self._shown = {pair: dict(states) for pair, states in run.pairs.items()}
        self._users = {pair: dict(evs) for pair, evs in run.queue_pairs.items()}
        self._faults: list[Frame] = []  # the last phase of each, in order
        # in this bin: lost, trimmed, sent again
        self._losses: dict[tuple[int, int, int], list[int]] = {}
        self._messages: dict[int, int] = {}  # in this bin, by sender
        self._bin_ns = max(1, round(BIN_RTTS * run.fabric.base_rtt_ps / NS))
        self._bin_end = self._bin_ns

    # --- lines ------------------------------------------------------------------------------------

    def feed(self, name: str, data: bytes) -> None:
        *lines, rest = (self._partial.pop(name, b"") + data).split(b"\n")
        if rest and len(rest) <= MOST_LINE:
            self._partial[name] = rest
        # half of a log, and no view shows them
        lines = [line for line in lines if line.find(b'"transfers"', 0, 60) < 0]
        file = "" if name == "runner" else name  # a fault before what follows from it
        entries = self._lines.read_all(lines) or [*self._readable(lines)]
        first = self._numbers.get(name, 0)
        self._numbers[name] = first + len(entries)
        for number, entry in enumerate(entries, first):
            # a bin is written when it is over
            when = whole_ns(entry.t) + whole_ns(getattr(entry, "bin_ps", None) or 0)
            self.newest = max(self.newest, when)
            if type(entry) not in _UNSEEN:
                self._waiting.append((when, file, number, entry))

    def _readable(self, lines: Iterable[bytes]) -> Iterator[Line]:
        for line in lines:
            # a process that is killed may leave half a line; a line of another version means
            # something else
            with suppress(FileError):
                yield self._lines.read(line, Path("log"))

    def frames(self, until: float | None = None) -> Iterator[Frame]:
        self._waiting.sort()
        ready = (
            len(self._waiting)
            if until is None
            else bisect_right(self._waiting, until, key=itemgetter(0))
        )
        lines, self._waiting = self._waiting[:ready], self._waiting[ready:]
        for when, _, _, entry in lines:
            t = when - self.run.t0
            yield from self._close_bin(t)
            try:
                frames = list(self._fold(t, entry))
            except (KeyError, FabricError):
                continue  # of another version; or a path that the fabric does not have
            yield from frames

    def _fold(self, t: int, line: Line) -> Iterable[Frame]:
        match line:
            case log.Fault():
                return self._fault(t, line)
            case log.PathChange() | log.PlaneChange() | log.Evs() | log.Reroute():
                return [*self._open(t, line), *self._of_pair(t, line)]
            case log.Loss():
                return self._count(line, 1 if line.rule in ("trim", "trimmed", "nack") else 0)
            case log.Rtx():
                return self._count(line, 2)
            case log.Message():
                self._messages[line.host] = self._messages.get(line.host, 0) + 1
            case log.Goodput():
                bin_ns = whole_ns(line.bin_ps)
                return [
                    {
                        "f": "rate",
                        "t": t - bin_ns,
                        "ns": bin_ns,
                        "host": line.host,
                        "tx": line.tx,
                        "rx": line.rx,
                    }
                ]
            case log.Ports():
                return [{"f": "ports", "t": t, "ns": whole_ns(line.span_ps), "rows": line.rows}]
            case log.Cwnd() | log.Srtt():
                return [self._window(t, line)]
            case log.Step():
                return [
                    self._step(
                        line.rank,
                        line.step,
                        whole_ns(line.start_ps),
                        whole_ns(line.end_ps),
                        line.ok,
                    )
                ]
            case log.Told():
                return self._program_note(line)
            case _:
                return self._event(t, line)
        return ()

    def _of_pair(self, t: int, line: Line) -> Iterator[Frame]:
        match line:
            case log.PathChange():
                yield from self._of_ev(t, line)
            case log.PlaneChange():
                yield from self._of_plane(t, line)
            case log.Evs():
                yield from self._evs(t, line)
            case log.Reroute():
                yield from self._reroute(t, line)

    def close(self) -> Iterator[Frame]:
        yield from self.frames()
        yield from self._close_bin(self._bin_end)

    # --- paths ------------------------------------------------------------------------------------

    def _open(
        self, t: int, line: log.PathChange | log.PlaneChange | log.Evs | log.Reroute
    ) -> Iterator[Frame]:
        if line.peer is None or (pair := (line.host, line.peer)) in self._shown:
            return
        states = self.run.new_pair(*pair)
        self._shown[pair], self._ev[pair], self._users[pair] = (
            states,
            dict.fromkeys(states, "used"),
            {},
        )
        yield {"f": "pair", "t": t, **self.run.pair(*pair, states)}

    def _of_ev(self, t: int, line: log.PathChange) -> Iterator[Frame]:
        pair, ev = (line.host, line.peer), line.ev
        if ev not in self._ev.get(pair, ()):
            return
        state = _EV_STATES.get(line.to, "used")
        if line.cause == "suspect plane":
            state = "suspect"
        elif line.cause == "allowed":
            state = "probed"
        self._ev[pair][ev] = state
        yield from self._show(t, pair, [ev], line.cause or "")

    def _of_plane(self, t: int, line: log.PlaneChange) -> Iterator[Frame]:
        if line.to == "SUSPECT":
            return  # each of its EVs says so itself
        pair = line.host, line.peer
        self._plane[(*pair, line.plane)] = line.to
        evs = [ev for ev in self._ev.get(pair, ()) if ev_fields(ev)[0] == line.plane]
        yield from self._show(t, pair, evs, line.cause or "", whole=line.plane)

    def _state(self, pair: tuple[int, int], ev: int) -> str:
        own, plane = self._ev[pair][ev], self._plane.get((*pair, ev_fields(ev)[0]), "USED")
        if own == "denied":
            return own
        if plane == "DOWN":
            return "closed"
        if own != "used":
            return own
        if plane == "PROVING":
            return "probed"
        before = self._shown[pair][ev]
        return "back" if before in OUT else before

    def _show(
        self, t: int, pair: tuple[int, int], evs: list[int], cause: str, whole: int | None = None
    ) -> Iterator[Frame]:
        changed: dict[str, list[int]] = {}
        for ev in evs:
            state = self._state(pair, ev)
            if state != self._shown[pair][ev]:
                self._shown[pair][ev] = state
                changed.setdefault(state, []).append(ev)
        for state, those in changed.items():
            planes = [whole] if whole is not None and len(those) == len(evs) else []
            if whole is not None and state in ("died", "suspect"):
                # its own verdict is older than the plane's news
                why = f"{path_names(those, planes)} still assumed bad: {cause}"
            else:
                why = (
                    f"{path_names(those, planes)} "
                    f"{verdict(state, cause)}{self._after(t, pair, those, state)}"
                )
            yield {
                "f": "path",
                "t": t,
                "src": pair[0],
                "dst": pair[1],
                "evs": those,
                "state": state,
                "why": why,
            }

    def _after(self, t: int, pair: tuple[int, int], evs: list[int], state: str) -> str:
        """Write `` , 41 µs after the cut``: the last begin (for a return: end) of a fault on these
        paths."""
        ends = state in ("back", "probed")
        for fault in reversed(self._faults):
            if (fault["phase"] in _GONE_PHASES) == ends and any(
                touched(self.run, *pair, ev, fault["links"]) for ev in evs
            ):
                return since(
                    t, fault["t"], end_word(fault["fault"]) if ends else begin_word(fault["fault"])
                )
        return ""

    def _reroute(self, t: int, line: log.Reroute) -> Iterator[Frame]:
        if line.peer is None:
            return  # the routes of a host
        pair, old, new = (line.host, line.peer), line.old, line.ev
        shown, users = self._shown.get(pair), self._users.get(pair)
        if shown is None or users is None or old is None or new is None or old == new:
            return
        users[old], users[new] = users.get(old, 1) - 1, users.get(new, 0) + 1
        for ev, state in ((old, "idle"), (new, "used")):
            if ev in shown and (state == "used" or users[ev] <= 0) and shown[ev] != state:
                shown[ev] = state
                way = (
                    f"the network re-routed to {path_names([new])}"
                    if ev == old
                    else "the network re-routed to it"
                )
                why = (
                    f"{path_names([ev])} {verdict(state, way)}{self._after(t, pair, [old], 'died')}"
                )
                yield {
                    "f": "path",
                    "t": t,
                    "src": pair[0],
                    "dst": pair[1],
                    "evs": [ev],
                    "state": state,
                    "why": why,
                }

    # --- counts -----------------------------------------------------------------------------------

    def _count(self, line: log.Loss | log.Rtx, what: int) -> Iterable[Frame]:
        subject = (*line.pair, -1 if line.ev is None else line.ev)
        self._losses.setdefault(subject, [0, 0, 0])[what] += 1
        return ()

    def _close_bin(self, t: int) -> Iterator[Frame]:
        if t < self._bin_end:
            return
        of_bin = {"t": self._bin_end - self._bin_ns, "ns": self._bin_ns}
        for (src, dst, ev), (lost, trimmed, again) in sorted(self._losses.items()):
            yield {
                "f": "loss",
                **of_bin,
                "src": src,
                "dst": dst,
                "ev": ev,
                "lost": lost,
                "trimmed": trimmed,
                "again": again,
            }
        for host, count in sorted(self._messages.items()):
            yield {"f": "messages", **of_bin, "host": host, "count": count}
        self._losses.clear()
        self._messages.clear()
        self._bin_end = (t // self._bin_ns + 1) * self._bin_ns

    def _evs(self, t: int, line: log.Evs) -> Iterator[Frame]:
        pair = line.host, line.peer
        shown = self._shown.get(pair, {})
        for ev in line.tx:
            if shown.get(ev) in ("backup", "idle"):  # swaps into use are not logged: packets tell
                idle, shown[ev] = shown[ev], "used"
                why = f"{path_names([ev])} in use{', was a backup' if idle == 'backup' else ''}"
                yield {
                    "f": "path",
                    "t": t,
                    "src": pair[0],
                    "dst": pair[1],
                    "evs": [ev],
                    "state": "used",
                    "why": why,
                }
        tx, bin_ns = [[ev, count] for ev, count in line.tx.items()], whole_ns(line.bin_ps)
        yield {"f": "evs", "t": t - bin_ns, "ns": bin_ns, "src": pair[0], "dst": pair[1], "tx": tx}

    def _window(self, t: int, line: log.Cwnd | log.Srtt) -> Frame:
        return {
            "f": "cwnd",
            "t": t,
            "src": line.host,
            "dst": line.peer,
            "qp": line.qpn,
            "window": line.bytes,
            **({"in_flight": line.in_flight} if isinstance(line, log.Cwnd) else {}),
            "srtt_ns": whole_ns(line.srtt_ps or 0),
        }

    def _step(self, rank: int, step: int, start_ns: int, end_ns: int, ok: bool) -> Frame:
        run = self.run
        return {
            "f": "step", "t": end_ns - run.t0, "start": start_ns - run.t0, "rank": rank,
            "step": step - run.warmup_steps, "ok": ok,
        }  # fmt: skip

    def _program_note(self, line: log.Told) -> Iterator[Frame]:
        if line.note.step is not None and line.host in self.run.ranks:
            phase, step, begin, end, _, wrong = line.note.step
            times = round(begin * (S // NS)), round(end * (S // NS))
            yield self._step(self.run.ranks.index(line.host), step, *times, not wrong) | {
                "phase": phase
            }

    # --- events -----------------------------------------------------------------------------------

    def _fault(self, t: int, line: log.Fault) -> Iterable[Frame]:
        phase, name = line.phase, line.name
        began = next(
            (
                fault["t"]
                for fault in reversed(self._faults)
                if fault["name"] == name and fault["phase"] in ("begin", "down")
            ),
            None,
        )
        words = {
            "begin": "begins",
            "down": "down",
            "heal": "ends",
            "end": "lasted to the end of the run",
            "up": "up",
        }.get(phase, phase)
        lasted = (
            f" after {duration(t - began)}" if began is not None and phase in ("heal", "up") else ""
        )
        where = "" if line.on in name else f" ({line.on})"
        frame: Frame = {
            "f": "fault",
            "t": t,
            "name": name,
            "fault": line.fault,
            "on": line.on,
            "phase": phase,
            "links": line.links,
            "gone": phase in _GONE_PHASES,
            "text": f"{name}{where}: {words}{lasted}",
        }
        self._faults.append(frame)
        return [frame]

    def _event(self, t: int, line: Line) -> Iterator[Frame]:
        first = line.host == self.run.ranks[0]
        level, more, text = "note", {}, ""
        match line:
            case log.Qp(state="ERROR"):
                level, text = (
                    "bad",
                    f"queue pair h{line.host} to h{line.peer} in ERROR: {line.cause}",
                )
            case log.Rto():
                number = "" if line.firing is None else f", number {line.firing}"
                level, text = (
                    "bad",
                    f"h{line.host} to h{line.peer}: retransmission timer fired{number}",
                )
            case log.Port():
                level, more = "note" if line.up else "bad", {"port": line.port, "up": line.up}
                text = (
                    f"h{line.host}: its NIC port of plane {line.port} is "
                    f"{'up again' if line.up else 'down'}"
                )
            case log.Endpoint():
                text = f"h{line.host} to h{line.peer}: {line.cause}"
            case log.Reconverged():
                dead = ", ".join(line.dead_links)
                text = (
                    f"the network has re-routed around {dead}"
                    if dead
                    else "the network uses all links again"
                )
            case log.Failed():
                level, text = "bad", f"rank {line.rank} failed: {line.reason}"
            case log.End():
                reason = line.reason or ""
                words = f"the run ended: {line.outcome}{f': {reason}' if reason else ''}"
                yield {"f": "end", "t": t, "outcome": line.outcome, "reason": reason, "text": words}
            case log.Deny(entries=list(entries)) if first:
                text = f"denylist: {', '.join(entries) or 'empty'}"
            case log.Deny(entries=None) if first or line.host < 0:
                text = f"denied: {line.on}"
            case log.Hint() if first:
                text = f"the controller's hint: down are {', '.join(line.links) or 'no links'}"
        if text:
            yield {
                "f": "event",
                "t": t,
                "what": line.kind,
                "level": level,
                "host": line.host,
                "text": text,
                **more,
            }


class State:
    def __init__(self) -> None:
        self._latest: dict[tuple[Any, ...], Frame] = {}

    def apply(self, frame: Frame) -> None:
        for subject, part in _parts(frame):
            self._latest.pop(subject, None)
            self._latest[subject] = part

    def keyframe(self) -> list[Frame]:
        return list(self._latest.values())


def _parts(frame: Frame) -> Iterator[tuple[tuple[Any, ...], Frame]]:
    kind = frame["f"]
    if kind == "path":
        for ev in frame["evs"]:
            yield (kind, frame["src"], frame["dst"], ev), {**frame, "evs": [ev]}
    elif kind == "ports":
        for row in frame["rows"]:
            yield (kind, row[0]), {**frame, "rows": [row]}
    else:
        subject = {
            "rate": ("host",),
            "pair": ("src", "dst"),
            "evs": ("src", "dst"),
            "cwnd": ("src", "dst", "qp"),
            "loss": ("src", "dst", "ev"),
            "step": ("rank",),
            "fault": ("name",),
            "event": ("text",),
            "messages": ("host",),
        }.get(kind, ())
        yield (kind, *(frame[key] for key in subject)), frame
