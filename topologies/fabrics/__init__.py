"""The named fabrics, one TOML file each, and the loader for a user's own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from topologies.clos import Fabric, FabricError
from topologies.structs import Written
from topologies.toml_files import find_file, read_toml

HERE = Path(__file__).parent
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def named_fabrics() -> tuple[str, ...]:
    """Names that :func:`load_fabric` knows."""
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load_fabric(name_or_file: str, beside: Path | None = None) -> Fabric:
    """A named fabric, or one from a TOML file, looked for in the folder ``beside`` first. Raises :class:`FabricError`, one clear line."""
    path = find_file(name_or_file, HERE, beside)
    if path is None:
        raise FabricError(f"no fabric {name_or_file!r}: there are {', '.join(named_fabrics())}, or give a .toml file")
    try:
        data = read_toml(path)[1]
    except ValueError as error:
        looked = "" if beside is None else f" (looked for in {beside.resolve()} and in the working directory)"
        raise FabricError(f"fabric file {path} {error}{'' if os.path.exists(path) else looked}") from None
    data.setdefault("name", path.stem)
    for key, read in (("nic_rate", parse_rate), ("fabric_rate", parse_rate), ("delay", parse_delay)):
        if key in data:
            value = data.pop(key)
            try:
                data["delay_ns" if key == "delay" else key] = read(value)
            except ValueError as error:
                raise FabricError(f"fabric {data['name']!r}: {key} = {value!r} {error}") from None
    return Fabric.from_dict(data)


def parse_delay(value: Any) -> int:
    """``"12ms"`` or a number of seconds, as ns. Raises ValueError, the end of a sentence that begins with the value."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s)?", str(value).strip())
    if isinstance(value, bool) or not match:
        raise ValueError("is not a time: write it like '12ms'")
    return round(float(match[1]) * {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[match[2] or "s"])


def parse_rate(value: Any) -> int:
    """``"10Mbit"`` or a number of bits/s, as bits/s. Raises ValueError, the end of a sentence that begins with the value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMG]?)(?:bit|bit/s|bps|b/s)?", str(value).strip())
    if not match:
        raise ValueError("is not a rate: write it like '10Mbit'")
    return round(float(match[1]) * _UNITS[match[2]])


class Delay(int, metaclass=Written):
    """ns, written as :func:`parse_delay` reads it."""

    read = staticmethod(parse_delay)


class Rate(int, metaclass=Written):
    """Bits/s, written as :func:`parse_rate` reads it."""

    read = staticmethod(parse_rate)
