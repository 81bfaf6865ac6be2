"""Inputs for other simulators, from a run: the traffic and one plane for htsim, the network for ASTRA-sim's analytical backend.

Formats as their programs read them: csg-htsim, sim/datacenter/connection_matrix.cpp and topologies/leaf_spine_tiny.topo, which uet-htsim
has kept; astra-network-analytical, input/Switch.yml. Nothing of either is needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.errors import UserError
from topologies import Fabric
from topologies.timing import fill_ns

Stage = list[tuple[int, int, int]]
"""Who sends whom how many bytes at a time."""


def topology(fabric: Fabric) -> str:
    """One plane as htsim's two-tier fat tree. Its links have a delay each; ours is the path's, so each gets a quarter. Raises
    :class:`UserError` if it has one tier, or two sites."""
    if fabric.sites > 1:
        raise UserError(f"fabric {fabric.name} has two sites: htsim's fat trees are one place")
    if not fabric.t1_per_plane:
        raise UserError(f"fabric {fabric.name} has no T1: htsim's topologies have two tiers or three")
    real, hosts = fabric.dilation, fabric.host_count
    over = max(1, round(fabric.hosts_per_t0 * fabric.nic_rate / (fabric.t1_per_plane * fabric.fabric_rate)))
    delay = round(fabric.delay_ns / real / 4)
    lines = [
        f"Nodes {hosts}", "Tiers 2", f"Podsize {hosts}", "",
        "Tier 0", f"Downlink_speed_Gbps {round(fabric.nic_rate * real / 1e9)}", f"Radix_Down {fabric.hosts_per_t0}",
        f"Radix_Up {fabric.t1_per_plane}", f"Downlink_Latency_ns {delay}", "Switch_Latency_ns 0", f"Oversubscribed {over}", "",
        "Tier 1", f"Downlink_speed_Gbps {round(fabric.fabric_rate * real / 1e9)}", f"Radix_Down {fabric.t0_per_plane}",
        f"Downlink_Latency_ns {delay}", "Switch_Latency_ns 0", "",
    ]  # fmt: skip
    return "\n".join(lines)


def stages(collective: str, hosts: list[int], size: int) -> list[Stage]:
    """A collective of ``size`` bytes ("size" as nccl-tests has it) as transfers between hosts, in rank order. Within a stage all send at
    once; between two, each rank waits for what it receives. Raises :class:`UserError` on others than those of :mod:`topologies.theory`."""
    n = len(hosts)
    ring = [(host, hosts[(rank + 1) % n], max(1, size // n)) for rank, host in enumerate(hosts)]
    if collective == "ring-allreduce":
        return [ring] * (2 * (n - 1))
    if collective in ("reduce-scatter", "all-gather"):
        return [ring] * (n - 1)
    if collective == "send-recv":
        return [[(src, dst, size) for src, dst, _ in ring]]
    if collective == "all-to-all":
        return [[(a, b, max(1, size // n)) for a in hosts for b in hosts if a != b]]
    if collective == "tree-allreduce":
        distances = [n >> k for k in range(1, n.bit_length())]
        return [[(hosts[r], hosts[r ^ d], max(1, size * d // n)) for r in range(n)] for d in [*distances, *reversed(distances)]]
    if collective == "hierarchical-allreduce":
        m = n // 2
        halves = [(hosts[r], hosts[r // m * m + (r + 1) % m], max(1, size // m)) for r in range(n) if m > 1]
        twins = [(hosts[r], hosts[(r + m) % n], max(1, size // m)) for r in range(n)]
        return [*[halves] * (m - 1), twins, *[halves] * (m - 1)]
    raise UserError(f"{collective}: no connection matrix is written of it")


def matrix(record: Mapping[str, Any], summary: Mapping[str, Any], fabric: Fabric) -> str:
    """htsim's connection matrix of one plane: one step of a collective, or the flows with the bytes that they carried in the run. Every
    plane carries an equal part. Raises :class:`UserError`."""
    part = fabric.planes
    if record["flows"]:
        carried = summary["flows"]
        flows = [(flow["src"], flow["dst"], carried[flow["name"]]["bytes"] // part, flow["start_ns"]) for flow in record["flows"]]
        real = fabric.dilation
        lines = [f"{a}->{b} id {n} start {round(t / real * 1000)} size {size}" for n, (a, b, size, t) in enumerate(flows, 1) if size]
        return "\n".join([f"Nodes {fabric.host_count}", f"Connections {len(lines)}", *lines, ""])
    lines, triggers = [], list[str]()
    waits: dict[int, int] = {}  # host -> the trigger of what it receives in the stage before
    plan = stages(record["workload"], record["ranks"], record["message_bytes"])
    for number, stage in enumerate(plan):
        received: dict[int, int] = {}
        for src, dst, size in stage:
            begin = f"trigger {waits[src]}" if number else "start 0"
            end = ""
            if number < len(plan) - 1:
                received[dst] = len(triggers) + 1
                triggers.append(f"trigger id {received[dst]} oneshot")
                end = f" recv_done_trigger {received[dst]}"
            lines.append(f"{src}->{dst} id {len(lines) + 1} {begin} size {max(1, size // part)}{end}")
        waits = received
    head = [f"Nodes {fabric.host_count}", f"Connections {len(lines)}", f"Triggers {len(triggers)}"]
    return "\n".join([*head, *lines, *triggers, ""])


def networks(summary: Mapping[str, Any], fabric: Fabric) -> Iterator[tuple[str, str]]:
    """(state, ASTRA-sim's network configuration) for each fault state of a collective's run: the bus bandwidth that it had there, as
    the bandwidth of one switch that all share, and the delay of the longest path. Raises :class:`UserError` for other runs."""
    states = [state for state in summary.get("outside_busbw") or () if state["busbw_bps"]]
    if not states:
        states = [{"broken": False, "busbw_bps": summary["busbw_bps"]}] if summary.get("busbw_bps") else []
    if not states:
        raise UserError("a network for ASTRA-sim takes the bus bandwidth of a collective: give results of one")
    latency = (fill_ns(fabric, local=not fabric.t1_per_plane) + fabric.long_haul_delay_ns) / fabric.dilation
    for state in states:
        name = "broken" if state["broken"] else "whole"
        yield (
            name,
            (
                f"# mrcbed: {summary['transport']} on {fabric.name}, seed {summary['seed']}, {name}: measured bus bandwidth\n"
                f"topology: [ Switch ]\nnpus_count: [ {summary['ranks']} ]\n"
                f"bandwidth: [ {state['busbw_bps'] / 8e9:.3f} ]  # GB/s\nlatency: [ {latency:.1f} ]  # ns\n"
            ),
        )
