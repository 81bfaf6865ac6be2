"""Draws a run's state as text: steps, goodput by plane, paths, faults, hosts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scenarios.show.live.state import Host, RunState
from testbed.terminal import duration

BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 22
NARROW = 100
"""Narrower screens show no windows, repeated packets and timeouts."""
BESIDE = 118  # From so many columns on, paths and faults stand side by side.
SPARK = 40
SILENT_S = 30.0
"""Agents write ten times a second while anything happens; after so long without a line the screen
says that nothing does [ours]."""
LATEST, FAULTS = 5, 6  # shown changes of paths, and faults
STATES = {
    "died": ("assumed bad", "bold red"),
    "suspect": ("suspect", "yellow"),
    "closed": ("closed", "bold red"),
    "denied": ("denied", "magenta"),
    "probed": ("probed", "yellow"),
}
PLANES = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_yellow", "white")


@dataclass(frozen=True)
class About:
    """What the logs do not contain. ``steps``: measured ones of a collective, 0 for flows;
    ``done``, ``runs``: of the directory."""

    title: str
    live: bool
    steps: int = 0
    done: int = 0
    runs: int = 0
    silent_s: float = 0.0  # wall time since a log grew
    journalled: bool = True  # whether faults are in the logs: those of a prompt are not


def screen(state: RunState, about: About, width: int, height: int = 0) -> RenderableType:
    """Hosts that find no room are counted (``height`` 0: all have it)."""
    paths, faults = _paths(state), _faults(state, about)
    beside = width >= BESIDE
    if beside:
        paths, faults = _as_long(paths, faults), _as_long(faults, paths)
    middle: list[RenderableType] = (
        [_beside(_panel(Group(*paths), "paths"), _panel(Group(*faults), "faults"))]
        if beside
        else [_panel(Group(*paths), "paths"), _panel(Group(*faults), "faults")]
    )
    top = [
        *_head(state, about),
        _panel(
            Group(*(steps := _steps(state, about))),
            "steps" if about.steps or state.step_ends else "messages",
        ),
        _goodput(state, about.live, width),
    ]
    used = len(_head(state, about)) + len(steps) + 2 + state.fabric.planes + 3
    used += max(len(paths), len(faults)) + 2 if beside else len(paths) + len(faults) + 4
    rows = max(2, height - used - 4) if height else state.fabric.host_count
    return Group(*top, *middle, _hosts(state, rows, width))


def _as_long(lines: list[Text], others: list[Text]) -> list[Text]:
    return [*lines, *(Text("") for _ in range(len(others) - len(lines)))]


def _beside(left: RenderableType, right: RenderableType) -> RenderableType:
    table = Table.grid(expand=True)
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    table.add_row(left, right)
    return table


def spark(values: Sequence[float], columns: int = SPARK, most: float = 0.0) -> str:
    """Draw blocks as high as the values; several in a column are averaged. ``most``: value of a
    full block."""
    if not values:
        return ""
    if len(values) > columns:
        edges = [round(i * len(values) / columns) for i in range(columns + 1)]
        values = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    top = most or max(values) or 1.0
    return "".join(BLOCKS[min(7, max(0, int(value / top * 7.999)))] for value in values)


def _bar(share: float, colour: str, columns: int = BAR) -> Text:
    filled = round(columns * min(1.0, max(0.0, share)))
    return Text("█" * filled, colour) + Text("░" * (columns - filled), "bright_black")


def _head(state: RunState, about: About) -> list[Text]:
    look = "bold green" if about.live else "bold"
    word = "running" if about.live else state.outcome or "not finished"
    line = Text(f"{word}  ", look if word in ("running", "done") else "bold red")
    if about.live and about.silent_s > SILENT_S:
        line += Text(f"nothing written for {about.silent_s:,.0f} s  ", "yellow")
    line += Text(about.title, "bold") + Text(f"  {duration(max(0, state.clock))} since its begin")
    if about.runs > 1:
        line += Text(f"  ({about.done} of {about.runs} runs finished)", "bright_black")
    line.no_wrap, line.overflow = True, "ellipsis"
    return (
        [line, Text(state.reason, "red", no_wrap=True, overflow="ellipsis")]
        if state.reason
        else [line]
    )


def _panel(content: RenderableType, title: str) -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        box=box.ROUNDED,
        border_style="bright_black",
        padding=(0, 1),
    )


def _grid(*columns: str) -> Table:
    """A column whose word begins with ">" is flush right."""
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=any(column.strip("<>") for column in columns),
    )
    for column in columns:
        table.add_column(
            column.strip("<>"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
            header_style="bright_black",
        )
    return table


def _steps(state: RunState, about: About) -> list[Text]:
    times = [ns for _, ns in state.step_times()]
    if not times:
        words = (
            f"{state.messages:,} messages complete"
            if state.messages
            else "no measured step has ended yet"
            if about.steps
            else "no message yet"
        )
        return [Text(words)]
    number = state.step_times()[-1][0] + 1
    line = Text(f"{number}{f' of {about.steps}' if about.steps else ''}  ", "bold")
    if about.steps:
        line += _bar(number / about.steps, "blue") + Text("  ")
    line += Text(
        f"last {duration(times[-1])}  median {duration(statistics.median(times))}  slowest "
        f"{duration(max(times))}"
    )
    if state.failed_steps:
        line += Text(f"  {state.failed_steps} failed", "bold red")
    return [line, Text(spark(times, 100), "blue", no_wrap=True)]


def _goodput(state: RunState, live: bool, width: int) -> RenderableType:
    fabric = state.fabric
    line_rate = fabric.nic_rate * fabric.payload_share * fabric.host_count
    table = _grid(
        "<plane", "<of the ports", ">now" if live else ">at the end", ">mean", "<since the begin"
    )
    bar = BAR if width >= NARROW else 13
    columns = max(10, min(2 * SPARK, width - bar - 40))
    full = (
        max(
            (max(state.goodput.of(plane), default=0.0) for plane in range(fabric.planes)),
            default=0.0,
        )
        if state.goodput.bins
        else 0.0
    )
    for plane in range(fabric.planes):
        now = state.rate_now(plane)
        colour = PLANES[plane % len(PLANES)]
        history = Text(
            spark(state.goodput.of(plane), columns, full) if state.goodput.bins else "", colour
        )
        table.add_row(
            Text(str(plane), colour),
            _bar(now / line_rate, colour, bar),
            _gbps(now),
            _gbps(state.mean_rate(plane)),
            history,
        )
    return _panel(table, "goodput received by plane [Gb/s]")


def _paths(state: RunState) -> list[Text]:
    lines: list[Text] = []
    counts = state.bad_by_plane()
    for plane in sorted(counts):
        line = Text(f"plane {plane}  ", PLANES[plane % len(PLANES)])
        for name, (words, look) in STATES.items():
            if counts[plane][name]:
                line += Text(f"{counts[plane][name]} {words}  ", look)
        lines.append(line)
    if not counts:
        lines.append(Text("every path in use is good", "green"))
    for change in list(state.changes)[-LATEST:][::-1]:
        line = Text(f"{duration(change['t']):>8}  ", "bright_black") + Text(
            f"h{change['src']} to h{change['dst']}  "
        )
        lines.append(line + Text(change["why"], STATES.get(change["state"], ("", "green"))[1]))
    if state.lost_pairs:
        lines.append(Text(f"{state.lost_pairs} queue pairs in ERROR", "bold red"))
    return _unbroken(lines)


def _unbroken(lines: list[Text]) -> list[Text]:
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _faults(state: RunState, about: About) -> list[Text]:
    if not state.faults:
        return [
            Text(
                "none yet"
                if about.journalled
                else "not logged here: mrcbed fabric links --bad lists them",
                "bright_black",
            )
        ]
    ordered = sorted(state.faults.values(), key=lambda fault: (fault.end is not None, -fault.begin))
    lines: list[Text] = []
    for fault in ordered[:FAULTS]:
        began = f"at {duration(fault.begin)}"
        if fault.end is None:
            cycle = f", now {fault.phase}" if fault.phase in ("down", "up") else ""
            line = (
                Text("● ", "bold red") + Text(fault.name, "bold") + Text(f"  {began}{cycle}", "red")
            )
        else:
            ended = (
                "to the end"
                if fault.phase == "end"
                else f"mended after {duration(fault.end - fault.begin)}"
            )
            line = (
                Text("○ ", "green")
                + Text(fault.name, "bold")
                + Text(f"  {began}, {ended}", "green")
            )
        lines.append(line + Text(f"  {fault.what}", "bright_black"))
    if len(ordered) > FAULTS:
        lines.append(Text(f"and {len(ordered) - FAULTS} more", "bright_black"))
    return _unbroken(lines)


def _hosts(state: RunState, rows: int, width: int) -> RenderableType:
    heads = [
        "<host",
        "<NIC ports",
        ">received Gb/s",
        ">RTT",
        ">window",
        ">bad paths",
        ">losses",
        ">repeated",
        ">timeouts",
    ]
    kept = [0, 1, 2, 3, 5, 6] if width < NARROW else range(len(heads))
    table = _grid(*(heads[i] for i in kept))
    fabric = state.fabric
    shown = range(min(rows, fabric.host_count) if rows >= fabric.host_count else rows - 1)
    for number in shown:
        host = state.hosts.get(number, Host())
        ports = Text()
        for plane in range(fabric.planes):
            ports += Text(
                "✕" if plane in host.ports_down else "■",
                "bold red" if plane in host.ports_down else PLANES[plane % len(PLANES)],
            )
        rtt = duration(host.rtt_ns) if host.rtt_ns else "–"
        cells: list[RenderableType] = [
            f"h{number}",
            ports,
            _gbps(state.host_rate_now(number)),
            rtt,
            f"{host.window / 1000:,.0f} kB" if host.window else "–",
            *(
                _count(value)
                for value in (host.bad_paths, host.losses, host.retransmissions, host.timeouts)
            ),
        ]
        table.add_row(*(cells[i] for i in kept))
    parts: list[Any] = [table]
    if len(shown) < fabric.host_count:
        parts.append(
            Text(
                f"and {fabric.host_count - len(shown)} more: a taller terminal shows them",
                "bright_black",
            )
        )
    return _panel(Group(*parts), "hosts and ports")


def _gbps(rate: float) -> str:
    return f"{rate / 1e9:,.1f}"


def _count(value: int) -> Text:
    return Text(f"{value:,}" if value else "·", "default" if value else "bright_black")
