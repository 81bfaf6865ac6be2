"""The content of a report as plain values for its template: all numbers are text, and the template decides nothing.

Called by :func:`scenarios.show.html.write_report`. Reads through :class:`scenarios.figures.stored.Stored` only.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from scenarios.figures.cost import within_noise
from scenarios.figures.fidelity import verdict_of
from scenarios.figures.stored import Stored
from scenarios.show import jobs_table
from scenarios.show.background_table import COLUMNS, NOTE, background_rows
from scenarios.show.check_values import bound_and_seen
from scenarios.show.cost_table import columns, cost_groups, extra_time, footnotes, headline
from scenarios.show.html.drawings import figures
from scenarios.show.tables import delivered_after, world_words
from testbed.terminal import duration, number
from testbed.view.declared import ResultsError
from testbed.view.inline import NAME as REPLAY
from topologies.units import NS

Table = dict[str, Any]
"""A table: ``head`` has texts, ``rows`` have {cells: [text], mark: "" or a CSS class}, ``words`` has the indices of the columns with text;
the others hold numbers."""
LONG = 12
"""A table with more rows is folded [ours]."""
LOSSES = ("failure_cost.extra_ns", "failure_cost.extra_steps", "failure_cost.extra_rtts", "failure_cost.extra_percent")
"""The figures of the comparison that are a loss in time."""
SENTENCES = 4
"""The most placements and variants whose tables of costs come with a sentence each [ours]."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,), marks: Sequence[str] = ()) -> Table:
    return {
        "head": list(head),
        "words": list(words),
        "rows": [{"cells": list(cells), "mark": marks[i] if marks else ""} for i, cells in enumerate(rows)],
    }


def content(stored: Stored) -> dict[str, Any]:
    """Return all values that the template uses. Raises :class:`ResultsError`."""
    summary, manifest = stored.summary, stored.manifest
    stored.judge()
    try:
        scenario = manifest["scenario"]
        parts = {"facts": facts(stored), "machine": machine(manifest), "options": options(manifest), "reproduce": reproduce(manifest)}
    except KeyError as error:
        raise ResultsError(f"{stored.directory / 'manifest.json'} has no {error}: it is not complete, take it from a copy") from None
    return {
        "title": summary["scenario"],
        "description": scenario.get("description", ""),
        "verdict": summary["verdict"],
        "stopped_by": summary.get("stopped_by") or "",
        "replay": REPLAY if (stored.directory / REPLAY).is_file() else "",
        "costs": cost_sections(stored),
        "cost_notes": footnotes([row for _, rows in cost_groups(stored.runs) for row in rows]),
        "lead": None if any(r["failovers"] for r in stored.runs) else plain_headline(stored),
        "trust": folded(trust(stored), "runs are ok"),
        "checks": folded(checks(summary["checks"]), "checks hold or do not apply"),
        "figures": figures(stored),
        "medians": medians(stored),
        "runs": folded(runs_table(stored), "runs are ok"),
        "background": background(stored),
        "jobs": jobs(stored),
        "faults": folded(fault_table, "") if (fault_table := faults(stored)) else None,
        "notes": manifest.get("notes", []),
        "scenario_file": manifest.get("scenario_file", ""),
        **parts,
    }


def cost_sections(stored: Stored) -> list[dict[str, Any]]:
    """Make the sentence and the table of costs per placement and variant in which something broke."""
    sections = []
    groups = cost_groups(stored.runs)
    for labels, rows in groups:
        heads = columns(rows)
        marks = ["doubt" if row["doubtful"] else "" for row in rows]
        cells = [[cell(row) for _, cell in heads] for row in rows]
        cost_table = table([head for head, _ in heads], cells, marks=marks)
        sections.append({"where": ", ".join(labels), "sentence": headline(rows) if len(groups) <= SENTENCES else "", "table": cost_table})
    return sections


def plain_headline(stored: Stored) -> str:
    """Write the goodput of each transport in one sentence, for runs in which nothing broke."""
    phrases = []
    for transport in dict.fromkeys(r["transport"] for r in stored.runs):
        runs = [r for r in stored.runs if r["transport"] == transport]
        busbw_shares = [r["busbw_bps"] / r["ideal_busbw_bps"] for r in runs if r.get("busbw_bps") and r.get("ideal_busbw_bps")]
        line_shares = [g["of_line"] for r in runs for g in r.get("groups", {}).values() if g.get("of_line") is not None]
        if values := busbw_shares or line_shares:
            least, most = f"{min(values):.0%}", f"{max(values):.0%}"
            phrases.append(f"{transport} {least}" + (f" to {most}" if most != least else ""))
    lost: dict[tuple[str, str], list[float]] = {}
    for r in stored.runs:
        for name, job in r.get("jobs", {}).items():
            if job["gpu_lost_share"] is not None:
                lost.setdefault((name, r["transport"]), []).append(job["gpu_lost_share"])
    if lost:
        parts = [f"{name} {statistics.median(shares):.0%} under {transport}" for (name, transport), shares in lost.items()]
        return f"GPU time lost: {', '.join(parts)}."
    if not phrases:
        return "No run got far enough to measure its goodput."
    reference = "of the ideal bus bandwidth" if any(r.get("busbw_bps") for r in stored.runs) else "of a host's line, per group of flows"
    return f"Nothing was broken. Goodput as a share {reference}: {', '.join(phrases)}."


def folded(full: Table, description: str) -> dict[str, Any]:
    """Fold a table that is long: it shows only its marked rows until it is opened; ``description`` says what the others are."""
    marked = [row for row in full["rows"] if row["mark"]]
    if len(full["rows"]) <= LONG:
        return {"open": full, "all": None, "words": ""}
    count = f"{len(full['rows']) - len(marked)} of {len(full['rows'])} {description}" if description else ""
    return {"open": {**full, "rows": marked}, "all": full, "words": count}


def trust(stored: Stored) -> Table:
    """Make the table of verdict and fidelity of each run."""
    rows, marks = [], []
    for r in stored.runs:
        reasons = [
            *([r["reason"]] if r["outcome"] != "done" and r["reason"] else []),
            *r.get("broken", []),
            *r.get("distrust", []),
            *r.get("notes", []),
        ]
        unexplained = r["packets"]["unexplained"]
        cpu, lost = number(r["cpu_percent"], ".0f", " %"), number(unexplained, ",d")
        kept = "–" if "broken" not in r else "book broken" if r["broken"] else "kept"
        rows.append([r["run"], r["verdict"], verdict_of(r), cpu, lost, kept, "; ".join(reasons) or "–"])
        marks.append({"ok": "", "failed": "bad"}.get(r["verdict"], "doubt"))
    return table(["run", "verdict", "fidelity", "CPU", "packets unaccounted for", "planes and queues", "why"], rows, (0, 1, 2, 5, 6), marks)


def checks(entries: Sequence[dict[str, Any]]) -> Table:
    labels = {True: "ok", False: "FAILED", None: "–"}
    rows = [["unusual" if _is_unusual(c) else labels[c["ok"]], str(c["name"]), *bound_and_seen(c)] for c in entries]
    return table(
        ["", "check", "expected", "seen"],
        rows,
        range(4),
        ["doubt" if _is_unusual(c) else "bad" if c["ok"] is False else "" for c in entries],
    )


def _is_unusual(check: dict[str, Any]) -> bool:
    """Say whether a check that does not hold leaves the verdict as it is."""
    return check["ok"] is False and check.get("unusual", False)


def runs_table(stored: Stored) -> Table:
    """Make a row per run with its main results."""
    rows, world = [], world_words(stored.runs)
    for r in stored.runs:
        rate = r.get("busbw_bps") or sum(g["goodput_bps"] or 0 for g in r.get("groups", {}).values()) or None
        ideal = r.get("ideal_busbw_bps")
        note = "" if r["outcome"] == "done" else ", ended early"
        rows.append(
            [
                ", ".join([r["run"], *world(r)]),
                f"{r['steps']} of {r['steps'] + r['failed_steps']}" + note if "groups" not in r else "–",
                duration(r["typical_step_ns"]),
                duration(r["step_time_ns"]["max"]),
                _rate(rate, "groups" not in r) + (f" ({rate / ideal:.0%})" if rate and ideal else ""),
                *(number(r["packets"][key], ",") for key in ("sent", "lost", "retransmitted", "marked", "trimmed")),
                number(r["wrong"], "d"),
            ]
        )
    head = ["run", "steps", "median", "slowest", "goodput (of ideal)"]
    head += ["packets sent", "packets lost", "retransmitted", "marked", "trimmed", "wrong results"]
    return table(head, rows, (0,), ["doubt" if r["verdict"] == "not trustworthy" else "" for r in stored.runs])


def _rate(bps: float | None, collective: bool) -> str:
    """Write the bus bandwidth of a collective in GB/s, as nccl-tests prints it; the goodput of flows in Gb/s, like a line's rate."""
    return number(None if bps is None else bps / (8e9 if collective else 1e9), ",.1f", " GB/s" if collective else " Gb/s")


def medians(stored: Stored) -> list[dict[str, Any]]:
    """Make tables from comparison.parquet, one per placement and variant: a row per figure, a column per transport; [] without the file."""
    frame = stored.table("comparison")
    if not len(frame) or not {"transport", "fabric", "figure", "median", "low", "high", "n", "unit"} <= set(frame):
        return []
    variables = list(frame.columns[: list(frame.columns).index("figure")])
    groups = [c for c in variables if c not in ("transport", "kind", "fabric", "scenario", "workload")]
    world = world_words(stored.runs)
    worlds = {r["transport"]: world(r) for r in stored.runs}  # runs of two worlds never share a name
    tables = []
    for values, group in frame.groupby(groups, sort=False, dropna=False) if groups else [((), frame)]:
        heads = list(dict.fromkeys(zip(group["transport"], group["fabric"], strict=True)))
        rows, usual_n = [], int(group["n"].max())
        noise_cells = costs_within_noise(group)
        for (figure, unit), records in group.groupby(["figure", "unit"], sort=False, dropna=False):
            by_head = {(row["transport"], row["fabric"]): row for row in records.to_dict("records")}
            if any(is_known(row["median"]) for row in by_head.values()):
                name = str(figure).removesuffix("_ns").removesuffix("_bps")
                if is_known(unit) and unit not in ("", "ns"):
                    name += "" if unit == "bit/s" else f" [{unit}]"
                cells = [_interval(by_head.get(head), str(figure if unit == "bit/s" else unit), usual_n) for head in heads]
                if str(figure) in LOSSES:
                    cells = [noise_cells.get(head, cell) for head, cell in zip(heads, cells, strict=True)]
                rows.append([name, *cells])
        title = ", ".join(f"{v} ranks" if k == "placement" else f"{k} = {v}" for k, v in zip(groups, values, strict=False))
        title = ", ".join([title, f"n = {usual_n}"] if title else [f"n = {usual_n}"])
        tables.append(
            {"where": title, "table": table(["figure", *(", ".join([f"{t} on {f}", *worlds.get(t, [])]) for t, f in heads)], rows)}
        )
    return tables


def costs_within_noise(compared: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return (transport, fabric) -> "within noise" and the noise, if the extra time is no larger than that, from rows of
    comparison.parquet."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for record in compared.to_dict("records"):
        rows.setdefault((record["transport"], record["fabric"]), {})[str(record["figure"])] = record
    cells = {}
    for head, by_figure in rows.items():
        extra, noise = by_figure.get("failure_cost.extra_ns"), by_figure.get("failure_cost.noise_ns")
        if extra is None or not is_known(extra["median"]):
            continue
        row = {"extra_ns": extra["median"], "n": extra["n"], "extra_low_ns": extra["low"] if is_known(extra["low"]) else extra["median"]}
        row["noise_ns"] = noise["median"] if noise is not None and is_known(noise["median"]) else None
        if within_noise(row):
            cells[head] = extra_time(row)
    return cells


def is_known(value: Any) -> bool:
    return value is not None and value == value


def _interval(row: Any, unit: str, usual_n: int) -> str:
    """Write a median; below it its interval, the ideal, and the number of runs if it is not the usual one. ``unit`` is that of a rate's
    figure."""

    def show(value: Any) -> str:
        if unit == "ns":
            return duration(float(value))
        if unit.endswith("_bps"):
            return _rate(float(value), unit == "busbw_bps")
        return f"{float(value):,.4g}" if abs(value) < 1e5 else f"{float(value):,.0f}"

    if row is None or not is_known(row["median"]):
        return "–"
    has_interval = is_known(row["low"]) and is_known(row["high"]) and row["low"] != row["high"]
    lines = [f"[{show(row['low'])}, {show(row['high'])}]"] if has_interval else []
    lines += [f"ideal {show(row['ideal'])}"] if is_known(row.get("ideal")) and row["ideal"] != row["median"] else []
    lines += [f"n = {int(row['n'])}"] if int(row["n"]) != usual_n else []
    lines += [f"{int(row['doubtful'])} not trustworthy"] if is_known(row.get("doubtful")) and row["doubtful"] else []
    return "\n".join([show(row["median"]), *lines])


def background(stored: Stored) -> dict[str, Any] | None:
    """Make the table of the scenario's background traffic, as iperf3 reports it; None without any."""
    rows = background_rows(stored.runs)
    if not rows:
        return None
    seeds = [r["seed"] for r in stored.runs for _ in r.get("background", [])]
    cells = [[str(seed), *(cell(row) for _, cell in COLUMNS)] for seed, row in zip(seeds, rows, strict=True)]
    return {"table": table(["seed", *(head.replace("\n", " ") for head, _ in COLUMNS)], cells, range(4)), "note": NOTE}


def jobs(stored: Stored) -> dict[str, Any] | None:
    """Make the table of the runs' jobs; None without any."""
    rows, heads = jobs_table.rows_and_columns(stored.runs)
    if not rows:
        return None
    names = [head.replace("-\n", "").replace("\n", " ") for head, _ in heads]
    return {"table": table(names, [[cell(row) for _, cell in heads] for row in rows], range(2)), "note": jobs_table.NOTE}


def faults(stored: Stored) -> Table | None:
    """Make the table of faults as they happened, with times since the first measured step or flow; None without faults."""
    rows = []
    for r in stored.runs:
        begin = stored.begin_ns(r)
        for f in r["failovers"]:
            healed = f["healed_ns"]
            outages = len(f.get("outages_ns", [])) or 1
            rows.append(
                [
                    r["run"],
                    f["fault"],
                    f"{f.get('kind', 'link')} on {f['on']}" + (f", {outages} times" if outages > 1 else ""),
                    "–" if begin is None else duration(f["at_ns"] - begin),
                    "to the end" if healed is None else duration(healed - f["at_ns"]),
                    number(f.get("last_on_dead_rtts"), ".1f"),
                    str(f["lost"]),
                    delivered_after(f),
                ]
            )
        rows += [[r["run"], missed, "did not happen", *["–"] * 5] for missed in r["faults_missed"]]
    head = ["run", "fault", "what", "at", "for", "dead paths left after [RTTs]", "packets lost on dead paths", "all of them arrived after"]
    return table(head, rows, range(3)) if rows else None


# --- manifest ------------------------------------------------------------------------------------------------------


def facts(stored: Stored) -> Table:
    """Make a row per fabric: shape, rate, base RTT, buffer and thresholds."""
    rows = []
    for name, shape in stored.manifest["fabrics"].items():
        f = {**shape, **stored.summary["fabrics"][name]}
        ecn = f["ecn_bytes"]
        rows.append(
            [
                name,
                f"{f['planes']} × ({f['t0_per_plane']} T0, {f['t1_per_plane']} T1), {f['hosts_per_t0'] * f['t0_per_plane']} hosts",
                f"{f['nic_rate_bps'] / 1e9:g} Gb/s",
                duration(f["base_rtt_ns"]),
                f"{f['buffer_bytes']:,} B",
                "off" if ecn is None else f"{ecn[0]:,} to {ecn[1]:,} B",
                "off" if f["trim_bytes"] is None else f"{f['trim_bytes']:,} B",
            ]
        )
    return table(["fabric", "planes", "rate of a NIC port", "base RTT", "buffer", "ECN", "trimming above"], rows, (0, 1))


def machine(manifest: dict[str, Any]) -> Table:
    """Return the environment of the run: versions, kernel, CPU."""
    git, m = manifest.get("git"), manifest["machine"]
    memory = m.get("memory_bytes")
    rows = [
        ["started", manifest["started"]],
        ["ended", manifest.get("ended", "–")],
        ["git commit", "–" if not git else git["commit"] + (", with changes not committed" if git["dirty"] else "")],
        ["switches", manifest.get("switch", "–")],
        ["engine", manifest["engine"]],
        ["kernel", manifest["kernel"]],
        ["machine", f"{m.get('cores')} × {m.get('cpu') or m.get('arch')}" + (f", {memory / 2**30:.0f} GiB" if memory else "")],
        ["Python", manifest["python"].splitlines()[0]],
        ["packages", ", ".join(f"{name} {version}" for name, version in manifest["versions"].items() if version)],
        ["tools", "; ".join(str(version) for version in manifest["tools"].values() if version != "absent")],
    ]
    return table(["", ""], rows, (0, 1))


def options(manifest: dict[str, Any]) -> Table:
    """Return the options of each transport, as the scenario resolved them."""
    rows = []
    for t in manifest["scenario"]["transports"]:
        rest = {k: v for k, v in t.items() if k not in ("kind", "name", "fabric", "options") and v not in (None, "none")}
        settings = {**t.get("options", {}), **rest}
        words = ", ".join(
            f"{k.removesuffix('_ps')} = {duration(v / NS) if k.endswith('_ps') else json.dumps(v, default=str)}"
            for k, v in settings.items()
        )
        rows.append([t["name"], t["kind"], t["fabric"]["name"], words or "–"])
    return table(["transport", "kind", "fabric", "options"], rows, range(4))


def reproduce(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the command lines that produced the results, with their commits: of all sessions of a run, of all directories of a
    comparison."""
    origins = manifest.get("compared") or manifest.get("sessions") or [manifest]
    lines = [(origin["command_line"], origin.get("git")) for origin in origins]
    if manifest.get("compared"):
        lines.append((manifest["command_line"], None))
    unknown = "(started by a program, not by a command)"
    commands = [{"line": shlex.join(arguments) or unknown, "commit": (git or {}).get("commit") or ""} for arguments, git in lines]
    return {"commands": commands, "seeds": ", ".join(map(str, manifest["seeds"]))}
