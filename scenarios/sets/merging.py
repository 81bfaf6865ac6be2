"""Merges runs of separate directories into one new results directory.

Only the transports, the seeds and the machine may differ. The directories are never changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import replace

from scenarios.figures.comparison import write_comparison
from scenarios.figures.measure import TABLES
from scenarios.figures.rows import write_rows
from scenarios.figures.summary import INTERRUPTED, NOT_TRUSTWORTHY
from scenarios.run.resume import first_difference, write_json
from scenarios.sets.whole import Whole
from testbed.faults.kinds import USED_BY_QP
from testbed.results.reading import ResultsError
from testbed.results.summary import Run, Summary
from topologies.structs import plain

FREE = ("transports", "seeds", "expects", "description", "file", "text", "timeout_ns", "variants")
"""Keys in which scenarios may differ; each setting is compared by itself."""
MACHINE = ("world", "switch", "engine", "kernel")
# The first that any directory has is that of all.
VERDICTS = (INTERRUPTED, "failed", NOT_TRUSTWORTHY, "ok")


def read_all(directories: Sequence[Path]) -> list[Whole]:
    """Check that every directory is complete and comparable with the first. Raises
    :class:`ResultsError`."""
    if len(directories) < 2:
        raise ResultsError(
            "mrcbed results compare needs two results directories or more: mrcbed results report "
            "shows one"
        )
    directory_of: dict[Path, Path] = {}
    for directory in directories:
        if directory.resolve() in directory_of:
            raise ResultsError(
                f"{directory} and {directory_of[directory.resolve()]} are the same directory: "
                "give each once"
            )
        directory_of[directory.resolve()] = directory
    first, *others = [Whole(directory) for directory in directories]
    for other in others:
        check_alike(first, other)
    return [first, *others]


def check_alike(first: Whole, other: Whole) -> None:
    """Check scenario, workload, faults and fabric at every setting, and fabric names. Raises
    :class:`ResultsError`."""

    def refuse(key: str, own_value: str, other_value: str, fix: str) -> ResultsError:
        return ResultsError(
            f"{first.directory} and {other.directory} differ in {key}, {own_value} and "
            f"{other_value}: {fix}"
        )

    if first.scenario["name"] != other.scenario["name"]:
        raise refuse(
            "the scenario",
            first.scenario["name"],
            other.scenario["name"],
            "compare runs of one scenario",
        )
    values = [float(whole.manifest.get("dilation", {}).get("value", 0)) for whole in (first, other)]
    if all(values) and values[0] != values[1]:
        raise refuse(
            "dilation",
            f"{values[0]:,.0f}",
            f"{values[1]:,.0f}",
            f"run both with --dilation {max(values):.0f}",
        )
    mixed = "fabrics are not mixed in one comparison, run both on one"
    for name, fabric in first.manifest["fabrics"].items():
        if (
            difference := first_difference(fabric, other.manifest["fabrics"].get(name, fabric))
        ) is not None:
            raise refuse(f"the fabric {name!r}: {difference[0]}", *difference[1:], mixed)
    settings = [
        sorted(map(repr, (v["settings"] for v in whole.scenario["variants"])))
        for whole in (first, other)
    ]
    if settings[0] != settings[1]:
        raise refuse(
            "[sweep]",
            f"{len(settings[0])} settings",
            f"{len(settings[1])}, or others",
            "compare runs of the same settings",
        )
    other_scenarios = {repr(v["settings"]): v["scenario"] for v in other.scenario["variants"]}
    pairs = [
        (v["scenario"], other_scenarios[repr(v["settings"])]) for v in first.scenario["variants"]
    ]
    for a, b in pairs or [(first.scenario, other.scenario)]:
        if a["fabric"] != b["fabric"]:
            raise refuse("the fabric", a["fabric"]["name"], b["fabric"]["name"], mixed)
        common = [{key: value for key, value in s.items() if key not in FREE} for s in (a, b)]
        difference = first_difference(common[0], common[1])
        if difference is not None:
            raise refuse(*difference, "compare runs of the same workload and faults")


# --- names ----------------------------------------------------------------------------------------


def labels(directories: Sequence[Path]) -> list[str]:
    paths = [directory.resolve() for directory in directories]
    unique: list[str] = []
    for path in paths:
        depth = next(
            (
                n
                for n in range(1, len(path.parts))
                if sum(p.parts[-n:] == path.parts[-n:] for p in paths) == 1
            ),
            1,
        )
        label = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(path.parts[-depth:]).strip("/"))
        unique.append(label if label not in unique else f"{label}-{len(unique) + 1}")
    return unique


def new_transport_names(wholes: Sequence[Whole]) -> list[dict[str, str]]:
    """Return per directory: transport -> its name in the result, with the directory's label if
    ambiguous.

    Several directories may have seeds of the same transport.
    """
    tags = labels([whole.directory for whole in wholes])
    ambiguous = set()
    for i, whole in enumerate(wholes):
        for other in wholes[i + 1 :]:
            for name in _names(whole) & _names(other):
                if _definition(whole, name) != _definition(other, name) or _run_ids(
                    whole, name
                ) & _run_ids(other, name):
                    ambiguous.add(name)
    return [
        {name: f"{name}@{tag}" if name in ambiguous else name for name in _names(whole)}
        for whole, tag in zip(wholes, tags, strict=True)
    ]


def _names(whole: Whole) -> set[str]:
    return {run.transport for run in whole.runs}


def _definition(whole: Whole, name: str) -> list[Any]:
    scenarios = [v["scenario"] for v in whole.scenario["variants"]] or [whole.scenario]
    return [
        *([t for t in s["transports"] if t["name"] == name] for s in scenarios),
        *(whole.manifest.get(key) for key in MACHINE),
    ]


def _run_ids(whole: Whole, name: str) -> set[tuple[str, ...]]:
    keys = ("fabric", "placement", "seed", "settings")
    return {
        tuple(str(getattr(run, key)) for key in keys) for run in whole.runs if run.transport == name
    }


# --- one directory of many ------------------------------------------------------------------------


def merge(wholes: Sequence[Whole], out: Path, command_line: Sequence[str]) -> Summary:
    """Write all but plots and report."""
    names = new_transport_names(wholes)
    tags = labels([whole.directory for whole in wholes])
    summary = merged_summary(wholes, names, tags)
    write_json(out / "manifest.json", merged_manifest(wholes, names, tags, summary, command_line))
    for table in TABLES:
        frames = [
            renamed_rows(whole.tables[table], whole, name)
            for whole, name in zip(wholes, names, strict=True)
        ]
        non_empty = [frame for frame in frames if len(frame)]
        (pd.concat(non_empty, ignore_index=True) if non_empty else frames[0]).to_parquet(
            out / f"{table}.parquet", index=False
        )
    write_comparison(write_rows(summary.runs, summary.scenario, out), out)
    # written last: where it exists, everything does
    write_json(out / "summary.json", plain(summary))
    return summary


def new_key(run: Run, name: str) -> str:
    return name + run.run.removeprefix(run.transport)


def renamed_rows(table: pd.DataFrame, whole: Whole, names: dict[str, str]) -> pd.DataFrame:
    keys = {run.run: new_key(run, names[run.transport]) for run in whole.runs}
    rows = table[table["run"].isin(list(keys))] if "run" in table else table
    for column, new_names in (("run", keys), ("transport", names)):
        if column in rows:
            rows = rows.assign(**{column: rows[column].map(new_names)})
    return rows


def merged_summary(
    wholes: Sequence[Whole], names: Sequence[dict[str, str]], tags: Sequence[str]
) -> Summary:
    runs = []
    for whole, own_names in zip(wholes, names, strict=True):
        new_names = {run.run: own_names[run.transport] for run in whole.runs}
        runs += [
            replace(run, transport=name, run=new_key(run, name))
            for run in whole.runs
            if (name := new_names[run.run])
        ]
    orders = [
        list(dict.fromkeys(str(getattr(run, key)) for run in runs))
        for key in ("settings", "placement", "transport")
    ]

    def sort_key(run: Run) -> tuple[int, ...]:
        positions = [
            order.index(str(getattr(run, key)))
            for order, key in zip(orders, ("settings", "placement", "transport"), strict=True)
        ]
        return positions[0], positions[1], run.seed, positions[2]

    verdicts = [whole.summary.verdict for whole in wholes]
    return replace(
        wholes[0].summary,
        verdict=next((verdict for verdict in VERDICTS if verdict in verdicts), "failed"),
        checks=[
            replace(c, name=f"{tag}: {c.name}")
            for whole, tag in zip(wholes, tags, strict=True)
            for c in whole.summary.checks
        ],
        fabrics={
            name: fabric for whole in wholes for name, fabric in whole.summary.fabrics.items()
        },
        runs=sorted(runs, key=sort_key),
        stopped_by=None,
    )


def merged_manifest(
    wholes: Sequence[Whole],
    names: Sequence[dict[str, str]],
    tags: Sequence[str],
    summary: Summary,
    command_line: Sequence[str],
) -> dict[str, Any]:
    first = wholes[0].manifest
    transports: dict[str, dict[str, Any]] = {}
    fidelity: dict[str, Any] = {}
    for whole, own_names in zip(wholes, names, strict=True):
        for transport in whole.scenario["transports"]:
            name = own_names.get(transport["name"], transport["name"])
            transports.setdefault(name, {**transport, "name": name})
        fidelity |= {
            new_key(run, own_names[run.transport]): whole.manifest["fidelity"][run.run]
            for run in whole.runs
        }
    seeds = sorted({run.seed for run in summary.runs})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        **first,
        "scenario": {**first["scenario"], "transports": list(transports.values()), "seeds": seeds},
        "seeds": seeds,
        "fabrics": {
            name: fabric for whole in wholes for name, fabric in whole.manifest["fabrics"].items()
        },
        "fidelity": fidelity,
        "verdict": summary.verdict,
        "command_line": list(command_line),
        "started": now,
        "ended": now,
        "captures": [],
        "sessions": [],
        "compared": [
            {
                "label": tag,
                "directory": str(whole.directory.resolve()),
                "transports": own_names,
                **{
                    key: whole.manifest.get(key)
                    for key in (*MACHINE, "started", "ended", "command_line", "git", "machine")
                },
            }
            for whole, own_names, tag in zip(wholes, names, tags, strict=True)
        ],
        "notes": notes(wholes, tags),
    }


def notes(wholes: Sequence[Whole], tags: Sequence[str]) -> list[str]:
    lines = [
        (
            "These runs were made apart, at different times: a drift of the machine between them "
            "shows as a difference between transports."
        )
    ]
    for key in (*MACHINE, "machine"):
        values = {
            tag: str(whole.manifest.get(key)) for whole, tag in zip(wholes, tags, strict=True)
        }
        if len(set(values.values())) > 1:
            lines.append(
                f"They differ in {key}: "
                f"{'; '.join(f'{tag}: {value}' for tag, value in values.items())}."
            )
    commits = {
        tag: (whole.manifest.get("git") or {}).get("commit")
        for whole, tag in zip(wholes, tags, strict=True)
    }
    if len(set(commits.values())) > 1:
        lines.append(
            "They differ in the version of mrcbed: "
            f"{'; '.join(f'{tag}: {str(c)[:12]}' for tag, c in commits.items())}."
        )
    if any(fault["on"] == USED_BY_QP for fault in wholes[0].scenario["faults"]) and _targets_differ(
        wholes
    ):
        lines.append(
            f"Faults on {USED_BY_QP} hit other cables in one directory than in another, for the "
            "same placement and seed."
        )
    return [*lines, *dict.fromkeys(note for whole in wholes for note in whole.manifest["notes"])]


def _targets_differ(wholes: Sequence[Whole]) -> bool:
    cables_of: dict[tuple[str, ...], set[str]] = {}
    for whole in wholes:
        for run in whole.runs:
            for failover in run.failovers:
                run_and_fault = tuple(
                    str(getattr(run, key)) for key in ("fabric", "placement", "seed", "settings")
                ) + (failover.fault,)
                cables_of.setdefault(run_and_fault, set()).add(failover.on)
    return any(len(cables) > 1 for cables in cables_of.values())
