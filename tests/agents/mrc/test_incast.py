"""Many senders at once in the virtual network: nothing is lost, nobody else is hurt, all get their
share, every byte is right.

One seed and short runs, with bounds a little below what five seeds gave over longer ones (7:1: last
hop 0.995 of its payload rate, Jain 0.988 to 0.995, victim 0.999; permutation 0.95).
"""

from __future__ import annotations

from random import Random

import pytest

from tests.agents.mrc.crowd import RACK16, Crowd, jain
from tests.fabrics import near
from topologies.clos import Fabric

HALF = near(Fabric("half", 2, 2, 4, 4))
"""Half of rack16, for the patterns of all hosts."""
VERDICTS = ("lost_by_order", "lost_by_time", "lost_by_rto", "lost_by_count")


def no_loss_stands(crowd: Crowd) -> None:
    """Where switches trim nothing is dropped, so every verdict of loss was wrong and was found to
    be; no timer fired."""
    assert crowd.net.dropped == 0
    assert sum(crowd.total(v) for v in VERDICTS) == crowd.total("spurious")
    assert crowd.total("lost_by_rto") == 0
    assert crowd.wrong == 0


def test_seven_to_one_shares_fills_the_last_hop_and_hurts_no_neighbour() -> None:
    victim = (15, 1)
    crowd = Crowd(RACK16, [(8 + i, 0) for i in range(7)] + [victim], seed=2)
    crowd.run(30)
    *shares, others = crowd.rates(45)
    assert sum(shares) >= 0.97
    assert jain(shares) >= 0.97
    assert others >= 0.95
    no_loss_stands(crowd)
    assert crowd.total("trims_last_hop") == crowd.total("trims") > 0
    for port in crowd.last_hop(0):
        assert RACK16.plane_bdp / 2 < port.peak <= RACK16.trim_bytes(True)
    for port in crowd.last_hop(1):
        assert port.trimmed == 0 and port.peak <= RACK16.plane_bdp
    assert all(f.done > 1 for f in crowd.flows)


def test_who_is_left_gets_the_window_back() -> None:
    """The incast ends, the receiver restores the last sender's window, and it fills the host's
    ports by itself."""
    crowd = Crowd(HALF, [(4 + i, 0) for i in range(3)], size=300_000)
    crowd.run(40)
    assert max(crowd.rates(10)) < 0.6
    for flow in crowd.flows[1:]:
        flow.endless = False
    crowd.run(45)
    assert crowd.rates(20)[0] >= 0.93
    no_loss_stands(crowd)


def test_fifteen_to_one_completes_without_a_timer() -> None:
    crowd = Crowd(RACK16, [(h, 0) for h in range(1, 16)], size=300_000, endless=False)
    assert crowd.run(100, until_done=True)
    assert [f.done for f in crowd.flows] == [1] * 15
    no_loss_stands(crowd)
    assert crowd.total("trims") > 0


def test_without_trimming_all_complete_too() -> None:
    fabric = RACK16.with_(trimming=False)
    crowd = Crowd(fabric, [(h, 0) for h in range(1, 16)], size=300_000, endless=False)
    assert crowd.run(400, until_done=True)
    assert [f.done for f in crowd.flows] == [1] * 15 and crowd.wrong == 0
    assert crowd.total("trims") == crowd.total("nacks_tx") == 0
    for port in crowd.last_hop(0):
        assert port.peak <= fabric.buffer_bytes


@pytest.mark.parametrize("trimming", [True, False])
def test_a_permutation_over_the_t1s_gives_everybody_their_line_rate(trimming: bool) -> None:
    rng = Random(7)
    there, back = list(range(4, 8)), list(range(4))
    rng.shuffle(there)
    rng.shuffle(back)
    crowd = Crowd(HALF.with_(trimming=trimming), list(enumerate(there + back)), size=400_000)
    crowd.run(12)
    assert min(crowd.rates(15)) >= 0.93
    no_loss_stands(crowd)
