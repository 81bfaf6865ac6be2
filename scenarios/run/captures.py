"""Says which links of which fabric ``--pcap`` captures, and where to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from scenarios.schema.scenario import Scenario
from topologies import Fabric


def has_link(fabric: Fabric, link: str) -> bool:
    return (
        link in fabric.links_by_name or ":".join(reversed(link.split(":"))) in fabric.links_by_name
    )


def check_pcap_links(scenario: Scenario, links: Sequence[str]) -> None:
    """Raise :class:`topologies.FabricError` for a link that no fabric of the scenario has."""
    fabrics = list(scenario.fabrics.values())
    for link in links:
        if not any(has_link(fabric, link) for fabric in fabrics):
            with suppress(IndexError):
                fabrics[0].link(link)


def captured_links(
    fabric: Fabric, links: Sequence[str], directory: Path
) -> tuple[list[str], Path | None]:
    """Return the fabric's own ``links``, and a new folder for them, or None."""
    there = [link for link in links if has_link(fabric, link)]
    if not there:
        return [], None
    pcap_dir = directory / "pcap" / fabric.name
    number = 2
    while pcap_dir.exists():  # the fabric was built before, and its captures must stay
        pcap_dir, number = directory / "pcap" / f"{fabric.name}-{number}", number + 1
    pcap_dir.mkdir(parents=True)
    return there, pcap_dir
