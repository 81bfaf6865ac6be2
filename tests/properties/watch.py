"""What must hold of an MRC endpoint at every moment: held against it after everything it does.

Paths: only a GOOD path in use on an open plane carries data; a plane's active and backup paths are
its own, and are those that are GOOD or SKIP; as many are active as are wanted while the backup has
any; verdicts of loss leave the floor; states change as the table says. Timers: while anything is
open there is a next deadline. State: nothing it keeps grows beyond a bound that follows from its
window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Any

from agents.mrc import wire
from agents.mrc.config import Config
from agents.mrc.endpoint import Endpoint
from agents.mrc.framing import MOST_HEADS
from agents.mrc.paths.ev_state import DENIED, GOOD, SKIP, STATE_NAMES, TRANSITIONS
from agents.mrc.queue_pair import RTS, QueuePair
from agents.packets import headers
from agents.transport import NEVER
from topologies.clos import Fabric

LOSSES = {"order", "time", "rto", "count", "always_skip", "swapped"}
"""Causes of a verdict that the floor may refuse."""
CHANGES = {
    (STATE_NAMES[old], STATE_NAMES[new]) for (old, _), new in TRANSITIONS.items() if old != new
}
POSTED = ("messages", "sending", "recv_queue", "completions", "finished")
"""What grows with what the user posts, and is the user's own affair."""


class Watch:
    """Of one endpoint with one queue pair."""

    def __init__(self, engine: Endpoint, qp: QueuePair) -> None:
        self.engine, self.qp = engine, qp
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        paths = qp.requester.paths
        wanted = [n for n in paths.wanted if n or not paths.few]
        assert len(set(wanted)) == 1 and [len(lap) for lap in paths.active] == paths.wanted, (
            "planes begin with equally many paths"
        )
        self.in_rotation = paths.in_rotation

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind so far."""
        return [fields for _, k, fields in self.events if k == kind]

    # --- what leaves ------------------------------------------------------------------------------

    def departs(self, now: int, port: int, frame: bytearray) -> None:
        """A frame is about to leave by a port."""
        if not wire.WRITE_FIRST <= frame[headers.BTH_AT] <= wire.WRITE_ONLY_IMM:
            return
        value = int.from_bytes(frame[56:58], "big") << 16 | int.from_bytes(frame[94:96], "big")
        paths = self.qp.requester.paths
        path = paths.by_ev[value]
        assert value >> 16 == port == path.plane
        assert path.state == GOOD, f"data on a path that is {STATE_NAMES[path.state]}"
        assert path.in_use and paths.open[port] and self.engine.out.port_up[port], (
            "data on a path that is not in use"
        )

    # --- after each turn --------------------------------------------------------------------------

    def looks(self, now: int) -> None:
        """After everything that the engine did at one moment."""
        made = self.engine.events()
        self.events += made
        r, qp = self.qp.requester, self.qp
        told = [
            (kind, fields)
            for _, kind, fields in made
            if kind in ("ev", "plane", "endpoint", "qp", "port", "peer_ports")
        ]
        if told:
            self._paths(told)
        self.in_rotation = r.paths.in_rotation
        if qp.state == RTS:
            open_work = r.is_open() or r.has_data()
            assert not open_work or self.engine.deadline() < NEVER, "work is open and no timer runs"
            holes = qp.responder.since_sack and not qp.responder.sack_due
            assert not holes or qp.responder.flush_at < NEVER, (
                "something came, no SACK told of it, and no timer will"
            )
            assert not qp.listed or qp in self.engine.out.control, (
                "control packets that nobody will send"
            )

    def _paths(self, told: list[tuple[str, dict[str, Any]]]) -> None:
        """Something changed: the sets must still be what they are meant to be."""
        p = self.qp.requester.paths
        for plane in range(p.planes):
            active, backup = (
                [path.index for path in p.active[plane]],
                [path.index for path in p.backup[plane]],
            )
            assert not set(active) & set(backup) and len(set(active + backup)) == len(active) + len(
                backup
            )
            mine = [path for path in p.all if path.plane == plane]
            healthy = [path.index for path in mine if path.state in (GOOD, SKIP)]
            assert sorted(active + backup) == healthy, (
                f"plane {plane}: {active} and {backup} are not its healthy paths {healthy}"
            )
            assert [path.index for path in mine if path.in_use] == sorted(active) and p.usable[
                plane
            ] == len(active)
            assert len(active) == min(p.wanted[plane], len(healthy)), (
                f"plane {plane}: a path of the backup should have replaced another"
            )
            for path in mine:
                if path.state not in (GOOD, SKIP, DENIED):
                    assert path.probe_at < NEVER, (
                        f"path {path.index} was given up and nobody probes it"
                    )
        assert p.in_rotation == sum(p.usable[k] for k in range(p.planes) if p.open[k])
        changes = [fields for kind, fields in told if kind == "ev"]
        for fields in changes:
            assert (fields["from"], fields["to"]) in CHANGES, f"no such change of a path: {fields}"
        if changes and all(kind == "ev" and fields["cause"] in LOSSES for kind, fields in told):
            assert p.in_rotation >= min(self.in_rotation, p.floor()), (
                f"{p.in_rotation} paths are left, the floor is {p.floor()}"
            )

    # --- bounds -----------------------------------------------------------------------------------

    def bounded(self) -> None:
        """Nothing that the endpoint keeps is larger than its window and its paths explain."""
        found = list(sizes(self.engine))
        assert len(found) > 60, "the walk no longer sees the endpoint's state"
        over = [(name, size, most) for name, size, most in found if size > most]
        assert not over, f"state beyond its bound (name, size, bound): {over}"


def bound(name: str, config: Config, evs: int) -> int:
    """The most entries of a container, or bits of a bitmap, by its name."""
    n = config.mpr
    return {
        "answers": 64,
        "nacks": 64,
        "queue": 64,
        "probes": 257,
        "lost_queue": n,
        "open": n,
        "received": n,
        "reported": n,
        "bases": n // 64 + 1,
        "answer_bases": n // 64 + 1,
        "heads": MOST_HEADS,
        "sums": MOST_HEADS,
        "to_probe": 2 * evs + 4,
        "qps": 1,
        "order": 1,
        "control": 1,
        "peers": 1,
    }.get(name, 4 * n)


def sizes(engine: Endpoint) -> Iterator[tuple[str, int, int]]:
    """(where, size, bound) of every container, and every bitmap, that can be reached from an
    endpoint."""
    evs = len(engine.order[0].requester.paths.all)
    bitmaps = {"received", "reported"}
    todo: list[tuple[str, str, Any]] = [("endpoint", "", engine)]
    seen: set[int] = set()
    while todo:
        where, name, what = todo.pop()
        if id(what) in seen or isinstance(
            what, (Fabric, Random, Config, str, bytes, bytearray, memoryview)
        ):
            continue
        if isinstance(what, int):
            if name in bitmaps:
                yield where, what.bit_length(), bound(name, engine.config, evs)
            continue
        seen.add(id(what))
        if isinstance(what, (list, deque, dict, set)):
            if name in POSTED:
                continue
            yield where, len(what), bound(name, engine.config, evs)
            inside = what.values() if isinstance(what, dict) else what
            todo += [
                (f"{where}[]", name, item)
                for item in inside
                if not isinstance(item, (int, float, bytes, str, tuple))
            ]
        elif type(what).__module__.startswith("agents."):
            for key in _attributes(what):
                todo.append((f"{where}.{key}", key, getattr(what, key, None)))


def _attributes(what: Any) -> list[str]:
    """Of an instance, compiled or not."""
    if hasattr(what, "__mypyc_attrs__"):
        return [key for key in what.__mypyc_attrs__ if not key.startswith("__")]
    return list(getattr(what, "__dict__", {}))
