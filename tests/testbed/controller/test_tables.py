"""What is programmed is verified by reading it back."""

import copy
from collections.abc import Iterator

import pytest

from testbed.controller.southbound.base import PortReport, Tables
from testbed.controller.tables import difference, program
from testbed.errors import UserError
from topologies import load_fabric
from topologies.paths import static_tables

TABLES = static_tables(load_fabric("tiny"))


class Switches:
    """A southbound in memory; ``spoil`` is applied to what it stores."""

    def __init__(self, spoil: bool = False) -> None:
        self.held: dict[str, dict[int, str]] = {}
        self.spoil = spoil

    def program(self, tables: Tables) -> None:
        self.held = {name: dict(table) for name, table in tables.items()}
        if self.spoil:
            next(iter(self.held.values())).popitem()

    def read(self) -> dict[str, dict[int, str]]:
        return copy.deepcopy(self.held)

    def port_states(self) -> dict[str, bool]:
        return {}

    def port_reports(self) -> Iterator[PortReport]:
        return iter(())


def test_programmed_as_computed() -> None:
    switches = Switches()
    program(switches, TABLES)
    assert switches.held == TABLES


def test_an_entry_that_did_not_stick_is_named() -> None:
    with pytest.raises(
        UserError, match=r"p0-t0-0 uSID [0-9a-f]{4}: p0-t0-0-\w+ wanted, nothing found"
    ):
        program(Switches(spoil=True), TABLES)


def test_difference_sees_foreign_and_changed_entries() -> None:
    seen = copy.deepcopy(TABLES)
    seen["p0-t0-0"][0x7777] = "p0-t0-0-d0"
    usid = next(iter(seen["p0-t1-0"]))
    seen["p0-t1-0"][usid] = "elsewhere"
    assert len(difference(TABLES, seen)) == 2
    assert difference(TABLES, TABLES) == []
