"""The kinds of values in files of results, with their bounds: what lies outside is damage, and no
code behind a reader meets it."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from topologies.units import NS

T = TypeVar("T")
FAR = 1 << 60
"""Sums of some whole numbers still fit 64 bits [ours]."""
MOST = 1e18
Whole = Annotated[int, Meta(ge=-FAR, le=FAR)]
Count = Annotated[int, Meta(ge=0, le=FAR)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(ge=1e-9, le=MOST)]
Index = Annotated[int, Meta(ge=0, le=1 << 31)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(pattern=r"^[^/\x00-\x1f\x7f]{1,200}\Z")]
HostName = Annotated[str, Meta(pattern=r"^h\d{1,6}\Z")]
Digits = Annotated[str, Meta(pattern=r"^\d{1,9}\Z")]
Setting = str | int | float | bool
Perhaps: TypeAlias = T | UnsetType | None
"""A value that may be unknown (null), in a key that may be missing."""


def known(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def number_at(row: object, path: str) -> float | None:
    """``path``: keys and places, as ``failovers.0.at_ns``. None if there is no number."""
    for part in path.split("."):
        if isinstance(row, Mapping):
            row = row.get(part)
        elif isinstance(row, list):
            row = row[int(part)] if part.isdigit() and int(part) < len(row) else None
        else:
            row = getattr(row, part, None)
    return float(row) if isinstance(row, (int, float)) and not isinstance(row, bool) else None


def ns(ps: int | UnsetType | None) -> float | None:
    return ps / NS if isinstance(ps, int) else None


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A table in a file of results. A key with its default is not written; one that is written may
    be null where its type says so."""

    def __getitem__(self, key: str) -> object:
        """A user's program may say ``run["busbw_bps"]``. Raises KeyError."""
        value = getattr(self, f"{key}_" if keyword.iskeyword(key) else key, UNSET)
        if value is UNSET:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return key in msgspec.to_builtins(self)


__all__ = [
    "FAR",
    "MOST",
    "UNSET",
    "Amount",
    "Count",
    "Digits",
    "HostName",
    "Index",
    "Name",
    "Number",
    "Perhaps",
    "Positive",
    "Row",
    "Setting",
    "Share",
    "Whole",
    "known",
    "ns",
    "number_at",
]
