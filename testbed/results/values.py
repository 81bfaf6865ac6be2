"""The kinds of values in files of results, with their bounds: what lies outside is damage, and no code behind a reader meets it."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

T = TypeVar("T")
FAR = 1 << 60
"""Bound of whole numbers: sums of some still fit 64 bits [ours]."""
MOST = 1e18
"""Bound of numbers; ns of 30 years [ours]."""
Whole = Annotated[int, Meta(ge=-FAR, le=FAR)]
Count = Annotated[int, Meta(ge=0, le=FAR)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(ge=1e-9, le=MOST)]
Index = Annotated[int, Meta(ge=0, le=1 << 31)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(pattern=r"^[^/\x00-\x1f\x7f]{1,200}\Z")]
"""A name by which files are called."""
HostName = Annotated[str, Meta(pattern=r"^h\d{1,6}\Z")]
Digits = Annotated[str, Meta(pattern=r"^\d{1,9}\Z")]
Setting = str | int | float | bool
"""A value that a sweep sets."""
Perhaps: TypeAlias = T | UnsetType | None
"""A value that may be unknown (null), in a key that may be missing."""


def known(value: T | UnsetType | None) -> T | None:
    """Return a value, None also for a key that is missing."""
    return None if isinstance(value, UnsetType) else value


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A table in a file of results. A key without a value here is not written; a key that is written may be null where its type says so."""


__all__ = [
    "FAR", "MOST", "UNSET", "Amount", "Count", "Digits", "HostName", "Index", "Name", "Number", "Perhaps", "Positive", "Row", "Setting",
    "Share", "Whole", "known",
]  # fmt: skip
