"""What the properties found, as the shortest play that shows it."""

from __future__ import annotations

from agents.mrc.framing import MOST_HEADS, Route
from agents.packets import dscp
from tests.properties.world import SMALL


def test_heads_for_packets_of_every_length_do_not_pile_up() -> None:
    """Messages end in packets of any length: on many paths their ready-made heads grew to tens of
    megabytes for one peer."""
    route = Route(SMALL, 0, 3)
    for klass in range(3):
        for key in range(MOST_HEADS):
            made = route.head(key & 1, dscp.TRIMMABLE, klass * MOST_HEADS + key)
            assert (
                route.head(key & 1, dscp.TRIMMABLE, klass * MOST_HEADS + key) is made
                and len(route.heads) <= MOST_HEADS
            )
