"""Lost packets by cause, per thousand sent; packets that switches marked or trimmed, which are not lost, in a panel of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import colour_and_marker, figure, save

CAUSES = {
    "drop_link_down": ("link down", "#0072B2"),
    "flushed": ("in the queue of a link that died", "#56B4E9"),
    "drop_tail": ("buffer full", "#D55E00"),
    "drop_silent": ("silent switch", "#CC79A7"),
    "drop_switch_down": ("dead switch", "#882255"),
    "drop_fault_loss": ("lossy link", "#009E73"),
    "drop_fault_path": ("lossy path", "#117733"),
    "drop_trunk": ("between machines", "#AA4499"),
    "tx_refused": ("refused at the sender", "#E69F00"),
    "rx_ring_drops": ("receive socket full", "#000000"),
}
"""Counter -> (label, colour). Other counters are drawn grey and labelled with their names."""

SWITCHES = {"marked": "#999933", "trimmed": "#332288"}


def draw(stored: Stored, directory: Path) -> list[Path]:
    """Draw one figure per placement in which something was lost, marked or trimmed; the seeds of a transport are added up."""
    files: list[Path] = []
    for placement, _ in stored.groups():
        runs = stored.ordered(placement)
        rows = totals(runs)
        if any(row["causes"] or row["marked"] or row["trimmed"] for row in rows):
            files += _figure(stored, directory, runs, rows, placement)
    return files


def totals(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return per transport ``n`` runs, packets ``sent``, and per thousand of them ``marked``, ``trimmed`` and ``causes``."""
    rows = []
    for transport in dict.fromkeys(r["transport"] for r in runs):
        packets = [r["packets"] for r in runs if r["transport"] == transport]
        sent = sum(p["sent"] for p in packets)
        if sent:
            all_causes = dict.fromkeys(cause for p in packets for cause in p["causes"])
            causes = {cause: 1e3 * sum(p["causes"].get(cause, 0) for p in packets) / sent for cause in all_causes}
            switch_counts = {key: 1e3 * sum(p[key] or 0 for p in packets) / sent for key in ("marked", "trimmed")}
            rows.append({"transport": transport, "n": len(packets), "sent": sent, "causes": causes, **switch_counts})
    return rows


def _figure(stored: Stored, directory: Path, runs: list[dict[str, Any]], rows: list[dict[str, Any]], placement: str) -> list[Path]:
    from matplotlib.patches import Patch

    known_causes = [c for c in CAUSES if any(c in row["causes"] for row in rows)]
    others = sorted({c for row in rows for c in row["causes"]} - set(CAUSES))
    greys = ("#777777", "#AAAAAA", "#CCCCCC")
    styles = {c: CAUSES[c] for c in known_causes} | {c: (c.replace("_", " "), greys[i % 3]) for i, c in enumerate(others)}
    names = [f"{row['transport']}, n = {row['n']}" for row in rows]
    lost = any(row["causes"] for row in rows)
    altered = any(row["marked"] or row["trimmed"] for row in rows)
    panels = lost + altered
    height = 0.75 + panels * (0.35 + 0.22 * len(rows)) + 0.15 * ((len(styles) + 3) // 2)
    with figure(panels, height, squeeze=False) as (fig, axes):
        if lost:
            ax = axes[0, 0]
            for y, row in enumerate(rows):
                left = 0.0
                for cause, (_, colour) in styles.items():
                    value = row["causes"].get(cause, 0.0)
                    ax.barh(y, value, left=left, height=0.62, color=colour, linewidth=0)
                    left += value
                ax.annotate(f"{left:.3g}", (left, y), xytext=(3, 0), textcoords="offset points", fontsize=6.5, va="center")
            ax.set_title(f"Lost packets by cause, {placement} ranks{stored.settings_words}", pad=5)
        if altered:
            ax = axes[-1, 0]
            for y, row in enumerate(rows):
                for k, (key, colour) in enumerate(SWITCHES.items()):
                    at = y + (k - 0.5) * 0.34
                    ax.barh(at, row[key], height=0.3, color=colour, linewidth=0)
                    ax.annotate(f"{row[key]:.3g}", (row[key], at), xytext=(3, 0), textcoords="offset points", fontsize=6, va="center")
            ax.set_title("Marked or trimmed, but delivered" + ("" if lost else f"\n{placement} ranks{stored.settings_words}"), pad=4)
        for ax in axes[:, 0]:
            ax.set_yticks(range(len(rows)), names)
            for label, row in zip(ax.get_yticklabels(), rows, strict=True):
                label.set_color(colour_and_marker(row["transport"])[0])
            ax.tick_params(axis="y", length=0)
            ax.set_ylim(len(rows) - 0.5, -0.5)
            most = max(p.get_x() + p.get_width() for p in ax.patches)
            ax.set_xlim(0, 1.16 * most)
        axes[-1, 0].set_xlabel("packets per 1,000 sent")
        handles = [Patch(color=colour, label=text) for text, colour in styles.values()]
        if altered:
            handles += [Patch(color=SWITCHES["marked"], label="marked (ECN)"), Patch(color=SWITCHES["trimmed"], label="trimmed")]
        fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.0, columnspacing=1.2)
        return save(fig, directory, f"losses-{placement}{stored.tag}", runs)
