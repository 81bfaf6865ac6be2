"""Lose one ping in ten on a link, twice with the same seed, and see the same pings lost; then see
who else was hit.

Run as root, from the clone: .venv/bin/python -m testbed.machine.sandbox -- .venv/bin/python
docs/examples/lossy_link.py
"""

from __future__ import annotations

import re

from mrcbed import Cluster, load_fabric, usual_dilation

PINGS = 100
PLANE = 1  # on which the kernel of h0 reaches h1, on this fabric


def pings(cluster: Cluster, peer: str) -> list[int]:
    """Numbers of the pings from h0 that were not answered."""
    said = cluster.net["h0"].cmd(f"ping -c {PINGS} -i 0.01 -W 0.5 {cluster.net[peer].IP()}")
    answered = {int(number) for number in re.findall(r"icmp_seq=(\d+)", said)}
    return [number for number in range(1, PINGS + 1) if number not in answered]


def dropped(cluster: Cluster) -> dict[str, int]:
    """Packets that faults lost so far, by the port where they would have arrived."""
    return {
        row["port"]: row["drop_fault_loss"] for row in cluster.counters() if row["drop_fault_loss"]
    }


def main() -> None:
    with Cluster(load_fabric("tiny"), dilation=usual_dilation("tiny"), controller=False) as cluster:
        for seed in (7, 7, 8):
            fault = cluster.inject(
                "loss", f"h0-p{PLANE}", probability=0.1, direction="up", seed=seed
            )
            print(f"seed {seed}: pings {pings(cluster, 'h1')} lost")
            cluster.clear(fault.number)
        print(f"dropped by faults: {dropped(cluster)}")

        cluster.inject("path-loss", f"h0>h1@p{PLANE}/0")
        print(
            f"a blackhole on one path: {len(pings(cluster, 'h1'))} of {PINGS} to h1 lost, "
            f"{len(pings(cluster, 'h2'))} to h2"
        )
        cluster.heal()
        print(f"healed: {len(pings(cluster, 'h1'))} lost")


if __name__ == "__main__":
    main()
