"""A share of the T0-T1 links."""

from __future__ import annotations

from testbed.faults.kinds import resolve
from tests.testbed.faults.places import refused
from topologies import FabricError, load_fabric

DEMO = load_fabric("demo")


def test_dead_paths_are_drawn_by_seed() -> None:
    drawn = [
        resolve(DEMO, "dead-paths", "fabric", {"share": 0.25}, seed).links for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    every = [link.name for link in DEMO.links if link.kind == "fabric"]
    assert [len(d) for d in drawn] == [round(len(every) / 4)] * 3 and set(drawn[0]) < set(every)
    assert resolve(DEMO, "dead-paths", "fabric", {"share": 0.25, "seed": 1}, 9).links == drawn[0]
    assert all(
        name.startswith("p2-")
        for name in resolve(DEMO, "dead-paths", "p2", {"share": 0.5}, 1).links
    )
    assert len(resolve(DEMO, "dead-paths", "p2", {"share": 0.001}, 1).links) == 1
    refused(FabricError, "dead-paths", "p7", r"planes p0\.\.p1", share=0.1)
