"""Log lines in, frames out: what a view shows of a run. Sans-IO; the same for a living run and for one that is over.

Theory of operation.

1. Lines come by file, in any portions: :meth:`Fold.feed` keeps what is no whole line yet.
2. Lines of all files are folded in order of time. Those of one time go by the file's name (the runner's first, which
   has the faults), then by their order in the file. A follower
   says up to which time it has read everything (:meth:`Fold.frames`); a line that comes later still is folded then.
3. A frame is a plain dictionary with its kind ``f`` and time ``t``, ns of the network since the run began. It says what holds from then
   on of one subject (a path, a fault, a port, a rank's step), so that a view's state is the last frame of each subject: :class:`State`.
4. Events that come by the hundreds (losses) are counted per path and bin.

Frames therefore depend on the lines alone, not on how they were cut, and a :meth:`State.keyframe` stands for all frames before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from testbed.view.clock import in_ns
from testbed.view.declared import Lines
from testbed.view.run import Run, touched
from testbed.view.words import begin_word, duration, end_word, path_names, since, verdict
from topologies.addressing import ev_fields
from topologies.clos import FabricError
from topologies.files import FileError
from topologies.units import NS

Frame = dict[str, Any]
Line = dict[str, Any]

BIN_RTTS = 2
"""Base RTTs over which losses are counted, as the agents' goodput is."""
_decode = msgspec.json.Decoder(Line).decode
MOST_LINE = 1 << 24
"""The longest line of a log, in bytes [ours]."""
_EV_STATES = {"GOOD": "used", "SKIP": "used", "ASSUMED_BAD": "died", "DENIED": "denied"}
_OF_PAIRS = ("ev", "plane", "evs", "reroute")
OUT = ("died", "suspect", "denied", "closed", "probed")
_GONE_PHASES = ("heal", "end", "up")


class Fold:
    """Folds the lines of one run. The header frame is ``run.header()``."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._lines = Lines(run.fabric, len(run.ranks))
        self._partial: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self.newest = run.t0  # the latest time that a line has
        self._waiting: list[tuple[int, str, int, Line]] = []  # time, file, line, content
        self._ev = {pair: dict.fromkeys(states, "used") for pair, states in run.pairs.items()}  # what verdicts on the EV itself say
        self._plane: dict[tuple[int, int, int], str] = {}
        self._shown = {pair: dict(states) for pair, states in run.pairs.items()}
        self._users = {pair: dict(evs) for pair, evs in run.queue_pairs.items()}
        self._faults: list[Frame] = []  # the last phase of each, in order
        self._losses: dict[tuple[int, int, int], list[int]] = {}  # in this bin: lost, trimmed, sent again
        self._messages: dict[int, int] = {}  # in this bin, by sender
        self._bin_ns = max(1, round(BIN_RTTS * run.fabric.base_rtt_ps / NS))
        self._bin_end = self._bin_ns
        self._folders: dict[str, Callable[[int, Line], Iterator[Frame]]] = {
            "fault": self._fault, "ev": self._of_ev, "plane": self._of_plane, "reroute": self._reroute, "goodput": self._goodput,
            "loss": self._loss, "step": self._step, "told": self._program_note, "ports": self._ports, "evs": self._evs, "cwnd": self._cwnd,
            "srtt": self._srtt, "qp": self._qp, "reconverged": self._reconverged, "rto": self._rto, "endpoint": self._endpoint,
            "failed": self._failed, "end": self._end, "deny": self._deny, "hint": self._hint, "rtx": self._again, "message": self._message,
            "port": self._port,
        }  # fmt: skip

    # --- lines -----------------------------------------------------------------------------------------------

    def feed(self, name: str, data: bytes) -> None:
        """Take more of the log file ``name`` (``h3``, ``runner``, ``ports``)."""
        *lines, rest = (self._partial.pop(name, b"") + data).split(b"\n")
        if rest and len(rest) <= MOST_LINE:
            self._partial[name] = rest
        for line in lines:
            number = self._numbers[name] = self._numbers.get(name, -1) + 1
            if line.find(b'"transfers"', 0, 60) >= 0:
                continue  # half of a log, and no view shows them
            try:
                entry = _decode(line)
                if not isinstance(kind := entry.get("kind"), str) or kind not in self._folders:
                    continue
                self._lines.check({"host": -1, **entry}, Path(name))
            except (msgspec.DecodeError, UnicodeError, RecursionError, FileError):
                continue  # a process that is killed may leave half a line; a line of another version means something else
            entry = in_ns(entry, None)
            when = entry["t"] + entry.get("bin_ns", 0)  # a bin is written when it is over
            file = "" if name == "runner" else name  # a fault before what follows from it
            self.newest = max(self.newest, when)
            heapq.heappush(self._waiting, (when, file, number, entry))

    def frames(self, until: float | None = None) -> Iterator[Frame]:
        """Yield the frames of all lines up to a time of the run (ns); None: of all lines."""
        while self._waiting and (until is None or self._waiting[0][0] <= until):
            when, _, _, entry = heapq.heappop(self._waiting)
            t = when - self.run.t0
            yield from self._close_bin(t)
            try:
                frames = list(self._fold(t, entry))
            except (KeyError, FabricError):
                continue  # of another version; or a path that the fabric does not have
            yield from frames

    def _fold(self, t: int, line: Line) -> Iterator[Frame]:
        if line["kind"] in _OF_PAIRS:
            yield from self._open(t, (line["host"], line["peer"]))
        yield from self._folders[line["kind"]](t, line)

    def close(self) -> Iterator[Frame]:
        """Yield the frames that are left: the run is over."""
        yield from self.frames()
        yield from self._close_bin(self._bin_end)

    # --- paths -----------------------------------------------------------------------------------------------

    def _open(self, t: int, pair: tuple[int, int]) -> Iterator[Frame]:
        """Open a pair of hosts that the description of the run does not have."""
        if pair in self._shown:
            return
        states = self.run.new_pair(*pair)
        self._shown[pair], self._ev[pair], self._users[pair] = states, dict.fromkeys(states, "used"), {}
        yield {"f": "pair", "t": t, **self.run.pair(*pair, states)}

    def _of_ev(self, t: int, line: Line) -> Iterator[Frame]:
        pair, ev = (line["host"], line["peer"]), line["ev"]
        if ev not in self._ev.get(pair, ()):
            return
        state = _EV_STATES.get(line["to"], "used")
        if line.get("cause") == "suspect plane":
            state = "suspect"
        elif line.get("cause") == "allowed":
            state = "probed"
        self._ev[pair][ev] = state
        yield from self._show(t, pair, [ev], line.get("cause") or "")

    def _of_plane(self, t: int, line: Line) -> Iterator[Frame]:
        if line["to"] == "SUSPECT":
            return  # each of its EVs says so itself
        pair = (line["host"], line["peer"])
        self._plane[(*pair, line["plane"])] = line["to"]
        evs = [ev for ev in self._ev.get(pair, ()) if ev_fields(ev)[0] == line["plane"]]
        yield from self._show(t, pair, evs, line.get("cause") or "", whole=line["plane"])

    def _state(self, pair: tuple[int, int], ev: int) -> str:
        """Return what is shown of a path, before it is known whether it is back."""
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

    def _show(self, t: int, pair: tuple[int, int], evs: list[int], cause: str, whole: int | None = None) -> Iterator[Frame]:
        """Make frames for those of the paths whose shown state changes."""
        changed: dict[str, list[int]] = {}
        for ev in evs:
            state = self._state(pair, ev)
            if state != self._shown[pair][ev]:
                self._shown[pair][ev] = state
                changed.setdefault(state, []).append(ev)
        for state, those in changed.items():
            planes = [whole] if whole is not None and len(those) == len(evs) else []
            if whole is not None and state in ("died", "suspect"):
                why = f"{path_names(those, planes)} still assumed bad: {cause}"  # its own verdict is older than the plane's news
            else:
                why = f"{path_names(those, planes)} {verdict(state, cause)}{self._after(t, pair, those, state)}"
            yield {"f": "path", "t": t, "src": pair[0], "dst": pair[1], "evs": those, "state": state, "why": why}

    def _after(self, t: int, pair: tuple[int, int], evs: list[int], state: str) -> str:
        """Write `` , 41 µs after the cut``: the last begin (for a return: end) of a fault on these paths."""
        ends = state in ("back", "probed")
        for fault in reversed(self._faults):
            if (fault["phase"] in _GONE_PHASES) == ends and any(touched(self.run, *pair, ev, fault["links"]) for ev in evs):
                return since(t, fault["t"], end_word(fault["fault"]) if ends else begin_word(fault["fault"]))
        return ""

    def _reroute(self, t: int, line: Line) -> Iterator[Frame]:
        pair, old, new = (line["host"], line["peer"]), line.get("old"), line.get("ev")
        shown, users = self._shown.get(pair), self._users.get(pair)
        if shown is None or users is None or old is None or new is None or old == new:
            return
        users[old], users[new] = users.get(old, 1) - 1, users.get(new, 0) + 1
        for ev, state in ((old, "idle"), (new, "used")):
            if ev in shown and (state == "used" or users[ev] <= 0) and shown[ev] != state:
                shown[ev] = state
                way = f"the network re-routed to {path_names([new])}" if ev == old else "the network re-routed to it"
                why = f"{path_names([ev])} {verdict(state, way)}{self._after(t, pair, [old], 'died')}"
                yield {"f": "path", "t": t, "src": pair[0], "dst": pair[1], "evs": [ev], "state": state, "why": why}

    # --- counts ----------------------------------------------------------------------------------------------

    def _loss(self, t: int, line: Line) -> Iterator[Frame]:
        return self._count(line, 1 if line.get("rule") in ("trim", "trimmed", "nack") else 0)

    def _again(self, t: int, line: Line) -> Iterator[Frame]:
        return self._count(line, 2)

    def _count(self, line: Line, what: int) -> Iterator[Frame]:
        subject = (line["host"], line.get("peer", -1), line.get("ev", -1))
        self._losses.setdefault(subject, [0, 0, 0])[what] += 1
        yield from ()

    def _message(self, t: int, line: Line) -> Iterator[Frame]:
        self._messages[line["host"]] = self._messages.get(line["host"], 0) + 1
        yield from ()

    def _close_bin(self, t: int) -> Iterator[Frame]:
        """Close the bin of losses if it is over at ``t``, and make frames of what it counted."""
        if t < self._bin_end:
            return
        of_bin = {"t": self._bin_end - self._bin_ns, "ns": self._bin_ns}
        for (src, dst, ev), (lost, trimmed, again) in sorted(self._losses.items()):
            yield {"f": "loss", **of_bin, "src": src, "dst": dst, "ev": ev, "lost": lost, "trimmed": trimmed, "again": again}
        for host, count in sorted(self._messages.items()):
            yield {"f": "messages", **of_bin, "host": host, "count": count}
        self._losses.clear()
        self._messages.clear()
        self._bin_end = (t // self._bin_ns + 1) * self._bin_ns

    def _goodput(self, t: int, line: Line) -> Iterator[Frame]:
        yield {"f": "rate", "t": t - line["bin_ns"], "ns": line["bin_ns"], "host": line["host"], "tx": line["tx"], "rx": line["rx"]}

    def _ports(self, t: int, line: Line) -> Iterator[Frame]:
        yield {"f": "ports", "t": t, "ns": line["span_ns"], "rows": line["rows"]}

    def _evs(self, t: int, line: Line) -> Iterator[Frame]:
        pair = (line["host"], line["peer"])
        shown = self._shown.get(pair, {})
        for ev in map(int, line["tx"]):
            if shown.get(ev) in ("backup", "idle"):  # swaps into use are not logged: packets tell
                idle, shown[ev] = shown[ev], "used"
                why = f"{path_names([ev])} in use{', was a backup' if idle == 'backup' else ''}"
                yield {"f": "path", "t": t, "src": pair[0], "dst": pair[1], "evs": [ev], "state": "used", "why": why}
        tx = [[int(ev), count] for ev, count in line["tx"].items()]
        yield {"f": "evs", "t": t - line["bin_ns"], "ns": line["bin_ns"], "src": pair[0], "dst": pair[1], "tx": tx}

    def _cwnd(self, t: int, line: Line) -> Iterator[Frame]:
        yield {
            "f": "cwnd", "t": t, "src": line["host"], "dst": line["peer"], "qp": line["qpn"], "window": line["cwnd"],
            "in_flight": line["in_flight"], "srtt_ns": line["srtt_ns"],
        }  # fmt: skip

    def _srtt(self, t: int, line: Line) -> Iterator[Frame]:
        yield {
            "f": "cwnd", "t": t, "src": line["host"], "dst": line["peer"], "qp": line["qpn"], "window": line["window"],
            "srtt_ns": line["srtt_ns"],
        }  # fmt: skip

    def _step(self, t: int, line: Line) -> Iterator[Frame]:
        yield self._of_step(line["rank"], line["step"], line["start_ns"], line["end_ns"], bool(line["ok"]))

    def _of_step(self, rank: int, step: int, start_ns: int, end_ns: int, ok: bool) -> Frame:
        run = self.run
        return {
            "f": "step", "t": end_ns - run.t0, "start": start_ns - run.t0, "rank": rank,
            "step": step - run.warmup_steps, "ok": ok,
        }  # fmt: skip

    def _program_note(self, t: int, line: Line) -> Iterator[Frame]:
        """Make frames of a job's rank that ended a step of its program: [phase, number, begin, end, late, wrong]."""
        step = line.get("note", {}).get("step")
        if step and line["host"] in self.run.ranks:
            frame = self._of_step(self.run.ranks.index(line["host"]), int(step[1]), step[2], step[3], not any(step[5:]))
            yield frame | {"phase": int(step[0])}

    # --- events ----------------------------------------------------------------------------------------------

    def _fault(self, t: int, line: Line) -> Iterator[Frame]:
        phase, name = line["phase"], line["name"]
        began = next(
            (fault["t"] for fault in reversed(self._faults) if fault["name"] == name and fault["phase"] in ("begin", "down")), None
        )
        words = {"begin": "begins", "down": "down", "heal": "ends", "end": "lasted to the end of the run", "up": "up"}.get(phase, phase)
        lasted = f" after {duration(t - began)}" if began is not None and phase in ("heal", "up") else ""
        where = "" if line["on"] in name else f" ({line['on']})"
        frame: Frame = {
            "f": "fault", "t": t, "name": name, "fault": line["fault"], "on": line["on"], "phase": phase, "links": line["links"],
            "gone": phase in _GONE_PHASES, "text": f"{name}{where}: {words}{lasted}",
        }  # fmt: skip
        self._faults.append(frame)
        yield frame

    def _event(self, t: int, line: Line, level: str, text: str, **more: Any) -> Iterator[Frame]:
        yield {"f": "event", "t": t, "what": line["kind"], "level": level, "host": line.get("host", -1), "text": text, **more}

    def _qp(self, t: int, line: Line) -> Iterator[Frame]:
        if line["state"] == "ERROR":
            yield from self._event(t, line, "bad", f"queue pair h{line['host']} to h{line['peer']} in ERROR: {line.get('cause')}")

    def _rto(self, t: int, line: Line) -> Iterator[Frame]:
        number = f", number {line['firing']}" if "firing" in line else ""
        return self._event(t, line, "bad", f"h{line['host']} to h{line['peer']}: retransmission timer fired{number}")

    def _port(self, t: int, line: Line) -> Iterator[Frame]:
        word = "up again" if line["up"] else "down"
        text = f"h{line['host']}: its NIC port of plane {line['port']} is {word}"
        return self._event(t, line, "note" if line["up"] else "bad", text, port=line["port"], up=line["up"])

    def _endpoint(self, t: int, line: Line) -> Iterator[Frame]:
        return self._event(t, line, "note", f"h{line['host']} to h{line['peer']}: {line.get('cause')}")

    def _reconverged(self, t: int, line: Line) -> Iterator[Frame]:
        dead = line["dead_links"]
        words = f"the network has re-routed around {', '.join(dead)}" if dead else "the network uses all links again"
        return self._event(t, line, "note", words)

    def _failed(self, t: int, line: Line) -> Iterator[Frame]:
        return self._event(t, line, "bad", f"rank {line.get('rank')} failed: {line.get('reason')}")

    def _end(self, t: int, line: Line) -> Iterator[Frame]:
        reason = line.get("reason") or ""
        words = f"the run ended: {line['outcome']}{f': {reason}' if reason else ''}"
        yield {"f": "end", "t": t, "outcome": line["outcome"], "reason": reason, "text": words}

    def _deny(self, t: int, line: Line) -> Iterator[Frame]:
        entries = line.get("entries")  # the runner's own lines name one entry; the agents' the complete list
        if line.get("host") is None or line["host"] == self.run.ranks[0]:
            text = (
                f"denylist: {', '.join(entries) or 'empty'}" if entries is not None else f"denied: {line.get('entry', line.get('on', ''))}"
            )
            yield from self._event(t, line, "note", text)

    def _hint(self, t: int, line: Line) -> Iterator[Frame]:
        if line.get("host") == self.run.ranks[0]:
            yield from self._event(t, line, "note", f"the controller's hint: down are {', '.join(line['links']) or 'no links'}")


class State:
    """The last frame of every subject: all that holds at a time."""

    def __init__(self) -> None:
        self._latest: dict[tuple[Any, ...], Frame] = {}

    def apply(self, frame: Frame) -> None:
        for subject, part in _parts(frame):
            self._latest.pop(subject, None)
            self._latest[subject] = part

    def keyframe(self) -> list[Frame]:
        """Return frames that lead an empty state here, oldest first."""
        return list(self._latest.values())


def _parts(frame: Frame) -> Iterator[tuple[tuple[Any, ...], Frame]]:
    """Split a frame by its subjects."""
    kind = frame["f"]
    if kind == "path":
        for ev in frame["evs"]:
            yield (kind, frame["src"], frame["dst"], ev), {**frame, "evs": [ev]}
    elif kind == "ports":
        for row in frame["rows"]:
            yield (kind, row[0]), {**frame, "rows": [row]}
    else:
        subject = {
            "rate": ("host",), "pair": ("src", "dst"), "evs": ("src", "dst"), "cwnd": ("src", "dst", "qp"), "loss": ("src", "dst", "ev"),
            "step": ("rank",), "fault": ("name",), "event": ("text",), "messages": ("host",),
        }.get(kind, ())  # fmt: skip
        yield (kind, *(frame[key] for key in subject)), frame
