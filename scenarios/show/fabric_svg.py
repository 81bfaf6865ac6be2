"""Draws a fabric as SVG: planes as cards, racks of hosts between them, every T0-T1 cable, NIC
cables bundled.

A Clos needs no force layout: T1s stand outside, T0s towards the racks; more than four planes stand
above and below the racks. The same fabric gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from scenarios.show.plan import fabric_lines
from scenarios.show.plots.style import PLANES
from testbed.errors import UserError
from topologies import Fabric, Link
from topologies.clos import t0_name, t1_name

MOST_LINKS = 20_000  # A viewer does not draw more in a moment [ours].
INK, SOFT, LINE, PAPER = "#1F2933", "#616E7C", "#D9DEE4", "#FFFFFF"
EDGE, GAP, PAD = 32.0, 22.0, 16.0
"""Margin of the drawing, space between cards and within one; pixels, like all lengths here."""
RISE = 118.0  # from T1s to T0s
HEAD = 34.0
STREAM = 74.0  # between cards and racks
HAUL_RISE = 22.0  # of a long-haul cable's arc above the T1s
HOST_ROW = 8  # hosts side by side in a rack
_FONT = "font-family:'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif"


@dataclass(frozen=True)
class _Card:
    plane: int
    x: float
    y: float
    width: float
    height: float
    below: bool
    t1: tuple[float, ...]
    t0: tuple[float, ...]
    t1_y: float
    t0_y: float


@dataclass(frozen=True)
class _Rack:
    x: float
    y: float
    width: float
    height: float
    columns: int
    host: tuple[float, float]  # width and height of a host

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def fabric_svg(fabric: Fabric) -> str:
    """Raises :class:`UserError` for too many cables to look at."""
    if len(fabric.links) > MOST_LINKS:
        raise UserError(
            f"fabric {fabric.name!r} has {len(fabric.links):,} links, too many for a drawing: "
            "use --format dot"
        )
    cards, racks, width, height = _layout(fabric)
    lines = fabric_lines(fabric)
    rate = f"{fabric.nic_rate / 1e9:g} Gb/s"
    core = f"{fabric.fabric_rate / 1e9:g} Gb/s"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(lines[0])}" '
        f'style="{_FONT}">',
        f"<title>{escape(fabric.name)}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="{PAPER}"/>',
        _text(EDGE, EDGE + 18, fabric.name, 22, INK, weight=600),
        _text(EDGE, EDGE + 40, lines[0].partition(": ")[2], 12.5, SOFT),
        _text(EDGE, EDGE + 57, lines[1], 12.5, SOFT),
    ]
    for card in cards:
        body += _streams(card, racks, fabric)
    for card in cards:
        body += _card(card, fabric)
    for number, rack in enumerate(racks):
        body += _rack(rack, number, fabric)
    foot = (
        f"Thin lines: a T0-T1 cable of {core} each. Bands: the NIC cables of a rack, "
        f"{fabric.hosts_per_t0} x {rate}. Squares: NIC ports."
    )
    body += [_text(EDGE, height - EDGE + 8, foot, 11.5, SOFT), "</svg>"]
    return "\n".join(body) + "\n"


# --- places ---------------------------------------------------------------------------------------


def _layout(fabric: Fabric) -> tuple[list[_Card], list[_Rack], float, float]:
    rows = 1 if fabric.planes <= 4 else 2
    per_row = -(-fabric.planes // rows)
    pitch = 30.0 if fabric.t1_count <= 8 else 17.0 if fabric.t1_count <= 24 else 10.0
    inside = max(pitch * fabric.t1_count, 58.0 * fabric.t0_per_plane, 150.0)
    card_width, card_height = inside + 2 * PAD, HEAD + 20 + RISE
    cards_width = per_row * card_width + (per_row - 1) * GAP
    rack_width, rack_height, columns, host = _rack_size(
        fabric, (max(cards_width, 640.0) + GAP) / fabric.t0_per_plane - GAP
    )
    racks_width = fabric.t0_per_plane * rack_width + (fabric.t0_per_plane - 1) * GAP
    width = 2 * EDGE + max(cards_width, racks_width, 640.0)
    top = EDGE + 84.0
    rack_y = top + card_height + STREAM
    cards = []
    for plane in range(fabric.planes):
        row, column = divmod(plane, per_row)
        in_row = min(per_row, fabric.planes - row * per_row)
        left = (width - in_row * card_width - (in_row - 1) * GAP) / 2
        x = left + column * (card_width + GAP)
        y = top if row == 0 else rack_y + rack_height + STREAM
        t1_y, t0_y = (
            (y + HEAD + 20, y + HEAD + 20 + RISE)
            if row == 0
            else (y + card_height - HEAD - 20, y + card_height - HEAD - 20 - RISE)
        )
        cards.append(
            _Card(
                plane,
                x,
                y,
                card_width,
                card_height,
                row == 1,
                _spread(x, card_width, fabric.t1_count),
                _spread(x, card_width, fabric.t0_per_plane),
                t1_y,
                t0_y,
            )
        )
    left = (width - racks_width) / 2
    racks = [
        _Rack(left + i * (rack_width + GAP), rack_y, rack_width, rack_height, columns, host)
        for i in range(fabric.t0_per_plane)
    ]
    bottom = rack_y + rack_height + (STREAM + card_height if rows == 2 else 0.0)
    return cards, racks, width, bottom + 30 + EDGE


def _spread(x: float, width: float, count: int) -> tuple[float, ...]:
    return tuple(x + PAD + (width - 2 * PAD) * (i + 0.5) / count for i in range(count))


def _rack_size(fabric: Fabric, room: float) -> tuple[float, float, int, tuple[float, float]]:
    """Return (width, height, hosts side by side, (width, height) of a host), no wider than ``room``
    if that holds a host."""
    host = (max(44.0, 9.0 * min(fabric.planes, 8) + 10), 42.0 if fabric.planes <= 8 else 51.0)
    columns = max(1, min(fabric.hosts_per_t0, HOST_ROW, int((room - 2 * PAD + 8) / (host[0] + 8))))
    rows = -(-fabric.hosts_per_t0 // columns)
    return columns * (host[0] + 8) - 8 + 2 * PAD, rows * (host[1] + 8) - 8 + 46.0, columns, host


# --- parts ----------------------------------------------------------------------------------------


def _card(card: _Card, fabric: Fabric) -> Iterator[str]:
    colour = PLANES[card.plane % len(PLANES)]
    yield f'<g id="plane-{card.plane}">'
    yield _rect((card.x, card.y, card.width, card.height), 10, PAPER, LINE)
    yield _rect(
        (card.x + 10, card.y + card.height - 5 if card.below else card.y, card.width - 20, 5),
        2.5,
        colour,
    )
    head = card.y + card.height - 16 if card.below else card.y + 25
    yield _text(card.x + PAD, head, f"plane {card.plane}", 13, INK, weight=600)
    yield _text(card.x + card.width - PAD, head, f"{fabric.t1_count} T1", 11, SOFT, anchor="end")
    size = min(22.0, 0.72 * (card.width - 2 * PAD) / max(1, fabric.t1_count))
    near = -1 if card.below else 1  # towards the T0s
    yield (
        f'<g stroke="{colour}" stroke-width="{1.4 if fabric.t1_count <= 8 else 0.9}" '
        'stroke-opacity="0.55">'
    )
    for i, x0 in enumerate(card.t0):
        for j in fabric.t1s_of_t0(i):
            ends = (
                f'x1="{x0:.1f}" y1="{card.t0_y - near * 11:.1f}" x2="{card.t1[j]:.1f}" '
                f'y2="{card.t1_y + near * size / 2:.1f}"'
            )
            yield (
                "<line "
                f"{ends}><title>{t0_name(card.plane, i)}:{t1_name(card.plane, j)}</title></line>"
            )
    for link in fabric.links:
        if link.kind == "haul" and link.plane == card.plane:
            yield _long_haul(card, link, near * (size / 2 + HAUL_RISE))
    yield "</g>"
    for j, x in enumerate(card.t1):
        name = t1_name(card.plane, j)
        yield _rect(
            (x - size / 2, card.t1_y - size / 2, size, size), min(4.0, size / 4), colour, title=name
        )
        if size >= 10:
            yield _text(
                x,
                card.t1_y - near * (size / 2 + (14 if card.below else 5)),
                str(j),
                9.5,
                SOFT,
                anchor="middle",
            )
    for i, x in enumerate(card.t0):
        yield _rect((x - 23, card.t0_y - 11, 46, 22), 5, PAPER, colour, 1.6, t0_name(card.plane, i))
        yield _text(x, card.t0_y + 4, f"T0 {i}", 11, INK, anchor="middle")
    yield "</g>"


def _long_haul(card: _Card, link: Link, rise: float) -> str:
    one, other = (card.t1[int(port.node.rsplit("-", 1)[1])] for port in (link.a, link.b))
    curve = (
        f"M{one:.1f} {card.t1_y:.1f}Q{(one + other) / 2:.1f} {card.t1_y - rise:.1f} {other:.1f} "
        f"{card.t1_y:.1f}"
    )
    return f'<path d="{curve}" fill="none" stroke-dasharray="4 3"><title>{link.name}</title></path>'


def _streams(card: _Card, racks: list[_Rack], fabric: Fabric) -> Iterator[str]:
    colour = PLANES[card.plane % len(PLANES)]
    width = min(7.0, 1.5 + 0.5 * fabric.hosts_per_t0)
    for i, (x, rack) in enumerate(zip(card.t0, racks, strict=True)):
        share = (card.plane + 0.5) / fabric.planes - 0.5
        end = rack.middle + share * min(rack.width - 2 * PAD, 14.0 * fabric.planes)
        begin_y, end_y = (
            (card.t0_y - 11, rack.y + rack.height) if card.below else (card.t0_y + 11, rack.y)
        )
        middle = (begin_y + end_y) / 2
        curve = (
            f"M{x:.1f} {begin_y:.1f}C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} "
            f"{end_y:.1f}"
        )
        style = (
            f'fill="none" stroke="{colour}" stroke-width="{width:.1f}" stroke-opacity="0.5" '
            'stroke-linecap="round"'
        )
        yield (
            f'<path d="{curve}" {style}><title>{fabric.hosts_per_t0} NIC cables of '
            f"{t0_name(card.plane, i)}</title></path>"
        )


def _rack(rack: _Rack, number: int, fabric: Fabric) -> Iterator[str]:
    first = number * fabric.hosts_per_t0
    yield f'<g id="rack-{number}">'
    yield _rect((rack.x, rack.y, rack.width, rack.height), 10, "#F5F7FA", LINE)
    yield _text(rack.x + PAD, rack.y + 21, f"under T0 {number}", 11.5, SOFT)
    width, height = rack.host
    for k in range(fabric.hosts_per_t0):
        row, column = divmod(k, rack.columns)
        x, y = rack.x + PAD + column * (width + 8), rack.y + 32 + row * (height + 8)
        yield _rect((x, y, width, height), 6, PAPER, LINE)
        yield _text(x + width / 2, y + 17, f"h{first + k}", 11.5, INK, anchor="middle", weight=600)
        for plane in range(fabric.planes):
            line, at = divmod(plane, 8)
            left = x + width / 2 + 9 * (at - (min(fabric.planes, 8) - 1) / 2) - 3.5
            yield _rect(
                (left, y + 25 + 9 * line, 7, 7),
                1.5,
                PLANES[plane % len(PLANES)],
                title=f"h{first + k}-p{plane}",
            )
    yield "</g>"


def _rect(
    place: tuple[float, float, float, float],
    corner: float,
    fill: str,
    stroke: str = "none",
    line: float = 1.0,
    title: str = "",
) -> str:
    x, y, width, height = place
    inner = f"><title>{title}</title></rect>" if title else "/>"
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{corner:.1f}"'
    return f'<rect {box} fill="{fill}" stroke="{stroke}" stroke-width="{line}"{inner}'


def _text(
    x: float,
    y: float,
    words: str,
    size: float,
    fill: str,
    *,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    look = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'
