"""A fabric cut into parts for several machines: every cable in exactly one, and only T1s in
several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import Fabric, FabricError, load_fabric
from topologies.parts import divide, whole


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.data())
def test_every_cable_has_one_machine_and_only_t1s_have_several(
    planes: int, t0s: int, t1s: int, hosts: int, data: st.DataObject
) -> None:
    hosts += t0s * hosts == 1
    fabric = Fabric.from_dict(
        {
            "name": "f",
            "planes": planes,
            "t0_per_plane": t0s,
            "t1_per_plane": t1s,
            "hosts_per_t0": hosts,
        }
    )
    parts = divide(fabric, data.draw(st.integers(1, t0s)))
    assert sorted(link.name for part in parts for link in part.links) == sorted(
        link.name for link in fabric.links
    )
    assert [host for part in parts for host in part.hosts] == list(range(fabric.host_count))
    for part in parts:
        for port in part.ports:
            if "-t1-" in port.node:
                assert all(port.node in other.switches for other in parts)
            else:
                assert not any(port in other.ports for other in parts if other is not part)
    assert max(len(part.t0s) for part in parts) - min(len(part.t0s) for part in parts) <= 1


@pytest.mark.parametrize("name", ["demo", "two-sites"])
def test_one_machine_has_all(name: str) -> None:
    fabric = load_fabric(name)
    assert whole(fabric) == divide(fabric, 1)[0] and whole(fabric).links == fabric.links


@pytest.mark.parametrize("machines", [0, 3])
def test_more_machines_than_t0s_are_refused(machines: int) -> None:
    with pytest.raises(FabricError, match=f"at most 2 machines, not {machines}"):
        divide(load_fabric("tiny"), machines)
