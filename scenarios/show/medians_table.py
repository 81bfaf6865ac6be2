"""Makes the tables of runs with several seeds, and of jobs: medians with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scenarios.figures.comparison import NOT_COMPARED, Compared, compare
from scenarios.figures.rows import row, table
from scenarios.figures.stats import interval_note
from scenarios.schema.sweep import short_keys
from scenarios.show.cost_table import world_words
from scenarios.show.document import Block, Column, Table, Words
from testbed.results.summary import Job, Run


@dataclass(frozen=True)
class Line:
    """``figures``: name -> row of the comparison of these runs; names of figures of a ``group`` (of
    flows, or a job) omit it."""

    runs: Sequence[Run]
    group: str
    figures: Mapping[str, Compared]

    @property
    def first(self) -> Run:
        return self.runs[0]


JOBS = (
    "GPU time lost: the ranks' time in measured steps that was not computing. Estimate: each "
    "call at theory's rate, as if it had the fabric for itself, and half an RTT for each of "
    "its rounds; slices overlap, so that a step may take less. Slowdown: the typical step "
    "beside other jobs, over that of the job alone."
)


def applies_to(runs: Sequence[Run]) -> bool:
    return len({r.seed for r in runs}) > 1 or any(r.settings for r in runs)


def lines(runs: Sequence[Run], part: str = "groups") -> list[Line]:
    same: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        same.setdefault((run.transport, run.fabric, run.placement, str(run.settings)), []).append(
            run
        )
    result = []
    for members in same.values():
        figures = compared(members)
        common = {name: value for name, value in figures.items() if not name.startswith(f"{part}.")}
        for group in next((names for run in members if (names := list(getattr(run, part)))), [""]):
            head = f"{part}.{group}."
            own = {
                name.removeprefix(head): value
                for name, value in figures.items()
                if name.startswith(head)
            }
            result.append(Line(members, group, {**common, **own}))
    return result


def compared(runs: Sequence[Run]) -> dict[str, Compared]:
    frame = compare(table([row(run, "") for run in runs])).astype(object)
    found = msgspec.convert(frame.where(frame.notna(), None).to_dict("records"), list[Compared])
    return {line.figure: line for line in found}


def figure(name: str, form: str, scale: float = 1.0, unit: str = "") -> Callable[[Line], str]:
    """Return a function: line -> median, and below it the interval or range."""

    def cell(line: Line) -> str:
        row = line.figures.get(name)
        if row is None or row.median is None:
            return "–"
        text = f"{row.median / scale:{form}}{unit}"
        return (
            text
            if row.low is None or row.high is None
            else f"{text}\n[{row.low / scale:{form}}, {row.high / scale:{form}}]"
        )

    return cell


def of_ideal(line: Line) -> str:
    row = line.figures.get("busbw_bps")
    return (
        "–"
        if row is None or row.median is None or not row.ideal
        else f"{row.median / row.ideal:.0%}"
    )


def health(line: Line) -> str:
    verdicts = [r.verdict for r in line.runs]
    bad = [
        f"{verdicts.count(v)} {v}" + (", left out" if v in NOT_COMPARED else "")
        for v in dict.fromkeys(verdicts)
        if v != "ok"
    ]
    return "; ".join(bad) or "ok"


def labels(runs: Sequence[Run]) -> Column:
    several, world = len({r.placement for r in runs}) > 1, world_words(runs)

    def label(line: Line) -> str:
        short = short_keys(list(line.first.settings))
        settings = [f"{short[key]} = {value}" for key, value in line.first.settings.items()]
        placement = [*world(line.first), *([line.first.placement] if several else [])]
        return "\n".join([line.first.transport, f"on {line.first.fabric}", *placement, *settings])

    return "transport", label


def columns(runs: Sequence[Run]) -> list[Column]:
    n: Column = ("n", lambda line: str(max(row.n for row in line.figures.values())))
    if runs[0].groups:
        rest: list[Column] = [
            ("flows", lambda line: line.group),
            n,
            ("Gb/s", figure("goodput_bps", ",.1f", 1e9)),
            ("of line", figure("of_line", ".1%")),
            ("least", figure("min_share", ".1%")),
            ("Jain", figure("jain", ".3f")),
        ]
        if any(group.kept is not None for run in runs for group in run.groups.values()):
            rest.append(("kept vs\nalone", figure("kept", ".1%")))
    else:
        rest = [
            n,
            ("median\nµs", figure("typical_step_ns", ",.1f", 1e3)),
            ("slowest\nµs", figure("step_time_ns.max", ",.1f", 1e3)),
        ]
        if any(run.busbw_bps is not None for run in runs):
            rest += [("bus GB/s", figure("busbw_bps", ",.1f", 8e9)), ("of\nideal", of_ideal)]
    lost: Column = ("packets\nlost", figure("packets.lost", ",.0f"))
    return [
        labels(runs),
        *rest,
        lost,
        ("retrans\u00ad\nmitted", figure("packets.retransmitted", ",.0f")),
        ("verdict", health),
    ]


def table_of(title: str, runs: Sequence[Run]) -> Table:
    rows = lines(runs)
    intervals = interval_note([row.n for line in rows for row in line.figures.values()])
    brackets = f", in brackets the {intervals}" if intervals else ""
    caption = f"Medians over the seeds{brackets}. Each run: runs.csv; each figure: comparison.csv."
    seeds = len({r.seed for r in runs})
    return Table(columns(runs), rows, f"{title}, {seeds} seed{'s' if seeds > 1 else ''}", caption)


def transfers_table(runs: Sequence[Run]) -> Table:
    rows = lines(runs)
    names = ("p50", "median"), ("p99", "p99"), ("p999", "p99.9"), ("max", "slowest")
    intervals = interval_note([row.n for line in rows for row in line.figures.values()])
    heads: list[Column] = [
        labels(runs),
        ("transfers", lambda line: f"{sum(r.transfer_time_ns.n for r in line.runs):,}"),
    ]
    heads += [
        (f"{head}\nµs", figure(f"transfer_time_ns.{name}", ",.1f", 1e3)) for name, head in names
    ]
    caption = (
        "A transfer is one slice of a message: from when its sender posts it until its receiver "
        "has all of it."
    )
    return Table(
        heads,
        rows,
        "Transfers",
        caption + (f" Medians over the seeds, in brackets the {intervals}." if intervals else ""),
    )


def jobs(runs: Sequence[Run]) -> list[Block]:
    runs = [run for run in runs if run.jobs]
    if not runs:
        return []

    def job(line: Line) -> Job:
        return next(run.jobs[line.group] for run in line.runs)

    columns: list[Column] = [
        labels(runs),
        ("job", lambda line: f"{line.group}\n{job(line).ranks} ranks"),
        (
            "n",
            lambda line: str(
                line.figures["typical_step_ns"].n if "typical_step_ns" in line.figures else 0
            ),
        ),
        ("steps", figure("steps", ",.0f")),
        ("median\nµs", figure("typical_step_ns", ",.1f", 1e3)),
        ("slowest\nµs", figure("step_time_ns.max", ",.1f", 1e3)),
        ("com\u00ad\nputing\nµs", lambda line: f"{job(line).compute_ns / 1e3:,.1f}"),
        ("esti\u00ad\nmate\nµs", lambda line: f"{(job(line).estimate_ns or 0) / 1e3:,.1f}"),
        ("GPU\ntime lost", figure("gpu_lost_share", ".0%")),
    ]
    if any(job.slowdown is not None for run in runs for job in run.jobs.values()):
        columns += [
            ("alone\nµs", figure("alone_step_ns", ",.1f", 1e3)),
            ("slow\u00ad\ndown", figure("slowdown", ".3f")),
        ]
    return [Table(columns, lines(runs, "jobs"), "Jobs", words=("job",)), Words(JOBS)]
