"""Runs that were made apart, in one new results directory: `mrcbed compare`. Only what may stand side by side gets there.

Only the transports, the seeds and the machine may differ. Directories are read through :class:`scenarios.sets.whole.Whole`, and never
changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scenarios.figures.comparison import write_comparison
from scenarios.figures.measure import TABLES
from scenarios.figures.rows import write_rows
from scenarios.figures.stored import ResultsError
from scenarios.figures.summary import INTERRUPTED, NOT_TRUSTWORTHY
from scenarios.run.resume import first_difference, write_json
from scenarios.sets.whole import Whole
from testbed.faults.kinds import USED_BY_QP

FREE = ("transports", "seeds", "expects", "description", "file", "text", "timeout_ns", "variants")
"""What scenarios of runs that are compared may differ in; every setting is compared on its own."""
MACHINE = ("world", "switch", "engine", "kernel")
VERDICTS = (INTERRUPTED, "failed", NOT_TRUSTWORTHY, "ok")
"""The first of them that any directory has is that of all."""


def read_all(directories: Sequence[Path]) -> list[Whole]:
    """Every directory, whole and fit to be compared with the first. Raises :class:`ResultsError`."""
    if len(directories) < 2:
        raise ResultsError("mrcbed compare needs two results directories or more: mrcbed report shows one")
    seen: dict[Path, Path] = {}
    for directory in directories:
        if directory.resolve() in seen:
            raise ResultsError(f"{directory} and {seen[directory.resolve()]} are the same directory: give each once")
        seen[directory.resolve()] = directory
    first, *others = [Whole(directory) for directory in directories]
    for other in others:
        check_alike(first, other)
    return [first, *others]


def check_alike(first: Whole, other: Whole) -> None:
    """Same scenario, workload, faults and fabric at every setting; a name of a fabric means one thing. Raises :class:`ResultsError`."""

    def refuse(key: str, mine: str, theirs: str, fix: str) -> ResultsError:
        return ResultsError(f"{first.directory} and {other.directory} differ in {key}, {mine} and {theirs}: {fix}")

    if first.scenario["name"] != other.scenario["name"]:
        raise refuse("the scenario", first.scenario["name"], other.scenario["name"], "compare runs of one scenario")
    mixed = "fabrics are not mixed in one comparison, run both on one"
    for name, fabric in first.manifest["fabrics"].items():
        if (found := first_difference(fabric, other.manifest["fabrics"].get(name, fabric))) is not None:
            raise refuse(f"the fabric {name!r}: {found[0]}", *found[1:], mixed)
    settings = [sorted(map(repr, (v["settings"] for v in whole.scenario["variants"]))) for whole in (first, other)]
    if settings[0] != settings[1]:
        raise refuse("[sweep]", f"{len(settings[0])} settings", f"{len(settings[1])}, or others", "compare runs of the same settings")
    theirs = {repr(v["settings"]): v["scenario"] for v in other.scenario["variants"]}
    pairs = [(v["scenario"], theirs[repr(v["settings"])]) for v in first.scenario["variants"]]
    for a, b in pairs or [(first.scenario, other.scenario)]:
        if a["fabric"] != b["fabric"]:
            raise refuse("the fabric", a["fabric"]["name"], b["fabric"]["name"], mixed)
        bound = [{key: value for key, value in s.items() if key not in FREE} for s in (a, b)]
        found = first_difference(bound[0], bound[1])
        if found is not None:
            raise refuse(*found, "compare runs of the same workload and faults")


# --- names ---------------------------------------------------------------------------------------------------------


def labels(directories: Sequence[Path]) -> list[str]:
    """A short name per directory, each its own."""
    paths = [directory.resolve() for directory in directories]
    made: list[str] = []
    for path in paths:
        depth = next((n for n in range(1, len(path.parts)) if sum(p.parts[-n:] == path.parts[-n:] for p in paths) == 1), 1)
        label = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(path.parts[-depth:]).strip("/"))
        made.append(label if label not in made else f"{label}-{len(made) + 1}")
    return made


def renamed(wholes: Sequence[Whole]) -> list[dict[str, str]]:
    """Per directory: transport -> its name among all, with the directory's label where one name would mean two things.

    One name may stand for runs of several directories if these are more seeds of the very same transport.
    """
    tags = labels([whole.directory for whole in wholes])
    ambiguous = set()
    for i, whole in enumerate(wholes):
        for other in wholes[i + 1 :]:
            for name in _names(whole) & _names(other):
                if _made_of(whole, name) != _made_of(other, name) or _variables(whole, name) & _variables(other, name):
                    ambiguous.add(name)
    return [
        {name: f"{name}@{tag}" if name in ambiguous else name for name in _names(whole)} for whole, tag in zip(wholes, tags, strict=True)
    ]


def _names(whole: Whole) -> set[str]:
    return {run["transport"] for run in whole.runs}


def _made_of(whole: Whole, name: str) -> list[Any]:
    """What a transport is, at every setting, and what it ran on."""
    scenarios = [v["scenario"] for v in whole.scenario["variants"]] or [whole.scenario]
    return [*([t for t in s["transports"] if t["name"] == name] for s in scenarios), *(whole.manifest.get(key) for key in MACHINE)]


def _variables(whole: Whole, name: str) -> set[tuple[str, ...]]:
    keys = ("fabric", "placement", "seed", "settings")
    return {tuple(str(run[key]) for key in keys) for run in whole.runs if run["transport"] == name}


# --- one directory of many -----------------------------------------------------------------------------------------


def merge(wholes: Sequence[Whole], out: Path, command_line: Sequence[str]) -> dict[str, Any]:
    """Write summary, manifest, tables, rows and comparison into ``out``; returns the summary. Figures and report are the caller's."""
    names = renamed(wholes)
    tags = labels([whole.directory for whole in wholes])
    summary = merged_summary(wholes, names, tags)
    write_json(out / "manifest.json", merged_manifest(wholes, names, tags, summary, command_line))
    for table in TABLES:
        frames = [renamed_rows(whole.tables[table], whole, name) for whole, name in zip(wholes, names, strict=True)]
        full = [frame for frame in frames if len(frame)]
        (pd.concat(full, ignore_index=True) if full else frames[0]).to_parquet(out / f"{table}.parquet", index=False)
    write_comparison(write_rows(summary["runs"], summary["scenario"], out), out)
    write_json(out / "summary.json", summary)  # last: who finds it finds all
    return summary


def new_key(run: dict[str, Any], name: str) -> str:
    return name + str(run["run"]).removeprefix(run["transport"])


def renamed_rows(table: pd.DataFrame, whole: Whole, names: dict[str, str]) -> pd.DataFrame:
    keys = {run["run"]: new_key(run, names[run["transport"]]) for run in whole.runs}
    made = table[table["run"].isin(list(keys))] if "run" in table else table
    for column, new in (("run", keys), ("transport", names)):
        if column in made:
            made = made.assign(**{column: made[column].map(new)})
    return made


def merged_summary(wholes: Sequence[Whole], names: Sequence[dict[str, str]], tags: Sequence[str]) -> dict[str, Any]:
    """By setting, placement, seed and transport, as of one run. Checks are each directory's own, as they were."""
    runs = []
    for whole, mine in zip(wholes, names, strict=True):
        runs += [{**run, "transport": mine[run["transport"]], "run": new_key(run, mine[run["transport"]])} for run in whole.runs]
    orders = [list(dict.fromkeys(str(run[key]) for run in runs)) for key in ("settings", "placement", "transport")]

    def place(run: dict[str, Any]) -> tuple[int, ...]:
        at = [order.index(str(run[key])) for order, key in zip(orders, ("settings", "placement", "transport"), strict=True)]
        return at[0], at[1], run["seed"], at[2]

    verdicts = [whole.summary["verdict"] for whole in wholes]
    return {
        "scenario": wholes[0].summary["scenario"],
        "verdict": next((verdict for verdict in VERDICTS if verdict in verdicts), "failed"),
        "checks": [{**c, "name": f"{tag}: {c['name']}"} for whole, tag in zip(wholes, tags, strict=True) for c in whole.summary["checks"]],
        "fabrics": {name: fabric for whole in wholes for name, fabric in whole.summary["fabrics"].items()},
        "runs": sorted(runs, key=place),
    }


def merged_manifest(
    wholes: Sequence[Whole], names: Sequence[dict[str, str]], tags: Sequence[str], summary: dict[str, Any], command_line: Sequence[str]
) -> dict[str, Any]:
    """The first one's, with everybody's transports, seeds, fabrics and verdicts, and what they differ in said in the notes."""
    first = wholes[0].manifest
    transports: dict[str, dict[str, Any]] = {}
    fidelity: dict[str, Any] = {}
    for whole, mine in zip(wholes, names, strict=True):
        for transport in whole.scenario["transports"]:
            name = mine.get(transport["name"], transport["name"])
            transports.setdefault(name, {**transport, "name": name})
        fidelity |= {new_key(run, mine[run["transport"]]): whole.manifest["fidelity"][run["run"]] for run in whole.runs}
    seeds = sorted({run["seed"] for run in summary["runs"]})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        **first,
        "scenario": {**first["scenario"], "transports": list(transports.values()), "seeds": seeds},
        "seeds": seeds,
        "fabrics": {name: fabric for whole in wholes for name, fabric in whole.manifest["fabrics"].items()},
        "fidelity": fidelity,
        "verdict": summary["verdict"],
        "command_line": list(command_line),
        "started": now,
        "ended": now,
        "captures": [],
        "sessions": [],
        "compared": [
            {
                "label": tag, "directory": str(whole.directory.resolve()), "transports": mine,
                **{key: whole.manifest.get(key) for key in (*MACHINE, "started", "ended", "command_line", "git", "machine")},
            }
            for whole, mine, tag in zip(wholes, names, tags, strict=True)
        ],
        "notes": notes(wholes, tags),
    }  # fmt: skip


def notes(wholes: Sequence[Whole], tags: Sequence[str]) -> list[str]:
    """Everybody's, and in what they were made unlike."""
    said = ["These runs were made apart, at different times: a drift of the machine between them shows as a difference between transports."]
    for key in (*MACHINE, "machine"):
        told = {tag: str(whole.manifest.get(key)) for whole, tag in zip(wholes, tags, strict=True)}
        if len(set(told.values())) > 1:
            said.append(f"They differ in {key}: {'; '.join(f'{tag}: {value}' for tag, value in told.items())}.")
    commits = {tag: (whole.manifest.get("git") or {}).get("commit") for whole, tag in zip(wholes, tags, strict=True)}
    if len(set(commits.values())) > 1:
        said.append(f"They differ in the version of mrcbed: {'; '.join(f'{tag}: {str(c)[:12]}' for tag, c in commits.items())}.")
    if any(fault["on"] == USED_BY_QP for fault in wholes[0].scenario["faults"]) and _unlike_faults(wholes):
        said.append(f"Faults on {USED_BY_QP} hit other cables in one directory than in another, for the same placement and seed.")
    return [*said, *dict.fromkeys(note for whole in wholes for note in whole.manifest["notes"])]


def _unlike_faults(wholes: Sequence[Whole]) -> bool:
    hit: dict[tuple[str, ...], set[str]] = {}
    for whole in wholes:
        for run in whole.runs:
            for failover in run.get("failovers", ()):
                where = tuple(str(run[key]) for key in ("fabric", "placement", "seed", "settings")) + (failover["fault"],)
                hit.setdefault(where, set()).add(failover["on"])
    return any(len(cables) > 1 for cables in hit.values())
