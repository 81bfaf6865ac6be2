"""Makes ``summary.json``: the figures of a scenario's runs and the checks on them. The keys are a contract: later versions add, never
rename.

Called by the runner on what scenarios.figures.measure read. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agents.kernel.options import KINDS as KERNEL_KINDS
from scenarios.figures import cost, fidelity, invariants, iperf_flows, pauses
from scenarios.figures import failures as failure_figures
from scenarios.figures import flows as flow_figures
from scenarios.figures import jobs as job_figures
from scenarios.figures import mapper as mapper_figures
from scenarios.figures.books import books, cable_gaps
from scenarios.figures.measure import Run, agent_counters
from scenarios.figures.network_time import FORMAT, rounded
from scenarios.figures.outages import NO_LOSS, kind_of
from scenarios.figures.stats import medians, spread
from scenarios.schema.checks import evaluate
from scenarios.schema.fabrics import figures as fabric_figures
from scenarios.schema.scenario import Scenario, Variant
from scenarios.schema.sweep import spelled
from testbed.results.reading import believing
from testbed.results.summary import Check, FabricFigures, Summary, Verdict
from testbed.results.summary import Run as Entry
from testbed.results.values import Setting
from testbed.view.clock import in_ns
from testbed.world import EMULATED, SIMULATED
from topologies.theory import COLLECTIVES, bus_bandwidth, bus_factor, collective_step_ns
from topologies.units import NS

_NO_CPU = "no CPU is measured in the simulated world"
_NO_PROCESS = "no process of the simulated world can be late"
_NO_KERNEL = "the simulated world does not compare its ports with a kernel's"
UNMEASURED: dict[str, dict[str, str]] = {
    EMULATED: {"expectations.queue_wait": "on the kernel a packet on the wire counts as waiting, which the model does not have"},
    SIMULATED: {
        "cpu_percent": _NO_CPU, "fidelity.cpu": _NO_CPU, "fidelity.waiting": _NO_CPU,
        **{f"fidelity.lag_{name}_ns": _NO_PROCESS for name in ("mean", "window", "p99", "max")}, "fidelity.clock": _NO_PROCESS,
        "fidelity.quota": _NO_PROCESS,
        "fidelity.wall_suspended_ns": _NO_PROCESS, "fidelity.shaper_late": _NO_KERNEL,
        "fidelity.ports": _NO_KERNEL, "fidelity.queues": _NO_KERNEL, "fidelity.socket_drops": _NO_KERNEL,
    },
}  # fmt: skip
"""World -> figures that a run in it cannot have, as dotted paths in summary.json, each with the reason. A check on such a figure does not
apply."""
NOT_TRUSTWORTHY, INTERRUPTED = "not trustworthy", "interrupted"


def collective_figures(run: Run) -> dict[str, Any]:
    """Compute steps and bandwidths, as nccl-tests defines them; all None or 0 for a run of flows, which has no steps."""
    record, fabric, kind = run.record, run.fabric, run.record["workload"]
    hosts, size, times = record["ranks"], int(record["message_bytes"]), run.step_times
    figures: dict[str, Any] = {
        "steps": len(times),
        "failed_steps": int(record["steps"]) - len(times),
        "step_time_ns": spread(times),
        "transfer_time_ns": spread(run.transfers["end_ns"] - run.transfers["start_ns"]),
        "typical_step_ns": float(times.median()) if len(times) else None,
    }
    keys = ("algbw_bps", "busbw_bps", "ideal_busbw_bps", "degraded_busbw_bps", "ideal_step_ns", "degraded_step_ns")
    if kind not in COLLECTIVES:
        return figures | dict.fromkeys(keys)
    ideal = bus_bandwidth(fabric, kind, hosts)
    degraded = bus_bandwidth(fabric, kind, hosts, record["fault_links"]) if record["fault_links"] else ideal
    # Of all ranks, as nccl-tests has it: ranks pass from step to step one by one, and a stall holds some in one step, some in the next.
    algbw = size * 8 / ((run.whole_steps["end_ns"] - run.whole_steps["start_ns"]).mean() / 1e9) if len(times) else None
    return figures | {
        "algbw_bps": algbw,
        "busbw_bps": None if algbw is None else algbw * bus_factor(kind, len(hosts)),
        "ideal_busbw_bps": ideal,
        "degraded_busbw_bps": degraded,
        "ideal_step_ns": collective_step_ns(kind, len(hosts), size, ideal),
        "degraded_step_ns": collective_step_ns(kind, len(hosts), size, degraded) if degraded else None,
    }


def run_summary(run: Run, expected: str = "done") -> Entry:
    """Make one entry of ``runs``: the figures of a run. ``expected``: the outcome that the scenario wants; if it is not "done", books and
    steps are not judged."""
    record, fabric = run.record, run.fabric
    packets, steps = books(record), collective_figures(run)
    measured = run.steps[~run.steps["warmup"].astype(bool)]
    wrong_counts = [int(n) for n in record.get("wrong", {}).values()], [int(note.get("wrong", 0)) for note in record.get("flow_notes", ())]
    jobs = job_figures.figures(run)
    unlike = [len(job.get("digests", ())) - 1 for job in jobs.values()]  # ranks that trained and ended with other parameters
    wrong = max(int((~run.steps["ok"].astype(bool)).sum()), *map(sum, wrong_counts), *unlike)
    assessment = judgement(run, packets, wrong, expected)
    broken = invariants.broken(run) if record["outcome"] == "done" else []
    reasons = assessment.reasons
    if record["outcome"] == "interrupted":
        verdict, reasons = INTERRUPTED, [record["reason"]]
    elif expected != "done":
        verdict = "ok" if record["outcome"] == expected and not wrong else "failed"
    elif record["outcome"] != "done" or wrong or steps["failed_steps"] or broken:
        verdict = "failed"
    else:
        verdict = NOT_TRUSTWORTHY if reasons else "ok"
    if run.named_flows:
        measured_ns = run.window[1] - run.window[0]
    else:
        measured_ns = float(measured["end_ns"].max() - measured["start_ns"].min()) if len(measured) else 0.0
    world = record.get("world", EMULATED)
    entry: dict[str, Any] = {
        "world": world,
        "transport": record["transport"],
        "kind": record["kind"],
        "fabric": fabric.name,
        "workload": record["workload"],
        "placement": record["placement"],
        "seed": record["seed"],
        "settings": record.get("settings", {}),
        "ranks": len(record["ranks"]),
        "message_bytes": int(record["message_bytes"]),
        "wrong": wrong,
        **steps,
        "base_rtt_ns": fabric.base_rtt_ps / NS,
        **({"haul_rtt_ns": fabric.haul_rtt_ps / NS} if fabric.sites > 1 else {}),
        "reconvergence_ns": record["reconvergence_ns"],
        "controller": record.get("controller", "none"),
        **({"delayed": any(c.get("delayed") for c in agent_counters(run).values())} if record["kind"] in KERNEL_KINDS else {}),
        "packets": packets,
        "rotation": invariants.rotation(run),
        "hops": invariants.hops(run),
        "expectations": invariants.expectations(run),
        "broken": broken,
        "timeouts": {"rto": len(run.of("rto"))},
        "untrimmed_loss": sum(line.get("rule") not in NO_LOSS for line in run.of("loss")),
        **(flow_figures.figures(run) if run.named_flows else {}),
        **({"machine": record["machine"]} if "machine" in record else {}),
        **({"jobs": jobs} if run.jobs else {}),
        **pauses.figures(run),
        **iperf_flows.figures(record, fabric, run.directory),
        **failure_figures.figures(run),
        "failure_cost": cost.figures(run),
        "mapper": mapper_figures.figures(run),
        "faults_missed": record["faults_missed"],
        "cpu_percent": fidelity.cpu_percent(record.get("cpu", []), *run.window),
        "measured_ns": measured_ns,
        "outcome": record["outcome"],
        "reason": record["reason"],
        "distrust": reasons,
        "fidelity": fidelity.figures(assessment, run.of("loop"), packets["causes"], record.get("watch")),
        "notes": record.get("notes", []),
        "run": run.key,
        "verdict": verdict,
    }
    return msgspec.convert(rounded(entry), Entry)


def judgement(run: Run, packets: Mapping[str, Any], wrong: int, expected: str) -> fidelity.Judgement:
    """Judge the fidelity of a run. If the scenario wants it to end badly, only wrong results count."""
    if expected != "done":
        return fidelity.Judgement((f"{wrong} results are wrong",) if wrong else ())
    record = run.record
    faults = run.of("fault")
    evidence = fidelity.Evidence(
        window=run.window,
        loops=run.of("loop"),
        causes=packets["causes"],
        unexplained=packets["unexplained"],
        base_rtt_ns=run.base_rtt_ns,
        rejected=packets["rejected"],
        cables=cable_gaps(record),
        corrupted=packets["corrupted"],
        gone=packets["lost"] + packets["trimmed"],
        stragglers=[run.fabric.host_number(line["on"]) for line in faults if kind_of(line["fault"]).stalls],
        wrong=wrong,
        watch=record.get("watch"),
        touched={link for line in faults for link in line.get("links", ())},
        on_the_way=packets["on_the_way"],
        late_pause_ns=pauses.late_ns(run),
        acts_late_ns=record.get("acts_late_ns", 0),
    )
    result = fidelity.judge(evidence)
    if lost := packets.get("background", {}).get("unexplained"):
        reason = f"{abs(lost)} packets of background traffic {'unaccounted for' if lost > 0 else 'arrived that nobody sent'}"
        result = fidelity.Judgement((*result.invalid, reason), result.doubtful, result.too_slow)
    return result


def summarise(scenario: Scenario, runs: list[Run], known: Mapping[str, Entry] | None = None) -> Summary:
    """Make the content of summary.json, whose keys are a contract. ``known``: entries that were computed before, by run. One run's files
    are in memory at a time."""
    variants = scenario.variants

    def entry_of(run: Run) -> Entry:
        with believing(run.directory):
            return run_summary(run, expected_outcome(variants, run.record.get("settings", {})))

    entries = [(known or {}).get(run.key) or entry_of(Run(run.directory)) for run in runs]
    order = [t.name for t in scenario.transports]
    places = list(dict.fromkeys(place for v in variants for place in v.scenario.workload.placement))
    settings = [v.settings for v in variants]
    entries.sort(key=lambda e: (settings.index(e.settings), places.index(e.placement), e.seed, order.index(e.transport)))
    checks: list[Check] = []
    for variant in variants:
        checks += checks_of(variant, [e for e in entries if e.settings == variant.settings])
    for entry in entries:
        if entry.faults_missed and entry.outcome == expected_outcome(variants, entry.settings):
            missed = "; ".join(entry.faults_missed)
            checks.append(Check(name=f"{entry.run}: every fault happened", expected="all", seen=f"not: {missed}", ok=False))
    verdicts = [entry.verdict for entry in entries]
    verdict: Verdict
    if INTERRUPTED in verdicts:
        verdict = INTERRUPTED
    elif "failed" in verdicts or any(check.ok is False and not check.unusual for check in checks) or not entries:
        verdict = "failed"
    else:
        verdict = NOT_TRUSTWORTHY if NOT_TRUSTWORTHY in verdicts else "ok"
    fabrics = msgspec.convert({name: in_ns(fabric_figures(fabric)) for name, fabric in scenario.fabrics.items()}, dict[str, FabricFigures])
    return Summary(format=FORMAT, scenario=scenario.name, verdict=verdict, checks=checks, fabrics=fabrics, runs=entries)


def expected_outcome(variants: Sequence[Variant], settings: Mapping[str, Setting]) -> str:
    return next(v.scenario.expect_outcome for v in variants if v.settings == settings)


def checks_of(variant: Variant, entries: Sequence[Entry]) -> list[Check]:
    """Return ``checks`` on the runs of one setting: per placement and seed, or per placement on the medians over the seeds."""
    checks = []
    places = list(dict.fromkeys(e.placement for e in entries))
    seeds = {place: list(dict.fromkeys(e.seed for e in entries if e.placement == place)) for place in places}
    several = sum(map(len, seeds.values())) > 1 or bool(variant.settings)
    settings_text = f", {spelled(variant.settings)}" if variant.settings else ""
    for expect in variant.scenario.expects:
        for placement in (place for place in places if expect.placement in (None, place)):
            for seed_group in [seeds[placement]] if expect.median else [[seed] for seed in seeds[placement]]:
                selected = [e for e in entries if e.placement == placement and e.seed in seed_group]
                names = dict.fromkeys(e.transport for e in selected)
                groups = {name.replace("-", "_"): [msgspec.to_builtins(e) for e in selected if e.transport == name] for name in names}
                scope = f"median of seeds {', '.join(map(str, seed_group))}" if expect.median else f"seed {seed_group[0]}"
                suffix = f" [{placement}, {scope}{settings_text}]" if several else ""
                worlds = {e.world for e in selected}
                unmeasured = {path: why for world in worlds for path, why in UNMEASURED[world].items()}
                elsewhere = expect.only_in is not None and worlds != {expect.only_in}
                verdicts = [
                    evaluate(
                        expect.check,
                        {name: medians(group, worst) for name, group in groups.items()},
                        expect.name + suffix,
                        unmeasured,
                        expect.because if elsewhere else "",
                    )
                    # A seed without the figure is worse than any other, whichever way that is; one seed has nothing to be compared with.
                    for worst in ((math.inf, -math.inf) if expect.median else (math.inf,))
                ]
                check = next((verdict for verdict in verdicts if verdict["ok"] is False), verdicts[0])
                checks.append(msgspec.convert(check | ({"unusual": True} if expect.unusual else {}), Check))
    return checks


def exit_status(summary: Summary) -> int:
    """Return the exit status: 0: ok, 1: a run or a check failed, 3: not trustworthy, 130: interrupted by the user (2 is for bad input)."""
    return {"ok": 0, "failed": 1, NOT_TRUSTWORTHY: 3, INTERRUPTED: 130}[summary.verdict]
