"""What the MRC paper says of large clusters comes out of the fluid model: nothing here is told to
it but ports, rates and EVs."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fluid.live_links import Cluster, State
from testbed.fluid.losses import losses_at_start, packets_per_ev, touched_by_t1
from testbed.fluid.rates import flow_rates
from topologies.sizing import NIC_RATE, PAPER_NICS, SWITCH_RATE, Size


def cluster(planes: int = 8, nics: int = 1024, tiers: int = 2) -> Cluster:
    return Cluster.of_size(Size(nics, NIC_RATE, SWITCH_RATE, planes, tiers))


def slowest(state: State, ranks: int, equal_planes: bool = True) -> float:
    return float(flow_rates(state, *state.cluster.interleaved_rings(ranks), equal_planes).min())


def test_131_072_nics_send_at_800_gbit_in_two_tiers_of_a_megabyte_of_booleans() -> None:
    state = State.healthy(cluster(nics=PAPER_NICS))
    assert state.cluster.hosts == 131_072 and state.up.nbytes == 2**20
    rates = flow_rates(state, *state.cluster.interleaved_rings(512))
    assert len(rates) == 131_072 and rates == pytest.approx(800e9)


@pytest.mark.parametrize(
    ("planes", "equal", "percent"), [(8, True, 0.4), (1, True, 3.1), (8, False, 0.05)]
)
def test_one_lost_link(planes: int, equal: bool, percent: float) -> None:
    state = State.healthy(cluster(planes))
    whole = slowest(state, state.cluster.t0s, equal)
    state.set_link(0, 1, 7)
    assert 100 * (1 - slowest(state, state.cluster.t0s, equal) / whole) == pytest.approx(
        percent, rel=0.03
    )


def test_seven_eighths_with_a_port_lost() -> None:
    state = State.healthy(cluster())
    state.set_port(3, 5)
    rates = flow_rates(state, *state.cluster.interleaved_rings(4)) / 800e9
    assert np.sort(rates)[:2] == pytest.approx(7 / 8)  # to that host, and from it
    assert np.count_nonzero(rates > 0.99) == 1022


def test_a_silent_t1_touches_an_eighth_one_way_and_about_a_quarter_both_ways() -> None:
    one_way, either = touched_by_t1(cluster(), 20_000, np.random.default_rng(1))
    assert one_way == pytest.approx(0.125, abs=0.01) and either == pytest.approx(0.234, abs=0.01)


def test_one_loss_per_second_and_nic_is_one_packet_in_24_million() -> None:
    assert cluster().packets_per_second / 1e6 == pytest.approx(24.4, abs=0.05)


@pytest.mark.parametrize(("dead_links", "few"), [(0.009, True), (0.03, False)])
def test_fewer_than_five_losses_per_queue_pair_at_start_below_2_percent_of_dead_paths(
    dead_links: float, few: bool
) -> None:
    generator = np.random.default_rng(1)
    state = State.healthy(cluster(nics=8192))
    state.cut_random(round(dead_links * state.cluster.fabric_links), generator)
    lost, dead_paths = losses_at_start(state, 2000, generator)
    assert packets_per_ev(state.cluster) == 1
    assert (dead_paths < 0.02) is few and bool(lost.mean() < 5) is few and lost.mean() > 3
