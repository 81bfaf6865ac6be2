"""The benchmark of the simulated world counts what it says."""

from __future__ import annotations

import pytest

from testbed.bench.simulated import simulated_rates


def test_packet_hops_are_those_of_full_links() -> None:
    made = simulated_rates(0.3)
    # Eight hosts send 400 Gb/s each over four links: so many packets of 4238 bytes, and some SACKs.
    network_s = made["hops"] / made["packet_hops_per_second"] / made["slowdown"]
    assert made["hops"] / network_s == pytest.approx(8 * 4 * 400e9 / 8 / 4238 * 1.25, rel=0.2)
