"""Draws a model's loss against the step, where all runs have one curve, and against time, where
failures show."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import legend, line, look_of, panels, per_seed
from testbed.results.summary import Run


def losses_of(run: Run) -> list[float]:
    return next((job.losses for job in run.jobs.values() if job.losses is not None), [])


@per_seed(lambda stored, run: bool(losses_of(run)))
def loss(stored: Stored, runs: list[Run]) -> Any:
    fig, axes = panels(2, 4.2, sharex=False, y="loss [nats]")
    for number, run in enumerate(runs):
        losses, rows = losses_of(run), stored.rows("steps", run).groupby("step")["end_ns"].max()
        # warm-up steps, which come first, before 0
        ends = (rows.to_numpy() - (stored.begin_ns(run) or 0)) / 1e6
        style: dict[str, Any] = {
            "color": look_of(stored, run.transport)[0],
            "linewidth": 0.8 + 1.2 * (len(runs) - 1 - number),
        }
        axes[0].plot(range(len(losses)), losses, **style)
        axes[1].plot(ends[: len(losses)], losses[: len(ends)], **style)
    axes[0].set(title=f"Loss against step{stored.seed_words(runs[0].seed)}", xlabel="step")
    axes[1].set(title="Loss against time", xlabel="time since the first measured step began [ms]")
    legend(fig, [line(run.transport, look_of(stored, run.transport)[0], "-", 1.3) for run in runs])
    return fig
