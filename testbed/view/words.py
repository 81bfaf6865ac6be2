"""The sentences that a view shows: why a path changed, and what a fault did."""

from __future__ import annotations

from collections.abc import Collection

from topologies.addressing import ev_fields

_VERDICTS = {
    "order": "by order (later packets of the path arrived)",
    "time": "by time",
    "count": "by count",
    "rto": "by the retransmission timer",
    "hint": "the controller says that a link is down",
    "always_skip": "the receiver says so",
    "swapped": "swapped for a backup path",
    "allowed": "taken off the denylist, must prove itself",
}
_SOON_NS = 2_000_000


def path_names(evs: Collection[int], whole_planes: Collection[int] = ()) -> str:
    if whole_planes:
        return "plane " + ", ".join(map(str, sorted(whole_planes)))
    return "EV " + ", ".join("{}:{}".format(*ev_fields(ev)) for ev in sorted(evs))


def verdict(state: str, cause: str) -> str:
    if state == "back":
        return "back in use" + (
            ", probes came back" if cause == "probed" else f" ({cause})" if cause else ""
        )
    if state == "probed":
        return "probed: " + (cause or "must prove itself")
    if state == "suspect":
        return "suspect with its whole plane"
    if state == "denied":
        return "denied by the denylist"
    if state == "closed":
        return f"out of use: {cause or 'a port is down'}"
    if state == "died":
        return f"assumed bad, {_VERDICTS.get(cause, cause)}"
    return {"used": "in use", "backup": "kept as a backup", "idle": "left"}.get(state, state) + (
        f": {cause}" if cause else ""
    )


def duration(ns: float) -> str:
    if abs(ns) < 999.5:
        return f"{ns:.0f} ns"
    if abs(ns) < 9_950:
        return f"{ns / 1e3:.1f} µs"
    if abs(ns) < 9_999_500:
        return f"{ns / 1e3:,.0f} µs"
    return f"{ns / 1e6:,.1f} ms"


def begin_word(kind: str) -> str:
    return {
        "link": "the cut",
        "flap": "the cut",
        "port": "the port went down",
        "plane": "the plane went down",
        "switch": "the switch died",
    }.get(kind, "the fault began")


def end_word(kind: str) -> str:
    return {
        "link": "the cable was mended",
        "flap": "the cable was mended",
        "port": "the port came back",
    }.get(kind, "the fault ended")


def since(t: int, at: int, word: str) -> str:
    """Write ``, 41 µs after the cut``; empty if that is long ago, or at the same time."""
    return f", {duration(t - at)} after {word}" if 0 < t - at <= _SOON_NS else ""
