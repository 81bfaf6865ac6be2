"""Terminal table, drawings and page of a comparison of training runs, from ``summary.json`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.show.document import Cell, Column, Document, Section, Table, Words, plain, rich
from scenarios.show.plots.style import FAULT, figure, kind_look, note, panels, save, styled

PAGE = "report.html"
DRAWINGS = ("loss", "step-times", "gpu-time-lost")
END, HASHES = "last loss, parameters", "SHA-256 of the parameters"
_LABELS = {"mrc-healthy": "MRC, no failure", "mrc": "MRC", "roce-1p": "RoCE, one plane", "tcp": "TCP"}


def label(name: str) -> str:
    """A run's name for people."""
    return _LABELS.get(name, name)


def _colour(name: str) -> str:
    return "#999999" if name == "mrc-healthy" else kind_look(name, name.partition("-")[0], 0)[0]


def _unless_failed(cell: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda run: "" if run["failed"] else cell(run)


def _end(run: Mapping[str, Any]) -> Cell:
    """Write what parameters a run ended with, or why it failed."""
    if run["failed"]:
        return [("\n".join(f"rank {rank}: {reason}" for rank, reason in run["failed"].items()), "bad")]
    return f"{run['losses'][-1]:.4f}  {run['hashes'][0][:12]}" + ("" if len(run["hashes"]) == 1 else " and others")


def runs_table(summary: Mapping[str, Any]) -> Table:
    """Show one row per run."""
    columns: list[Column] = [
        ("run", lambda run: label(run["name"])),
        ("median step", _unless_failed(lambda run: f"{run['median_step_us']:,.0f} us")),
        ("slowest step", _unless_failed(lambda run: f"{run['slowest_step_us']:,.0f} us")),
        (f"{summary['steps']} steps", _unless_failed(lambda run: f"{run['total_us'] / 1e3:,.2f} ms")),
        ("GPU time lost", _unless_failed(lambda run: f"{100 * run['gpu_lost_us'] / run['gpu_us']:.0f} %")),
        (END, _end),
        (HASHES, _unless_failed(lambda run: ", ".join(run["hashes"]))),
    ]
    rows = [{"name": name, **run} for name, run in summary["runs"].items()]
    return Table(columns, rows, words=(END, HASHES), details=(HASHES,))


def table(summary: Mapping[str, Any]) -> Any:
    """Return the runs as a table for the terminal."""
    return rich(runs_table(summary))


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
    """Write ``report.html``, which needs no other file."""
    from scenarios.show.html import embedded
    from scenarios.show.html import write_page as write

    dilation = f", dilation {summary['dilation']:,.0f}" if summary["world"] == "emulated" else ""
    head = [
        Words(
            f"A GPT of {summary['parameters']:,} parameters, data-parallel, {summary['steps']} steps, seed {summary['seed']}, "
            f"{summary['world']} world{dilation}.", "lead",
        ),
        Words(
            f"Every step each rank computes for {summary['compute_us']:.0f} us and then sums {summary['bytes']:,} bytes of gradient with "
            "all others. Times are the network's. The gradients are real, and every rank's parameters are hashed at the end."
        ),
    ]  # fmt: skip
    marks = {True: ("holds", "good"), False: ("does not hold", "bad"), None: ("not judged", "")}
    checks = [[[marks[check["ok"]]], check["check"], check["seen"]] for check in summary["checks"]]
    pictures = [embedded(path, name) for name in DRAWINGS if (path := directory / f"{name}.png").exists()]
    sections = [
        Section("checks", "Checks", [plain(("", "check", "seen"), checks, words=("check", "seen"))]),
        Section("runs", "Runs", [runs_table(summary)]),
        Section("figures", "Figures", pictures),
    ]
    return write(Document("Training through failures", head, sections), directory / PAGE)
