"""Congestion windows of the sending queue pairs over time, a panel per transport; for a transport with rates, rate times base RTT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import FLOWS, colour_and_marker, figure, save, spell

POINTS = 200


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement and seed with logged windows."""
    files: list[Path] = []
    for placement, seed, runs in stored.per_seed(lambda r: r.get("flows") and len(stored.rows("cwnd", r))):
        files += _figure(stored, directory, runs, f"windows-{placement}-s{seed}{stored.tag}", seed)
    return files


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], name: str, seed: int) -> list[Path]:
    from matplotlib.lines import Line2D

    groups: list[str] = []  # groups, and the names of flows without a group
    with figure(len(runs), 1.25 + 0.95 * len(runs), sharex=True, sharey=True, squeeze=False) as (fig, axes):
        most = 0.0
        for ax, run in zip(axes[:, 0], runs, strict=True):
            limits = stored.summary["fabrics"][run["fabric"]]
            fabric = stored.fabric(run)
            bdp = limits["plane_bdp_bytes"] * fabric.planes
            begin = stored.begin_ns(run) or 0
            count = 0
            for _, samples in stored.rows("cwnd", run).groupby(["flow", "qpn"], sort=True):
                flow = str(samples["flow"].iloc[0])
                group = run["flows"][flow]["group"]
                group = flow if group == "flows" else group
                groups += [group] if group not in groups else []
                count += 1
                step = max(1, len(samples) // POINTS)
                # DCQCN controls rates and its window is only a distant bound: the figure shows the bytes sent at this rate in a base RTT.
                rate = samples["rate_bps"].replace(0, fabric.nic_rate)  # 0: only the port limits the rate
                window = (rate * run["base_rtt_ns"] / 8e9).fillna(samples["cwnd_bytes"])
                y = window.astype(float).iloc[::step] / bdp
                colour = FLOWS[groups.index(group) % len(FLOWS)]
                ax.plot((samples["t_ns"].iloc[::step] - begin) / 1e3, y, color=colour, linewidth=0.7)
                most = max(most, float(y.max()))
            ax.axhline(1, color="black", linewidth=0.7, linestyle=":")
            by_rate = ", rate × base RTT" if run["kind"] == "roce" else ""
            title = f"{run['transport']}, {count} QPs{by_rate}: 1 = {bdp / 1e3:.0f} kB"
            ax.set_title(title, color=colour_and_marker(run["transport"])[0], pad=3)
            ax.set_xlim(left=0)
        axes[0, 0].set_ylim(0, max(1.1, most * 1.05))
        axes[-1, 0].set_xlabel("time since the first flow began [µs]")
        fig.supylabel("window [host's BDP]", fontsize=7.5)
        handles = [Line2D([], [], color=FLOWS[i % len(FLOWS)], linewidth=1.0, label=spell(group)) for i, group in enumerate(groups)]
        handles.append(Line2D([], [], color="black", linewidth=0.7, linestyle=":", label="the host's BDP over all planes"))
        fig.legend(handles=handles, loc="outside lower center", ncols=2, columnspacing=1.2, handlelength=1.6)
        fig.suptitle(f"Congestion windows{stored.seed_words(seed)}", fontsize=8, fontweight="bold", x=0.01, ha="left")
        return save(fig, directory, name, runs)
