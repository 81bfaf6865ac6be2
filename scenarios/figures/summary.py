"""Makes ``summary.json``: figures and checks. The keys are a contract: later versions add, never
rename."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from agents.kernel.options import KINDS as KERNEL_KINDS
from scenarios.figures import (
    capacity,
    cost,
    fidelity,
    invariants,
    iperf_flows,
    pauses,
    ports,
    settling,
)
from scenarios.figures import failures as failure_figures
from scenarios.figures import flaps as flap_figures
from scenarios.figures import flows as flow_figures
from scenarios.figures import jobs as job_figures
from scenarios.figures import mapper as mapper_figures
from scenarios.figures.books import books, cable_gaps
from scenarios.figures.flows import all_on
from scenarios.figures.leaving import worst_of
from scenarios.figures.measure import Run
from scenarios.figures.network_time import FORMAT, rounded
from scenarios.figures.outages import NO_LOSS, Failures, kind_of
from scenarios.figures.stats import medians, spread
from scenarios.schema.checks import evaluate
from scenarios.schema.fabrics import figures as fabric_figures
from scenarios.schema.scenario import Scenario, Variant
from scenarios.schema.sweep import spelled
from testbed.results import log, summary
from testbed.results.reading import believing
from testbed.results.values import Setting
from testbed.view.clock import in_ns
from testbed.world import EMULATED, SIMULATED
from topologies.theory import COLLECTIVES, bus_bandwidth, bus_factor, collective_step_ns
from topologies.units import NS

_NO_CPU = "no CPU is measured in the simulated world"
_NO_PROCESS = "no process of the simulated world can be late"
_NO_KERNEL = "the simulated world does not compare its ports with a kernel's"
UNMEASURED: dict[str, dict[str, str]] = {
    EMULATED: {
        "expectations.queue_wait": (
            "on the kernel a packet on the wire counts as waiting, which the model does not have"
        )
    },
    SIMULATED: {
        "cpu_percent": _NO_CPU,
        "fidelity.cpu": _NO_CPU,
        "fidelity.waiting": _NO_CPU,
        **{f"fidelity.lag_{name}_ns": _NO_PROCESS for name in ("mean", "window", "p99", "max")},
        "fidelity.clock": _NO_PROCESS,
        "fidelity.quota": _NO_PROCESS,
        "fidelity.wall_suspended_ns": _NO_PROCESS,
        "fidelity.shaper_late": _NO_KERNEL,
        "fidelity.ports": _NO_KERNEL,
        "fidelity.queues": _NO_KERNEL,
        "fidelity.socket_drops": _NO_KERNEL,
    },
}
"""World -> figures that its runs cannot have, as dotted paths, with the reason. A check on them
does not apply."""
NOT_TRUSTWORTHY, INTERRUPTED = "not trustworthy", "interrupted"


def ideals(run: Run) -> tuple[float | None, float | None]:
    """Return bus bandwidth of healthy links, and without the cables that the scenario breaks."""
    record = run.record
    if record.workload not in COLLECTIVES:
        return None, None
    ideal = bus_bandwidth(run.fabric, record.workload, record.ranks)
    return ideal, bus_bandwidth(
        run.fabric, record.workload, record.ranks, record.fault_links
    ) if record.fault_links else ideal


def run_summary(run: Run, expected: str = "done") -> summary.Run:
    record, fabric, packets, failures, times = (
        run.record,
        run.fabric,
        books(run.record),
        Failures(run),
        run.step_times,
    )
    kind, ranks = record.workload, len(record.ranks)
    measured = run.steps[~run.steps["warmup"].astype(bool)]
    jobs = job_figures.figures(run)
    # ranks that trained and ended with other parameters
    unlike = [len(job.digests or ()) - 1 for job in jobs.values()]
    wrong = max(
        int((~run.steps["ok"].astype(bool)).sum()),
        sum(record.wrong.values()),
        sum(note.wrong for note in record.flow_notes),
        *unlike,
    )
    failed_steps = record.steps - len(times)
    assessment = judgement(run, packets, wrong, expected)
    broken = invariants.broken(run) if record.outcome == "done" else []
    reasons = assessment.reasons
    verdict: summary.Verdict
    if record.outcome == "interrupted":
        verdict, reasons = "interrupted", [record.reason]
    elif expected != "done":
        verdict = "ok" if record.outcome == expected and not wrong else "failed"
    elif record.outcome != "done" or wrong or failed_steps or broken:
        verdict = "failed"
    else:
        verdict = "not trustworthy" if reasons else "ok"
    if run.named_flows:
        measured_ns = run.window[1] - run.window[0]
    else:
        measured_ns = (
            float(measured["end_ns"].max() - measured["start_ns"].min()) if len(measured) else 0.0
        )
    ideal, degraded = ideals(run)
    # Of all ranks, as nccl-tests has it: ranks pass from step to step one by one, and a stall holds
    # some in one step, some in the next.
    mean_ns = (
        (run.whole_steps["end_ns"] - run.whole_steps["start_ns"]).mean()
        if ideal and len(times)
        else None
    )
    algbw = None if mean_ns is None else record.message_bytes * 8 / (mean_ns / 1e9)
    level = settling.figures(run)
    faults, false_verdicts = (
        failure_figures.failovers(failures),
        failure_figures.false_bad(failures),
    )
    used = [row for row in faults if row.left_queue_pairs]
    flaps = flap_figures.flap_rows(fabric, flap_figures.given_up(failures.moves), failures.outages)
    entry = summary.Run(
        world=record.world,
        transport=record.transport,
        kind=record.kind,
        fabric=fabric.name,
        workload=kind,
        placement=record.placement,
        seed=record.seed,
        settings=record.settings,
        ranks=ranks,
        message_bytes=record.message_bytes,
        wrong=wrong,
        steps=len(times),
        failed_steps=failed_steps,
        step_time_ns=spread(times),
        transfer_time_ns=spread(run.transfers["end_ns"] - run.transfers["start_ns"]),
        typical_step_ns=float(times.median()) if len(times) else None,
        algbw_bps=algbw,
        busbw_bps=None if algbw is None else algbw * bus_factor(kind, ranks),
        ideal_busbw_bps=ideal,
        degraded_busbw_bps=degraded,
        ideal_step_ns=collective_step_ns(kind, ranks, record.message_bytes, ideal)
        if ideal
        else None,
        degraded_step_ns=collective_step_ns(kind, ranks, record.message_bytes, degraded)
        if degraded
        else None,
        base_rtt_ns=run.base_rtt_ns,
        haul_rtt_ns=fabric.haul_rtt_ps / NS if fabric.sites > 1 else None,
        reconvergence_ns=record.reconvergence_ns,
        controller=record.controller,
        delayed=any(c.get("delayed") for c in run.agent_counters.values())
        if record.kind in KERNEL_KINDS
        else None,
        packets=packets,
        rotation=invariants.rotation(run),
        hops=invariants.hops(run),
        expectations=invariants.expectations(run),
        broken=broken,
        timeouts=summary.Timeouts(rto=len(run.of(log.Rto))),
        untrimmed_loss=sum(line.rule not in NO_LOSS for line in failures.losses),
        machine=record.machine,
        jobs=jobs,
        pfc=pauses.figures(run),
        pool_peak_share=invariants.pool_peak_share(run),
        failovers=faults,
        last_on_dead_rtts=worst_of([row.last_on_dead_rtts for row in used]),
        last_on_dead_over_rotation=worst_of([row.last_on_dead_over_rotation for row in used]),
        ev_loss_excess=worst_of([row.ev_loss_excess for row in used]),
        kept_during=min(
            (row.kept_during for row in faults if row.kept_during is not None), default=None
        ),
        kept_late=min((row.kept_late for row in faults if row.kept_late is not None), default=None),
        kept_after=min(
            (row.kept_after for row in faults if row.kept_after is not None), default=None
        ),
        bad_verdicts=len(failures.verdicts),
        false_bad=len(false_verdicts),
        false_bad_evs=len({(v.pair, v.ev) for v in false_verdicts}),
        false_bad_causes=failure_figures.causes_of(false_verdicts),
        nacks_lost=failure_figures.nacks_lost(run),
        qp_errors=sum(line.state == "ERROR" for line in run.of(log.Qp)),
        dead_at_start=failure_figures.dead_at_start(failures),
        killed=failure_figures.killed(failures),
        flaps=flap_figures.flaps(flaps),
        flap_growth=flap_figures.flap_growth(flaps),
        lossy_paths=flap_figures.lossy_paths(failures) if run.named_flows and all_on(run) else None,
        failure_cost=cost.figures(failures),
        mapper=mapper_figures.figures(failures),
        faults_missed=record.faults_missed,
        cpu_percent=fidelity.cpu_percent(record.cpu, *run.window),
        measured_ns=measured_ns,
        outcome=record.outcome,
        reason=record.reason,
        distrust=reasons,
        fidelity=fidelity.figures(assessment, run.of(log.Loop), packets.causes, record.watch),
        dcqcn=level,
        notes=[*record.notes, *settling.note(level)],
        run=run.key,
        verdict=verdict,
    )
    flow_figures.fill(entry, run)
    iperf_flows.fill(entry, run)
    capacity.fill(entry, failures)
    ports.fill(entry, failures)
    return rounded(entry)


def judgement(run: Run, packets: summary.Packets, wrong: int, expected: str) -> fidelity.Judgement:
    """If the scenario wants the run to end badly, only wrong results count."""
    if expected != "done":
        return fidelity.Judgement((f"{wrong} results are wrong",) if wrong else ())
    record, faults = run.record, run.of(log.Fault)
    evidence = fidelity.Evidence(
        window=run.window,
        loops=run.of(log.Loop),
        causes=packets.causes,
        unexplained=packets.unexplained,
        base_rtt_ns=run.base_rtt_ns,
        rejected=packets.rejected,
        cables=cable_gaps(record, run.ports),
        corrupted=packets.corrupted,
        gone=packets.lost + (packets.trimmed or 0),
        stragglers=[
            run.fabric.host_number(line.on) for line in faults if kind_of(line.fault).stalls
        ],
        wrong=wrong,
        watch=record.watch,
        touched={link for line in faults for link in line.links},
        on_the_way=packets.on_the_way,
        late_pause_ns=pauses.late_ns(run),
        acts_late_ns=record.acts_late_ps / NS,
    )
    result = fidelity.judge(evidence)
    if lost := packets.background and packets.background.unexplained:
        reason = (
            f"{abs(lost)} packets of background traffic "
            f"{'unaccounted for' if lost > 0 else 'arrived that nobody sent'}"
        )
        result = fidelity.Judgement((*result.invalid, reason), result.doubtful, result.too_slow)
    return result


def summarise(
    scenario: Scenario, runs: list[Run], known: Mapping[str, summary.Run] | None = None
) -> summary.Summary:
    """``known``: entries computed before, by run. One run's files are in memory at a time."""
    variants = scenario.variants

    def entry_of(run: Run) -> summary.Run:
        with believing(run.directory):
            return run_summary(run, expected_outcome(variants, run.record.settings))

    entries = [(known or {}).get(run.key) or entry_of(Run(run.directory)) for run in runs]
    order = [t.name for t in scenario.transports]
    places = list(dict.fromkeys(place for v in variants for place in v.scenario.workload.placement))
    settings = [v.settings for v in variants]
    entries.sort(
        key=lambda e: (
            settings.index(e.settings),
            places.index(e.placement),
            e.seed,
            order.index(e.transport),
        )
    )
    checks: list[summary.Check] = []
    for variant in variants:
        checks += checks_of(variant, [e for e in entries if e.settings == variant.settings])
    for entry in entries:
        if entry.faults_missed and entry.outcome == expected_outcome(variants, entry.settings):
            name, missed = f"{entry.run}: every fault happened", "; ".join(entry.faults_missed)
            checks.append(summary.Check(name=name, expected="all", seen=f"not: {missed}", ok=False))
    verdicts = [entry.verdict for entry in entries]
    verdict: summary.Verdict
    if INTERRUPTED in verdicts:
        verdict = "interrupted"
    elif (
        "failed" in verdicts
        or any(check.ok is False and not check.unusual for check in checks)
        or not entries
    ):
        verdict = "failed"
    else:
        verdict = "not trustworthy" if NOT_TRUSTWORTHY in verdicts else "ok"
    fabrics = {
        name: msgspec.convert(in_ns(fabric_figures(fabric)), summary.FabricFigures)
        for name, fabric in scenario.fabrics.items()
    }
    return summary.Summary(
        format=FORMAT,
        scenario=scenario.name,
        verdict=verdict,
        checks=checks,
        fabrics=fabrics,
        runs=entries,
    )


def expected_outcome(variants: Sequence[Variant], settings: Mapping[str, Setting]) -> str:
    return next(v.scenario.expect_outcome for v in variants if v.settings == settings)


def checks_of(variant: Variant, entries: Sequence[summary.Run]) -> list[summary.Check]:
    checks = []
    places = list(dict.fromkeys(e.placement for e in entries))
    seeds = {
        place: list(dict.fromkeys(e.seed for e in entries if e.placement == place))
        for place in places
    }
    several = sum(map(len, seeds.values())) > 1 or bool(variant.settings)
    settings_text = f", {spelled(variant.settings)}" if variant.settings else ""
    trees = {e.run: msgspec.to_builtins(e) for e in entries} if variant.scenario.expects else {}
    for expect in variant.scenario.expects:
        for placement in (place for place in places if expect.placement in (None, place)):
            for seed_group in (
                [seeds[placement]] if expect.median else [[seed] for seed in seeds[placement]]
            ):
                selected = [e for e in entries if e.placement == placement and e.seed in seed_group]
                names = dict.fromkeys(e.transport for e in selected)
                groups = {
                    name.replace("-", "_"): [trees[e.run] for e in selected if e.transport == name]
                    for name in names
                }
                scope = (
                    f"median of seeds {', '.join(map(str, seed_group))}"
                    if expect.median
                    else f"seed {seed_group[0]}"
                )
                suffix = f" [{placement}, {scope}{settings_text}]" if several else ""
                worlds = {e.world for e in selected}
                unmeasured = {
                    path: why for world in worlds for path, why in UNMEASURED[world].items()
                }
                elsewhere = expect.only_in is not None and worlds != {expect.only_in}
                verdicts = [
                    evaluate(
                        expect.check,
                        {name: medians(group, worst) for name, group in groups.items()},
                        expect.name + suffix,
                        unmeasured,
                        expect.because if elsewhere else "",
                    )
                    # A seed without the figure is worse than any other, whichever way that is; one
                    # seed has nothing to be compared with.
                    for worst in ((math.inf, -math.inf) if expect.median else (math.inf,))
                ]
                check = next((verdict for verdict in verdicts if verdict.ok is False), verdicts[0])
                check.unusual = True if expect.unusual else None
                checks.append(check)
    return checks


def exit_status(made: summary.Summary) -> int:
    """Return 0: ok, 1: a run or a check failed, 3: not trustworthy, 130: interrupted by the
    user."""
    return {"ok": 0, "failed": 1, NOT_TRUSTWORTHY: 3, INTERRUPTED: 130}[made.verdict]
