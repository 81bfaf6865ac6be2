"""Rows of ports from what a simulated network counted. A process counts 0 for what others compute,
so that all counts add up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from testbed.dataplane import layout
from testbed.dataplane.counters import Loads, Row, port_loads, port_row
from testbed.simulated.port import ARRIVED_BYTES
from topologies.clos import Fabric

_STATS, _FLUSHED = len(layout.STATS_WORDS), len(layout.FLUSHED_WORDS)
_WAITING = _STATS + _FLUSHED
_PAUSE = ("pauses", "paused_ps", "longest_pause_ps")
_POOL = ("pool_bytes", "pool_peak_bytes")
_POOLED = _WAITING + 1 + len(_PAUSE)
WIDTH = _POOLED + len(_POOL)
"""Numbers of a port: layout.STATS_WORDS, layout.FLUSHED_WORDS, bytes of data that wait, the pauses,
and what its switch's pool holds, now and at most."""

Table = NDArray[np.int64]


def added(blocks: Iterable[bytes]) -> Table:
    return sum(np.frombuffer(block, "<i8").reshape(-1, WIDTH) for block in blocks)  # type: ignore[return-value]


def rows(fabric: Fabric, figures: Table) -> list[Row]:
    out: list[Row] = []
    table = figures.tolist()
    for link in fabric.links:
        for near, peer in ((link.a, link.b), (link.b, link.a)):
            own, far = table[near.number], table[peer.number]
            flushed = own[_STATS:_WAITING]
            left = [own[k] - far[ARRIVED_BYTES + k] - flushed[k] for k in range(4)]
            row = port_row(
                link, near, peer, own[:_STATS], flushed, (left[0] + left[1], left[2] + left[3])
            )
            if fabric.pfc:
                row |= zip(_PAUSE, own[_WAITING + 1 : _POOLED], strict=True)
            if fabric.pool_mb_per_tbps and near.node[0] == "p":
                row |= zip(_POOL, own[_POOLED:], strict=True)
            out.append(row)
    return out


def loads(table: Table, far: NDArray[np.intp]) -> Loads:
    return port_loads(table[:, :_STATS], far, table[:, _WAITING])
