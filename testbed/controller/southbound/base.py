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
    """The present state of a switch port; a report may repeat a known state."""

    port: str
    up: bool
    heard_ps: int


class Southbound(Protocol):
    def program(self, tables: Tables) -> None:
        """Make the switches hold exactly these tables. Raises UserError, one line, if they cannot be reached."""

    def read(self) -> dict[str, dict[int, str]]:
        """Read the tables as the switches hold them now, without empty ones. Raises UserError, one line, if they cannot be reached."""

    def counts(self) -> dict[str, Counts] | None:
        """Read the counters of every switch, so far; None where switches do not count per route. Raises UserError as :meth:`read`."""

    def port_states(self) -> dict[str, bool]:
        """Read every switch port's state; True for up with carrier. To be called once, before :meth:`port_reports`."""

    def port_reports(self) -> Iterator[PortReport]:
        """Wait for reports, without end and without blocking other green threads. Raises UserError when no more reports can come."""
