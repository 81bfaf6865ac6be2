"""Advises senders what to do with their windows: CC_STATE's rcv_cwnd_pen and restore_cwnd. Sans-IO;
shared by a host's responders.

A receive window may be dynamic, too (second MRC paper, section II-B, as told by others): a NIC's
memory for bitmaps is then shared [ours].

When a receiver sets the two fields is [ours]. With ECN off on the last hop nothing else tells
senders, before packets are trimmed, that there are too many of them. So while the last hop trims,
every QP that brings at least its fair share is asked for a decrease in proportion to its rate. With
everybody's equal increase the shares converge. This is one of three readings of a penalty
(docs/why/congestion.md).
"""

from __future__ import annotations

from typing import Final

from agents.mrc.config import Config
from agents.transport import LONG_AGO

RESTORE: Final = 0x80
PERIOD: Final = 4
QUIET: Final = 2
"""A QP that brought nothing for so many base RTTs does not count as sending."""


class Inflow:
    def __init__(self) -> None:
        self.bytes = 0  # all bytes received, in the units of rcvd_bytes
        self.before = 0  # of them, at the last look
        self.share = 0  # between the last two looks
        self.newest_ps = LONG_AGO  # last arrival
        self.penalty_until = LONG_AGO


class Advice:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.inflows: list[Inflow] = []
        self.look_at = LONG_AGO  # when shares are taken anew

    def new_inflow(self) -> Inflow:
        inflow = Inflow()
        self.inflows.append(inflow)
        return inflow

    def forget(self, inflow: Inflow) -> None:
        self.inflows.remove(inflow)

    def trimmed_on_last_hop(self, now: int, flow: Inflow) -> None:
        if self.config.receiver_penalty == 0:
            return
        if now >= self.look_at:
            self.look_at = now + PERIOD * self.config.base_rtt
            for f in self.inflows:
                f.share = f.bytes - f.before
                f.before = f.bytes
        total = 0
        senders = 0
        for f in self.inflows:
            if f.share:
                total += f.share
                senders += 1
        if flow.share * senders >= total:
            flow.penalty_until = now + self.config.base_rtt

    def window(self, now: int, most: int) -> int:
        """A share of ``mpr_pool`` goes to each QP that has brought something lately; a multiple of
        128 PSNs, as the field counts [ours]."""
        pool = self.config.mpr_pool
        if not pool:
            return most
        limit = now - QUIET * self.config.base_rtt
        senders = sum(f.newest_ps > limit for f in self.inflows)
        return min(most, max(pool // max(senders, 1) >> 7, 1) << 7)

    def for_sack(self, now: int, flow: Inflow) -> int:
        """Return a penalty of 0-127 while one holds; RESTORE once nobody else sends to this host
        any more."""
        if flow.penalty_until == LONG_AGO:
            return 0  # it never had a penalty: nothing to restore
        if now < flow.penalty_until:
            return self.config.receiver_penalty
        limit = now - QUIET * self.config.base_rtt
        for f in self.inflows:
            if f.newest_ps > limit and f is not flow:
                return 0
        return RESTORE
