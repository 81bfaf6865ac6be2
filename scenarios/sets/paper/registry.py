"""Reads claims.toml: what the paper claims, under numbers of ours."""

from __future__ import annotations

import tomllib

import msgspec

from scenarios.sets.paper.figure import HERE
from topologies.structs import convert


class PaperClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``source``: section or figure of the paper."""

    number: int
    source: str
    text: str


_TEXTS = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))
CLAIMS = tuple(
    convert({"number": int(number), **claim}, PaperClaim, f"claims.toml: {number}")
    for number, claim in _TEXTS.items()
)
