"""Computes what a Clos of :mod:`topologies.sizing` draws, costs, and how much of it is broken at a
time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from topologies.sizing import Size
from topologies.structs import Doc

HOURS = 730.5
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Parts(Struct, frozen=True, forbid_unknown_fields=True):
    """What parts draw, cost, and how often they fail. Prices have no default: they are yours, in
    any currency."""

    switch_watts: Annotated[
        Amount,
        Doc(
            "a switch without its optics; default: a 51.2 Tb/s chip alone (NVIDIA on Spectrum-4, "
            "2023)"
        ),
    ] = 500.0
    optic_watts: Annotated[
        Amount, Doc("a transceiver of the NIC's rate; default: NVIDIA MMS4X00-NS-T, 800 Gb/s")
    ] = 17.0
    switch_price: Annotated[Amount, Doc("a switch without its optics")] = 0.0
    optic_price: Annotated[Amount, Doc("a transceiver of the NIC's rate")] = 0.0
    cable_price: Annotated[
        Amount, Doc("a fibre of the NIC's rate, with its part of breakouts and patch panels")
    ] = 0.0
    link_failures: Annotated[
        float,
        Meta(ge=0, le=1),
        Doc(
            "share of the links that fail in a month; default: NIC-ToR links of Alibaba HPN "
            "(SIGCOMM 2024)"
        ),
    ] = 0.00057
    switch_failures: Annotated[
        float,
        Meta(ge=0, le=1),
        Doc(
            "share of the switches that fail in a month; default: ToRs of Alibaba HPN (SIGCOMM "
            "2024)"
        ),
    ] = 0.00051
    repair_hours: Annotated[
        float, Meta(ge=0, le=8766), Doc("until a part that failed works again [ours]")
    ] = 24.0


def watts(size: Size, parts: Parts) -> float:
    return size.switches * parts.switch_watts + size.optics * parts.optic_watts


def price(size: Size, parts: Parts) -> float:
    return (
        size.switches * parts.switch_price
        + size.optics * parts.optic_price
        + size.optics / 2 * parts.cable_price
    )


def links_down(size: Size, parts: Parts) -> float:
    """Return the mean number, by Little's law. A link fails as often whatever its rate [ours]."""
    return size.links * parts.link_failures * parts.repair_hours / HOURS


def switches_down(size: Size, parts: Parts) -> float:
    return size.switches * parts.switch_failures * parts.repair_hours / HOURS
