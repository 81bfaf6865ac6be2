"""The denylist: what endpoints must not use, and who denied it. An entry stays until all that
denied it remove their denials, or an operator removes it."""

from __future__ import annotations

from dataclasses import dataclass

from topologies import Fabric, FabricError
from topologies.denylist import check_entry

OPERATOR, CLUSTERMAPPER, POLICY = "operator", "clustermapper", "policy"
MAX_ENTRIES = 2000
"""The list is one message to each agent, which must fit its socket's buffer; 2000 of the longest
entries take 50 kB [ours]."""


@dataclass(frozen=True)
class Denial:
    entry: str
    by: str
    reason: str
    since_ps: int


class Denylist:
    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._denials: dict[tuple[str, str], Denial] = {}

    @property
    def entries(self) -> list[str]:
        return list(dict.fromkeys(denial.entry for denial in self._denials.values()))

    @property
    def denials(self) -> list[Denial]:
        return list(self._denials.values())

    def deny(self, text: str, reason: str, by: str, now: int) -> tuple[Denial, bool]:
        """Return the denial in force, and whether it is new. Raises FabricError."""
        entry = check_entry(self._fabric, text)
        existing = self._denials.get((entry, by))
        if existing is not None:
            return existing, False
        if len(self._denials) >= MAX_ENTRIES:
            raise FabricError(
                f"the denylist is full ({MAX_ENTRIES} entries): remove some, or deny a switch or "
                "a plane instead"
            )
        denial = self._denials[entry, by] = Denial(entry, by, reason, now)
        return denial, True

    def allow(self, text: str, by: str | None = None) -> list[Denial]:
        entry = check_entry(self._fabric, text)
        return [
            self._denials.pop(key)
            for key in list(self._denials)
            if key[0] == entry and by in (None, key[1])
        ]
