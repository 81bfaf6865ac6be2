"""Takes back packets that must be sent again although no path lost them: trimmed, refused by the
peer, or over a dead port. Sans-IO."""

from __future__ import annotations

from agents.mrc.paths.path import Path
from agents.mrc.sender.loss import PORT
from agents.mrc.sender.requester import Requester
from agents.mrc.sender.sent_packets import SentPacket
from agents.packets import headers


def trimmed(r: Requester, now: int, psn: int, ev: int, ts: int, shift: int, last_hop: bool) -> None:
    """Take a NACK for a trimmed packet, if EV and timestamp are those of the latest transmission,
    or of the one whose loss is in doubt. The path is skipped once, but not for the last hop, which
    all share."""
    packet = _named(r, psn)
    if packet is None:
        return
    doubt = r.doubts.open.get(packet.psn)
    if doubt is not None and doubt.path.ev == ev and doubt.sent_ps >> shift & 0xFFFF == ts:
        path = doubt.path
        r.acquit(packet)
    else:
        path = packet.path
        if not packet.in_flight or not _is(packet, ev, ts, shift):
            return
        r.sent.trimmed(packet)
    r.trimmed(now, packet.size, path, last_hop)


def push_back(r: Requester, now: int, psn: int, ev: int, ts: int, shift: int, beyond: bool) -> None:
    """Take a NACK for a refused packet, if EV and timestamp are those of the latest transmission.
    ``beyond``: it lay beyond the peer's window, which is no congestion."""
    packet = _named(r, psn)
    if packet is not None and _is(packet, ev, ts, shift):
        r.lose(now, packet, PORT, "no room", False)
        if not beyond:
            r.congestion.on_nack(now, packet.size, r.sent.in_flight, False)


def names_latest(r: Requester, psn: int, ev: int, ts: int, shift: int) -> bool:
    packet = _named(r, psn)
    return packet is not None and _is(packet, ev, ts, shift)


def _is(packet: SentPacket, ev: int, ts: int, shift: int) -> bool:
    return packet.path.ev == ev and packet.sent_ps >> shift & 0xFFFF == ts


def _named(r: Requester, psn: int) -> SentPacket | None:
    absolute = r.sent.una + headers.psn_delta(psn, r.sent.una)
    return r.sent.latest(absolute) if r.sent.una <= absolute < r.sent.next else None


def requeue_plane(r: Requester, now: int, plane: int) -> None:
    """Neither packets in flight on a plane whose port is down nor losses of the last RTT are
    penalised."""
    requeue(r, now, {path for path in r.paths.all if path.plane == plane}, "port")
    r.paths.void_verdicts(now, plane, now - r.rtt.srtt, "port down")


def requeue(r: Requester, now: int, paths: set[Path], name: str) -> None:
    r.doubts.drop_paths(paths)
    for packet in r.sent.flying():
        if packet.path in paths:
            r.lose(now, packet, PORT, name, False)
