"""Lost packets by cause, per thousand sent; packets that switches marked or trimmed, which are not lost, in a panel of their own."""

from __future__ import annotations

from typing import Any

from scenarios.figures.stored import Stored
from scenarios.show.plots.style import area, legend, look_of, note, panels, per_placement

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

SWITCHES = {"marked": ("marked (ECN)", "#999933"), "trimmed": ("trimmed", "#332288")}


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


@per_placement("losses")
def draw(stored: Stored, runs: list[dict[str, Any]]) -> Any:
    rows = totals(runs)  # the seeds of a transport are added up
    lost = any(row["causes"] for row in rows)
    altered = any(row["marked"] or row["trimmed"] for row in rows)
    if not lost and not altered:
        return None
    others = sorted({c for row in rows for c in row["causes"]} - set(CAUSES))
    styles = {c: CAUSES[c] for c in CAUSES if any(c in row["causes"] for row in rows)}
    styles |= {c: (c.replace("_", " "), ("#777777", "#AAAAAA", "#CCCCCC")[i % 3]) for i, c in enumerate(others)}
    count = lost + altered
    height = 0.75 + count * (0.35 + 0.22 * len(rows)) + 0.15 * ((len(styles) + 3) // 2)
    fig, axes = panels(count, height, x="packets per 1,000 sent", sharex=False)
    where = f"{runs[0]['placement']} ranks{stored.settings_words}"
    for y, row in enumerate(rows):
        if lost:
            left = 0.0
            for cause, (_, colour) in styles.items():
                axes[0].barh(y, row["causes"].get(cause, 0.0), left=left, height=0.62, color=colour, linewidth=0)
                left += row["causes"].get(cause, 0.0)
            note(axes[0], f"{left:.3g}", (left, y), (3, 0), va="center")
        for k, (key, (_, colour)) in enumerate(SWITCHES.items() if altered else ()):
            at = y + (k - 0.5) * 0.34
            axes[-1].barh(at, row[key], height=0.3, color=colour, linewidth=0)
            note(axes[-1], f"{row[key]:.3g}", (row[key], at), (3, 0), fontsize=6, va="center")
    if altered:
        axes[-1].set_title("Marked or trimmed, but delivered" + ("" if lost else f"\n{where}"))
    if lost:
        axes[0].set_title(f"Lost packets by cause, {where}")
    for ax in axes:
        ax.set_yticks(range(len(rows)), [f"{row['transport']}, n = {row['n']}" for row in rows])
        for label, row in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_color(look_of(stored, row["transport"])[0])
        ax.tick_params(axis="y", length=0)
        ax.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1.16 * max(p.get_x() + p.get_width() for p in ax.patches)))
    legend(fig, [area(*style) for style in [*styles.values(), *(SWITCHES.values() if altered else ())]])
    return fig
