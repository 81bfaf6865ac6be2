"""The interface between the application and whatever kind of switch it programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

Tables = Mapping[str, Mapping[int, str]]
"""Switch name -> next uSID -> egress port name."""


class Counts(NamedTuple):
    routes: dict[int, tuple[int, int]]  # next uSID -> packets, bytes of whole frames
    drops: dict[str, int]  # why -> packets


class PortReport(NamedTuple):
    port: str
    up: bool
    heard_ps: int


class Southbound(Protocol):
    def program(self, tables: Tables) -> None:
        """Make the switches hold exactly these tables. Raises UserError."""

    def read(self) -> dict[str, dict[int, str]]:
        """Read the switches' tables, without empty ones. Raises UserError."""

    def counts(self) -> dict[str, Counts] | None:
        """Return the traffic of each route, or None where switches do not count it. Raises
        UserError."""

    def port_states(self) -> dict[str, bool]:
        """Return switch port -> up with carrier. Call it once, before :meth:`port_reports`."""

    def port_reports(self) -> Iterator[PortReport]:
        """Yield reports without end, and without blocking other green threads. Raises UserError
        when no more can come."""
