"""DCQCN's reaction point: a rate that CNPs cut and that time and bytes bring back.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3.1 and
figure 7. Where the paper leaves room, NVIDIA's page on its adapters' parameters and the public ns-3
model decide; other choices are marked [ours]. The state is three numbers:

- ``current`` (R_C), at which the queue pair sends; ``target`` (R_T), where it was before the last
  cut; ``alpha``, how congested the path seems.
- A CNP cuts: R_T = R_C, R_C = R_C (1 - alpha / 2), alpha = (1 - g) alpha + g. Both counters of
  stages begin again at 0. Without ``clamp`` R_T stays unless the timer has made a stage since the
  last cut.
- Without a CNP for ``alpha_ps``, and again after each further ``alpha_ps``: alpha = (1 - g) alpha.
- A timer and a counter of bytes sent each make stages. At the end of each stage, t and b of them
  being over by then:

  ============================ ===================================================
  max(t, b) <= F               fast recovery: R_T stays
  else min(t, b) <= F          additive increase: R_T += R_AI
  else                         hyper increase: R_T += (min(t, b) - F) R_HAI [ours]
  ============================ ===================================================

  and in each case R_C = (R_T + R_C) / 2. Nothing exceeds the line rate or falls below the least
  rate.
- It begins at line rate with no stages running, and is back there once R_T is and R_C lacks less
  than R_AI of it [ours].

A loss changes nothing: DCQCN was made for a network that does not drop.
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.roce.congestion import Congestion
from agents.transport import LONG_AGO, NEVER


@dataclass(frozen=True)
class Parameters:
    """Rates in bits/s, times in ps of this fabric, ``byte_counter`` in bytes. Sources are with the
    options they come from."""

    line: int
    min_rate: int
    rate_ai: float
    rate_hai: float
    g: float
    initial_alpha: float
    fast_recovery: int
    byte_counter: int
    timer_ps: int
    alpha_ps: int
    cut_ps: int
    clamp: bool


class Dcqcn(Congestion):
    """``paced``: ``line`` is a limit of the queue pair's own, which the port does not enforce."""

    def __init__(self, parameters: Parameters, window: int, slack_ps: int, paced: bool) -> None:
        super().__init__(window, parameters.line if paced else 0, slack_ps)
        self.p: Parameters = parameters
        self.paced: bool = paced
        self.current: float = float(parameters.line)
        self.target: float = float(parameters.line)
        self.alpha: float = parameters.initial_alpha
        self.timer_stage: int = 0
        self.byte_stage: int = 0
        self.stage_bytes: int = 0  # sent in the byte counter's stage
        # when alpha shrinks next; looked at only when something needs alpha
        self._decay_at: int = NEVER
        self._last_cut: int = LONG_AGO

    @property
    def limited(self) -> bool:
        return self.timer_at < NEVER

    def on_cnp(self, now: int) -> None:
        p = self.p
        alpha = self.alpha_now(now)
        self._decay_at = now + p.alpha_ps
        if now - self._last_cut < p.cut_ps:
            return
        self._last_cut = now
        if p.clamp or self.timer_stage:
            self.target = self.current
        self._set_rate(now, max(float(p.min_rate), self.current * (1.0 - alpha / 2.0)))
        self.alpha = (1.0 - p.g) * alpha + p.g
        self.timer_stage = self.byte_stage = self.stage_bytes = 0
        self.timer_at = now + p.timer_ps

    def alpha_now(self, now: int) -> float:
        if now >= self._decay_at:
            periods = (now - self._decay_at) // self.p.alpha_ps + 1
            self.alpha *= (1.0 - self.p.g) ** periods
            self._decay_at += periods * self.p.alpha_ps
        return self.alpha

    def on_sent(self, now: int, frame_bytes: int) -> None:
        super().on_sent(now, frame_bytes)
        if not self.limited:
            return
        self.stage_bytes += frame_bytes
        while self.stage_bytes >= self.p.byte_counter:
            self.stage_bytes -= self.p.byte_counter
            self.byte_stage += 1
            self._increase(now)

    def on_timer(self, now: int) -> None:
        while self.timer_at <= now:
            self.timer_at += self.p.timer_ps
            self.timer_stage += 1
            self._increase(now)

    def _increase(self, now: int) -> None:
        p = self.p
        t, b = self.timer_stage, self.byte_stage
        if max(t, b) > p.fast_recovery:
            past = min(t, b) - p.fast_recovery
            self.target = min(
                float(p.line), self.target + (past * p.rate_hai if past > 0 else p.rate_ai)
            )
        new = (self.target + self.current) / 2.0
        if self.target >= p.line and p.line - new < p.rate_ai:
            new = float(p.line)
            self.timer_at = NEVER
        self._set_rate(now, new)

    def _set_rate(self, now: int, new: float) -> None:
        if self.next_send_ps > now:
            self.next_send_ps = now + int((self.next_send_ps - now) * self.current / new)
        self.current = new
        self.rate = max(1, int(new)) if self.paced or new < self.p.line else 0
