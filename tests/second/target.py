"""The second endpoint of a host of a fabric; also what ``mrcbed conform
tests.second.target:endpoint`` plays against."""

from __future__ import annotations

from tests.second.endpoint import Endpoint, Facts
from topologies.addressing import path_address
from topologies.clos import Fabric
from topologies.paths import path_evs


def endpoint(fabric: Fabric, host: int, seed: int = 0) -> Endpoint:
    """Knows of the fabric what docs/why/protocol.md says is told out of band; its window is what
    two BDPs hold."""
    return Endpoint(
        Facts(
            host=host,
            planes=fabric.planes,
            mtu=fabric.mtu,
            base_rtt_ps=fabric.base_rtt_ps,
            nic_rate=fabric.nic_rate,
            trimming=fabric.trimming,
            udp_port=fabric.udp_port,
            evs=lambda peer: list(path_evs(fabric, host, peer)),
            outer=lambda peer, ev: path_address(fabric, host, peer, ev),
            window_packets=2 * fabric.planes * fabric.plane_bdp // fabric.frame_bytes,
        ),
        seed,
    )
