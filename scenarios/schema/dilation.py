"""Finds what the emulated world cannot do of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scenarios.schema.scenario import Scenario, check_no_verbs
from scenarios.schema.values import ScenarioError
from testbed.terminal import duration
from topologies import Fabric, FabricError
from topologies.units import MAX_TIME, NS, S

MOST_WAIT_S = 3600.0  # that a file may ask of this machine [ours]
LEAST_PERIOD_S = 0.002  # a shorter cycle would show the machine's scheduling, not ours [ours]
LEAST_RATE, MOST_RATE = 100_000, 10**13  # bits/s that tc keeps [measured]


def check_rates(fabric: Fabric, dilation: float) -> None:
    """Raises :class:`topologies.FabricError` for rates that the kernel cannot keep at this
    dilation."""
    for key in ("nic_rate", "fabric_rate", "long_haul_rate"):
        rate = getattr(fabric, key)
        if rate and not LEAST_RATE <= rate / dilation <= MOST_RATE:
            raise FabricError(
                f"fabric {fabric.name!r}: {key} = {rate / 1e9:g} Gbit/s runs at "
                f"{rate / dilation:,.0f} bit/s at a dilation of {dilation:,.0f}: links take "
                f"{LEAST_RATE / 1e3:g} kbit/s to {MOST_RATE / 1e12:g} Tbit/s"
            )


def needs_simulation(scenario: Scenario) -> str:
    """Name what only simulated switches do, with its transport, or ""."""
    for transport in scenario.transports:
        if setting := transport.fabric.simulated_only:
            return f"transport {transport.name!r} has {setting}, which only simulated switches do"
    return ""


def at_dilation(scenario: Scenario, dilation: float) -> Scenario:
    """Return it at another dilation. Its ``timeout`` grows with it, and never shrinks."""
    return replace(
        scenario,
        dilation=dilation,
        timeout_s=min(scenario.timeout_s * max(1.0, dilation / scenario.dilation), MAX_TIME / S),
        swept=tuple(
            replace(variant, scenario=at_dilation(variant.scenario, dilation))
            for variant in scenario.swept
        ),
    )


def check_emulable(scenario: Scenario, dilation: float) -> None:
    """Raises :class:`ScenarioError` for what only simulated switches do, or takes hours, and
    :class:`topologies.FabricError` for links too slow or too fast."""
    check_no_verbs(scenario)
    if reason := needs_simulation(scenario):
        raise ScenarioError(f"{scenario.file}: {reason}: add --world simulated")
    for transport in scenario.transports:
        check_rates(transport.fabric, dilation)
    work = scenario.workload
    waits = {
        "workload.duration": work.duration_ps,
        "workload.victim_alone": work.victim_alone_ps,
        **{
            f"workload.flow {flow.name!r}": flow.start_ps + (flow.for_ps or 0)
            for flow in work.flows
        },
        **{
            f"options.reconvergence of transport {t.name!r}": t.reconvergence_ps
            for t in scenario.transports
        },
        **{
            f"background {flow.name!r}": flow.start_ps + (flow.for_ps or 0)
            for flow in scenario.backgrounds
        },
    }
    _check_waits(scenario, waits, dilation)
    check_faults(scenario, dilation)


def check_faults(scenario: Scenario, dilation: float) -> None:
    """Raises :class:`ScenarioError` for waits of hours, and for cycles too short."""
    waits = {
        f"fault {fault.name!r}": (fault.at_ps or 0) + (fault.for_ps or 0)
        for fault in scenario.faults
    }
    _check_waits(scenario, waits, dilation)
    for fault in scenario.faults:
        period = fault.keys.get("period")
        if period is not None and period / S * dilation < LEAST_PERIOD_S:
            raise ScenarioError(
                f"{scenario.file}: fault {fault.name!r}: period = {duration(period / NS)} takes "
                f"less than {LEAST_PERIOD_S * 1e3:g} ms of this machine at a dilation of "
                f"{dilation:,.0f}: make it longer"
            )


def _check_waits(scenario: Scenario, waits: Mapping[str, int | None], dilation: float) -> None:
    for name, time in waits.items():
        if time is not None and (wall_s := time / S * dilation) > MOST_WAIT_S:
            raise ScenarioError(
                f"{scenario.file}: {name} lasts {duration(time / NS)} in the network, "
                f"{wall_s / 3600:.1f} hours of this machine's time at a dilation of "
                f"{dilation:,.0f}: shorten it, or run it with --world simulated, which does not "
                "wait"
            )
