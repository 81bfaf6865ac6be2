"""The fluid model against packets: median steps of rings in the simulated world healthy and with dead cables, within 5 %.

Both get the same fabric, ring and dead cables. Chunks are large enough that bandwidth counts, not latency.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import scenarios.show.html
import scenarios.show.plots
import scenarios.show.replay
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.fluid.cluster import Cluster, State
from testbed.fluid.rates import ring_step
from tests.testbed.fluid.rings import SLICES, ring
from topologies.clos import Fabric, t0_name, t1_name
from topologies.fabrics import load_fabric

BOUND = 0.05
"""As `mrcbed validate` has it for medians."""
Links = list[tuple[int, int, int]]
Ports = list[tuple[int, int]]


def computed_and_measured(fabric: Fabric, size: int, links: Links, ports: Ports, out: Path) -> tuple[float, float]:
    """Median step, ns of the real network: by the model, and with packets."""
    state = State.healthy(Cluster.of_fabric(fabric.real))
    for link in links:
        state.set_link(*link)
    for port in ports:
        state.set_port(*port)
    dead = [f"{t0_name(p, i)}:{t1_name(p, j)}" for p, i, j in links] + [f"h{h}:{t0_name(p, fabric.t0_of(h))}" for p, h in ports]
    out.mkdir()
    file = out / "ring.toml"
    file.write_text(ring(fabric.name, size, dead=dead))
    (entry,) = simulate(load_scenario(str(file)), out)["runs"]
    assert entry["outcome"] == "done"
    return ring_step(state, fabric.host_count, size, slices=SLICES), entry["typical_step_ns"]


@pytest.mark.parametrize(
    ("name", "chunk", "cases"),
    [
        ("tiny", 256 * 1024, [([(0, 0, 0)], [])]),
        ("demo", 512 * 1024, [([(0, 0, 0), (0, 1, 2)], [])]),
    ],
)
def test_median_steps_are_those_of_packets(
    name: str, chunk: int, cases: list[tuple[Links, Ports]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, function in ((scenarios.show.plots, "draw_all"), (scenarios.show.replay, "replay"), (scenarios.show.html, "write_report")):
        monkeypatch.setattr(module, function, lambda directory: [])
    fabric = load_fabric(name)
    size = chunk * fabric.host_count
    ideal, healthy = computed_and_measured(fabric, size, [], [], tmp_path / "healthy")
    assert healthy == pytest.approx(ideal, rel=BOUND)
    for number, (links, ports) in enumerate(cases):
        computed, measured = computed_and_measured(fabric, size, links, ports, tmp_path / str(number))
        assert computed > ideal * 1.2  # otherwise the healthy step would do as well
        assert measured == pytest.approx(computed, rel=BOUND)
