"""Congestion windows of the sending queue pairs over time, a panel per transport; for a transport with rates, rate times base RTT."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, legend, line, look_of, panels, per_seed, spell

POINTS = 200


@per_seed("windows", lambda stored, run: run.get("flows") and len(stored.rows("cwnd", run)))
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    colours: dict[str, str] = {}  # of groups, and of flows without a group
    head, x = f"Congestion windows{stored.seed_words(runs[0]['seed'])}", "time since the first flow began [µs]"
    fig, axes = panels(len(runs), 1.25 + 0.95 * len(runs), head=head, x=x, y="window [host's BDP]", sharey=True)
    most = 0.0
    for ax, run in zip(axes, runs, strict=True):
        fabric = stored.fabric(run)
        bdp = stored.summary["fabrics"][run["fabric"]]["plane_bdp_bytes"] * fabric.planes
        begin = stored.begin_ns(run) or 0
        pairs = stored.rows("cwnd", run).groupby(["flow", "qpn"], sort=True)
        for (flow, _), samples in pairs:
            group = run["flows"][flow]["group"]
            group = str(flow) if group == "flows" else group
            step = max(1, len(samples) // POINTS)
            # DCQCN controls rates and its window is only a distant bound: the figure shows the bytes sent at this rate in a base RTT.
            rate = samples["rate_bps"].replace(0, fabric.nic_rate)  # 0: only the port limits the rate
            window = (rate * run["base_rtt_ns"] / 8e9).fillna(samples["cwnd_bytes"])
            y = window.astype(float).iloc[::step] / bdp
            colour = colours.setdefault(group, FLOWS[len(colours) % len(FLOWS)])
            ax.plot((samples["t_ns"].iloc[::step] - begin) / 1e3, y, color=colour, linewidth=0.7)
            most = max(most, float(y.max()))
        ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
        by_rate = ", rate × base RTT" if run["kind"] == "roce" else ""
        title = f"{run['transport']}, {len(pairs)} QPs{by_rate}: 1 = {bdp / 1e3:.0f} kB"
        ax.set_title(title, color=look_of(stored, run["transport"])[0])
        ax.set_xlim(left=0)
    axes[0].set_ylim(0, max(1.1, most * 1.05))
    handles = [line(spell(group), colour, "-", 1.0) for group, colour in colours.items()]
    legend(fig, [*handles, line("the host's BDP over all planes", "black", ":", 0.7)])
    return fig
