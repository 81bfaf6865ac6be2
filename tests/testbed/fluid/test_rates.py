"""Rates of the fluid model against linear programming on fabrics that are really built, and by
hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import UserError
from testbed.fluid.calibration import stored
from testbed.fluid.live_links import Cluster, State
from testbed.fluid.rates import flow_rates, ring_step
from topologies import Fabric
from topologies.clos import t0_name, t1_name
from topologies.theory import bus_bandwidth, place_ranks, ring_edges
from topologies.timing import ring_step_ns

FABRIC = Fabric("f", planes=2, t0_per_plane=3, t1_per_plane=3, hosts_per_t0=3)
LINKS = st.sets(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=8)
PORTS = st.sets(st.tuples(st.integers(0, 1), st.integers(0, 8)), max_size=4)


def without(links: set[tuple[int, int, int]], ports: set[tuple[int, int]]) -> State:
    state = State.healthy(Cluster.of_fabric(FABRIC))
    for link in links:
        state.set_link(*link)
    for port in ports:
        state.set_port(*port)
    return state


@settings(max_examples=60, deadline=None)
@given(links=LINKS, ports=PORTS, placement=st.sampled_from(["packed", "interleaved"]))
def test_the_ring_is_as_fast_as_linear_programming_allows(
    links: set[tuple[int, int, int]], ports: set[tuple[int, int]], placement: str
) -> None:
    state = without(links, ports)
    hosts = place_ranks(FABRIC, placement)
    senders, receivers = np.array(ring_edges(hosts)).T
    dead = [f"{t0_name(p, i)}:{t1_name(p, j)}" for p, i, j in links] + [
        f"h{h}:{t0_name(p, h // 3)}" for p, h in ports
    ]
    found = float(flow_rates(state, senders, receivers).min()) * FABRIC.payload_share
    assert found == pytest.approx(bus_bandwidth(FABRIC, "ring-allreduce", hosts, dead), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(links=LINKS, ports=PORTS, seed=st.integers(0, 2**32 - 1))
def test_weighted_planes_never_carry_more_than_the_ports_nor_less_than_equal_planes(
    links: set[tuple[int, int, int]], ports: set[tuple[int, int]], seed: int
) -> None:
    state = without(links, ports)
    senders = np.arange(9)
    receivers = (senders + 3) % 9
    weighted = flow_rates(state, senders, receivers, equal_planes=False)
    live_ports = np.minimum(
        state.port[:, senders].sum(axis=0), state.port[:, receivers].sum(axis=0)
    )
    assert (weighted <= live_ports * FABRIC.nic_rate * (1 + 1e-9)).all()
    if not ports:
        assert (weighted >= flow_rates(state, senders, receivers) * (1 - 1e-9)).all()


def test_an_incast_shares_the_receivers_ports() -> None:
    state = State.healthy(Cluster.of_fabric(FABRIC))
    rates = flow_rates(state, np.array([3, 4, 5, 6]), np.zeros(4, dtype=np.int64))
    assert rates == pytest.approx(FABRIC.host_rate / 4)


def test_cables_go_and_come_and_a_t1_takes_its_own_with_it() -> None:
    cluster = Cluster.of_fabric(FABRIC)
    state, whole = State.healthy(cluster), State.healthy(cluster)
    for link in FABRIC.links:
        state.set_cable(link)
        assert int((state.up != whole.up).sum() + (state.port != whole.port).sum()) == 1
        state.set_cable(link, alive=True)
    state.set_t1(0, 1)
    assert int((state.up != whole.up).sum()) == FABRIC.t0_per_plane and bool(
        (state.port == whole.port).all()
    )


def test_a_dead_t1_takes_a_third_of_a_plane() -> None:
    state = State.healthy(Cluster.of_fabric(FABRIC))
    senders, receivers = state.cluster.interleaved_rings(9)
    state.set_t1(0, 0)
    assert flow_rates(state, senders, receivers).min() == pytest.approx(2 * FABRIC.nic_rate * 2 / 3)


def test_the_step_is_timings_as_calibrated_and_endless_where_a_host_is_cut_off() -> None:
    state = State.healthy(Cluster.of_fabric(FABRIC))
    rate = FABRIC.host_rate * FABRIC.payload_share
    assert ring_step(state, 9, 90_000_000, slices=2) == pytest.approx(
        ring_step_ns(FABRIC, 9, 90_000_000, 2, rate) / stored().efficiency
    )
    state.set_port(0, 4)
    state.set_port(1, 4)
    assert ring_step(state, 9, 900_000) == float("inf")


@pytest.mark.parametrize("ranks", [1, 2, 4, 18])
def test_rings_that_would_not_pair_t0s_are_refused(ranks: int) -> None:
    with pytest.raises(UserError, match=f"rings of {ranks} ranks"):
        Cluster.of_fabric(FABRIC).interleaved_rings(ranks)


def test_more_dead_links_than_there_are_are_refused() -> None:
    with pytest.raises(UserError, match="19 dead links"):
        State.healthy(Cluster.of_fabric(FABRIC)).cut_random(19, np.random.default_rng(0))
