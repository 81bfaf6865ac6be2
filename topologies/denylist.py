"""Reads entries of a denylist: which EVs an operator, a controller or a policy forbids.

An entry is a link's name (``p0-t0-0:p0-t1-3``), a switch's (``p0-t1-3``: every path through it), a
plane (``p0``), or one path: ``h0>h5@p0/3`` from h0 to h5 on plane 0, uplink 3 [ours; MRC has the
DENIED state and leaves open who speaks how].
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from topologies.addressing import ev, ev_fields
from topologies.clos import Fabric, FabricError
from topologies.paths import path_evs, path_links, path_nodes

_PLANE = re.compile(r"p([0-9]{1,9})")
_PATH = re.compile(r"h([0-9]{1,9})>h([0-9]{1,9})@p([0-9]{1,9})/([0-9]{1,9})")
FORMS = "a link (p0-t0-0:p0-t1-3), a switch (p0-t1-3), a plane (p0) or a path (h0>h5@p0/3)"


def check_entry(fabric: Fabric, text: str) -> str:
    """A link gets its ends in the fabric's order. Raises :class:`FabricError`."""
    if found := _PATH.fullmatch(text):
        src, dst, plane, uplink = map(int, found.groups())
        for host in (src, dst):
            if host >= fabric.host_count:
                raise FabricError(
                    f"denylist entry {text!r}: fabric {fabric.name!r} has hosts "
                    f"h0..h{fabric.host_count - 1}, not h{host}"
                )
        if src == dst:
            raise FabricError(f"denylist entry {text!r}: a path leads from one host to another")
        path_links(fabric, src, dst, ev(plane, uplink))
        return f"h{src}>h{dst}@p{plane}/{uplink}"
    if found := _PLANE.fullmatch(text):
        if int(found[1]) >= fabric.planes:
            raise FabricError(
                f"denylist entry {text!r}: fabric {fabric.name!r} has planes "
                f"p0..p{fabric.planes - 1}"
            )
        return f"p{int(found[1])}"
    if text in fabric.switches:
        return text
    if ":" in text:
        return fabric.link(text).name
    raise FabricError(
        f"denylist entry {text!r}: fabric {fabric.name!r} has no such thing: write {FORMS}"
    )


def denied(fabric: Fabric, entries: Iterable[str], src: int, dst: int) -> set[int]:
    names = set(entries)
    return (
        {
            value
            for value, forbidding in _forbidding(fabric, src, dst)
            if not names.isdisjoint(forbidding)
        }
        if names
        else set()
    )


@lru_cache(maxsize=512)
def _forbidding(fabric: Fabric, src: int, dst: int) -> tuple[tuple[int, frozenset[str]], ...]:
    """The results are kept: an engine asks for every peer whenever one cable changes."""
    made = []
    for value in path_evs(fabric, src, dst):
        plane, uplink = ev_fields(value)
        links = (link.name for link in path_links(fabric, src, dst, value))
        nodes = path_nodes(fabric, src, dst, value)
        made.append(
            (value, frozenset((f"p{plane}", f"h{src}>h{dst}@p{plane}/{uplink}", *links, *nodes)))
        )
    return tuple(made)


def over_links(fabric: Fabric, links: Iterable[str], src: int, dst: int) -> set[int]:
    """``links`` have their ends in the fabric's order."""
    return denied(fabric, (link for link in links if ":" in link), src, dst)
