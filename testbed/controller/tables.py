"""Static uN tables: computed once, programmed through a southbound, verified by reading them back."""

from __future__ import annotations

from testbed.controller.southbound.base import Southbound, Tables
from testbed.errors import UserError
from topologies.paths import static_tables


def program(southbound: Southbound, wanted: Tables) -> None:
    """Make the switches' tables exactly ``wanted``. Raises UserError if what is read back differs."""
    southbound.program(wanted)
    wrong = difference(wanted, southbound.read())
    if wrong:
        raise UserError(f"controller: the switches do not hold what was programmed: {wrong[0]} (and {len(wrong) - 1} more such)")


def difference(wanted: Tables, seen: Tables) -> list[str]:
    """Every entry in which two sets of tables differ, as text."""
    found = []
    for switch in sorted(set(wanted) | set(seen)):
        want, have = wanted.get(switch, {}), seen.get(switch, {})
        found += [
            f"{switch} uSID {usid:04x}: {want.get(usid, 'nothing')} wanted, {have.get(usid, 'nothing')} found"
            for usid in sorted(set(want) | set(have))
            if want.get(usid) != have.get(usid)
        ]
    return found


__all__ = ["difference", "program", "static_tables"]
