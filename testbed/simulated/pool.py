"""A simulated switch's memory: the pool that its ports share, if they do, and what each ingress
port's lossless packets hold (PFC).

As in SAI, a queue may hold ``alpha`` times what is free of the pool (Choudhury and Hahne, 1998:
dynamic thresholds). A packet counts as taken when the threshold is computed, so that the pool never
overflows: one busy queue may hold alpha / (1 + alpha) of it, each of n such queues alpha / (1 + n
alpha). All sizes bytes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from topologies.clos import PFC_GAP, Fabric

_SHIFT: Final[i64] = 7  # alphas are kept in 128ths: the smallest is one


class Pool:
    """With ``size`` 0 a switch's ports have buffers of their own, and this counts nothing."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.used: i64 = 0
        self.peak: i64 = 0
        self.alpha: i64 = 0
        self.alpha_lossless: i64 = 0

    def describe(self, size: int, fabric: Fabric) -> None:
        self.size = size
        self.alpha, self.alpha_lossless = fabric.pool_alphas

    def room(self, length: i64) -> i64:
        return self.alpha * (self.size - self.used - length) >> _SHIFT

    def room_lossless(self, length: i64) -> i64:
        return self.alpha_lossless * (self.size - self.used - length) >> _SHIFT

    def take(self, length: i64) -> None:
        used = self.used + length
        self.used = used
        if used > self.peak:
            self.peak = used


class Held:
    def __init__(self) -> None:
        self.size: i64 = 0
        self.beyond: i64 = 0  # in headroom, outside the pool
        self.stops = False
        self.xoff: i64 = 0
        self.xon: i64 = 0
        self.gap: i64 = 0
        self.least: i64 = 0  # with so much the other end may go on in any case
        self.limit: i64 = 0

    def describe(self, fabric: Fabric, rate: int) -> None:
        self.xoff, self.xon = fabric.pfc_bytes
        self.gap, self.least = PFC_GAP * fabric.frame_bytes, fabric.frame_bytes
        self.limit = self.xoff + fabric.pfc_headroom(rate)

    def hold(self, length: i64, pool: Pool) -> bool:
        size = self.size + length
        if pool.size:
            if size - self.beyond <= pool.room_lossless(length):
                pool.take(length)
            elif self.beyond + length <= self.limit - self.xoff:
                self.beyond += length
            else:
                return False
        elif size > self.limit:
            return False
        self.size = size
        return True

    def must_stop(self, pool: Pool) -> bool:
        if self.stops or (self.beyond == 0 if pool.size else self.size <= self.xoff):
            return False
        self.stops = True
        return True

    def release(self, length: i64, pool: Pool) -> bool:
        self.size -= length
        xon = self.xon
        if pool.size:
            back = length if length < self.beyond else self.beyond
            self.beyond -= back
            pool.used -= length - back
            xon = pool.room_lossless(0) - self.gap
            if xon < self.least:
                xon = self.least
        if not self.stops or self.beyond > 0 or self.size > xon:
            return False
        self.stops = False
        return True
