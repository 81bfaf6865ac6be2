"""Shows what a scenario would do: fabric, workload, transports, faults over time, runs; all in
network time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from scenarios.schema.fault_tables import Fault
from scenarios.schema.scenario import Scenario, Transport
from scenarios.schema.sweep import spelled
from scenarios.schema.workloads import Workload, most_senders
from testbed import terminal
from testbed.faults.keys import Period
from testbed.faults.kinds import KINDS
from testbed.terminal import duration
from topologies import Fabric
from topologies.theory import bus_bandwidth, collective_step_ns, place_ranks
from topologies.units import NS, Duration, Span

BAR = 36
CROWD = 1.5
"""Queue pairs that send to one host, per packet of its BDP, from which on MRC's smallest windows
keep its queue full [ours]. At 10 Gb/s with packets of 1,000 bytes, a BDP of 11, 20 senders got 76 %
of the line, 45 of them 55 %, and with 90 retries ran out [measured]."""
SHOWN = 8  # settings of a sweep


def fabric_lines(fabric: Fabric, dilation: float | None = None) -> list[str]:
    rates = f"ports of {fabric.nic_rate / 1e9:g} Gb/s"
    if fabric.fabric_rate != fabric.nic_rate:
        rates += f", T0-T1 links of {fabric.fabric_rate / 1e9:g} Gb/s"
    if fabric.sites > 1:
        rates += f", long-haul cables of {fabric.long_haul_rate / 1e9:g} Gb/s"
    shape = f"{_count(fabric.planes, 'plane')} of {fabric.t0_per_plane} T0 and {fabric.t1_count} T1"
    shape += " in two sites" if fabric.sites > 1 else ""
    far = f" ({duration(fabric.haul_rtt_ps / NS)} between sites)" if fabric.sites > 1 else ""
    paths = (
        f", {fabric.paths_per_pair} paths between hosts under different T0s"
        if fabric.t0_per_plane > 1
        else ""
    )
    slowed = "" if dilation is None else f"; dilation {dilation:,.0f}"
    return [
        f"{fabric.name}: {shape}, {fabric.host_count} hosts, {len(fabric.links)} links, {rates}",
        f"base RTT {duration(fabric.base_rtt_ps / NS)}{far}{paths}{slowed}",
    ]


def show_plan(out: Console, scenario: Scenario, runs: int) -> None:
    if scenario.description:
        out.print(" ".join(scenario.description.split()))
    out.print()
    lines = {
        "fabric": fabric_lines(scenario.fabric, scenario.dilation),
        "workload": workload_lines(scenario),
        "seeds": [", ".join(map(str, scenario.seeds))],
        "sweep": sweep_lines(scenario),
        "runs": [f"{runs}: {_factors(scenario)}"],
        "checks": [expect.name for expect in scenario.expects],
    }  # fmt: skip
    out.print(terminal.fields(list(lines), ["\n".join(words) for words in lines.values()]))
    heads = ["transport", "kind", "fabric", "QPs", "with"]
    out.print(
        terminal.table(
            heads, map(_transport, scenario.transports), names=("kind", "fabric"), words=("with",)
        )
    )
    if scenario.faults:
        out.print(faults_table(scenario.faults, *horizon_ns(scenario)))
    if scenario.backgrounds:
        out.print(_backgrounds(scenario))
    for line in warnings(scenario):
        out.print(f"warning: {line}", style="yellow", markup=False)


def warnings(scenario: Scenario) -> list[str]:
    lines: list[str] = []
    senders = most_senders(scenario.workload, scenario.fabric, scenario.seeds[0])
    for transport in scenario.transports:
        fabric = transport.fabric
        holds = fabric.planes * fabric.plane_bdp // fabric.frame_bytes
        if transport.kind == "mrc" and senders * transport.qps > CROWD * holds:
            crowd = (
                f"{senders * transport.qps} queue pairs send to one host, and its base RTT holds "
                f"{holds} full packets"
            )
            lines.append(
                f"transport {transport.name}: {crowd}. Each has a packet in flight whatever its "
                "window, so queues stay full and packets are trimmed again and again: take "
                "fewer senders, faster ports or a longer delay"
            )
    return lines


def _transport(transport: Transport) -> list[str]:
    words = dict(transport.options)
    if transport.controller != "none":
        words["controller"] = transport.controller
    if transport.clustermapper is not None:
        words["clustermapper"] = transport.clustermapper.policy
    waits = {"reconvergence": transport.reconvergence_ps, "repair": transport.repair_ps}
    words.update({key: duration(ps / NS) for key, ps in waits.items() if ps is not None})
    return [
        transport.name,
        transport.kind,
        transport.fabric.name,
        str(transport.qps),
        ", ".join(f"{k} = {v}" for k, v in words.items()),
    ]


def workload_lines(scenario: Scenario) -> list[str]:
    work, fabric = scenario.workload, scenario.fabric
    if work.jobs:
        jobs = ", ".join(f"{job.name} on {job.ranks} ranks" for job in work.jobs)
        return [f"jobs {jobs}; {_count(work.steps, 'step')} after {work.warmup_steps} to warm up"]
    if work.is_pattern:
        return [_pattern(work)]
    size = f"{work.message_bytes:,} bytes of {work.dtype}"
    lines = [
        (
            f"{work.kind}, {size}, {_count(work.steps, 'step')} after {work.warmup_steps} to "
            f"warm up, {work.slices} slices"
        )
    ]
    for placement in work.placement:
        ideal = duration(_step_ns(work, fabric, placement))
        lines.append(
            f"placement {placement}: a step of {ideal} or more, by the rate of healthy links"
        )
    return lines


def _pattern(work: Workload) -> str:
    length = "" if work.duration_ps is None else f" for {duration(work.duration_ps / NS)}"
    number = "" if work.messages is None else f", {work.messages} each"
    flows = (
        f" of {_count(len(work.flows), 'flow')}"
        if work.flows
        else f" of {work.senders} senders"
        if work.senders
        else ""
    )
    victim = ", and a victim flow" if work.victim else ""
    return (
        f"{work.kind}{flows}{victim}, messages of {work.message_bytes:,} bytes{number}, "
        f"{work.outstanding} outstanding{length}"
    )


def _step_ns(work: Workload, fabric: Fabric, placement: str) -> float:
    hosts = place_ranks(fabric, placement)
    return collective_step_ns(
        work.kind, len(hosts), work.message_bytes, bus_bandwidth(fabric, work.kind, hosts)
    )


def sweep_lines(scenario: Scenario) -> list[str]:
    settings = [spelled(variant.settings) for variant in scenario.variants if variant.settings]
    return settings[:SHOWN] + (
        [f"... {len(settings) - SHOWN} more"] if len(settings) > SHOWN else []
    )


def horizon_ns(scenario: Scenario) -> tuple[float, float]:
    """Return the least length of the measured part, and of a step, ns: 0 where only a run can
    tell."""
    work, fabric = scenario.workload, scenario.fabric
    if work.jobs:
        return 0.0, 0.0
    if work.is_pattern:
        ends = [flow.start_ps + (flow.for_ps or 0) for flow in work.flows]
        return max([work.lasts_ps, *ends]) / NS, 0.0
    step = min(_step_ns(work, fabric, placement) for placement in work.placement)
    return work.steps * step, step


def faults_table(faults: Sequence[Fault], horizon: float, step: float) -> Any:
    """``horizon`` and ``step``: the least length of run and step, ns."""
    begins = {
        fault.name: 0.0 if fault.before else (fault.at_ps or 0) / NS + (fault.step or 0) * step
        for fault in faults
    }
    ordered = sorted(faults, key=lambda fault: (not fault.before, begins[fault.name]))
    length = (
        max(
            [horizon, *(1.05 * (begins[fault.name] + (fault.for_ps or 0) / NS) for fault in faults)]
        )
        or 1.0
    )

    def bar(fault: Fault) -> str:
        begin = min(BAR - 1, int(BAR * begins[fault.name] / length))
        end = (
            BAR
            if fault.for_ps is None
            else max(begin + 1, round(BAR * (begins[fault.name] + fault.for_ps / NS) / length))
        )
        return "·" * begin + "█" * (end - begin) + "·" * (BAR - end)

    def row(fault: Fault) -> list[str]:
        begins = (
            "before all"
            if fault.before
            else f"step {fault.step}"
            if fault.step is not None
            else duration((fault.at_ps or 0) / NS)
        )
        lasts = "to the end" if fault.for_ps is None else duration(fault.for_ps / NS)
        times = {key.name for key in KINDS[fault.kind].keys if key.kind in (Duration, Period, Span)}
        keys = ", ".join(
            f"{key} {duration(value / NS) if key in times and isinstance(value, int) else value}"
            for key, value in fault.keys.items()
        )
        what = f"{fault.kind} on {fault.on}{f' ({keys})' if keys else ''}"
        return [fault.name, begins, lasts, what, bar(fault)]

    caption = (
        f"Bars: {duration(length)} from the first measured step or flow; steps are as long as "
        "theory has them at best."
    )
    return terminal.table(
        ["fault", "begins", "lasts", "what", "time"],
        map(row, ordered),
        words=("what",),
        names=("time",),
        caption=caption,
    )


def _backgrounds(scenario: Scenario) -> Any:
    def row(flow: Any) -> list[str]:
        rate = "as much as it gets" if flow.rate_bps is None else f"{flow.rate_bps / 1e9:g} Gb/s"
        lasts = "to the end" if flow.for_ps is None else duration(flow.for_ps / NS)
        path = flow.path_on(scenario.transports[0].fabric)
        return [flow.name, flow.protocol, rate, path, duration(flow.start_ps / NS), lasts]

    return terminal.table(
        ["background", "protocol", "rate", "path", "begins", "lasts"],
        map(row, scenario.backgrounds),
        names=("protocol", "path"),
    )


def _factors(scenario: Scenario) -> str:
    counts = {
        "seed": scenario.seeds,
        "placement": scenario.workload.placement,
        "transport": scenario.transports,
    }
    words = [_count(len(items), word) for word, items in counts.items()]
    return " x ".join(
        [*words, _count(len(scenario.variants), "setting")] if scenario.swept else words
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
