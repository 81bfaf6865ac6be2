"""Judges links by counts of probes: which cable loses packets, how many of them, and since when.
Pure; time is an argument.

How it decides [ours]
=====================
A probe to a T0 crosses one link, a probe to a T1 two, each both ways. The chance that a link loses
a probe on its way there and back is the link's *rate*. So a NIC-T0 link is judged by its own host's
T0 probes, which cross nothing else. A T0-T1 link is judged by the T1 probes of all hosts under the
T0. But the NIC-T0 links may have lost those; their rates are unknown, and the T0 probes tell of
them. Each verdict is therefore a *generalised likelihood ratio*: how much likelier are all these
counts if the link has its best rate than if it has none? Each side may assume of the NIC-T0 links
what suits it best, at a price (ANOTHER) for each that it takes for lossy. So of equally good
explanations the one with fewer faults wins.

1. log(ratio) >= ACCEPT over some recent window, with MIN_LOSSES losses in it: the link is lossy. A
   false verdict, or one against the wrong link, needs counts that are e^ACCEPT times likelier by
   accident than by the truth.
2. Windows of 1, 2, 4, ... buckets are tried, all of them ending now: a dead link is seen in a short
   one, 2 % of loss in a long one.
3. DEAD_RUN probes without one that came back: the link is dead until one comes back.
4. A lossy link is *clear* when the counts of some window are e^CLEAR times likelier without loss
   than with a third of its rate or more: a rate that was first seen in few probes is easily three
   times too high.
5. Every change of state forgets, for its link, what was counted before the window that decided:
   good times before a fault do not count against it, nor the fault against a mended link.
6. A NIC port without carrier is dead and needs no statistics; when it is back, its link begins
   anew.
7. All links of a switch dead: the switch is named (``findings``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.clustermapper.options import Options
from agents.clustermapper.probes import cell_of, nic_link, upper_link
from agents.transport import LONG_AGO
from topologies.clos import Fabric, t0_name, t1_name

ACCEPT = 12.0
CLEAR = 6.0
MOST_TO_CLEAR = 0.1
"""A dead link is clear when it is likelier to lose nothing than to have this rate."""
MIN_LOSSES = 3
DEAD_RUN = 5
BACKGROUND = 0.1
"""Loss that is nobody's fault, as a part of the threshold."""
WINDOWS = tuple(sorted({1 << k for k in range(11)} | {3 << k for k in range(9)}))
ANOTHER = 4.0
"""The price, in log-likelihood, of each further lossy link that an explanation assumes."""
RATES = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.035,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.7,
    0.9,
    0.999,
)
Counts = npt.NDArray[np.int64]
"""Shape (2, cells): probes judged and probes lost."""
Floats = npt.NDArray[np.float64]

CLEAR_STATE, LOSSY, DEAD = "clear", "lossy", "dead"


@dataclass
class Verdict:
    """``since`` in ps; ``sent`` and ``lost`` in the window that decided; ``rate`` for both
    directions together."""

    link: str
    plane: int
    t0: int
    host: int  # -1: a T0-T1 link
    t1: int  # -1: a NIC-T0 link
    state: str = CLEAR_STATE
    carrier: bool = True
    unplugged: bool = False  # dead because it has no carrier
    rate: float = 0.0
    sent: int = 0
    lost: int = 0
    since: int = LONG_AGO  # no change of state so far
    floor: int = 0  # buckets before this one say nothing about this link any more

    def row(self) -> dict[str, str | int | float | bool]:
        return {
            "link": self.link,
            "state": self.state,
            "rate": round(self.rate, 4),
            "sent": self.sent,
            "lost": self.lost,
            "since": self.since,
            "carrier": self.carrier,
        }


@dataclass(frozen=True)
class Finding:
    """``links``: the link, or those of the switch; ``sent``, ``lost``: the probes behind this."""

    name: str
    state: str
    links: tuple[str, ...]
    rate: float
    carrier: bool
    since: int
    sent: int = 0
    lost: int = 0


def _number(entry: tuple[int, Counts]) -> int:
    return entry[0]


class _Evidence(NamedTuple):
    sent: Floats
    lost: Floats
    own_sent: Floats
    own_lost: Floats
    newest: int


class Localiser:
    def __init__(self, fabric: Fabric, options: Options, hosts: Sequence[int]) -> None:
        self.fabric = fabric
        self.hosts = tuple(hosts)
        background = options.threshold * BACKGROUND
        lossy = [r for r in RATES if r >= options.threshold] or [RATES[-1]]
        if lossy[0] > options.threshold:
            lossy = [options.threshold, *lossy]
        self.rates = np.array([0.0, *lossy])  # of the link that is judged
        # of the NIC-T0 links in its way
        self.others = np.array([background, *(r for r in RATES if r > background)])
        both = 1 - (1 - self.others[:, None]) * (1 - self.rates[None, :])
        self.log_lost, self.log_arrived = np.log(both), np.log1p(-both)
        self.threshold = options.threshold
        self.history: dict[int, deque[tuple[int, Counts]]] = {
            h: deque(maxlen=WINDOWS[-1] + 1) for h in self.hosts
        }
        self.windows: dict[int, tuple[list[int], Counts]] = {}
        self.verdicts: dict[str, Verdict] = {}
        under: dict[int, list[int]] = {}
        for h in self.hosts:
            under.setdefault(fabric.t0_of(h), []).append(h)
        self.under = {t0: tuple(hs) for t0, hs in under.items()}
        for p in range(fabric.planes):
            for t0, hs in self.under.items():
                for v in [Verdict(nic_link(fabric, p, h), p, t0, h, -1) for h in hs]:
                    self.verdicts[v.link] = v
                for j in range(fabric.t1_per_plane):
                    v = Verdict(upper_link(p, t0, j), p, t0, -1, j)
                    self.verdicts[v.link] = v

    # --- evidence ---------------------------------------------------------------------------------

    def add(
        self,
        host: int,
        bucket: int,
        sent: Sequence[int],
        lost: Sequence[int],
        carrier: Sequence[bool] = (),
    ) -> None:
        """Counts are cumulative, by cell; ``carrier`` by plane. A bucket that is not newer is
        ignored."""
        past = self.history[host]
        if past and bucket <= past[-1][0]:
            return
        now = np.array([sent, lost], np.int64)
        if not past:
            past.append((bucket - 1, np.zeros_like(now)))
        past.append((bucket, now))
        starts: list[int] = []
        before: list[Counts] = []
        for w in WINDOWS:
            at = len(past) - 1 - w  # where buckets follow each other without a gap
            if at < 0 or past[at][0] != bucket - w:
                at = max(0, bisect_right(past, bucket - w, key=_number) - 1)
            starts.append(past[at][0])
            before.append(past[at][1])
            if at == 0:
                break
        # a probe that came late takes a loss back
        self.windows[host] = starts, np.maximum(now - np.array(before), 0)
        for p, up in enumerate(carrier):
            self.verdicts[nic_link(self.fabric, p, host)].carrier = bool(up)

    def _open(self) -> Iterator[Verdict]:
        lossy = set()
        for host, (_, counts) in self.windows.items():
            for cell in np.flatnonzero(counts[-1][1]):
                plane, t1 = divmod(int(cell), self.fabric.t1_per_plane + 1)
                lossy.add(
                    upper_link(plane, self.fabric.t0_of(host), t1 - 1)
                    if t1
                    else nic_link(self.fabric, plane, host)
                )
        for verdict in self.verdicts.values():
            if verdict.state != CLEAR_STATE or not verdict.carrier or verdict.link in lossy:
                yield verdict

    def _counts(self, verdict: Verdict) -> _Evidence | None:
        hosts = [
            h
            for h in ((verdict.host,) if verdict.host >= 0 else self.under[verdict.t0])
            if h in self.windows
        ]
        fit = min(
            (sum(start >= verdict.floor for start in self.windows[h][0]) for h in hosts), default=0
        )
        if not fit:
            return None
        over = cell_of(self.fabric, verdict.plane, verdict.t1)
        own = cell_of(self.fabric, verdict.plane)
        # window, host, sent|lost, cell
        picked = np.stack([self.windows[h][1][:fit] for h in hosts], axis=1).astype(np.float64)
        newest = max(self.history[h][-1][0] for h in hosts)
        return _Evidence(
            picked[:, :, 0, over],
            picked[:, :, 1, over],
            picked[:, :, 0, own],
            picked[:, :, 1, own],
            newest,
        )

    def _likelihood(self, verdict: Verdict, evidence: _Evidence) -> Floats:
        k, arrived = evidence.lost, evidence.sent - evidence.lost
        if verdict.host >= 0:
            # one host: (windows, 1) with (rates,)
            single: Floats = k * self.log_lost[0] + arrived * self.log_arrived[0]
            return single
        four = (..., None, None)
        own = (
            evidence.own_lost[four] * self.log_lost[:, :1]
            + (evidence.own_sent - evidence.own_lost)[four] * self.log_arrived[:, :1]
        )
        # window, host, rate of the NIC-T0 link, rate of the link
        joint = k[four] * self.log_lost + arrived[four] * self.log_arrived + own
        joint[:, :, 1:] -= ANOTHER
        summed: Floats = joint.max(axis=2).sum(axis=1)
        return summed

    # --- verdicts ---------------------------------------------------------------------------------

    def judge(self, now: int) -> list[Verdict]:
        """Returns the verdicts whose state changed."""
        changed = []
        for verdict in self._open():
            before = verdict.state
            if not verdict.carrier:
                verdict.state, verdict.unplugged, verdict.rate, verdict.sent, verdict.lost = (
                    DEAD,
                    True,
                    1.0,
                    0,
                    0,
                )
            elif verdict.unplugged:  # the port is back: earlier counts of it no longer apply
                verdict.state, verdict.unplugged, verdict.rate = CLEAR_STATE, False, 0.0
                verdict.floor = self.history[verdict.host][-1][0]
            else:
                evidence = self._counts(verdict)
                if evidence is not None:
                    self._judge(verdict, evidence)
            if verdict.state != before:
                verdict.since = now
                changed.append(verdict)
        return changed

    def _judge(self, verdict: Verdict, evidence: _Evidence) -> None:
        sent, lost = evidence.sent.sum(axis=1), evidence.lost.sum(axis=1)
        likelihood = self._likelihood(verdict, evidence)
        ratio = np.where(lost >= MIN_LOSSES, likelihood.max(axis=1) - likelihood[:, 0], 0.0)
        window = int(ratio.argmax())
        if verdict.state == CLEAR_STATE:
            if ratio[window] < ACCEPT:
                return
            verdict.state, verdict.floor, verdict.rate = (
                LOSSY,
                evidence.newest - WINDOWS[window],
                0.0,
            )
        else:
            least = min(max(self.threshold, verdict.rate / 3), MOST_TO_CLEAR)
            first = min(int(np.searchsorted(self.rates, least)), len(self.rates) - 1)
            relief = likelihood[:, 0] - likelihood[:, first:].max(axis=1)
            best = int(relief.argmax())
            if relief[best] >= CLEAR:
                verdict.state, verdict.floor, verdict.rate = (
                    CLEAR_STATE,
                    evidence.newest - WINDOWS[best],
                    0.0,
                )
                verdict.sent, verdict.lost = int(sent[best]), int(lost[best])
                return
        # good times do not lower the rate of bad ones
        if ratio[window] >= ACCEPT and (lost[0] or not verdict.rate):
            verdict.rate = float(self.rates[int(likelihood[window].argmax())])
            verdict.sent, verdict.lost = int(sent[window]), int(lost[window])
        none_back = (sent >= DEAD_RUN) & (sent == lost)
        if verdict.host < 0:  # and some probes came back over the hosts' own links
            none_back &= evidence.own_lost.sum(axis=1) < evidence.own_sent.sum(axis=1)
        latest = int((sent > 0).argmax())  # the shortest window with probes in it
        if none_back.any():
            verdict.state = DEAD
        elif verdict.state == DEAD and lost[latest] < sent[latest]:
            verdict.state = LOSSY

    # --- results ----------------------------------------------------------------------------------

    def table(self) -> list[dict[str, str | int | float | bool]]:
        return [v.row() for _, v in sorted(self.verdicts.items()) if v.since != LONG_AGO]

    def findings(self) -> list[Finding]:
        fabric = self.fabric
        bad = {name: v for name, v in self.verdicts.items() if v.state != CLEAR_STATE}
        findings = []
        for p in range(fabric.planes):
            switches: list[tuple[str, list[str]]] = [
                (
                    t0_name(p, t0),
                    [
                        nic_link(fabric, p, h)
                        for h in range(t0 * fabric.hosts_per_t0, (t0 + 1) * fabric.hosts_per_t0)
                    ],
                )
                for t0 in range(fabric.t0_per_plane)
            ]
            switches += [
                (t1_name(p, j), [upper_link(p, t0, j) for t0 in range(fabric.t0_per_plane)])
                for j in range(fabric.t1_per_plane)
            ]
            for switch, links in switches:
                if len(links) > 1 and all(
                    name in bad and bad[name].state == DEAD for name in links
                ):
                    verdicts = [bad.pop(name) for name in links]
                    findings.append(_finding(switch, DEAD, verdicts))
        return findings + [_finding(name, v.state, [v]) for name, v in bad.items()]


def _finding(name: str, state: str, its: Sequence[Verdict]) -> Finding:
    return Finding(
        name,
        state,
        tuple(v.link for v in its),
        max(v.rate for v in its),
        any(v.carrier for v in its),
        max(v.since for v in its),
        sum(v.sent for v in its),
        sum(v.lost for v in its),
    )
