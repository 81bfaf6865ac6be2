"""The page's colours of path states stay apart for readers who see colours differently."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import testbed.view

CSS = (Path(testbed.view.__file__).parent / "static" / "view.css").read_text(encoding="utf-8")
STATES = ("used", "suspect", "died", "closed", "probed", "denied")
"""Those that must not be taken for one another: ``backup`` and ``back`` are in order, like
``used``, and have a letter."""
LEAST = 10.0
"""CIE 1976 colour difference; 2.3 is the least that is seen side by side (Sharma, Digital Color
Imaging Handbook, 2003) [ours]."""
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""On linear RGB (Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, severity 1.0)."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)
Triple = tuple[float, float, float]


def variables(scheme: str) -> dict[str, str]:
    light, _, rest = CSS.partition("@media (prefers-color-scheme: dark)")
    read = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))
    return (
        read
        if scheme == "light"
        else read | dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", rest.partition("\n}")[0]))
    )


def through(matrix: tuple[Triple, ...], colour: Triple) -> Triple:
    a, b, c = (
        sum(factor * part for factor, part in zip(row, colour, strict=True)) for row in matrix
    )
    return a, b, c


def linear(colour: str) -> Triple:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def lab(colour: Triple) -> Triple:
    x, y, z = (
        share ** (1 / 3) if share > 0.008856 else 7.787 * share + 16 / 116
        for share in (part / white for part, white in zip(through(XYZ, colour), WHITE, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: str, other: str, sight: str) -> float:
    red = [lab(through(SIGHTS[sight], linear(colour))) for colour in (one, other)]
    return float(sum((a - b) ** 2 for a, b in zip(*red, strict=True)) ** 0.5)


def contrast(one: str, other: str) -> float:
    """As WCAG 2.2 defines it."""
    low, high = sorted(through(XYZ, linear(colour))[1] + 0.05 for colour in (one, other))
    return high / low


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_states_stay_apart(scheme: str, sight: str) -> None:
    colours = variables(scheme)
    near = {
        pair: difference(colours[pair[0]], colours[pair[1]], sight)
        for pair in combinations(STATES, 2)
    }
    assert {pair: round(value, 1) for pair, value in near.items() if value < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_are_read_on_their_colours(scheme: str) -> None:
    colours = variables(scheme)
    for state in STATES:
        assert contrast(colours[state], colours["paper" if state == "denied" else "ink"]) >= 3, (
            state
        )
