"""The table of what failures cost, for the terminal and report.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.figures.cost import FEWEST_HEALTHY
from scenarios.figures.costs import CostRow, Extra, costs
from scenarios.figures.stats import interval_name, interval_note
from scenarios.schema.sweep import short_keys
from testbed.results.summary import Run
from testbed.terminal import duration, number

NOTES = {
    False: (
        "Slowest step: the longest step since the failure began, in healthy steps. Healthy step: "
        "the transport's own median step before the failure (in brackets, of how many). Goodput "
        "kept: payload received while something was broken, as a share of the healthy goodput. "
        "Extra time: the time from the failure to the end, less what as many healthy steps take. "
        "±: noise, how far the healthy steps are off their median, times the steps since the "
        "failure."
    ),
    True: (
        "Of the flows over broken paths. Goodput kept: payload received while something was "
        "broken, as a share of the goodput before. Extra time: the payload that they did not "
        "deliver since the failure, as time at their goodput before. ±: noise, how far their "
        "goodput before the failure was off its mean, times the time since. Recovered after: "
        "when the slowest of them had 90 % of what theory leaves it, over 20 base RTTs."
    ),
}
SHORT = (
    "Extra time: how much later all was done than at the pace before (±: noise). Theory: what "
    "the lost capacity alone explains."
)
ASIDE = (
    "n",
    "slowest step",
    "goodput kept",
    "in steps",
    "in base RTTs",
    "job longer",
    "of the time",
    "healthy Gb/s",
    "not delivered",
)
THEORY = {
    False: (
        "Theory: the extra time expected if throughput fell in proportion to capacity; less is "
        "possible, since part of a step is waiting, which takes no capacity."
    ),
    True: "Theory: the extra time expected if throughput fell in proportion to capacity.",
}


def world_words(rows: Sequence[Run | CostRow]) -> Callable[[Run | CostRow], list[str]]:
    mixed = len({row.world for row in rows}) > 1
    return lambda row: [row.world] if mixed else []


def rtts(row: CostRow) -> str:
    value = row.extra_rtts
    return number(value, ",.0f" if value is not None and abs(value) >= 10 else ",.1f")


def _unless_noise(cell: Callable[[CostRow], str]) -> Callable[[CostRow], str]:
    return lambda row: "–" if row.extra_ns is None or row.within_noise else cell(row)


def extra_time(row: Extra) -> str:
    """Write the extra time, never as a gain: below its noise it is "within noise"."""
    size = row.noise
    if row.within_noise:
        return "none" if not size else f"within noise (±{duration(size)})"
    return duration(row.extra_ns) + (f" ±{duration(size)}" if size else "")


def _extra(row: CostRow) -> str:
    unfinished = f"{row.unfinished} of {row.runs} unfinished" if row.unfinished else ""
    if row.extra_ns is None:
        return unfinished or row.unknown or "–"
    parts = [extra_time(row).replace(" (", "\n("), unfinished, "" if row.trusted else "doubtful"]
    return ", ".join(filter(None, parts))


def _interval(row: CostRow) -> str:
    return "–" if row.n < 2 else f"{duration(row.extra_low_ns)} to {duration(row.extra_high_ns)}"


def slowdown(row: CostRow) -> str:
    return number(row.slowdown, ",.1f", "×")


def kept(row: CostRow) -> str:
    """Write the share of goodput kept, which within the noise is neither a loss nor a gain."""
    share, noise_share = row.goodput_kept, row.noise_share
    if share is None:
        return "–"
    if share >= 1 / (1 + (noise_share or 0)):
        return (
            f"within noise (±{100 * noise_share:.0f} %)"
            if noise_share and round(100 * noise_share)
            else "all"
        )
    return f"{100 * share:.0f} %"


def _healthy(row: CostRow) -> str:
    if row.healthy_step_ns is None:
        return "–"
    return f"{duration(row.healthy_step_ns)} ({row.healthy_steps})" + (
        " *" if row.healthy_from == "after" else ""
    )


def groups_of(entries: Sequence[Run]) -> list[tuple[list[str], list[Run]]]:
    """Return (labels, runs) per variant and placement; a single group has no labels."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for e in entries:
        groups.setdefault((str(e.settings), e.placement), []).append(e)
    named = []
    for runs in groups.values():
        settings = runs[0].settings
        labels = [
            f"{runs[0].placement} ranks",
            *(f"{short} = {settings[key]}" for key, short in short_keys(list(settings)).items()),
        ]
        named.append((labels if len(groups) > 1 else [], runs))
    return named


def shared_fabric(rows: Sequence[CostRow]) -> str:
    """Return the one fabric of several rows, for their title; else nothing."""
    fabrics = {row.fabric for row in rows}
    return fabrics.pop() if len(fabrics) == 1 < len(rows) else ""


def cost_groups(entries: Sequence[Run]) -> list[tuple[list[str], list[CostRow]]]:
    return [(labels, rows) for labels, runs in groups_of(entries) if (rows := costs(runs))]


def _has_theory(rows: Sequence[CostRow]) -> bool:
    return any(r.ideal_extra_ns is not None for r in rows)


def columns(rows: Sequence[CostRow]) -> list[tuple[str, Callable[[CostRow], str]]]:
    """Return (head, function: row -> cell) of non-empty columns, most important first."""
    world, shared = world_words(rows), shared_fabric(rows)

    def fabric(row: CostRow) -> list[str]:
        return [] if shared else [f"on {row.fabric}"]

    heads: list[tuple[str, Callable[[CostRow], str]]] = [
        ("transport", lambda r: "\n".join([r.transport, *fabric(r), *world(r)]))
    ]
    heads.append(("n", lambda r: str(r.n)))
    flows = rows[0].of_flows
    if any(r.slowdown is not None for r in rows):
        heads.append(("slowest step", slowdown))
    if any(r.goodput_kept is not None for r in rows):
        heads.append(("goodput kept", lambda r: kept(r).replace(" (", "\n(")))
    heads.append(("extra time", _extra))
    if several := [r.n for r in rows if r.n > 1]:
        heads.append((interval_name(min(several)), _interval))
    in_rtts = ("in base RTTs", _unless_noise(rtts))
    theory = [("theory", lambda r: duration(r.ideal_extra_ns))] if _has_theory(rows) else []
    if flows:
        return heads + [
            in_rtts,
            ("of the time", _unless_noise(lambda r: number(r.extra_percent, ",.1f", " %"))),
            ("recovered after", lambda r: duration(r.back_ns)),
            *theory,
            ("healthy Gb/s", lambda r: number(r.healthy_bps and r.healthy_bps / 1e9)),
            (
                "not delivered",
                _unless_noise(
                    lambda r: number(
                        None if r.undelivered_bytes is None else r.undelivered_bytes / 1e6,
                        ",.2f",
                        " MB",
                    )
                ),
            ),
        ]
    return heads + [
        ("in steps", _unless_noise(lambda r: number(r.extra_steps, ",.2f"))),
        in_rtts,
        ("job longer", _unless_noise(lambda r: number(r.extra_percent, ",.1f", " %"))),
        *theory,
        ("healthy step", _healthy),
    ]


def footnotes(rows: Sequence[CostRow]) -> list[str]:
    notes = [
        NOTES[flows]
        + (f" {THEORY[flows]}" if _has_theory([r for r in rows if r.of_flows == flows]) else "")
        for flows in dict.fromkeys(r.of_flows for r in rows)
    ]
    if job := next((r.job for r in rows if r.job), None):
        notes.append(f"Of several jobs, the first: {job}.")
    if intervals := interval_note([r.n for r in rows]):
        notes.append(
            f"Over seeds: medians, with the {intervals} of the extra time. ± then is at least as "
            "wide as that reaches down."
        )
    if any(r.healthy_from == "after" and r.healthy_step_ns is not None for r in rows):
        notes.append(
            "* No step ended before the failure began: the healthy step is the median of the "
            "steps that began after its repair."
        )
    if any(not r.of_flows and r.extra_ns is None and not r.unfinished for r in rows):
        notes.append(
            f"Fewer than {FEWEST_HEALTHY} healthy steps do not show how uneven a pace is: begin "
            "the failure at a later step."
        )
    doubtful: dict[str, list[int]] = {}
    for r in rows:
        if r.doubtful:
            counts = doubtful.setdefault(r.transport, [0, 0])
            counts[0], counts[1] = counts[0] + r.doubtful, counts[1] + r.runs
    if doubtful:
        names = ", ".join(
            f"{transport} ({count} of {runs} runs)" for transport, (count, runs) in doubtful.items()
        )
        notes.append(f"Not trustworthy, because the machine was too busy or late: {names}.")
    return notes
