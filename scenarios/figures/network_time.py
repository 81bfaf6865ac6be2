"""The raw files of a run, ``dilation`` times slower by this machine's clock, in the real network's time: the one place that converts them.

:class:`scenarios.figures.measure.Run` reads through it, so everything above counts in the network's ns and bit/s. What is the machine's own
stays wall time. Pure; docs/time.md explains dilation.
"""

from __future__ import annotations

from typing import Any

from topologies import Fabric

FORMAT = 4
"""Format of summary.json. 3: its times and rates are the network's. 4: those of the tables beside it, too."""
OF_THE_MACHINE = frozenset(("fabric", "fidelity", "settings", "watch", "cpu", "cpu_ns"))
"""Keys whose content stays as it is: how the machine did, what a file says, and the fabric as it ran."""
PLACES = 3
"""Decimal places of a time in ns: to the ps."""
_TIMES = {"window": (0, 1), "posted": (3, 4), "arrived": (3, 4)}
"""Lists with times: the place of the first, and from there every how many."""


def real(fabric: Fabric) -> Fabric:
    """The network that a fabric stands for, with the base RTTs and thresholds that the run had: ``Fabric.real`` adds up whole ns, of
    which a base RTT has too few."""
    if fabric.dilation == 1:
        return fabric
    network = fabric.slowed(1 / fabric.dilation)
    for name in ("base_rtt_ns", "local_rtt_ns", "haul_rtt_ns", "pfc_ns"):
        network.__dict__[name] = round(getattr(fabric, name) / fabric.dilation, PLACES)
    for name in ("plane_bdp", "buffer_bytes", "ecn_bytes", "pfc_bytes"):
        network.__dict__[name] = getattr(fabric, name)
    return network


def in_network_time(tree: Any, dilation: float = 1.0) -> Any:
    """A record, a line of a log or figures, changed in place: each value of a key that ends in ``_ns``, and ``t``, divided by ``dilation``,
    and of ``_bps`` multiplied. With the dilation 1 it rounds only."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in OF_THE_MACHINE:
                continue
            if key.endswith("_ns") or key in ("t", "t0"):
                tree[key] = _scaled(value, 1 / dilation)
            elif key.endswith("_bps"):
                tree[key] = _scaled(value, dilation)
            elif isinstance(value, list) and key in _TIMES:
                first, every = _TIMES[key]
                value[first::every] = _scaled(value[first::every], 1 / dilation)
            elif isinstance(value, list) and key == "step":  # of a job: two numbers, three times in s of the network, one number
                value[2:5] = _scaled(value[2:5], 1e9)
            elif isinstance(value, (dict, list)):
                in_network_time(value, dilation)
    elif isinstance(tree, list):
        for value in tree:
            in_network_time(value, dilation)
    return tree


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "n" else _scaled(inner, factor) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scaled(inner, factor) for inner in value]
    return round(value * factor, PLACES) if isinstance(value, (int, float)) else value
