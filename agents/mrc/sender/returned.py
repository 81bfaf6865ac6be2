"""Packets that are to go again although no path lost them: trimmed by a switch, refused by the peer, or in flight over a dead port.

Called by the endpoint and its arrivals on one QP's requester; verdicts of loss are in loss.py. Sans-IO.
"""

from __future__ import annotations

from bisect import insort

from agents.mrc.paths.path import Path
from agents.mrc.sender.requester import CUT, PORT, SENT, Requester
from agents.packets import headers


def trimmed(r: Requester, now: int, psn: int, ev: int, ts: int, shift: int, last_hop: bool) -> None:
    """NACK: a full queue trimmed it. It goes again at once on another EV; the path is to be skipped once, but not for the last hop,
    which all paths share. Only if EV and timestamp are those of the latest transmission, or of the one whose loss is in doubt.
    """
    p = r.una + headers.psn_delta(psn, r.una)
    if not r.una <= p < r.next:
        return
    slot = p % r.size
    doubt = r.doubts.open.get(p)
    if doubt is not None and doubt.path.ev == ev and doubt.sent_ns >> shift & 0xFFFF == ts:
        path = doubt.path
        r.doubts.drop(p)
        r.blamed.pop(p, None)
        r.acquitted += 1
    else:
        path = r.path[slot]
        if r.state[slot] != SENT or path.ev != ev or r.sent_ns[slot] >> shift & 0xFFFF != ts:
            return
        r.state[slot] = CUT
        r.in_flight -= r.bytes[slot]
        path.landed()
        insort(r.lost_queue, p)
        r.refresh_oldest(path)
    r.trims += 1
    if last_hop:
        r.trims_last_hop += 1
    else:
        r.paths.marked(path)
    r.congestion.on_nack(now, r.bytes[slot], r.in_flight, True)
    r.progress_ns = now  # the network answers: no reason to fire timers [ours]


def push_back(r: Requester, now: int, psn: int, ev: int, ts: int, shift: int, beyond: bool) -> None:
    """The peer refused it: it goes again, no path blamed. Only if EV and timestamp are those of its latest transmission.

    ``beyond``: of the peer's window, which says nothing of congestion; else it had no room.
    """
    p = r.una + headers.psn_delta(psn, r.una)
    if r.una <= p < r.next:
        slot = p % r.size
        if r.path[slot].ev == ev and r.sent_ns[slot] >> shift & 0xFFFF == ts:
            r.lose(now, p, PORT, "no room", False)
            if not beyond:
                r.congestion.on_nack(now, r.bytes[slot], r.in_flight, False)


def requeue_plane(r: Requester, now: int, plane: int) -> None:
    """A port of the plane is down: what was in flight on it goes again, nothing is punished; nor is what was lost in the last RTT."""
    requeue(r, now, {path for path in r.paths.all if path.plane == plane}, "port")
    r.paths.void_verdicts(now, plane, now - r.rtt.srtt, "port down")


def requeue(r: Requester, now: int, paths: set[Path], name: str) -> None:
    """These paths are known to be dead: what was in flight on them goes again, nothing is punished."""
    r.doubts.drop_paths(paths)
    for psn in range(r.una, r.next):
        slot = psn % r.size
        if r.state[slot] == SENT and r.path[slot] in paths:
            r.lose(now, psn, PORT, name, False)
