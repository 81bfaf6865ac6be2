"""The tables of runs with several seeds and of jobs: per transport one line of medians with their intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scenarios.figures.comparison import NOT_COMPARED, compare
from scenarios.figures.rows import row, table
from scenarios.figures.stats import interval_note
from scenarios.schema.sweep import short_keys
from scenarios.show.cost_table import world_words
from scenarios.show.document import Block, Column, Table, Words

Line = dict[str, Any]
JOBS = (
    "GPU time lost: the ranks' time in measured steps that was not computing. Estimate: each call at theory's rate, as if it had the "
    "fabric for itself, and half an RTT for each of its rounds; slices overlap, so that a step may take less. Slowdown: the typical step "
    "beside other jobs, over that of the job alone."
)


def applies_to(runs: Sequence[Line]) -> bool:
    """Say whether there are several seeds or settings, so that a line per run would be too much."""
    return len({r["seed"] for r in runs}) > 1 or any(r.get("settings") for r in runs)


def lines(runs: Sequence[Line], part: str = "groups") -> list[Line]:
    """Make one line per transport, fabric, placement and setting, and per group of flows (or per job, with ``part`` "jobs"), in the order
    of the runs. ``runs`` are the line's entries; ``figures`` is name -> row of the comparison. The names of a group's figures omit the
    group."""
    groups: list[tuple[Line, list[Line]]] = []
    for run in runs:
        key = {name: run[name] for name in ("transport", "fabric", "placement")} | {"settings": run.get("settings", {})}
        members = next((same_key for other, same_key in groups if other == key), None)
        if members is None:
            groups.append((key, [run]))
        else:
            members.append(run)
    result = []
    for key, members in groups:
        figures = compared(members)
        common = {name: value for name, value in figures.items() if not name.startswith(f"{part}.")}
        for group in next((run[part] for run in members if run.get(part)), {"": None}):
            head = f"{part}.{group}."
            own = {name.removeprefix(head): value for name, value in figures.items() if name.startswith(head)}
            result.append({**key, "group": group, "runs": members, "figures": {**common, **own}})
    return result


def compared(runs: Sequence[Line]) -> dict[str, Line]:
    """Return figure -> its row in the comparison of these runs; missing values are None."""
    frame = compare(table([row(run, "") for run in runs])).astype(object)
    rows: list[Line] = [{str(key): value for key, value in line.items()} for line in frame.where(frame.notna(), None).to_dict("records")]
    return {str(line["figure"]): line for line in rows}


def figure(name: str, form: str, scale: float = 1.0, unit: str = "") -> Callable[[Line], str]:
    """Make a function: line -> cell with the median, and below it the interval or range."""

    def cell(line: Line) -> str:
        row = line["figures"].get(name)
        if row is None or row["median"] is None:
            return "–"
        text = f"{row['median'] / scale:{form}}{unit}"
        return text if row["low"] is None else f"{text}\n[{row['low'] / scale:{form}}, {row['high'] / scale:{form}}]"

    return cell


def of_ideal(line: Line) -> str:
    row = line["figures"].get("busbw_bps")
    return "–" if row is None or row["median"] is None or not row["ideal"] else f"{row['median'] / row['ideal']:.0%}"


def health(line: Line) -> str:
    """Write the number of runs per verdict other than "ok"; "ok" if there are none."""
    verdicts = [r["verdict"] for r in line["runs"]]
    bad = [f"{verdicts.count(v)} {v}" + (", left out" if v in NOT_COMPARED else "") for v in dict.fromkeys(verdicts) if v != "ok"]
    return "; ".join(bad) or "ok"


def labels(runs: Sequence[Line]) -> Column:
    """Return the first column: what tells the lines of these runs from each other."""
    several, world = len({r["placement"] for r in runs}) > 1, world_words(runs)

    def label(line: Line) -> str:
        short = short_keys(list(line["settings"]))
        settings = [f"{short[key]} = {value}" for key, value in line["settings"].items()]
        placement = [*world(line["runs"][0]), *([line["placement"]] if several else [])]
        return "\n".join([line["transport"], f"on {line['fabric']}", *placement, *settings])

    return "transport", label


def columns(runs: Sequence[Line]) -> list[Column]:
    """Return (head, function: line -> cell)."""
    n: Column = ("n", lambda line: str(max(row["n"] for row in line["figures"].values())))
    if "groups" in runs[0]:
        rest: list[Column] = [
            ("flows", lambda line: str(line["group"])),
            n,
            ("Gb/s", figure("goodput_bps", ",.1f", 1e9)),
            ("of line", figure("of_line", ".1%")),
            ("least", figure("min_share", ".1%")),
            ("Jain", figure("jain", ".3f")),
        ]
        if any(group.get("kept") is not None for run in runs for group in run["groups"].values()):
            rest.append(("kept vs\nalone", figure("kept", ".1%")))
    else:
        rest = [n, ("median\nµs", figure("typical_step_ns", ",.1f", 1e3)), ("slowest\nµs", figure("step_time_ns.max", ",.1f", 1e3))]
        if any(run["busbw_bps"] is not None for run in runs):
            rest += [("bus GB/s", figure("busbw_bps", ",.1f", 8e9)), ("of\nideal", of_ideal)]
    lost: Column = ("packets\nlost", figure("packets.lost", ",.0f"))
    return [labels(runs), *rest, lost, ("retrans\u00ad\nmitted", figure("packets.retransmitted", ",.0f")), ("verdict", health)]


def table_of(title: str, runs: Sequence[Line]) -> Table:
    rows = lines(runs)
    intervals = interval_note([int(row["n"]) for line in rows for row in line["figures"].values()])
    brackets = f", in brackets the {intervals}" if intervals else ""
    caption = f"Medians over the seeds{brackets}. Each run: runs.csv; each figure: comparison.csv."
    seeds = len({r["seed"] for r in runs})
    return Table(columns(runs), rows, f"{title}, {seeds} seed{'s' if seeds > 1 else ''}", caption)


def transfers_table(runs: Sequence[Line]) -> Table:
    """Make the table of the times of transfers, for one seed or several."""
    rows = lines(runs)
    names = ("p50", "median"), ("p99", "p99"), ("p999", "p99.9"), ("max", "slowest")
    intervals = interval_note([int(row["n"]) for line in rows for row in line["figures"].values()])
    heads: list[Column] = [labels(runs), ("transfers", lambda line: f"{sum(r['transfer_time_ns']['n'] for r in line['runs']):,}")]
    heads += [(f"{head}\nµs", figure(f"transfer_time_ns.{name}", ",.1f", 1e3)) for name, head in names]
    caption = "A transfer is one slice of a message: from when its sender posts it until its receiver has all of it."
    return Table(heads, rows, "Transfers", caption + (f" Medians over the seeds, in brackets the {intervals}." if intervals else ""))


def jobs(runs: Sequence[Line]) -> list[Block]:
    """Make the table of jobs, a line per transport and job; [] if no run has jobs."""
    runs = [run for run in runs if run.get("jobs")]
    if not runs:
        return []

    def job(line: Line) -> Line:
        """Return the job in one of the line's runs, for what is the same in all."""
        return next(run["jobs"][line["group"]] for run in line["runs"])

    columns: list[Column] = [
        labels(runs),
        ("job", lambda line: f"{line['group']}\n{job(line)['ranks']} ranks"),
        ("n", lambda line: str(line["figures"]["typical_step_ns"]["n"] if "typical_step_ns" in line["figures"] else 0)),
        ("steps", figure("steps", ",.0f")),
        ("median\nµs", figure("typical_step_ns", ",.1f", 1e3)),
        ("slowest\nµs", figure("step_time_ns.max", ",.1f", 1e3)),
        ("com\u00ad\nputing\nµs", lambda line: f"{job(line)['compute_ns'] / 1e3:,.1f}"),
        ("esti\u00ad\nmate\nµs", lambda line: f"{job(line)['estimate_ns'] / 1e3:,.1f}"),
        ("GPU\ntime lost", figure("gpu_lost_share", ".0%")),
    ]
    if any(job["slowdown"] is not None for run in runs for job in run["jobs"].values()):
        columns += [("alone\nµs", figure("alone_step_ns", ",.1f", 1e3)), ("slow\u00ad\ndown", figure("slowdown", ".3f"))]
    return [Table(columns, lines(runs, "jobs"), "Jobs", words=("job",)), Words(JOBS)]
