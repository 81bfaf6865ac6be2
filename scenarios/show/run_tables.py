"""The report in the terminal at the end of a run: what failures cost, fabrics, results, checks, and where data and plots are.

Called by the command line; reads summaries only.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from agents.kernel import NOTE as KERNEL_NOTE
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.roce import NOTE
from scenarios.figures import pauses
from scenarios.figures.fidelity import DOUBTFUL, INVALID, verdict_of
from scenarios.figures.summary import NOT_TRUSTWORTHY
from scenarios.schema.sweep import short_keys
from scenarios.show import jobs_table, medians_table
from scenarios.show.background_table import COLUMNS as BACKGROUND_COLUMNS
from scenarios.show.background_table import NOTE as BACKGROUND_NOTE
from scenarios.show.background_table import background_rows
from scenarios.show.check_values import bound_and_seen, format_value
from scenarios.show.cost_table import columns as cost_columns
from scenarios.show.cost_table import cost_groups, footnotes
from scenarios.show.html import NAME as REPORT
from scenarios.show.tables import Column, delivered_after, world_words
from scenarios.show.tables import table as _table
from testbed.terminal import Table, duration, kb, number, percent, us
from testbed.view.inline import NAME as REPLAY
from testbed.world import SIMULATED

Run = dict[str, Any]
WORDS = {
    "ring-allreduce": "all-reduce", "tree-allreduce": "tree all-reduce", "reduce-scatter": "reduce-scatter", "all-gather": "all-gather",
    "all-to-all": "all-to-all", "hierarchical-allreduce": "two-level", "send-recv": "send/recv",
    "incast": "incast", "permutation": "permutation", "flows": "flows",
    "job": "training step",
}  # fmt: skip
_OF_RUNS = re.compile(r" \[[^\[\]]*\bseeds? \d[^\[\]]*\]$")
"""The suffix that scenarios.figures.summary adds to the name of a check to say which runs it is on."""
HEAD = 9
"""The heads of the table of costs are broken into lines above so many characters."""
_STYLE = {"ok": "green", "failed": "bold red", "not trustworthy": "yellow", "interrupted": "yellow"}


_UNUSUAL = ("unusual", "yellow")
_MARKS: dict[bool | None, tuple[str, str]] = {True: ("ok    ", "green"), False: ("FAILED", "bold red"), None: ("-     ", "dim")}
"""The marks of a check that holds, of one that does not, and of one that does not apply."""


def fabrics_table(summary: dict[str, Any]) -> Table:
    """Show base RTT, BDP and all thresholds, one row per fabric. Heads of three lines, to fit 80 characters."""
    columns: list[Column] = [
        ("fabric", lambda f: str(f[0])),
        ("base\nRTT\nµs", lambda f: f"{f[1]['base_rtt_ns'] / 1e3:.2f}"),
        ("one-way\ndelay\nµs", lambda f: f"{f[1]['delay_ns'] / 1e3:.2f}"),
        ("plane\nBDP kB", lambda f: _kb(f[1]["plane_bdp_bytes"])),
        ("ECN\nfrom–to\nkB", lambda f: "off" if f[1]["ecn_bytes"] is None else "–".join(map(_kb, f[1]["ecn_bytes"]))),
        ("last-\nhop\nECN", lambda f: "on" if f[1]["last_hop_ecn"] else "off"),
        ("trimming\nabove (last\nhop) kB", _trimming),
        ("buffer\nkB", lambda f: _kb(f[1]["buffer_bytes"])),
    ]
    if any(f.get("pfc_bytes") for f in summary["fabrics"].values()):
        columns.append(("PFC XOFF–XON\nkB", lambda f: "–".join(map(_kb, f[1]["pfc_bytes"])) if f[1].get("pfc_bytes") else "off"))
    caption = "The agents add the delay: ping and iperf3 do not have it."
    return _table("Fabrics", columns, list(summary["fabrics"].items()), caption)


def _kb(count: int) -> str:
    return f"{count / 1e3:,.1f}".removesuffix(".0")


def _trimming(fabric: tuple[str, dict[str, Any]]) -> str:
    at, last = fabric[1]["trim_bytes"], fabric[1]["trim_last_hop_bytes"]
    return "off" if at is None else f"{_kb(at)} ({_kb(last)})"


def _identity(runs: Sequence[Run]) -> list[Column]:
    several, world = len({r["placement"] for r in runs}) > 1, world_words(runs)

    def label(run: Run) -> Text:
        settings = run.get("settings", {})
        values = [f"{short} = {settings[key]}" for key, short in short_keys(list(settings)).items()]
        details = [f"on {run['fabric']}", *world(run), *([run["placement"]] if several else []), *values]
        return Text.assemble(str(run["transport"]), *((f"\n{word}", "dim") for word in details))

    columns: list[Column] = [("transport", label)]
    if len({r["seed"] for r in runs}) > 1:
        columns.append(("seed", lambda r: str(r["seed"])))
    return columns


def _title(summary: dict[str, Any], runs: Sequence[Run]) -> str:
    return f"{summary['scenario']}: {_word(runs)} under each transport"


def _word(runs: Sequence[Run]) -> str:
    """Name the collective of these runs; a sweep may have several kinds."""
    first, *others = {str(run["workload"]) for run in runs}
    if others:
        return "flows" if "groups" in runs[0] else "collective"
    return WORDS.get(first, first)


def _health(wrong: str) -> list[Column]:
    return [
        ("packets\nlost", lambda r: str(r["packets"]["lost"])),
        ("retrans-\nmitted", lambda r: str(r["packets"]["retransmitted"])),
        (wrong, lambda r: number(r["wrong"], "d")),
        ("CPU", lambda r: "–" if r["cpu_percent"] is None else f"{r['cpu_percent']:.0f} %"),
        ("verdict", lambda r: Text(r["verdict"], _STYLE.get(r["verdict"], "white"))),
    ]


# --- collectives ---------------------------------------------------------------------------------------------------


def runs_table(summary: dict[str, Any], runs: Sequence[Run]) -> Table:
    """Show one row per run of a collective. Columns without information are left out, to fit 80 characters."""
    columns = _identity(runs)
    columns.append(("steps", _steps))
    columns.append(("median\nµs", lambda r: us(r["typical_step_ns"])))
    if any(r["step_time_ns"]["p99"] is not None for r in runs):
        columns.append(("p99\nµs", lambda r: us(r["step_time_ns"]["p99"])))
    columns.append(("slowest\nµs", lambda r: us(r["step_time_ns"]["max"])))
    if any(r["busbw_bps"] is not None for r in runs):
        columns.append(("bus GB/s\n(of ideal)", _bandwidth))
    wrong = "wrong\nsums" if "reduce" in runs[0]["workload"] else "wrong\nresults"
    return _table(_title(summary, runs), columns + _health(wrong), runs)


def _steps(run: Run) -> str:
    note = "" if run["outcome"] == "done" else "\nended early"
    return f"{run['steps']}/{run['steps'] + run['failed_steps']}{note}"


def _bandwidth(run: Run) -> str:
    if run["busbw_bps"] is None or not run["ideal_busbw_bps"]:
        return "–"
    return f"{run['busbw_bps'] / 8e9:.1f}\n({run['busbw_bps'] / run['ideal_busbw_bps']:.0%})"


# --- flows ---------------------------------------------------------------------------------------------------------


def groups_table(summary: dict[str, Any], runs: Sequence[Run]) -> Table:
    """Show one row per run and group of flows, with its goodput."""
    rows = [{**r, "group": name, **group} for r in runs for name, group in r["groups"].items()]
    world = world_words(runs)
    columns: list[Column] = [("transport", lambda g: "\n".join([str(g["transport"]), *world(g)]))]
    columns += _identity(runs)[1:]
    columns += [
        ("flows", lambda g: f"{g['flows']} × {g['group']}" if g["flows"] > 1 else str(g["group"])),
        ("Gb/s", lambda g: "–" if g["goodput_bps"] is None else f"{g['goodput_bps'] / 1e9:.1f}"),
        ("of line", lambda g: percent(g["of_line"])),
        ("least", lambda g: percent(g["min_share"])),
        ("most", lambda g: percent(g["max_share"])),
        ("Jain", lambda g: "–" if g["jain"] is None or g["flows"] < 2 else f"{g['jain']:.3f}"),
    ]
    if any(g["kept"] is not None for g in rows):
        columns.append(("kept vs\nalone", lambda g: percent(g["kept"])))
    return _table(_title(summary, runs), columns, rows)


def packets_table(runs: Sequence[Run]) -> Table:
    """Show one row per run of flows: packet counts of the network, and the verdict."""
    columns = _identity(runs)
    columns += [
        ("trims", lambda r: str(r["packets"]["trimmed"])),
        ("marks", lambda r: str(r["packets"]["marked"])),
        ("RTOs", lambda r: str(r["timeouts"]["rto"])),
        ("untrimmed\nlosses", lambda r: str(r["untrimmed_loss"])),
    ]
    return _table("Packets", columns + _health("wrong\nbytes"), runs)


def flows_table(runs: Sequence[Run]) -> Table:
    """Show the goodput of each flow, a column per transport: Gb/s and share of the line."""

    def cell(run: Run) -> Callable[[str], str]:
        def show(name: str) -> str:
            flow = run["flows"].get(name, {})
            return "–" if flow.get("share") is None else f"{flow['goodput_bps'] / 1e9:.1f} {flow['share']:>4.0%}"

        return show

    columns: list[Column] = [("flow", str)]
    world = world_words(runs)
    columns += [("\n".join([run["transport"], *world(run), "Gb/s, of line"]), cell(run)) for run in runs]
    return _table("Goodput per flow", columns, list(dict.fromkeys(name for run in runs for name in run["flows"])))


def queues_table(runs: Sequence[Run]) -> Table:
    """Show the watched last hops, one row per run and group: the worst queue of its ports, and counts over all of them."""
    rows = [{**r, "group": name, **group} for r in runs for name, group in r["groups"].items() if "buffer_bytes" in group]
    columns = _identity(runs)
    columns += [
        ("last hop of", lambda g: str(g["group"])),
        ("queue mean\nkB", lambda g: kb(g["queue_mean_bytes"])),
        ("p99\nkB", lambda g: kb(g["queue_p99_bytes"])),
        ("peak\nkB", lambda g: kb(g["queue_peak_bytes"])),
        ("buffer\nkB", lambda g: kb(g["buffer_bytes"])),
        ("trims", lambda g: str(g["trims"])),
        ("marks", lambda g: str(g["marks"])),
        ("drops", lambda g: str(g["drops"])),
    ]
    return _table("Queues on the last hop (worst plane; counts over all planes)", columns, rows)


def pauses_table(runs: Sequence[Run]) -> Table:
    """Show one row per run whose switches pause senders: how many ports of each tier, how often, and for how much of the time."""

    def tier(key: str) -> Column:
        def cell(run: Run) -> str:
            of = run["pfc"]["tiers"][key]
            if not of["paused"]:
                return f"0 of {of['ports']}"
            share = of["paused_ns"] / of["paused"] / run["measured_ns"] if run["measured_ns"] else 0.0
            return f"{of['paused']} of {of['ports']}, {min(share, 1.0):.0%}"

        return f"{pauses.TIERS[key]}\n(of the time)", cell

    columns = [*_identity(runs), *map(tier, pauses.TIERS)]
    columns += [
        ("pauses", lambda r: f"{r['pfc']['pauses']:,}"),
        ("longest\nµs", lambda r: f"{r['pfc']['longest_pause_ns'] / 1e3:.1f}"),
        ("drops", lambda r: f"{r['packets']['causes'].get('drop_tail', 0):,}"),
    ]
    if any("reaction_ns" in run["pfc"] for run in runs):
        columns.append(("reaction: mean,\nlongest (due) µs", _reaction))
    caption = "Ports that the switch behind them paused, and for how much of the run a paused one stood still, on average."
    return _table("Pauses (PFC), from the senders on", columns, runs, caption)


def _reaction(run: Run) -> str:
    """Write how long it took to stop a port's queue, on average and at most, and by when it must have been."""
    of = run["pfc"].get("reaction_ns")
    return f"{of['mean'] / 1e3:.2f}, {of['longest'] / 1e3:.2f} ({of['effect'] / 1e3:.2f})" if of else "–"


def _separation_lines(run: Run) -> list[str]:
    """Write a line per separation: how a flow left the EVs that another flow uses."""
    lines = []
    for s in run["separations"]:
        departure = "never left them" if s["separated_rtts"] is None else f"left them within {s['separated_rtts']:.0f} base RTTs"
        before, after = ("–" if s[key] is None else f"{s[key]:.0%}" for key in ("before", "after"))
        lines.append(
            f"{run['run']}: {s['flow']} shares {len(s['shared_evs'])} of its {s['evs']} EVs with {s['from']} and {departure}: "
            f"it sent {before} of a fair share of its packets on them before {s['from']} began, {after} after"
        )
    return lines


def faults_table(runs: Sequence[Run]) -> Table:
    """Show one row per run and fault: how soon senders left the dead paths, what was lost on them, and the goodput that flows kept."""
    rows = [{**r, "engine": r["kind"], **fault} for r in runs for fault in r["failovers"]]
    columns = _identity(runs)
    columns += [
        ("fault", lambda f: str(f["fault"])),
        ("dead paths left\nafter [RTTs]", lambda f: number(f["last_on_dead_over_rotation"], ".1f")),
        ("most packets lost\non one EV (bound)", lambda f: f"{number(f['losses_per_ev'], 'd')} ({number(f['losses_per_ev_bound'], 'd')})"),
        ("packets\nlost there", lambda f: str(f["lost"]) if f["engine"] == "mrc" else "–"),  # others log none by path
    ]
    if any(f.get("delivered_ns") is not None for f in rows):
        columns.append(("all of them\narrived after", delivered_after))
    if any(f["kept_during"] is not None for f in rows):
        columns.append(("goodput kept\nduring", lambda f: percent(f["kept_during"])))
        columns.append(("after", lambda f: percent(f["kept_after"])))
    return _table("Faults", columns, rows, "RTTs: less one rotation, in which a sender uses each of its paths once.")


def _costs(console: Console, runs: Sequence[Run]) -> None:
    """Print what the failure cost, a table per placement and variant in which something broke."""
    costs: list[list[Run]] = []
    for labels, rows in cost_groups(runs):
        world = world_words(rows)
        heads: list[Column] = [("transport", partial(_transport, world))]
        heads += [("\n".join(textwrap.wrap(head, HEAD)), cell) for head, cell in cost_columns(rows)[1:]]
        console.print(_table(", ".join(["What the failure cost", *labels]), heads, rows))
        costs.append(rows)
    for line in footnotes([row for rows in costs for row in rows]) if costs else ():
        console.print(line, style="dim")


def _transport(world: Callable[[Run], list[str]], row: Run) -> Text:
    return Text.assemble(row["transport"], *((f"\n{word}", "dim") for word in [f"on {row['fabric']}", *world(row)]))


# --- all of it -----------------------------------------------------------------------------------------------------


def show(console: Console, summary: dict[str, Any], directory: Path) -> None:
    runs = summary["runs"]
    _costs(console, runs)
    console.print(fabrics_table(summary))
    collective_runs, flow_runs = [r for r in runs if "groups" not in r], [r for r in runs if "groups" in r]
    if collective_runs:
        medians = medians_table.applies_to(collective_runs)
        console.print(
            medians_table.table_of(_title(summary, collective_runs), collective_runs) if medians else runs_table(summary, collective_runs)
        )
        step_name = _word(collective_runs)
        if len(names := list(collective_runs[0].get("jobs", {}))) > 1:
            step_name += f" of job {names[0]}"
        console.print(
            f"A step is one {step_name}; its time is the slowest rank's. Ideal: the payload rate of healthy links. "
            "Times are the network's.",
            style="dim",
        )
        if timed := [r for r in collective_runs if r.get("transfer_time_ns", {}).get("n")]:
            console.print(medians_table.transfers_table(timed))
    if flow_runs:
        if medians_table.applies_to(flow_runs):
            console.print(medians_table.table_of(_title(summary, flow_runs), flow_runs))
        else:
            console.print(groups_table(summary, flow_runs))
            console.print(packets_table(flow_runs))
        if len({(r["placement"], r["seed"]) for r in flow_runs}) == 1:
            console.print(flows_table(flow_runs))
        if any("buffer_bytes" in group for r in flow_runs for group in r["groups"].values()):
            console.print(queues_table(flow_runs))
        console.print(
            "Gb/s: payload received while all flows send, from 20 base RTTs (or the workload's settle) after the last one began; of flows "
            "that send a number of messages, from the first message to the last. Of line: as a share of what a host's links carry in "
            "payload; least, most: of the group's flows. Times are the network's.",
            style="dim",
        )
        for line in (line for r in flow_runs for line in _separation_lines(r)):
            console.print(line)
    if paused := [r for r in runs if "pfc" in r]:
        console.print(pauses_table(paused))
    _baseline_notes(console, runs, summary["fabrics"])
    if any(run["failovers"] for run in runs):
        console.print(faults_table(runs))
    jobs, heads = jobs_table.rows_and_columns(runs)
    if jobs:
        console.print(_table("Jobs", heads, jobs, jobs_table.NOTE))
    if background := background_rows(runs):
        console.print(_table("Background traffic", BACKGROUND_COLUMNS, background))
        console.print(BACKGROUND_NOTE, style="dim")
    for run in runs:
        for line in ([run["reason"]] if run["outcome"] != "done" and run["reason"] else []) + doubts(run) + run["notes"]:
            console.print(f"{run['run']}: {line}", style="yellow")
        for line in run.get("broken", ()):
            console.print(f"{run['run']}: a book does not balance: {line}", style="bold red")
    if books := books_line(runs):
        console.print(books, style="dim")
    for verdict in check_lines(summary["checks"]):
        console.print(verdict)
    suffix = _extent(runs)
    verdicts = [verdict_of(run) for run in runs]
    worst_count = next((f": {verdicts.count(word)} of {len(runs)} {word}" for word in (INVALID, DOUBTFUL) if word in verdicts), "")
    reason = worst_count if summary["verdict"] == NOT_TRUSTWORTHY else ""
    console.print(Text.assemble("Verdict: ", (summary["verdict"], _STYLE.get(summary["verdict"], "")), f"{reason}{suffix}"))
    plots = len(list((directory / "plots").glob("*.png")))
    console.print(f"Data: {directory}/" + (f"  Plots: {directory / 'plots'}/ ({plots})" if plots else ""), soft_wrap=True)
    if (directory / REPORT).is_file():
        console.print(f"Report: {directory / REPORT}", soft_wrap=True)
    if (directory / REPLAY).is_file():
        console.print(f"Path by path: {directory / REPLAY}", soft_wrap=True)


def books_line(runs: Sequence[Run]) -> str:
    """Say how many runs keep the books that :mod:`scenarios.figures.invariants` knows; "" for results without them."""
    judged = [run for run in runs if "broken" in run and run["outcome"] == "done"]
    kept = sum(not run["broken"] and run["packets"]["unexplained"] == 0 for run in judged)
    return f"Books of packets, of planes' turns and of queues: kept in {kept} of {len(judged)} runs." if judged else ""


def _extent(runs: Sequence[Run]) -> str:
    """Say how many runs are simulated; "" if none."""
    n = sum(run.get("world") == SIMULATED for run in runs)
    extent = SIMULATED if n == len(runs) else f"{n} of {len(runs)} runs {SIMULATED}"
    return f" ({extent}, in virtual time: no machine was measured{'' if n == len(runs) else ' in these'})" if n else ""


def check_lines(checks: Sequence[dict[str, Any]]) -> list[Text]:
    """Write first a line per failed check and run; then a line per check, with the number of runs for which it holds or does not apply."""
    lines: list[Text] = []
    for check in checks:
        if check["ok"] is False:
            bound, seen = bound_and_seen(check)
            mark = _UNUSUAL if check.get("unusual") else _MARKS[False]
            lines.append(Text.assemble(mark, f" {check['name']}: expected {bound}, seen {seen}"))
    by_name: dict[str, list[dict[str, Any]]] = {}
    for check in checks:
        by_name.setdefault(_OF_RUNS.sub("", check["name"]), []).append(check)
    for name, group in by_name.items():
        passed = [check for check in group if check["ok"]]
        if passed:
            mark = _mark(True, len(passed), len(group))
            bounds = dict.fromkeys(bound_and_seen(check)[0] for check in passed)
            bound = next(iter(bounds)) if len(bounds) == 1 else str(passed[0]["expected"]).partition(" (")[0]
            lines.append(Text.assemble(mark, f" {name}: expected {bound}, seen {_range(passed)}"))
        for reason, n in Counter(format_value(check["seen"]) for check in group if check["ok"] is None).items():
            lines.append(Text.assemble(_mark(None, n, len(group)), f" {name}: {reason}"))
    return lines


def _mark(ok: bool | None, n: int, of: int) -> tuple[str, str]:
    """Return the mark of a check, with the number of its runs if it is on several."""
    word, style = _MARKS[ok]
    return (f"{word.strip():2} {n}/{of}" if of > 1 else word), style


def _range(checks: Sequence[dict[str, Any]]) -> str:
    """Write the seen values, from the least to the largest."""
    numbers = all(isinstance(check["seen"], (int, float)) for check in checks)
    ordered = sorted(checks, key=lambda check: float(check["seen"])) if numbers else checks
    values = list(dict.fromkeys(bound_and_seen(check)[1] for check in ordered))
    return f"{values[0]} to {values[-1]}" if numbers and len(values) > 1 else ", ".join(values)


def doubts(run: Run) -> list[str]:
    """List the reasons why a run is not trustworthy, each with its class (invalid or doubtful); older results have only the reasons."""
    fidelity = run.get("fidelity", {})
    classes = {reason: word for word in (INVALID, DOUBTFUL) for reason in fidelity.get(word, ())}
    return [f"{classes[reason]}: {reason}" if reason in classes else reason for reason in run["distrust"]]


def _baseline_notes(console: Console, runs: Sequence[Run], fabrics: Mapping[str, Any]) -> None:
    """Print notes on what makes the baselines faster or slower here than in a real network."""
    if any(r["kind"] == "roce" and not fabrics[r["fabric"]].get("pfc_bytes") for r in runs):
        console.print(NOTE, style="dim")
    if any(r["kind"] in KERNEL_KINDS and not r.get("delayed") for r in runs):
        console.print(KERNEL_NOTE, style="dim")
    waiting = [r for r in runs if r["reconvergence_ns"] is not None and r["failovers"]]
    names: dict[int, list[str]] = {}
    for run in waiting:
        names.setdefault(run["reconvergence_ns"], []).append(str(run["transport"]))
    after = "; ".join(
        f"{duration(delay)}, {delay / waiting[0]['base_rtt_ns']:,.0f} base RTTs ({', '.join(dict.fromkeys(transports))})"
        for delay, transports in names.items()
    )
    if waiting:
        console.print(
            f"The network re-routes around a failure after {after}. Real networks take milliseconds to seconds: waiting costs these "
            "transports far more there.",
            style="dim",
        )
