"""Stretches the time of a scenario: the same network and the same events, ``factor`` times slower.

Rates are a factor less, delays, faults, durations and timers a factor more, so that everything that follows from them keeps its size in
base RTTs, packets and BDPs. What the machine adds (CPU time per packet, lateness of timers) stays and weighs less. Pure; docs/time.md
explains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scenarios.schema.background import Background
from scenarios.schema.faults import Fault
from scenarios.schema.network_time import NS, OPTIONS, is_amount
from scenarios.schema.scenario import Scenario, Transport
from scenarios.schema.values import ScenarioError
from scenarios.schema.workloads import Workload
from testbed.faults.keys import Period
from testbed.faults.kinds import KINDS, read_keys
from testbed.terminal import duration
from testbed.units import MAX_NS, Duration

LONGEST_NS = 3600 * 10**9
"""Longest wait that a file may ask for, on this machine's clock [ours]."""


def needs_simulation(scenario: Scenario) -> str:
    """What only simulated switches do, and which transport has it, in words; "" if there is nothing."""
    for transport in scenario.transports:
        if setting := transport.fabric.simulated_only:
            return f"transport {transport.name!r} has {setting}, which only simulated switches do"
    return ""


def check_emulable(scenario: Scenario) -> None:
    """Raise :class:`ScenarioError` if the emulated world cannot run it: what only simulated switches do, or what takes hours here."""
    if reason := needs_simulation(scenario):
        raise ScenarioError(f"{scenario.file}: {reason}: add --world simulated")
    work = scenario.workload
    waits = {
        "workload.duration": work.duration_ns,
        "workload.victim_alone": work.victim_alone_ns,
        **{f"workload.flow {flow.name!r}": flow.start_ns + (flow.for_ns or 0) for flow in work.flows},
        **{f"options.reconvergence of transport {t.name!r}": t.reconvergence_ns for t in scenario.transports},
        **{f"fault {fault.name!r}": (fault.at_ns or 0) + (fault.for_ns or 0) for fault in scenario.faults},
        **{f"background {flow.name!r}": flow.start_ns + (flow.for_s or 0) * 10**9 for flow in scenario.backgrounds},
    }
    dilation = scenario.fabric.dilation
    for name, ns in waits.items():
        if ns is not None and ns > LONGEST_NS:
            raise ScenarioError(
                f"{scenario.file}: {name} lasts {duration(ns / dilation)} in the network, {ns / 3.6e12:.1f} hours of this machine's "
                f"time at a dilation of {dilation:,.0f}: shorten it, or run it with --world simulated, which does not wait"
            )


def slowed(scenario: Scenario, factor: float) -> Scenario:
    """Return the scenario in a network ``factor`` times slower; ``timeout`` never gets shorter. Raises :class:`topologies.FabricError`."""
    if factor == 1:
        return scenario

    def ns(value: int | None) -> Any:
        return None if value is None else round(value * factor)

    return replace(
        scenario,
        fabric=scenario.fabric.slowed(factor),
        timeout_ns=min(max(scenario.timeout_ns, ns(scenario.timeout_ns)), MAX_NS - 1),
        workload=_workload(scenario.workload, ns),
        transports=tuple(_transport(transport, factor, ns) for transport in scenario.transports),
        faults=tuple(_fault(fault, ns) for fault in scenario.faults),
        backgrounds=tuple(_background(flow, factor, ns) for flow in scenario.backgrounds),
        swept=tuple(replace(variant, scenario=slowed(variant.scenario, factor)) for variant in scenario.swept),
    )


def _workload(work: Workload, ns: Any) -> Workload:
    flows = tuple(replace(flow, start_ns=ns(flow.start_ns), for_ns=ns(flow.for_ns)) for flow in work.flows)
    times = {key: ns(getattr(work, key)) for key in ("duration_ns", "victim_alone_ns", "settle_ns")}
    jobs = tuple(replace(job, compute_ns=ns(job.compute_ns)) for job in work.jobs)
    return replace(work, flows=flows, jobs=jobs, **times)


def _transport(transport: Transport, factor: float, ns: Any) -> Transport:
    """Stretch a transport: of its options, those that are times or rates; a number that stands for a default does not grow."""
    options = {
        key: _option(value, factor if OPTIONS[key] == NS else 1 / factor) if key in OPTIONS else value
        for key, value in transport.options.items()
    }
    return replace(transport, fabric=transport.fabric.slowed(factor), options=options, reconvergence_ns=ns(transport.reconvergence_ns))


def _option(value: Any, factor: float) -> Any:
    return round(value * factor) if is_amount(value) else value


def _fault(fault: Fault, ns: Any) -> Fault:
    """Stretch when it is there, and those of its kind's keys that are times, defaults too."""
    times = {key.name for key in KINDS[fault.kind].keys if key.kind in (Duration, Period)}
    read = read_keys(fault.kind, fault.keys)
    keys = {**fault.keys, **{name: f"{ns(read[name])}ns" for name in times if read.get(name) is not None}}
    return replace(fault, at_ns=ns(fault.at_ns), for_ns=ns(fault.for_ns), keys=keys)


def _background(flow: Background, factor: float, ns: Any) -> Background:
    """iperf3 counts in whole seconds: at least one."""
    rate = None if flow.rate_bps is None else round(flow.rate_bps / factor)
    seconds = None if flow.for_s is None else max(1, round(flow.for_s * factor))
    return replace(flow, rate_bps=rate, start_ns=ns(flow.start_ns), for_s=seconds)
