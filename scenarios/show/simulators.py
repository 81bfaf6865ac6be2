"""Makes inputs for other simulators: traffic and one plane for htsim; network, system and workload
for ASTRA-sim's analytical backend.

Formats and limits are those that their programs read. htsim: uet-htsim (40ccb05),
sim/datacenter/connection_matrix.cpp, fat_tree_topology.cpp and main_uec.cpp, which csg-htsim has
alike. ASTRA-sim (518bd51): astra-sim/system/Sys.cc; astra-network-analytical (599a047),
congestion_unaware/basic-topology and common/NetworkFunction.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean

from scenarios.figures.capacity import bandwidths, stretches, theory_of
from scenarios.figures.measure import Run
from scenarios.figures.outages import Failures
from testbed.errors import UserError
from testbed.results.record import Record
from testbed.results.summary import Run as Entry
from topologies import Fabric
from topologies.theory import bus_factor, collective_step_ns
from topologies.timing import fill_ns
from topologies.units import NS

Stage = list[tuple[int, int, int]]  # simultaneous transfers: (sender, receiver, bytes)
MOST_DOWN, MOST_PORTS = 96, 128  # downlinks of a T0, and ports of a switch, that htsim_uec allows
MOST_BYTES = (1 << 31) - 1  # htsim reads an int.
HEADERS = 64  # bytes of a packet that are no payload, in htsim


@dataclass(frozen=True)
class Tree:
    """A plane as htsim's two-tier fat tree: Gb/s, and ns of the network. Idle hosts and T0s fill it
    up to what htsim takes."""

    t0s: int
    t1s: int
    hosts_per_t0: int
    oversubscribed: int
    t1_radix: int
    nic_gbps: int
    fabric_gbps: int

    def node(self, fabric: Fabric, host: int) -> int:
        t0, downlink = divmod(host, fabric.hosts_per_t0)
        return t0 * self.hosts_per_t0 + downlink

    @property
    def nodes(self) -> int:
        return self.t0s * self.hosts_per_t0


def tree(fabric: Fabric) -> Tree:
    """Find the smallest tree that htsim takes and that has all links of a plane. Raises
    :class:`UserError`.

    htsim asks for whole numbers (FatTreeTopologyCfg::set_custom_params): hosts of a T0 / T1s is the
    oversubscription, rounded down; nodes x NIC speed / (T1s x fabric speed x oversubscription) is a
    T1's radix. It joins each T0 to each T1 whatever that radix is. Without T1s a T1 stands idle.
    """
    if fabric.sites > 1:
        raise UserError(f"fabric {fabric.name} has two sites: htsim's fat trees are one place")
    nic, up = (_gbps(fabric, name) for name in ("nic_rate", "fabric_rate"))
    t1s = max(1, fabric.t1_per_plane)
    oversubscribed = -(-fabric.hosts_per_t0 // t1s)
    speeds = Fraction(nic, up)
    t0s = -(-fabric.t0_per_plane // speeds.denominator) * speeds.denominator
    hosts = oversubscribed * t1s
    if hosts > MOST_DOWN or hosts + t1s > MOST_PORTS or t0s > MOST_PORTS:
        raise UserError(
            f"fabric {fabric.name} needs T0s with {hosts} downlinks and {t1s} uplinks and T1s "
            f"with {t0s} ports: htsim allows {MOST_DOWN} downlinks and {MOST_PORTS} ports; lower "
            "hosts_per_t0, t1_per_plane or t0_per_plane"
        )
    return Tree(t0s, t1s, hosts, oversubscribed, int(t0s * speeds), nic, up)


def _gbps(fabric: Fabric, name: str) -> int:
    rate = float(getattr(fabric, name) / 1e9)
    if round(rate) < 1 or abs(rate - round(rate)) > 1e-4 * rate:
        raise UserError(
            f"fabric {fabric.name}: {name} is {rate:g} Gb/s, and htsim's topologies have whole "
            "Gb/s: give one"
        )
    return round(rate)


def topology(fabric: Fabric) -> str:
    """A path has our delay: nearly all of it is in the hosts' links, as the others must have some.
    Raises :class:`UserError`."""
    it = tree(fabric)
    load = Fraction(fabric.hosts_per_t0 * it.nic_gbps, it.t1s * it.fabric_gbps)
    notes = [
        (
            f"one plane of {fabric.name}: htsim_uec -topo FILE.topo -tm FILE.cm -linkspeed "
            f"{it.nic_gbps * 1000} -end 10000000"
        )
    ]
    if (it.t0s, it.hosts_per_t0) != (fabric.t0_per_plane, fabric.hosts_per_t0):
        notes.append(
            f"htsim takes no {fabric.hosts_per_t0} hosts under {fabric.t0_per_plane} T0 beside "
            f"{it.t1s} T1: the nodes beyond these are idle"
        )
    if not fabric.t1_per_plane:
        notes.append("htsim needs a T1: it is idle")
    elif load != it.oversubscribed:
        notes.append(
            f"oversubscription is {float(load):.4g}; only receivers' credit reads it here "
            "(-force_disable_oversubscribed_cc)"
        )
    lines = [
        *(f"# {note}" for note in notes),
        f"Nodes {it.nodes}",
        "Tiers 2",
        f"Podsize {it.nodes}",
        "",
        "Tier 0",
        f"Downlink_speed_Gbps {it.nic_gbps}",
        f"Radix_Down {it.hosts_per_t0}",
        f"Radix_Up {it.t1s}",
        f"Downlink_Latency_ns {max(1, round(fabric.local_delay_ps / NS / 2))}",
        "Switch_Latency_ns 0",
        f"Oversubscribed {it.oversubscribed}",
        "",
        "Tier 1",
        f"Downlink_speed_Gbps {it.fabric_gbps}",
        f"Radix_Down {it.t1_radix}",
        f"Downlink_Latency_ns {max(1, round(fabric.hop_delay_ps / NS))}",
        "Switch_Latency_ns 0",
        "",
    ]
    return "\n".join(lines)


def stages(collective: str, hosts: list[int], size: int) -> list[Stage]:
    """Return a collective's transfers, ``size`` as nccl-tests has it. Within a stage all send at
    once; between two, each rank waits for what it receives. Raises :class:`UserError` for other
    collectives than theory's."""
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
        return [
            [(hosts[r], hosts[r ^ d], max(1, size * d // n)) for r in range(n)]
            for d in [*distances, *reversed(distances)]
        ]
    if collective == "hierarchical-allreduce":
        m = n // 2
        halves = [
            (hosts[r], hosts[r // m * m + (r + 1) % m], max(1, size // m))
            for r in range(n)
            if m > 1
        ]
        twins = [(hosts[r], hosts[(r + m) % n], max(1, size // m)) for r in range(n)]
        return [*[halves] * (m - 1), twins, *[halves] * (m - 1)]
    raise UserError(
        f"{collective} is no list of transfers here: export results of a collective of "
        "docs/how/scenarios.md, or of flows"
    )


def matrix(record: Record, summary: Entry, fabric: Fabric) -> str:
    """Write htsim's connection matrix of one plane: one step, or the flows with their bytes in the
    run; every plane carries an equal part. Raises :class:`UserError`."""
    part = fabric.planes
    if record.flows:
        sent = [
            (flow, size)
            for flow in record.flows
            if (size := summary.flows[flow.name].bytes // part)
        ]
        return connections(
            fabric,
            [[(flow.src, flow.dst, size) for flow, size in sent]],
            [flow.start_ps for flow, _ in sent],
        )
    plan = stages(record.workload, record.ranks, record.message_bytes)
    return connections(
        fabric, [[(src, dst, size // part) for src, dst, size in stage] for stage in plan]
    )


def connections(fabric: Fabric, plan: Sequence[Stage], starts_ps: Sequence[int] = ()) -> str:
    """Write a connection matrix of stages, of which the first begins at 0 or at ``starts_ps``. A
    later transfer begins once its rank's last one is acknowledged to who sent it: htsim's receivers
    trigger nothing. Raises :class:`UserError`."""
    it = tree(fabric)
    lines, triggers = list[str](), list[str]()
    waits: dict[int, int] = {}  # host -> the trigger of what it receives in the stage before
    for number, stage in enumerate(plan):
        received: dict[int, int] = {}
        for place, (src, dst, size) in enumerate(stage):
            if size > MOST_BYTES:
                raise UserError(
                    f"h{src} sends h{dst} {size:,} bytes in a plane at once: htsim reads "
                    f"{MOST_BYTES:,} at most; give fewer bytes"
                )
            begin = (
                f"trigger {waits[src]}"
                if number
                else f"start {starts_ps[place] if starts_ps else 0}"
            )
            end = ""
            if number < len(plan) - 1:
                received[dst] = len(triggers) + 1
                triggers.append(f"trigger id {received[dst]} oneshot")
                end = f" send_done_trigger {received[dst]}"
            lines.append(
                f"{it.node(fabric, src)}->{it.node(fabric, dst)} id {len(lines) + 1} {begin} "
                f"size {max(1, size)}{end}"
            )
        waits = received
    head = [f"Nodes {it.nodes}", f"Connections {len(lines)}", f"Triggers {len(triggers)}"]
    return "\n".join([*head, *lines, *triggers, ""])


def htsim_run(
    program: str, fabric: Fabric, plan: Sequence[Stage], folder: Path, seed: int = 1
) -> list[str]:
    """Write what uet-htsim's ``htsim_uec`` reads of stages of payload bytes, and return the words
    that run it in ``folder``: NSCC on as many packets as ours have, of their size, with our
    thresholds. Raises :class:`UserError`."""
    size = fabric.frame_bytes - HEADERS
    packets = [
        [(src, dst, -(-payload // fabric.mtu) * size) for src, dst, payload in stage]
        for stage in plan
    ]
    (folder / "a.cm").write_text(connections(fabric, packets))
    (folder / "a.topo").write_text(topology(fabric))
    queue, low, high = (
        round(part * fabric.plane_bdp / fabric.frame_bytes) for part in (1.0, 0.2, 0.8)
    )
    return [
        program,
        "-topo",
        "a.topo",
        "-tm",
        "a.cm",
        "-linkspeed",
        str(tree(fabric).nic_gbps * 1000),
        "-end",
        "1000000",
        "-mtu",
        str(fabric.frame_bytes),
        "-q",
        str(queue),
        "-ecn",
        str(low),
        str(high),
        "-sender_cc_algo",
        "nscc",
        "-load_balancing_algo",
        "bitmap",
        "-paths",
        "64",
        "-seed",
        str(seed),
    ]


def htsim_ends(out: str, transfers: int) -> tuple[list[float], dict[str, int]]:
    """Return (us at which each transfer ended, packets by kind, such as "New" and "Rtx") of what
    ``htsim_uec`` printed. Raises
    :class:`UserError` if it did not end all. Its dots of progress may stand before a line."""
    ends = [float(us) for us in re.findall(r"^\.*Flow .* finished at ([\d.]+)", out, re.MULTILINE)]
    if len(ends) != transfers or "\nNew: " not in out:
        raise UserError(
            f"{len(ends)} of {transfers} transfers of htsim_uec ended: give a build of "
            "uet-htsim's main branch"
        )
    return ends, {
        key: int(count) for key, count in re.findall(r"(\w+): (\d+)", out[out.rindex("\nNew: ") :])
    }


COMM_TYPES = {"ring-allreduce": 0, "tree-allreduce": 0, "all-gather": 2, "reduce-scatter": 7}
"""Collectives whose ranks send to one other at a time, as ASTRA-sim's analytical backend does, and
Chakra's numbers."""


def networks(run: Run, slices: int) -> Iterator[tuple[str, str]]:
    """Yield (state, ASTRA-sim's network configuration) for each fault state of a collective's run,
    such that the backend's step takes as long as the run's. States: "whole", "broken", "broken-2"
    and so on. Raises :class:`UserError` for other runs.

    ASTRA-sim takes 2 x latency + bytes / bandwidth for each of K stages: a message passes its one
    switch by two links, and a GB has 2^30 bytes. A run's step of T has K stages of S slices. Where
    a slice takes t and its way L, T is either K S t + L (ranks send without pause) or K (t + L) +
    (S - 1) t (they wait for each first slice), whichever is longer (topologies/timing.py). That
    tells how much of T is latency, L or K L; the bandwidth is what the rest allows, so also what
    cannot be told apart is in it.
    """
    record, fabric = run.record, run.fabric
    kind, ranks, size = record.workload, record.ranks, record.message_bytes
    if kind not in COMM_TYPES:
        raise UserError(
            f"a network for ASTRA-sim is written of {', '.join(COMM_TYPES)}: these are results "
            f"of {kind}"
        )
    states = _states(run)
    if not states:
        raise UserError(
            f"run {run.key} has no whole step: there is nothing to measure ASTRA-sim's network by"
        )
    plan = stages(kind, ranks, size)
    way = fmean(
        _way_ns(fabric, src, dst, sent / slices) for stage in plan for src, dst, sent in stage
    )
    sent, count = size * bus_factor(kind, len(ranks)), len(plan)
    seen: dict[str, int] = {}
    for broken, step in states:
        waiting = (step - count * way) / (count + slices - 1)
        latency = count * way if 0 < waiting < (step - way) / (count * slices) else way
        name = "broken" if broken else "whole"
        seen[name] = seen.get(name, 0) + 1
        yield (
            name if seen[name] == 1 else f"{name}-{seen[name]}",
            (
                f"# mrcbed: {record.transport} on {fabric.name}, seed {record.seed}, {name}: "
                f"{kind} of {size:,} bytes in {step / 1000:.2f} us\ntopology: [ Switch ]\n"
                f"npus_count: [ {len(ranks)} ]\n"
                f"bandwidth: [ {sent / (step - latency) * 1e9 / (1 << 30):.6g} ]  # GB/s, of "
                f"2^30 bytes\nlatency: [ {latency / count / 2:.6g} ]  # ns, of one of two links\n"
            ),
        )


def _states(run: Run) -> list[tuple[bool, float]]:
    """Return (whether something was broken, ns of a step) per capacity that theory leaves: the
    median of steps in such stretches, else what the rate means. A run too short for stretches has
    the median of all steps."""
    failures, left = Failures(run), theory_of(run)
    times = run.step_times
    steps = run.whole_steps.groupby("step")
    begins, ends = steps["start_ns"].min(), steps["end_ns"].max()
    found = []
    for row in bandwidths(failures, left):
        inside = begins != begins
        for begin, end, dead in stretches(failures):
            if (round(left(dead)), bool(dead)) == (row.theory_bps, row.broken):
                inside |= (begins >= begin) & (ends <= end)
        if inside.any():
            found.append((row.broken, float(times[inside].median())))
        elif row.busbw_bps:
            record = run.record
            found.append(
                (
                    row.broken,
                    collective_step_ns(
                        record.workload, len(record.ranks), record.message_bytes, row.busbw_bps
                    ),
                )
            )
    return found or ([(False, float(times.median()))] if len(times) else [])


def _way_ns(fabric: Fabric, src: int, dst: int, payload: float) -> float:
    """Return the time from a message's last bit on its host's port to its arrival, ns."""
    far = fabric.long_haul_delay_ps / NS if fabric.is_far(src, dst) else 0
    return far + fill_ns(
        fabric, fabric.t0_of(src) == fabric.t0_of(dst), max(1, min(fabric.mtu, int(payload)))
    )


def system(collective: str) -> str:
    """Write ASTRA-sim's system configuration: one piece at a time, and no time of memory, which a
    step here includes. Its event queue refuses an endpoint-delay of 0."""
    way = ["halvingDoubling" if collective.startswith("tree") else "ring"]
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    pieces = {
        "scheduling-policy": "LIFO",
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "endpoint-delay": 1,
    }
    algorithms = {f"{kind}-implementation": way for kind in kinds}
    return (
        json.dumps(
            {**pieces, **algorithms, "collective-optimization": "baseline", "local-mem-bw": 1e9},
            indent=1,
        )
        + "\n"
    )


def workload(record: Record) -> bytes:
    """Write a rank's Chakra trace (schema 0.0.4) of one step; it is the same for each rank."""
    kind, size = record.workload, record.message_bytes
    # of an all-gather what one rank gives
    given = size // len(record.ranks) if kind == "all-gather" else size
    # fields of an attribute: its name, and bool_val or int64_val
    name, number, is_cpu, kind_of, bytes_of = 1, 1, 27, 9, 9
    attributes = (
        ("is_cpu_op", is_cpu, 0),
        ("comm_type", kind_of, COMM_TYPES[kind]),
        ("comm_size", bytes_of, given),
    )
    node = _field(number, 0) + _field(2, kind.encode()) + _field(3, 7)  # COMM_COLL_NODE
    for label, field, value in attributes:
        node += _field(10, _field(name, label.encode()) + _field(field, value))
    metadata = _field(1, b"0.0.4")
    return _varint(len(metadata)) + metadata + _varint(len(node)) + node


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value
