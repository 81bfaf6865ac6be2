"""RoCE between sites: what follows from the RTT follows that of the pair."""

from __future__ import annotations

import pytest

from agents.roce.options import Options
from topologies import load_fabric
from topologies.units import NS

TWO = load_fabric("two-sites")


def test_windows_and_timeouts_between_sites_follow_their_rtt() -> None:
    near, far = (
        Options(TWO, {"congestion": "fixed"}),
        Options(TWO, {"congestion": "fixed"}, far=True),
    )
    ratio = TWO.haul_rtt_ps / TWO.base_rtt_ps
    assert far.window == pytest.approx(near.window * ratio, rel=1e-3)
    assert near.rto_ps == 10 * TWO.base_rtt_ps and far.rto_ps == 4 * TWO.haul_rtt_ps, (
        "4 RTTs are more than a site's full buffer and 2"
    )
    assert far.rnr_ps == TWO.haul_rtt_ps and far.ack_every > near.ack_every


def test_what_a_scenario_sets_holds_for_both() -> None:
    for far in (False, True):
        assert Options(TWO, {"rto_ns": 12345, "window": 70000}, far).rto_ps == 12345 * NS
