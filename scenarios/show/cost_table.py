"""What failures cost, as people read it: the columns and the sentence that the terminal and report.html share.

Rows come from :func:`scenarios.figures.cost.costs`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scenarios.figures.cost import FEWEST_HEALTHY, costs
from scenarios.schema.sweep import short_keys
from scenarios.show.tables import world_words

Row = dict[str, Any]
NOTES = {
    "steps": (
        "Lost: time from the last healthy step on, less what as many healthy steps take; a transport's healthy step is the median of "
        "its own before the failure, of as many as said. Theory: what it had lost, had its pace fallen just as the fabric's capacity; "
        "less is possible, for part of a step is waiting, which takes no capacity. Give or take: its steps since the failure, times how "
        "far its healthy steps, or quicker ones later, are off their median; a cost below that is within noise."
    ),
    "flows": (
        "Lost: what the flows over broken paths did not deliver at their goodput before, as time. Back: when the slowest of them had "
        "90 % of what theory leaves it, over 20 base RTTs. Theory: the capacity that was gone, as time."
    ),
}


def seconds(ns: float | None) -> str:
    """A time for people; a small negative one is noise and said as it is."""
    if ns is None:
        return "–"
    size = abs(ns)
    return f"{ns / 1e9:.2f} s" if size >= 1e9 else f"{ns / 1e6:.0f} ms" if size >= 1e7 or not ns else f"{ns / 1e6:.1f} ms"


def number(value: float | None, form: str = ",.1f", unit: str = "") -> str:
    if value is None:
        return "–"
    text = f"{value:{form}}"
    return (text if text.strip("-0.") else text.removeprefix("-")) + unit  # no "-0"


def rtts(row: Row) -> str:
    """The time lost in base RTTs of its fabric."""
    value = row["extra_rtts"]
    return number(value, ",.0f" if value is not None and abs(value) >= 10 else ",.1f")


def _unless_noise(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    return lambda row: "–" if row["extra_ns"] is None or lost_in_noise(row) else cell(row)


def _lost(row: Row) -> str:
    missing = f"{row['unfinished']} of {row['runs']} unfinished" if row["unfinished"] else ""
    if row["extra_ns"] is None:
        return missing or row["unknown"]
    said = ["within noise" if lost_in_noise(row) else seconds(row["extra_ns"]), missing, "" if row["trusted"] else "doubtful"]
    return ", ".join(filter(None, said))


def _range(row: Row) -> str:
    return "–" if row["extra_ns"] is None else f"{seconds(row['extra_low_ns'])} to {seconds(row['extra_high_ns'])}"


def lost_in_noise(row: Row) -> bool:
    """Whether the time lost cannot be told from how unevenly the transport's own healthy steps went."""
    return bool(row["extra_ns"] <= max(0, row.get("noise_ns") or 0))


def _healthy(row: Row) -> str:
    if row["healthy_step_ns"] is None:
        return "–"
    return f"{seconds(row['healthy_step_ns'])} of {row['healthy_steps']}" + (" *" if row["healthy_from"] == "after" else "")


def cost_groups(entries: Sequence[dict[str, Any]]) -> list[tuple[list[str], list[Row]]]:
    """(words that tell it from the others, rows of :func:`scenarios.figures.cost.costs`) per variant and placement of a summary's runs;
    none where nothing broke.
    """
    keys: list[tuple[dict[str, Any], str]] = []
    for e in entries:
        if (key := (e.get("settings", {}), e["placement"])) not in keys:
            keys.append(key)
    found = []
    for settings, placement in keys:
        rows = costs([e for e in entries if e.get("settings", {}) == settings and e["placement"] == placement])
        if rows:
            words = [f"{placement} ranks", *(f"{short} = {settings[key]}" for key, short in short_keys(list(settings)).items())]
            found.append((words if len(keys) > 1 else [], rows))
    return found


def columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """(head, cell of a row); what no row knows is left out."""
    world = world_words(rows)
    who: list[tuple[str, Callable[[Row], str]]] = [("transport", lambda r: ", ".join([f"{r['transport']} on {r['fabric']}", *world(r)]))]
    who.append(("n", lambda r: str(r["n"])))
    lost: list[tuple[str, Callable[[Row], str]]] = [("lost", _lost)]
    if any(r["n"] > 1 for r in rows):
        lost.append(("over seeds", _range))
    if rows[0]["kind"] == "flows":
        return who + [
            ("healthy Mb/s", lambda r: number(r["healthy_bps"] and r["healthy_bps"] / 1e6)),
            ("not delivered", lambda r: number(None if r["undelivered_bytes"] is None else r["undelivered_bytes"] / 1e6, ",.2f", " MB")),
            *lost,
            ("base RTTs", _unless_noise(rtts)),
            ("of the time", _unless_noise(lambda r: number(r["extra_percent"], ",.1f", " %"))),
            ("back after", lambda r: seconds(r["back_ns"])),
            ("theory", lambda r: seconds(r["ideal_extra_ns"])),
        ]
    if any(r.get("noise_ns") is not None for r in rows):
        lost.append(("give or take", lambda r: seconds(r.get("noise_ns"))))
    return who + [
        ("healthy step", _healthy),
        *lost,
        ("in steps", _unless_noise(lambda r: number(r["extra_steps"], ",.2f"))),
        ("base RTTs", _unless_noise(rtts)),
        ("job longer", _unless_noise(lambda r: number(r["extra_percent"], ",.1f", " %"))),
        ("slowest step", lambda r: seconds(r["worst_step_ns"])),
        ("theory", lambda r: seconds(r["ideal_extra_ns"])),
    ]


def footnotes(rows: Sequence[Row]) -> list[str]:
    """What a reader of the table must know."""
    said = [NOTES[kind] for kind in dict.fromkeys(r["kind"] for r in rows)]
    if any(r["healthy_from"] == "after" and r.get("healthy_step_ns") is not None for r in rows):
        said.append("* No step was done before the failure: the healthy step is the median of those begun after it was mended.")
    if any(r["kind"] == "steps" and r["extra_ns"] is None and not r["unfinished"] for r in rows):
        said.append(f"Fewer than {FEWEST_HEALTHY} healthy steps do not show how uneven a pace is: begin the failure at a later step.")
    doubtful: dict[str, list[int]] = {}
    for r in rows:
        if r["doubtful"]:
            both = doubtful.setdefault(r["transport"], [0, 0])
            both[0], both[1] = both[0] + r["doubtful"], both[1] + r["runs"]
    if doubtful:
        names = ", ".join(f"{transport} ({some} of {runs} runs)" for transport, (some, runs) in doubtful.items())
        said.append(f"Not trustworthy, the machine was not up to it: {names}.")
    return said


def headline(rows: Sequence[Row]) -> str:
    """One sentence: what the failure cost each transport, beside theory. A figure that is not trustworthy is not in it."""
    parts = []
    for row in rows:
        if row["extra_ns"] is None or not row["trusted"]:
            parts.append(f"{row['transport']} an amount not known ({row['unknown'] or 'not trustworthy'})")
            continue
        if lost_in_noise(row) and not row["unfinished"]:
            own = f" the noise of its own pace (give or take {seconds(row['noise_ns'])})" if row.get("noise_ns") else " noise"
            parts.append(f"{row['transport']} nothing that can be told from{own}")
            continue
        if row["kind"] == "flows":
            share = f"{number(row['extra_percent'])} % of the time since" if row["extra_percent"] is not None else ""
        else:
            share = f"{number(row['extra_steps'], '.2f')} of its own steps"
        some = f", {row['unfinished']} of {row['runs']} runs did not finish" if row["unfinished"] else ""
        parts.append(f"{row['transport']} {seconds(row['extra_ns'])} ({share}, {rtts(row)} base RTTs{some})")
    ideals = [row["ideal_extra_ns"] for row in rows if row["ideal_extra_ns"] is not None]
    if not ideals:
        theory = ""
    elif max(ideals) - min(ideals) <= 0.05 * max(ideals):
        theory = f" The capacity that was gone accounts for {seconds(max(ideals))}."
    else:
        theory = f" The capacity that was gone accounts for {seconds(min(ideals))} to {seconds(max(ideals))}."
    return f"The failure cost {'; '.join(parts)}.{theory}"
