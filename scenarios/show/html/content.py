"""Makes the document ``report.html``: the terminal's sections, figures, all medians, the
manifest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import pandas as pd

from scenarios.figures.costs import Extra
from scenarios.figures.stored import Stored
from scenarios.show.answer import answer, verdict
from scenarios.show.cost_table import extra_time, world_words
from scenarios.show.document import Block, Document, Folded, Picture, Section, Table, Words, plain
from scenarios.show.html.drawings import figures, prefix_of
from scenarios.show.run_tables import against, few, sections
from testbed.results.manifest import Machine, Manifest, Session, Transport
from testbed.terminal import duration, number
from testbed.view.inline import NAME as REPLAY
from topologies.units import NS

# losses of time
LOSSES = (
    "failure_cost.extra_ns",
    "failure_cost.extra_steps",
    "failure_cost.extra_rtts",
    "failure_cost.extra_percent",
)
ORDER = (
    "answer",
    "cost",
    "checks",
    "trust",
    "figures",
    "medians",
    "runs",
    "faults",
    "jobs",
    "background",
    "manifest",
    "reproduce",
)
# One of these kinds of figures stands below the answer; best first.
FIRST = ("sweep", "goodput", "flows", "permutation", "step-times")
_MEDIANS = (
    "In brackets the interval of the median: the range of the runs below six seeds, the 95 % "
    "order-statistic interval from six on. The same figures are in comparison.csv; "
    "docs/how/results.md defines them."
)
_AGAIN = (
    "If a command has --out, change its directory. From the results directory alone, mrcbed "
    "results plot DIR draws the figures again and mrcbed results report DIR writes this page "
    "again, byte for byte."
)


def content(stored: Stored) -> Document:
    """Raises :class:`ResultsError`."""
    summary, manifest = stored.summary, stored.manifest
    stored.judge()
    found = {section.key: section for section in sections(summary, stored.fabrics, stored.begin_ns)}
    found["manifest"] = Section(
        "manifest", "What it ran on", [*found["manifest"].blocks, *ran_on(manifest)]
    )
    found["reproduce"] = Section("reproduce", "To run it again", reproduce(manifest))
    first, others = first_of(figures(stored))
    found["figures"] = Section("figures", "Figures", others)
    found["answer"] = Section(
        "answer",
        "In short",
        [*answer(summary), *few(against(summary), "#trust"), Words(verdict(summary), ""), *first],
    )
    if tables := medians(stored):
        found["medians"] = Section("medians", "Medians over seeds", [Words(_MEDIANS), *tables])
    said: list[Block] = [Words(text, "sub")] if (text := manifest.scenario.description) else []
    if (stored.directory / REPLAY).is_file():
        said.append(Words([("See it path by path", REPLAY), (", with a time slider.", "")], "sub"))
    if reason := summary.stopped_by:
        said.append(
            Words(
                f"Stopped early: {reason}. The page shows what was measured until then.", "banner"
            )
        )
    order = ORDER if "cost" in found else ("answer", "jobs", "runs", *ORDER[1:])
    return Document(
        summary.scenario,
        said,
        [found[key] for key in dict.fromkeys(order) if key in found],
        summary.verdict,
    )


def first_of(pictures: Sequence[Picture]) -> tuple[list[Block], list[Block]]:
    ranks = [
        FIRST.index(kind) if (kind := prefix_of(picture.name)) in FIRST else len(FIRST)
        for picture in pictures
    ]
    best = ranks.index(min(ranks)) if ranks and min(ranks) < len(FIRST) else len(ranks)
    return list(pictures[best : best + 1]), [*pictures[:best], *pictures[best + 1 :]]


def _rate(bps: float | None, collective: bool) -> str:
    """Write a collective's bus bandwidth in GB/s, as nccl-tests prints it, flows' goodput in Gb/s,
    like a line's rate."""
    return number(
        None if bps is None else bps / (8e9 if collective else 1e9),
        ",.1f",
        " GB/s" if collective else " Gb/s",
    )


def medians(stored: Stored) -> list[Table]:
    """Make a table per placement and variant: a row per figure, a column per transport; [] without
    comparison.parquet."""
    frame = stored.table("comparison")
    if not len(frame) or not {
        "transport",
        "fabric",
        "figure",
        "median",
        "low",
        "high",
        "n",
        "unit",
    } <= set(frame):
        return []
    variables = list(frame.columns[: list(frame.columns).index("figure")])
    groups = [
        c for c in variables if c not in ("transport", "kind", "fabric", "scenario", "workload")
    ]
    world = world_words(stored.runs)
    worlds = {r.transport: world(r) for r in stored.runs}  # runs of two worlds never share a name
    tables = []
    for values, group in (
        frame.groupby(groups, sort=False, dropna=False) if groups else [((), frame)]
    ):
        heads = list(dict.fromkeys(zip(group["transport"], group["fabric"], strict=True)))
        rows, usual_n = [], int(group["n"].max())
        noise_cells = costs_within_noise(group)
        for (figure, unit), records in group.groupby(["figure", "unit"], sort=False, dropna=False):
            by_head = {(row["transport"], row["fabric"]): row for row in records.to_dict("records")}
            if any(is_known(row["median"]) for row in by_head.values()):
                name = str(figure).removesuffix("_ns").removesuffix("_bps")
                if is_known(unit) and unit not in ("", "ns"):
                    name += "" if unit == "bit/s" else f" [{unit}]"
                cells = [
                    _interval(by_head.get(head), str(figure if unit == "bit/s" else unit), usual_n)
                    for head in heads
                ]
                if str(figure) in LOSSES:
                    cells = [
                        noise_cells.get(head, cell) for head, cell in zip(heads, cells, strict=True)
                    ]
                rows.append([name, *cells])
        title = ", ".join(
            f"{v} ranks" if k == "placement" else f"{k} = {v}"
            for k, v in zip(groups, values, strict=False)
        )
        title = ", ".join([title, f"n = {usual_n}"] if title else [f"n = {usual_n}"])
        tables.append(
            plain(
                ["figure", *("\n".join([f"{t} on {f}", *worlds.get(t, [])]) for t, f in heads)],
                rows,
                title=title,
            )
        )
    return tables


def costs_within_noise(compared: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return (transport, fabric) -> the noise, where extra time is no larger."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for record in compared.to_dict("records"):
        rows.setdefault((record["transport"], record["fabric"]), {})[str(record["figure"])] = record
    cells = {}
    for head, by_figure in rows.items():
        extra, noise = (
            by_figure.get("failure_cost.extra_ns"),
            by_figure.get("failure_cost.noise_ns"),
        )
        if extra is None or not is_known(extra["median"]):
            continue
        low = extra["low"] if is_known(extra["low"]) else extra["median"]
        noise_ns = noise["median"] if noise is not None and is_known(noise["median"]) else None
        row = Extra(extra_ns=extra["median"], extra_low_ns=low, noise_ns=noise_ns, n=extra["n"])
        if row.within_noise:
            cells[head] = extra_time(row)
    return cells


def is_known(value: Any) -> bool:
    return value is not None and value == value


def _interval(row: Any, unit: str, usual_n: int) -> str:
    """Write a median; below it its interval, the ideal, and an unusual number of runs. ``unit`` is
    that of a rate's figure."""

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
    lines += (
        [f"ideal {show(row['ideal'])}"]
        if is_known(row.get("ideal")) and row["ideal"] != row["median"]
        else []
    )
    lines += [f"n = {int(row['n'])}"] if int(row["n"]) != usual_n else []
    lines += (
        [f"{int(row['doubtful'])} not trustworthy"]
        if is_known(row.get("doubtful")) and row["doubtful"]
        else []
    )
    return "\n".join([show(row["median"]), *lines])


# --- manifest -------------------------------------------------------------------------------------


def ran_on(manifest: Manifest) -> list[Block]:
    git, m = manifest.git, manifest.machine or Machine()
    machine = {
        "started": manifest.started,
        "ended": manifest.ended or "–",
        "git commit": "–"
        if git is None
        else f"{git.commit}{', with changes not committed' if git.dirty else ''}",
        "switches": manifest.switch or "–",
        "engine": manifest.engine,
        "kernel": manifest.kernel,
        "machine": f"{m.cores} × {m.cpu or m.arch}"
        + (f", {m.memory_bytes / 2**30:.0f} GiB" if m.memory_bytes else ""),
        "Python": manifest.python.partition("\n")[0],
        "packages": ", ".join(
            f"{name} {version}" for name, version in manifest.versions.items() if version
        ),
        "tools": "; ".join(
            str(version) for version in manifest.tools.values() if version != "absent"
        ),
    }
    transports = [
        [t.name, t.kind, t.fabric.name if t.fabric else "–", _options(t)]
        for t in manifest.scenario.transports
    ]
    heads = ("transport", "kind", "fabric", "options")
    notes = [Words(note) for note in manifest.notes]
    return [
        plain(heads, transports, words=heads),
        plain(("", ""), list(machine.items()), words=("",)),
        *notes,
    ]


def _options(transport: Transport) -> str:
    own = {
        name: getattr(transport, name)
        for name in ("reconvergence_ps", "repair_ps", "qps", "controller", "clustermapper")
    }
    given = {
        **transport.options,
        **{key: value for key, value in own.items() if value not in (None, "none")},
    }
    words = (
        f"{key.removesuffix('_ps')} = "
        f"{duration(value / NS) if key.endswith('_ps') else json.dumps(value, default=str)}"
        for key, value in given.items()
    )
    return ", ".join(words) or "–"


def reproduce(manifest: Manifest) -> list[Block]:
    """Return scenario and command lines with commits: of all sessions of a run, of all directories
    of a comparison."""
    own = Session(command_line=manifest.command_line, git=manifest.git)
    lines = [
        (origin.command_line, origin.git)
        for origin in manifest.compared or manifest.sessions or [own]
    ]
    if manifest.compared:
        lines.append((manifest.command_line, None))
    blocks: list[Block] = []
    for arguments, git in lines:
        blocks.append(
            Words(shlex.join(arguments) or "(started by a program, not by a command)", "pre")
        )
        if git and git.commit:
            blocks.append(Words(f"At git commit {git.commit}."))
    blocks.append(Words(f"Seeds {', '.join(map(str, manifest.seeds))}. {_AGAIN}", ""))
    return [*blocks, Folded("The scenario file", [Words(manifest.scenario_file, "pre")])]
