"""How late a process gets to its timers and frames: a histogram by powers of two, for the fidelity verdict."""

from __future__ import annotations


class Lateness:
    """Of one loop, ns."""

    def __init__(self) -> None:
        self.max = 0
        self._bins = [0] * 64  # how often something waited up to 2^k ns

    def add(self, ns: int) -> None:
        """Count a timer or frame that had to wait this long for the process."""
        if ns > 0:
            self._bins[ns.bit_length()] += 1
            self.max = max(self.max, ns)

    def figures(self) -> dict[str, int]:
        """Largest and 99th percentile (rounded up to a power of two), and of how many."""
        total = sum(self._bins)
        cumulated = p99 = 0
        for k, count in enumerate(self._bins):
            cumulated += count
            if total and cumulated >= 0.99 * total:
                p99 = 1 << k
                break
        return {"lag_max_ns": self.max, "lag_p99_ns": p99, "timers": total}
