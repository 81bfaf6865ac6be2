"""ECMP's choice of paths: by the shape of the fabric, the flow and the seed, and nothing else."""

from __future__ import annotations

from agents.roce.flow_hash import choose, fabric_seed, flow_hash
from topologies import load_fabric
from topologies.addressing import inner_address
from topologies.clos import Fabric
from topologies.paths import path_evs

DEMO = load_fabric("demo")


def chosen(fabric: Fabric) -> list[int]:
    """The EV of 64 flows from h0 to h4."""
    seed, evs = fabric_seed(fabric), list(path_evs(fabric, 0, 4))
    return [choose(flow_hash(seed, inner_address(0), inner_address(4), port), evs) for port in range(50_000, 50_064)]


def test_flows_take_the_same_paths_however_fast_the_fabric_runs_and_whatever_its_queues_do() -> None:
    paths = chosen(DEMO)
    assert len(set(paths)) == 16, "64 flows over 16 paths"
    assert chosen(DEMO.slowed(2)) == chosen(DEMO.real) == chosen(DEMO.with_(name="demo-no-trimming", trimming=False)) == paths
    assert chosen(DEMO.with_(hosts_per_t0=5)) != paths, "another fabric is hashed from another start"
