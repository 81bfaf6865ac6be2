"""Times and sizes as people write them, for Structs of input and for the prompt. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, ClassVar

from topologies.structs import Written

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
_AMOUNT = r"^\s*\d+(\.\d+)?\s*"
TIME_SCHEMA: dict[str, Any] = {"type": ["string", "number"], "minimum": 0, "pattern": rf"{_AMOUNT}({'|'.join(_TIMES)})?\s*$"}
"""JSON Schema of what :func:`parse_duration` reads."""

MAX_SIZE = 1 << 40
"""Bytes: no size is larger [ours]."""
MAX_NS = 10**14
"""A day, and some hours: no time is longer [ours]."""


def parse_duration(value: Any) -> int:
    """``"0.5s"``, ``"20ms"`` or a number of seconds, as ns. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        ns = value * 10**9
    else:
        match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ns|us|ms|s|min)?", str(value).strip())
        if not match:
            raise ValueError("is not a time: write it like '0.5s' or as a number of seconds")
        ns = float(match[1]) * _TIMES[match[2] or "s"]
    if not 0 <= ns < MAX_NS:
        raise ValueError("is not a time between 0 and a day")
    return round(ns)


def parse_size(value: Any) -> int:
    """``"4MiB"`` or a number of bytes, as bytes. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-zA-Z]{0,3})", str(value).strip())
    if isinstance(value, (bool, float)) or not match or match[2].upper() not in _SIZES:
        raise ValueError("is not a size: write it like '4MiB' or as a whole number of bytes")
    size = Fraction(match[1]) * _SIZES[match[2].upper()]
    if size.denominator != 1:
        raise ValueError("is not a whole number of bytes")
    if size > MAX_SIZE:
        raise ValueError(f"is more than {MAX_SIZE >> 40} TiB")
    return int(size)


class Duration(int, metaclass=Written):
    """ns; people write ``"0.5s"``, ``"20ms"`` or a number of seconds."""

    words = "a time, like '80us', or a number of seconds"
    schema: ClassVar[dict[str, Any]] = TIME_SCHEMA
    example = '"80us"'
    read = staticmethod(parse_duration)


class Span(int, metaclass=Written):
    """A duration longer than 0."""

    words = "a time above 0, like '240us', or a number of seconds"
    schema: ClassVar[dict[str, Any]] = {**TIME_SCHEMA, "exclusiveMinimum": 0}
    example = '"240us"'

    @staticmethod
    def read(value: Any) -> int:
        ns = parse_duration(value)
        if not ns:
            raise ValueError('must be longer than 0, like "120s"')
        return ns


class Size(int, metaclass=Written):
    """Bytes; people write ``"4MiB"`` or a number."""

    words = "a size, like '1MiB', or a whole number of bytes"
    schema: ClassVar[dict[str, Any]] = {"type": ["string", "integer"], "minimum": 0, "pattern": rf"{_AMOUNT}([kKmMgG]?[iI]?[bB])?\s*$"}
    example = '"1MiB"'
    read = staticmethod(parse_size)
