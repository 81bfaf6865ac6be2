"""What a person sees at the end of a run: one table, the checks, where the plots are. Called by the command line; reads summaries only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_STYLE = {"ok": "green", "failed": "bold red", "not trustworthy": "yellow", "interrupted": "yellow"}


def ms(value: float | None) -> str:
    """ns as ms for people, or a dash."""
    return "–" if value is None else f"{value / 1e6:,.0f}"


def runs_table(summary: dict[str, Any]) -> Table:
    """One row per run, in words that need no manual; columns that would say nothing are left out, to fit 80 characters."""
    runs = summary["runs"]
    table = Table(
        title=f"{summary['scenario']}: all-reduce under each transport",
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        box=box.SIMPLE_HEAD,
    )
    several = len({r["placement"] for r in runs}) > 1
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("transport", lambda r: f"{r['transport']}\n[dim]on {r['fabric']}[/]" + (f"\n[dim]{r['placement']}[/]" if several else ""))
    ]
    if len({r["seed"] for r in runs}) > 1:
        columns.append(("seed", lambda r: str(r["seed"])))
    columns.append(("steps", lambda r: f"{r['steps']}/{r['steps'] + r['failed_steps']}"))
    for q, head in (("p50", "p50\nms"), ("p99", "p99\nms")):
        if any(r["step_time_ns"][q] is not None for r in runs):
            columns.append((head, lambda r, q=q: ms(r["step_time_ns"][q])))  # type: ignore[misc]
    columns += [
        ("slowest\nms", lambda r: ms(r["step_time_ns"]["max"])),
        ("bus Mb/s\n(of ideal)", _bandwidth),
    ]
    if any(r["failovers"] for r in runs):
        columns.append(("failure\ncost", _cost))
    columns += [
        ("lost", lambda r: str(r["packets"]["lost"])),
        ("sent\nagain", lambda r: str(r["packets"]["retransmitted"])),
        ("wrong\nsums", lambda r: str(r["wrong"])),
        ("CPU", lambda r: "–" if r["cpu_percent"] is None else f"{r['cpu_percent']:.0f} %"),
        ("verdict", lambda r: f"[{_STYLE.get(r['verdict'], 'white')}]{r['verdict']}[/]"),
    ]
    for number, (head, _) in enumerate(columns):
        table.add_column(head, justify="left" if number == 0 or head == "verdict" else "right", no_wrap=head != "verdict")
    for run in runs:
        table.add_row(*(cell(run) for _, cell in columns))
    return table


def _bandwidth(run: dict[str, Any]) -> str:
    if run["busbw_bps"] is None or not run["ideal_busbw_bps"]:
        return "–"
    return f"{run['busbw_bps'] / 1e6:.1f}\n({run['busbw_bps'] / run['ideal_busbw_bps']:.0%})"


def _cost(run: dict[str, Any]) -> str:
    cost = max((f["cost_ns"] for f in run["failovers"] if f["cost_ns"] is not None), default=None)
    if cost is None:
        return "–"
    steps = run["typical_step_ns"]
    return f"+{max(0.0, cost / 1e6):,.0f} ms" + (f"\n({max(0.0, cost / steps):.1f} steps)" if steps else "")


def show(console: Console, summary: dict[str, Any], directory: Path) -> None:
    """Print it all."""
    console.print(runs_table(summary))
    scale = max((run["time_scale"] for run in summary["runs"]), default=1)
    console.print(
        "[dim]A step is one all-reduce, its time that of the slowest rank. Ideal: what the healthy links can carry in payload. Failure cost: slowest step "  # noqa: E501
        f"from the fault on, beyond a step before it. Links run up to {scale:,.0f} times slower than 100 Gb/s ones.[/]"
    )
    waits = [r for r in summary["runs"] if r["reconvergence_ns"] is not None and r["failovers"]]
    if waits:
        wait = max(r["reconvergence_ns"] for r in waits)
        console.print(
            f"[dim]RoCE waits for the network to re-route: {wait / 1e9:g} s after a failure, "
            f"{wait / waits[0]['base_rtt_ns']:.0f} base RTTs. "
            f"A real network takes as long by the clock, with RTTs {scale:,.0f} times shorter: this is far kinder than real.[/]"
        )
    for run in summary["runs"]:
        for line in ([run["reason"]] if run["outcome"] != "done" and run["reason"] else []) + run["distrust"] + run["notes"]:
            console.print(f"[yellow]{escape(run['run'])}: {escape(line)}[/]")
    for check in summary["checks"]:
        mark = "[green]ok    [/]" if check["ok"] else "[bold red]FAILED[/]"
        console.print(f"{mark} {escape(check['name'])}: expected {escape(str(check['expected']))}, seen {escape(_seen(check['seen']))}")
    console.print(f"Verdict: [{_STYLE.get(summary['verdict'], '')}]{summary['verdict']}[/]")
    plots = sorted(path.name for path in (directory / "plots").glob("*.png"))
    console.print(
        f"Data: {escape(str(directory))}/" + (f"  Plots: {escape(str(directory / 'plots'))}/ ({', '.join(plots)})" if plots else ""),
        soft_wrap=True,
    )


def _seen(value: Any) -> str:
    return (
        f"{value:,.4g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else str(value)
    )
