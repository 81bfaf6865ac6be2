"""What the files of a run count in ns and bit/s of the machine's stretched clock, in those of the network: converted here, when it is read.

Everything behind knows network time alone. Pure; docs/time.md explains dilation.
"""

from __future__ import annotations

from testbed.view.declared import FAR, Table
from topologies.clos import Fabric


def in_network_time(read: Table, dilation: float) -> Table:
    """A line or a record, changed in place: its own times (not those of tables in it) in whole ns, its rates in bit/s."""
    for key, value in read.items():
        if not isinstance(value, (int, float)) or abs(value) > FAR:
            continue  # null, or of another version: what is read has been checked
        if key in ("t", "ns") or key.endswith("_ns"):
            read[key] = round(value / dilation)
        elif key.endswith("_bps"):
            read[key] = round(value * dilation)
    return read


def network_of(fabric: Fabric) -> Fabric:
    """The network that a fabric as it ran stands for."""
    network = fabric.real
    # Exact: whole ns make up its own ones, and a base RTT of 10 us would be 9,999 ns.
    network.__dict__.update(base_rtt_ns=round(fabric.base_rtt_ns / fabric.dilation), buffer_bytes=fabric.buffer_bytes)
    return network
