"""Measures how late a process gets to its timers and frames, for the fidelity verdict."""

from __future__ import annotations

WINDOW_RTTS = 4
"""Lateness is averaged over so many base RTTs: about a step of a small collective [ours]."""


class Lateness:
    """Lateness of one loop, ps, from ``now`` on.

    Beside the distribution it keeps the *expected* lateness: how long something that became due at
    a random moment had to wait. With lateness L1, L2, ... within a time T that is sum(L ** 2) / 2 /
    T on average.
    """

    def __init__(self, now: int, window_ps: int) -> None:
        self.max = 0
        self.since = now
        self.window_ps = max(1, window_ps)
        self._bins = [0] * 64  # how often something waited up to 2^k ps
        # of this window, of all, of the worst window
        self._squares = self._total = self._worst = 0.0
        self._window_end = now + self.window_ps

    def add(self, now: int, ps: int) -> None:
        if now >= self._window_end:
            self._close_window()
            self._window_end = now + self.window_ps
        if ps > 0:
            self._bins[ps.bit_length()] += 1
            self.max = max(self.max, ps)
            self._squares += float(ps) * ps

    def _close_window(self) -> None:
        self._total += self._squares
        self._worst = max(self._worst, self._squares)
        self._squares = 0.0

    def figures(self, now: int) -> dict[str, int]:
        """Return the largest and the 99th percentile (rounded up to a power of two), of how many;
        expected lateness, and that of the worst window."""
        self._close_window()
        total = sum(self._bins)
        cumulated = p99 = 0
        for k, count in enumerate(self._bins):
            cumulated += count
            if total and cumulated >= 0.99 * total:
                p99 = 1 << k
                break
        return {
            "lag_max_ps": self.max,
            "lag_p99_ps": p99,
            "timers": total,
            "lag_mean_ps": round(self._total / 2 / max(now - self.since, 1)),
            "lag_window_ps": round(self._worst / 2 / self.window_ps),
        }
