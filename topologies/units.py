"""Defines units of time, and reads times, rates and sizes as people write them.

Time in mrcbed is network time: a whole number of picoseconds of the network, whatever this machine
takes for it. 64 bits hold 106 days (docs/why/time.md).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, ClassVar

from topologies.structs import Written

NS = 1000
US, MS, S = 10**3 * NS, 10**6 * NS, 10**9 * NS
BYTE = 8 * S
"""Bits of a byte x a second: divided by a rate, the time of a byte on the wire."""
_SIZES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
}
_TIMES = {"ns": NS, "us": US, "ms": MS, "s": S, "min": 60 * S}
_RATES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_AMOUNT = r"^\s*\d+(\.\d+)?\s*"
TIME_SCHEMA: dict[str, object] = {
    "type": ["string", "number"],
    "minimum": 0,
    "pattern": rf"{_AMOUNT}({'|'.join(_TIMES)})?\s*$",
}

MAX_SIZE = 1 << 40
MAX_TIME = 10**5 * S
MAX_RATE = 10**18


def wire_time(size: int, rate: int) -> int:
    """The result is rounded down. It fits 64 bits to 1.15 MB: compiled code asks for frames."""
    return size * BYTE // rate


def parse_duration(value: Any) -> int:
    """Read ``"0.5s"``, ``"20ms"`` or a number of seconds. Raises ValueError, the end of a sentence
    that begins with the value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        time = value * S
    else:
        match = re.fullmatch(
            r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(ns|us|ms|s|min)?", str(value).strip()
        )
        if not match:
            raise ValueError("is not a time: write it like '80us' or as a number of seconds")
        time = float(match[1]) * _TIMES[match[2] or "s"]
    if not 0 <= time < MAX_TIME:
        raise ValueError("is not a time between 0 and a day")
    return round(time)


def written(time: int) -> str:
    return f"{time // NS}.{time % NS:03d}ns"


def parse_rate(value: Any) -> int:
    """Read ``"10Mbit"`` or a number of bits/s. Raises as :func:`parse_duration`."""
    if isinstance(value, int) and not isinstance(value, bool):
        rate: float = value
    else:
        match = re.fullmatch(
            r"([0-9]+(?:\.[0-9]+)?)\s*([kMG]?)(?:bit|bit/s|bps|b/s)?", str(value).strip()
        )
        if not match:
            raise ValueError("is not a rate: write it like '10Mbit'")
        rate = float(match[1]) * _RATES[match[2]]
    if not 0 <= rate <= MAX_RATE:
        raise ValueError(f"is not in 0..{MAX_RATE:g}")
    return round(rate)


def parse_size(value: Any) -> int:
    """Read ``"4MiB"`` or a number of bytes. Raises ValueError."""
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
    words = "a time, like '80us', or a number of seconds"
    schema: ClassVar[dict[str, object]] = TIME_SCHEMA
    example = '"80us"'
    read = staticmethod(parse_duration)


class Span(int, metaclass=Written):
    words = "a time above 0, like '240us', or a number of seconds"
    schema: ClassVar[dict[str, object]] = {**TIME_SCHEMA, "exclusiveMinimum": 0}
    example = '"240us"'

    @staticmethod
    def read(value: Any) -> int:
        time = parse_duration(value)
        if not time:
            raise ValueError('must be longer than 0, like "120s"')
        return time


class Size(int, metaclass=Written):
    words = "a size, like '1MiB', or a whole number of bytes"
    schema: ClassVar[dict[str, object]] = {
        "type": ["string", "integer"],
        "minimum": 0,
        "pattern": rf"{_AMOUNT}([kKmMgG]?[iI]?[bB])?\s*$",
    }
    example = '"1MiB"'
    read = staticmethod(parse_size)


class Rate(int, metaclass=Written):
    words = "a rate, like '100Gbit', or a whole number of bit/s"
    schema: ClassVar[dict[str, object]] = {
        "type": ["string", "integer"],
        "pattern": r"^\s*\d+(\.\d+)?\s*[kMG]?(bit|bit/s|bps|b/s)?\s*$",
    }
    example = '"100Gbit"'
    read = staticmethod(parse_rate)
