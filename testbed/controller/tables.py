"""Static uN tables: computed once, programmed through a southbound, verified by reading them
back."""

from __future__ import annotations

from testbed.controller.southbound.base import Southbound, Tables
from testbed.errors import UserError


def program(southbound: Southbound, expected: Tables) -> None:
    """Raises UserError if what is read back differs."""
    southbound.program(expected)
    differences = difference(expected, southbound.read())
    if differences:
        raise UserError(
            f"controller: the switches do not hold what was programmed: {differences[0]} (and "
            f"{len(differences) - 1} more such)"
        )


def difference(expected: Tables, actual: Tables) -> list[str]:
    differences = []
    for switch in sorted(set(expected) | set(actual)):
        want, have = expected.get(switch, {}), actual.get(switch, {})
        differences += [
            f"{switch} uSID {usid:04x}: {want.get(usid, 'nothing')} wanted, "
            f"{have.get(usid, 'nothing')} found"
            for usid in sorted(set(want) | set(have))
            if want.get(usid) != have.get(usid)
        ]
    return differences
