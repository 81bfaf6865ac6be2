"""Makes the tables and sentences about runs for the terminal and ``report.html``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from agents.kernel import NOTE as KERNEL_NOTE
from agents.kernel.options import KINDS as KERNEL_KINDS
from agents.roce import NOTE
from scenarios.figures import pauses
from scenarios.figures.fidelity import DOUBTFUL, INVALID
from scenarios.schema.sweep import short_keys
from scenarios.show import medians_table
from scenarios.show.answer import MOST, VERDICTS, answer, telling, verdict
from scenarios.show.cost_table import (
    ASIDE,
    SHORT,
    cost_groups,
    footnotes,
    shared_fabric,
    world_words,
)
from scenarios.show.cost_table import columns as cost_columns
from scenarios.show.document import PAGE, TERMINAL, Block, Cell, Column, Section, Table, Words, rich
from scenarios.show.html import NAME as REPORT
from testbed.results.summary import Background, Check, FabricFigures, Failover, Pauses, Run, Summary
from testbed.results.values import known, number_at
from testbed.terminal import duration, kb, number, percent, us
from testbed.view.inline import NAME as REPLAY
from topologies import Fabric

WORDS = {
    "ring-allreduce": "all-reduce",
    "tree-allreduce": "tree all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-gather": "all-gather",
    "all-to-all": "all-to-all",
    "hierarchical-allreduce": "two-level",
    "send-recv": "send/recv",
    "incast": "incast",
    "permutation": "permutation",
    "flows": "flows",
    "job": "training step",
}
# in this order: the verdict comes last
IN_TERMINAL = ("cost", "manifest", "runs", "faults", "jobs", "background", "trust", "checks")
# ends a check's name, to say which runs it is on
_OF_RUNS = re.compile(r" \[[^\[\]]*\bseeds? \d[^\[\]]*\]$")
_BOUND = re.compile(r"^(.*[ (])([\d.e+]+)(\)?)$")
"""Text up to a number at its end or in brackets there, as scenarios.schema.checks writes it."""
_CHECKS: dict[bool | None, tuple[str, str]] = {
    True: ("ok    ", "good"),
    False: ("FAILED", "bad"),
    None: ("-     ", "soft"),
}
_UNUSUAL = ("unusual", "doubt")
_ASIDE = ("p99\nµs", "retrans\u00ad\nmitted", "CPU")
_GBITS = (
    "Gb/s: payload received while all flows send, from 20 base RTTs (or the workload's settle) "
    "after the last one began; of flows that send a number of messages, from the first message "
    "to the last. Of line: as a share of what a host's links carry in payload; least, most: of "
    "the group's flows. Times are the network's."
)
_DISTRUST = (
    "A run is not trustworthy if packets are unaccounted for or the machine was too busy: its "
    "figures may then measure the machine instead of the transport. Every figure names the "
    "runs in it that are not trustworthy."
)
_BACKGROUND = (
    "Background traffic is iperf3's, of the hosts' kernels; Gb/s are payload over its sender's "
    "time, of TCP with what still lay in the sender's buffer at the end. The bus bandwidth "
    "that theory leaves a collective beside it is under beside_background_busbw_bps."
)


def sections(
    summary: Summary, shapes: Mapping[str, Fabric], begins: Callable[[Run], float | None]
) -> list[Section]:
    """Return sections in a page's order. ``shapes``: fabrics by name; ``begins``: run -> its begin,
    ns. Only a page has both."""
    runs = summary.runs
    found = [
        Section("cost", "What the failure cost", list(_costs(runs))),
        Section("checks", "Checks", _checks(summary.checks)),
        Section("trust", "Can it be trusted?", list(_trust(runs))),
        Section("runs", "Runs", list(_results(summary, runs))),
        Section("faults", "Faults", _faults(runs, begins)),
        Section("jobs", "Jobs", medians_table.jobs(runs)),
        Section("background", "Background traffic", _background(runs)),
        Section("manifest", "What it ran on", [fabrics_table(summary, shapes)]),
    ]
    return [section for section in found if section.blocks]


def _costs(runs: Sequence[Run]) -> Iterator[Block]:
    groups = cost_groups(runs)
    for labels, rows in groups:
        where = f" on {fabric}" if (fabric := shared_fabric(rows)) else ""
        title = ", ".join([f"What the failure cost{where}", *labels])
        yield Table(
            cost_columns(rows),
            rows,
            title,
            words=(),
            aside=ASIDE,
            mark=lambda row: "doubt" if row.doubtful else "",
        )
    for line in footnotes([row for _, rows in groups for row in rows]):
        yield Words(line)


def fabrics_table(summary: Summary, shapes: Mapping[str, Fabric]) -> Table:
    rows = list(summary.fabrics.items())
    columns: list[Column] = [
        ("fabric", lambda f: f[0]),
        ("planes", lambda f: _planes(shapes[f[0]])),
        ("hosts", lambda f: str(shapes[f[0]].host_count)),
        ("Gb/s of a\nNIC port", lambda f: f"{f[1].nic_rate_bps / 1e9:g}"),
        ("base\nRTT\nµs", lambda f: f"{f[1].base_rtt_ns / 1e3:.2f}"),
        ("one-way\ndelay\nµs", lambda f: f"{f[1].delay_ns / 1e3:.2f}"),
        ("plane\nBDP kB", lambda f: _kb(f[1].plane_bdp_bytes)),
        ("ECN\nfrom–to\nkB", lambda f: _range_kb(f[1].ecn_bytes)),
        ("last-\nhop\nECN", lambda f: "on" if f[1].last_hop_ecn else "off"),
        ("trimming\nabove (last\nhop) kB", lambda f: _trimming(f[1])),
        ("buffer\nkB", lambda f: _kb(f[1].buffer_bytes)),
    ]
    if any(f.pool_bytes for _, f in rows):
        columns.append(
            ("pool of a\nT0, T1 kB", lambda f: ", ".join(map(_kb, f[1].pool_bytes or ())) or "none")
        )
    if any(f.pfc_bytes for _, f in rows):
        columns.append(("PFC XOFF–XON\nkB", lambda f: _range_kb(f[1].pfc_bytes)))
    note = "The agents add the delay: ping and iperf3 do not have it."
    return Table(
        columns,
        rows,
        "Fabrics",
        note,
        ("planes",),
        details=("planes", "hosts", "Gb/s of a\nNIC port"),
    )


def _kb(count: float) -> str:
    return f"{count / 1e3:,.1f}".removesuffix(".0")


def _range_kb(limits: tuple[float, float] | None) -> str:
    return "off" if limits is None else "–".join(map(_kb, limits))


def _planes(shape: Fabric) -> str:
    return f"{shape.planes} × ({shape.t0_per_plane} T0, {shape.t1_per_plane} T1)"


def _trimming(fabric: FabricFigures) -> str:
    at, last = fabric.trim_bytes, fabric.trim_last_hop_bytes
    return "off" if at is None or last is None else f"{_kb(at)} ({_kb(last)})"


def _identity(runs: Sequence[Run], of: Callable[[Any], Run] = lambda row: row) -> list[Column]:
    several, world = len({r.placement for r in runs}) > 1, world_words(runs)

    def label(row: Any) -> str:
        run = of(row)
        settings = run.settings
        values = [f"{short} = {settings[key]}" for key, short in short_keys(list(settings)).items()]
        return "\n".join(
            [
                run.transport,
                f"on {run.fabric}",
                *world(run),
                *([run.placement] if several else []),
                *values,
            ]
        )

    columns: list[Column] = [("transport", label)]
    if len({r.seed for r in runs}) > 1:
        columns.append(("seed", lambda r: str(of(r).seed)))
    return columns


_RUN = itemgetter(0)


def _title(summary: Summary, runs: Sequence[Run]) -> str:
    return f"{summary.scenario}: {_word(runs)} under each transport"


def _word(runs: Sequence[Run]) -> str:
    first, *others = {str(run.workload) for run in runs}
    if others:
        return "flows" if runs[0].groups else "collective"
    return WORDS.get(first, first)


def _results(summary: Summary, runs: Sequence[Run]) -> Iterator[Block]:
    """Show medians of several seeds or settings in a terminal, each run on a page, too."""
    collective_runs, flow_runs = [r for r in runs if not r.groups], [r for r in runs if r.groups]
    for own in (collective_runs, flow_runs):
        several = bool(own) and medians_table.applies_to(own)
        if several:
            yield medians_table.table_of(_title(summary, own), own)
        if own and own is collective_runs:
            yield runs_table(summary, own, PAGE if several else "")
            step_name = _word(own) + (
                f" of job {names[0]}" if len(names := list(own[0].jobs)) > 1 else ""
            )
            note = (
                f"A step is one {step_name}; its time is the slowest rank's. Ideal: the payload "
                "rate of healthy links."
            )
            yield Words(f"{note} Times are the network's.")
        elif own:
            yield groups_table(summary, own, PAGE if several else "")
            yield packets_table(own, PAGE if several else "")
    if timed := [r for r in collective_runs if r.transfer_time_ns.n]:
        yield medians_table.transfers_table(timed)
    if flow_runs:
        if len({(r.placement, r.seed) for r in flow_runs}) == 1:
            yield flows_table(flow_runs)
        if any(group.buffer_bytes is not None for r in flow_runs for group in r.groups.values()):
            yield queues_table(flow_runs)
        yield Words(_GBITS)
        yield from (Words(line, "") for r in flow_runs for line in _separation_lines(r))
    if paused := [r for r in runs if r.pfc]:
        yield pauses_table(paused)
    yield from map(Words, _baseline_notes(runs, summary.fabrics))


def _health(wrong: str) -> list[Column]:
    return [
        ("packets\nsent", lambda r: number(r.packets.sent, ",")),
        ("packets\nlost", lambda r: number(r.packets.lost, ",")),
        ("retrans\u00ad\nmitted", lambda r: number(r.packets.retransmitted, ",")),
        ("marks", lambda r: number(r.packets.marked, ",")),
        ("trims", lambda r: number(r.packets.trimmed, ",")),
        (wrong, lambda r: number(r.wrong, "d")),
        ("CPU", lambda r: number(r.cpu_percent, ".0f", " %")),
        ("verdict", lambda r: [(r.verdict, VERDICTS.get(r.verdict, ""))]),
    ]


def _table_of_runs(
    title: str, columns: Sequence[Column], runs: Sequence[Run], details: Sequence[str], on: str
) -> Table:
    named: list[Column] = [*columns, ("run", lambda r: str(r.run))]
    marks = {"not trustworthy": "doubt", "failed": "bad", "interrupted": "doubt"}
    return Table(
        named,
        runs,
        title,
        "",
        ("verdict", "run"),
        (*details, "run"),
        _ASIDE,
        lambda r: marks.get(r.verdict, ""),
        "runs are ok",
        on,
    )


def runs_table(summary: Summary, runs: Sequence[Run], on: str = "") -> Table:
    """Drop columns without information, to fit 80 characters."""
    columns = _identity(runs)
    columns.append(("steps", _steps))
    columns.append(("median\nµs", lambda r: us(r.typical_step_ns)))
    if any(r.step_time_ns.p99 is not None for r in runs):
        columns.append(("p99\nµs", lambda r: us(r.step_time_ns.p99)))
    columns.append(("slowest\nµs", lambda r: us(r.step_time_ns.max)))
    if any(r.busbw_bps is not None for r in runs):
        columns.append(("bus GB/s\n(of ideal)", _bandwidth))
    columns += _health("wrong\nsums" if "reduce" in runs[0].workload else "wrong\nresults")
    return _table_of_runs(
        "Each run" if on else _title(summary, runs),
        columns,
        runs,
        ("packets\nsent", "marks", "trims"),
        on,
    )


def _steps(run: Run) -> str:
    note = "" if run.outcome == "done" else "\nended early"
    return f"{run.steps}/{run.steps + run.failed_steps}{note}"


def _bandwidth(run: Run) -> str:
    if run.busbw_bps is None or not run.ideal_busbw_bps:
        return "–"
    return f"{run.busbw_bps / 8e9:.1f}\n({run.busbw_bps / run.ideal_busbw_bps:.0%})"


def groups_table(summary: Summary, runs: Sequence[Run], on: str = "") -> Table:
    rows = [(run, name, group) for run in runs for name, group in run.groups.items()]
    world = world_words(runs)
    columns: list[Column] = [("transport", lambda g: "\n".join([g[0].transport, *world(g[0])]))]
    columns += _identity(runs, _RUN)[1:]
    columns += [
        ("flows", lambda g: f"{g[2].flows} × {g[1]}" if g[2].flows > 1 else g[1]),
        ("Gb/s", lambda g: "–" if g[2].goodput_bps is None else f"{g[2].goodput_bps / 1e9:.1f}"),
        ("of line", lambda g: percent(g[2].of_line)),
        ("least", lambda g: percent(g[2].min_share)),
        ("most", lambda g: percent(g[2].max_share)),
        ("Jain", lambda g: "–" if g[2].jain is None or g[2].flows < 2 else f"{g[2].jain:.3f}"),
    ]
    if any(group.kept is not None for *_, group in rows):
        columns.append(("kept vs\nalone", lambda g: percent(g[2].kept)))
    return Table(columns, rows, _title(summary, runs), fold="", on=on)


def packets_table(runs: Sequence[Run], on: str = "") -> Table:
    columns = _identity(runs)
    columns += [
        ("RTOs", lambda r: str(r.timeouts.rto)),
        ("untrimmed\nlosses", lambda r: str(r.untrimmed_loss)),
    ]
    return _table_of_runs(
        "Packets", columns + _health("wrong\nbytes"), runs, ("packets\nsent",), on
    )


def flows_table(runs: Sequence[Run]) -> Table:
    def cell(run: Run) -> Callable[[str], str]:
        def show(name: str) -> str:
            flow = run.flows.get(name)
            return (
                "–"
                if flow is None or flow.goodput_bps is None
                else f"{flow.goodput_bps / 1e9:.1f} {flow.share:>4.0%}"
            )

        return show

    columns: list[Column] = [("flow", str)]
    world = world_words(runs)
    columns += [
        ("\n".join([run.transport, *world(run), "Gb/s, of line"]), cell(run)) for run in runs
    ]
    return Table(
        columns, list(dict.fromkeys(name for run in runs for name in run.flows)), "Goodput per flow"
    )


def queues_table(runs: Sequence[Run]) -> Table:
    rows = [
        (run, name, group)
        for run in runs
        for name, group in run.groups.items()
        if group.buffer_bytes is not None
    ]
    columns = _identity(runs, _RUN)
    columns += [
        ("last hop of", itemgetter(1)),
        ("queue mean\nkB", lambda g: kb(known(g[2].queue_mean_bytes))),
        ("p99\nkB", lambda g: kb(known(g[2].queue_p99_bytes))),
        ("peak\nkB", lambda g: kb(known(g[2].queue_peak_bytes))),
        ("buffer\nkB", lambda g: kb(g[2].buffer_bytes)),
        ("trims", lambda g: number(g[2].trims, ",")),
        ("marks", lambda g: number(g[2].marks, ",")),
        ("drops", lambda g: number(g[2].drops, ",")),
    ]
    return Table(columns, rows, "Queues on the last hop (worst plane; counts over all planes)")


def _pauses(run: Run) -> Pauses:
    assert run.pfc is not None
    return run.pfc


def pauses_table(runs: Sequence[Run]) -> Table:
    def tier(key: str) -> Column:
        def cell(run: Run) -> str:
            of = _pauses(run).tiers[key]
            if not of.paused:
                return f"0 of {of.ports}"
            share = of.paused_ns / of.paused / run.measured_ns if run.measured_ns else 0.0
            return f"{of.paused} of {of.ports}, {min(share, 1.0):.0%}"

        return f"{pauses.TIERS[key]}\n(of the time)", cell

    columns = [*_identity(runs), *map(tier, pauses.TIERS)]
    columns += [
        ("pauses", lambda r: f"{r.pfc.pauses:,}"),
        ("longest\nµs", lambda r: f"{r.pfc.longest_pause_ns / 1e3:.1f}"),
        ("drops", lambda r: f"{r.packets.causes.get('drop_tail', 0):,}"),
    ]
    if any(_pauses(run).reaction_ns for run in runs):
        columns.append(("reaction: mean,\nlongest (due) µs", _reaction))
    caption = (
        "Ports that the switch behind them paused, and for how much of the run a paused one "
        "stood still, on average."
    )
    return Table(columns, runs, "Pauses (PFC), from the senders on", caption)


def _reaction(run: Run) -> str:
    of = _pauses(run).reaction_ns
    return f"{of.mean / 1e3:.2f}, {of.longest / 1e3:.2f} ({of.effect / 1e3:.2f})" if of else "–"


def _separation_lines(run: Run) -> list[str]:
    lines = []
    for s in run.separations or ():
        departure = (
            "never left them"
            if s.separated_rtts is None
            else f"left them within {s.separated_rtts:.0f} base RTTs"
        )
        before, after = ("–" if share is None else f"{share:.0%}" for share in (s.before, s.after))
        lines.append(
            f"{run.run}: {s.flow} shares {len(s.shared_evs)} of its {s.evs} EVs with {s.from_} "
            f"and {departure}: it sent {before} of a fair share of its packets on them before "
            f"{s.from_} began, {after} after"
        )
    return lines


def _since(value: float | None, fault: Failover) -> str:
    return "–" if value is None else duration(value - fault.at_ns)


def faults_table(
    runs: Sequence[Run], begins: Callable[[Run], float | None] = lambda run: None
) -> Table:
    rows = [(run, fault) for run in runs for fault in run.failovers]

    def what(row: tuple[Run, Failover]) -> str:
        f = row[1]
        return f"{f.kind} on {f.on}" + (
            f", {len(f.outages_ns)} times" if len(f.outages_ns) > 1 else ""
        )

    columns = _identity(runs, _RUN)
    columns += [
        ("fault", lambda f: f[1].fault),
        ("what", what),
        ("at", lambda f: "–" if (begin := begins(f[0])) is None else duration(f[1].at_ns - begin)),
        ("for", lambda f: "to the end" if f[1].healed_ns is None else _since(f[1].healed_ns, f[1])),
        ("dead paths left\nafter [RTTs]", lambda f: number(f[1].last_on_dead_over_rotation, ".1f")),
        (
            "most packets lost\non one EV (bound)",
            lambda f: (
                f"{number(f[1].losses_per_ev, 'd')} ({number(f[1].losses_per_ev_bound, 'd')})"
            ),
        ),
        # others log none by path
        ("packets\nlost there", lambda f: str(f[1].lost) if f[0].kind == "mrc" else "–"),
    ]
    if any(fault.delivered_ns is not None for _, fault in rows):
        columns.append(("all of them\narrived after", lambda f: _since(f[1].delivered_ns, f[1])))
    if any(fault.kept_during is not None for _, fault in rows):
        columns.append(("goodput kept\nduring", lambda f: percent(f[1].kept_during)))
        columns.append(("after", lambda f: percent(f[1].kept_after)))
    columns.append(("run", lambda f: f[0].run))
    note = "RTTs: less one rotation, in which a sender uses each of its paths once."
    return Table(
        columns,
        rows,
        "Faults",
        note,
        ("fault", "what", "run"),
        ("what", "at", "for", "run"),
        fold="",
    )


def _faults(runs: Sequence[Run], begins: Callable[[Run], float | None]) -> list[Block]:
    missed = [
        Words(f"{r.run}: {fault} did not happen.", "", PAGE)
        for r in runs
        for fault in r.faults_missed
    ]
    times = Words(
        "Times count from the beginning of the first measured step or flow. RTTs are base RTTs.",
        on=PAGE,
    )
    return (
        [faults_table(runs, begins), times, *missed]
        if any(r.failovers for r in runs)
        else [*missed]
    )


def _background(runs: Sequence[Run]) -> list[Block]:
    rows = [(run, flow) for run in runs for flow in run.background]
    return (
        [
            Table(BACKGROUND, rows, "Background traffic", words=("from–to", "path")),
            Words(_BACKGROUND),
        ]
        if rows
        else []
    )


def _measured(key: str, form: str, scale: float = 1.0) -> Callable[[tuple[Run, Background]], str]:
    return lambda row: number(
        None if (value := number_at(row[1], key)) is None else value / scale, form
    )


BACKGROUND: list[Column] = [
    ("flow", lambda b: f"{b[1].name} beside {b[0].transport}"),
    ("from–to", lambda b: f"{b[1].src}–{b[1].dst}"),
    ("path", lambda b: f"{b[1].protocol} {b[1].path}"),
    ("sent\nGb/s", _measured("sent_bps", ".1f", 1e9)),
    ("arrived\nGb/s", _measured("received_bps", ".1f", 1e9)),
    ("lost\n%", _measured("lost_percent", ".1f")),
    ("jitter\nwall ms", _measured("jitter_ms", ".1f")),
    ("sent\nagain", _measured("retransmits", ".0f")),
    ("wall\ns", _measured("seconds", ".1f")),
]


# --- trust and checks -----------------------------------------------------------------------------


def _trust(runs: Sequence[Run]) -> Iterator[Block]:
    yield Words(_DISTRUST, on=PAGE)
    yield trust_table(runs)
    for run in runs:
        yield from (
            Words([(f"{run.run}: {reason}", mark)], "", TERMINAL) for reason, mark in _reasons(run)
        )
    if books := books_line(runs):
        yield Words(books)


def _reasons(run: Run) -> list[tuple[str, str]]:
    ended = [run.reason] if run.outcome != "done" and run.reason else []
    broken = [(f"a book does not balance: {line}", "bad") for line in run.broken]
    return [*((line, "doubt") for line in [*ended, *doubts(run), *run.notes]), *broken]


def trust_table(runs: Sequence[Run]) -> Table:
    columns: list[Column] = [
        ("run", lambda r: str(r.run)),
        ("verdict", lambda r: str(r.verdict)),
        ("fidelity", lambda r: r.fidelity.verdict),
        ("CPU", lambda r: number(r.cpu_percent, ".0f", " %")),
        ("packets unaccounted for", lambda r: number(r.packets.unexplained, ",d")),
        ("planes and queues", lambda r: "book broken" if r.broken else "kept"),
        ("why", lambda r: "; ".join(reason for reason, _ in _reasons(r)) or "–"),
    ]
    words = ("verdict", "fidelity", "planes and queues", "why")
    marks = {"ok": "", "failed": "bad"}
    return Table(
        columns,
        runs,
        words=words,
        mark=lambda r: marks.get(r.verdict, "doubt"),
        fold="runs are ok",
        on=PAGE,
    )


def books_line(runs: Sequence[Run]) -> str:
    judged = [run for run in runs if run.outcome == "done"]
    kept = sum(not run.broken and run.packets.unexplained == 0 for run in judged)
    return (
        f"Books of packets, of planes' turns and of queues: kept in {kept} of {len(judged)} runs."
        if judged
        else ""
    )


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def bound_and_seen(check: Check) -> tuple[str, str]:
    expected, seen = str(check.expected), check.seen
    bound = _BOUND.match(expected)
    if check.unit != "ns" or bound is None or not isinstance(seen, (int, float)):
        return expected, format_value(seen)
    return f"{bound[1]}{duration(float(bound[2]))}{bound[3]}", duration(seen)


def _mark_of(check: Check) -> tuple[str, str]:
    """A check that does not hold, but is unusual, leaves the verdict as it is."""
    return _UNUSUAL if check.ok is False and check.unusual else _CHECKS[check.ok]


def _checks(checks: Sequence[Check]) -> list[Block]:
    table = checks_table(checks) if checks else Words("The scenario has no checks.", "", PAGE)
    return [table, *(Words(line, "", TERMINAL) for line in check_lines(checks))]


def checks_table(checks: Sequence[Check]) -> Table:
    columns: list[Column] = [
        ("", lambda c: _mark_of(c)[0].strip().replace("-", "–")),
        ("check", lambda c: str(c.name)),
        ("expected", lambda c: bound_and_seen(c)[0]),
        ("seen", lambda c: bound_and_seen(c)[1]),
    ]
    words, fold = ("check", "expected", "seen"), "checks hold or do not apply"
    return Table(
        columns,
        checks,
        words=words,
        mark=lambda c: "" if c.ok is not False else _mark_of(c)[1],
        fold=fold,
        on=PAGE,
    )


def failed_lines(checks: Sequence[Check]) -> list[Cell]:
    failed = [(check, *bound_and_seen(check)) for check in checks if check.ok is False]
    return [
        [_mark_of(check), (f" {check.name}: expected {bound}, seen {seen}", "")]
        for check, bound, seen in failed
    ]


def check_lines(checks: Sequence[Check]) -> list[Cell]:
    """Return a line per failed check and run; then one per check, with the number of runs for which
    it holds or does not apply."""
    lines = failed_lines(checks)
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(_OF_RUNS.sub("", check.name), []).append(check)
    for name, group in by_name.items():
        passed = [check for check in group if check.ok]
        if passed:
            mark = _mark(True, len(passed), len(group))
            bounds = dict.fromkeys(bound_and_seen(check)[0] for check in passed)
            bound = (
                next(iter(bounds))
                if len(bounds) == 1
                else str(passed[0].expected).partition(" (")[0]
            )
            lines.append([mark, (f" {name}: expected {bound}, seen {_range(passed)}", "")])
        for reason, n in Counter(
            format_value(check.seen) for check in group if check.ok is None
        ).items():
            lines.append([_mark(None, n, len(group)), (f" {name}: {reason}", "")])
    return lines


def _mark(ok: bool | None, n: int, of: int) -> tuple[str, str]:
    word, mark = _CHECKS[ok]
    return (f"{word.strip():2} {n}/{of}" if of > 1 else word), mark


def _range(checks: Sequence[Check]) -> str:
    numbers = all(isinstance(check.seen, (int, float)) for check in checks)
    ordered = sorted(checks, key=lambda check: float(check.seen)) if numbers else checks
    values = list(dict.fromkeys(bound_and_seen(check)[1] for check in ordered))
    return f"{values[0]} to {values[-1]}" if numbers and len(values) > 1 else ", ".join(values)


def doubts(run: Run) -> list[str]:
    classes = {
        reason: word for word in (INVALID, DOUBTFUL) for reason in getattr(run.fidelity, word)
    }
    return [
        f"{classes[reason]}: {reason}" if reason in classes else reason for reason in run.distrust
    ]


def _baseline_notes(runs: Sequence[Run], fabrics: Mapping[str, FabricFigures]) -> Iterator[str]:
    if any(r.kind == "roce" and not fabrics[r.fabric].pfc_bytes for r in runs):
        yield NOTE
    yield from _illustrations(runs)
    if any(r.kind in KERNEL_KINDS and not r.delayed for r in runs):
        yield KERNEL_NOTE
    waiting = [r for r in runs if r.reconvergence_ns is not None and r.failovers]
    names: dict[float, list[str]] = {}
    for run in waiting:
        names.setdefault(run.reconvergence_ns or 0.0, []).append(run.transport)
    after = "; ".join(
        f"{duration(delay)}, {delay / waiting[0].base_rtt_ns:,.0f} base RTTs "
        f"({', '.join(dict.fromkeys(transports))})"
        for delay, transports in names.items()
    )
    if waiting:
        yield (
            f"The network re-routes around a failure after {after}. Real networks take "
            "milliseconds to seconds: waiting costs these transports far more there."
        )


def _illustrations(runs: Sequence[Run]) -> list[str]:
    return (
        ["TCP is an illustration: its figures move with this machine (docs/why/tcp.md)."]
        if any(r.kind in KERNEL_KINDS for r in runs)
        else []
    )


# --- the terminal ---------------------------------------------------------------------------------


def show(console: Console, summary: Summary, directory: Path, everything: bool = False) -> None:
    """Print the answer, one table or ``everything``, what speaks against the run, and where the
    files are."""
    tabled = summary if everything else replace(summary, runs=telling(summary.runs)[1])
    found = {section.key: section.blocks for section in sections(tabled, {}, lambda run: None)}
    blocks = (
        [block for key in IN_TERMINAL for block in found.get(key, ())]
        if everything
        else [*one_table(found), *few(against(summary))]
    )
    for block in [*answer(summary), *blocks, Words(verdict(summary), "")]:
        if isinstance(block, (Table, Words)) and block.on != PAGE:
            console.print(rich(block, short=not everything))
    plots = len(list((directory / "plots").glob("*.png")))
    places = {
        f"Data: {directory}/"
        + (f"  Plots: {directory / 'plots'}/ ({plots})" if plots else ""): directory
    }
    places |= {
        f"Report: {directory / REPORT}": directory / REPORT,
        f"Path by path: {directory / REPLAY}": directory / REPLAY,
    }
    for line, path in places.items():
        if path == directory or path.is_file():
            console.print(line, soft_wrap=True)
    if not everything:
        console.print(
            rich(Words("All tables: the report, or --all. How to read them: docs/how/report.md."))
        )


def one_table(found: Mapping[str, Sequence[Block]]) -> list[Block]:
    """Choose the cost, unless each setting has one; else jobs, or what runs reached."""
    for key in ("cost", "jobs", "runs"):
        tables = [
            block for block in found.get(key, ()) if isinstance(block, Table) and block.on != PAGE
        ]
        if tables and (key != "cost" or len(tables) == 1):
            return [tables[0], *([Words(SHORT)] if key == "cost" else [])]
    return []


def few(lines: Sequence[Block], mark: str = "") -> list[Block]:
    more = len(lines) - MOST
    return [*lines[:MOST], *([Words([(f"and {more} more", mark)], "")] if more > 0 else [])]


def against(summary: Summary) -> list[Block]:
    lines = failed_lines(summary.checks)
    lines += [
        [(f"{run.run}: {reason}", mark)]
        for run in summary.runs
        for reason, mark in _reasons(run)
        if reason not in run.notes
    ]
    notes = {note: run.run for run in reversed(summary.runs) for note in run.notes}
    lines += [[(f"{name}: {note}", "doubt")] for note, name in notes.items()]
    return [Words(line, "") for line in [*lines, *_illustrations(summary.runs)]]
