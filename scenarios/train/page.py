"""Terminal table, drawings and page of a comparison of training runs, from ``summary.json`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scenarios.show.plots.style import FAULT, figure, kind_look, note, panels, save, styled
from testbed import terminal

PAGE = "report.html"
_LABELS = {"mrc-healthy": "MRC, no failure", "mrc": "MRC", "roce-1p": "RoCE, one plane", "tcp": "TCP"}


def label(name: str) -> str:
    """A run's name for people."""
    return _LABELS.get(name, name)


def _colour(name: str) -> str:
    return "#999999" if name == "mrc-healthy" else kind_look(name, name.partition("-")[0], 0)[0]


def table(summary: Mapping[str, Any]) -> Any:
    """One row per run."""
    rows: list[list[terminal.Cell]] = []
    for name, run in summary["runs"].items():
        if run["failed"]:
            rank, reason = next(iter(run["failed"].items()))
            rows.append([label(name), "", "", "", "", f"rank {rank}: {reason}"])
            continue
        share = 100 * run["gpu_lost_us"] / run["gpu_us"]
        rows.append([
            label(name), f"{run['median_step_us']:,.0f} us", f"{run['slowest_step_us']:,.0f} us", f"{run['total_us'] / 1e3:,.2f} ms",
            f"{share:.0f} %", f"{run['losses'][-1]:.4f}  {run['hashes'][0][:12]}" + ("" if len(run["hashes"]) == 1 else " and others"),
        ])  # fmt: skip
    heads = ("run", "median step", "slowest step", f"{summary['steps']} steps", "GPU time lost", "last loss, parameters")
    return terminal.table(heads, rows, words=("run", "last loss, parameters"))


def draw(summary: Mapping[str, Any], directory: Path) -> list[Path]:
    """Loss against step and against time; step times; GPU time lost."""
    runs = {name: run for name, run in summary["runs"].items() if not run["failed"] and run["steps"]}
    if not runs:
        return []
    files: list[Path] = []
    with figure(2, 4.2, sharex=False) as (fig, axes):
        for name, run in runs.items():
            style = {"color": _colour(name), "label": label(name)}
            wide = {"linewidth": 3.0, "alpha": 0.5} if name == "mrc-healthy" else {"linewidth": 1.0}
            axes[0].plot(range(len(run["losses"])), run["losses"], **style, **wide)
            axes[1].plot([row["end"] / 1e3 for row in run["steps"]], run["losses"], **style, **wide)
        axes[0].set(title="Loss against step: one curve", xlabel="step")
        axes[1].set(title="Loss against time: what failures cost", xlabel="network time, ms")
        for ax in axes:
            ax.set_ylabel("loss, nats")
        axes[1].legend()
        files += save(fig, directory, "loss")
    failing = [name for name, run in runs.items() if run["failing"]]
    if failing:
        with styled():
            fig, axes = panels(len(failing), 1.1 + 1.15 * len(failing), head="Step times", x="step")
            for ax, name in zip(axes, failing, strict=True):
                run = runs[name]
                times = run["step_us"]
                ax.step(range(len(times)), times, where="mid", color=_colour(name), linewidth=1.0)
                for failure in run["failures"]:
                    hit = [k for k, row in enumerate(run["steps"]) if row["end"] > failure["begin"] and row["begin"] < failure["end"]]
                    if hit:
                        ax.axvspan(hit[0] - 0.5, hit[-1] + 0.5, color=FAULT, alpha=0.35, linewidth=0)
                        at = (hit[0] - 0.5, 1.0)
                        note(ax, failure["name"], at, (0, 1), xycoords=("data", "axes fraction"), fontsize=5.5, va="bottom")
                ax.set(ylim=(0, 1.05 * max(times)), ylabel=f"{label(name)}\nstep, us")
            files += save(fig, directory, "step-times")
    with figure(1, 0.7 + 0.3 * len(runs)) as (fig, ax):
        names = list(runs)[::-1]
        shares = [100 * runs[name]["gpu_lost_us"] / runs[name]["gpu_us"] for name in names]
        ax.barh([label(name) for name in names], shares, color=[_colour(name) for name in names])
        for y, share in enumerate(shares):
            note(ax, f"{share:.0f} %", (share, y), (2, 0), va="center")
        ax.set_xlim(0, 112)
        ax.set_title("GPU time spent waiting for the network")
        ax.set_xlabel("% of all ranks' time")
        files += save(fig, directory, "gpu-time-lost")
    return files


def write_page(summary: Mapping[str, Any], directory: Path) -> Path:
    """``report.html``, self-contained."""
    from scenarios.show.html import embedded, rendered

    images = [
        embedded(directory / f"{name}.png") for name in ("loss", "step-times", "gpu-time-lost") if (directory / f"{name}.png").exists()
    ]
    rows = [{"name": label(name), **run} for name, run in summary["runs"].items()]
    path = directory / PAGE
    path.write_text(rendered(Path(__file__).parent / "report.html.j2", s=summary, runs=rows, images=images), encoding="utf-8")
    return path
