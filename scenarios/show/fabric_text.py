"""Writes a fabric as text: Mermaid for Markdown pages, dot for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.show.plan import fabric_lines
from testbed.errors import UserError
from topologies import Fabric
from topologies.clos import t0_name, t1_name

MERMAID_EDGES = 500
"""Mermaid draws no more unless its page says otherwise (maxEdges, which a diagram itself may not
set)."""


def _cables(fabric: Fabric) -> Iterator[tuple[str, str]]:
    for link in fabric.links:
        yield link.b.node, link.a.node


def mermaid(fabric: Fabric) -> str:
    """Raises :class:`UserError` for more edges than Mermaid draws."""
    if len(fabric.links) > MERMAID_EDGES:
        raise UserError(
            f"fabric {fabric.name!r} has {len(fabric.links):,} links, Mermaid draws "
            f"{MERMAID_EDGES} at most: use --format svg or dot"
        )
    lines = ["flowchart TB", f"  %% {fabric_lines(fabric)[0]}"]
    for plane in range(fabric.planes):
        lines.append(f"  subgraph plane{plane} [plane {plane}]")
        lines += [f'    {t1_name(plane, j)}["T1 {j}"]' for j in range(fabric.t1_count)]
        lines += [f'    {t0_name(plane, i)}["T0 {i}"]' for i in range(fabric.t0_per_plane)]
        lines.append("  end")
    lines += [f"  {host}(({host}))" for host in fabric.hosts]
    lines += [f"  {upper} --- {lower}" for upper, lower in _cables(fabric)]
    return "\n".join(lines) + "\n"


def dot(fabric: Fabric) -> str:
    lines = [
        f'graph "{fabric.name}" {{',
        (
            f'  label="{fabric_lines(fabric)[0]}"; ranksep=1.5; node [shape=box, '
            'fontname="Helvetica"];'
        ),
    ]
    for plane in range(fabric.planes):
        lines.append(f'  subgraph cluster_p{plane} {{ label="plane {plane}"; color="gray80";')
        for name, count in ((t1_name, fabric.t1_count), (t0_name, fabric.t0_per_plane)):
            nodes = "; ".join(f'"{name(plane, i)}"' for i in range(count))
            lines.append(f"    {{ rank=same; {nodes} }}" if nodes else "")
        lines.append("  }")
    lines.append(f"  {{ rank=sink; node [shape=ellipse]; {'; '.join(fabric.hosts)} }}")
    lines += [f'  "{upper}" -- "{lower}";' for upper, lower in _cables(fabric)]
    return "\n".join(line for line in [*lines, "}"] if line) + "\n"
