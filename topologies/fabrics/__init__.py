"""The named fabrics, one TOML file each, and the loader for a user's own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

from topologies.clos import MAX_DILATION, MAX_RATE, MIN_RATE, Fabric, FabricError
from topologies.structs import Written
from topologies.toml_files import find_file, read_toml, take_format

HERE = Path(__file__).parent
NIC_RATE = 100_000_000_000
"""Rate of a NIC port, bits/s, in a file that names none (MRC paper: 8 x 100G)."""
DILATION = 10_000
"""Dilation of a file that names none: its ports of 100 Gb/s run at 10 Mb/s [ours]."""
MAX_AMOUNT = 10**18
"""Most bits/s, and most ns, as written [ours]."""
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def named_fabrics() -> tuple[str, ...]:
    """Names that :func:`load_fabric` knows."""
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load_fabric(name_or_file: str, beside: Path | None = None) -> Fabric:
    """A named fabric, or one from a TOML file, looked for in the folder ``beside`` first. Raises :class:`FabricError`, one clear line.

    Files hold the real network's rates and delay, and the dilation at which it is run unless something else is asked for; the fabric has
    both as they are at that dilation.
    """
    return on_the_clock(read_fabric_file(name_or_file, beside))


def read_fabric_file(name_or_file: str, beside: Path | None = None) -> dict[str, Any]:
    """What :func:`load_fabric` reads, before anything but its ``format`` is checked. Raises :class:`FabricError`."""
    path = find_file(name_or_file, HERE, beside)
    if path is None:
        raise FabricError(f"no fabric {name_or_file!r}: there are {', '.join(named_fabrics())}, or give a .toml file")
    try:
        data = read_toml(path)[1]
        take_format(data)
    except ValueError as error:
        looked = "" if beside is None else f" (looked for in {beside.resolve()} and in the working directory)"
        raise FabricError(f"fabric file {path} {error}{'' if os.path.exists(path) else looked}") from None
    data.setdefault("name", path.stem)
    return data


def on_the_clock(data: dict[str, Any]) -> Fabric:
    """The fabric that a file's table describes, at its dilation. Raises :class:`FabricError`."""
    data = {"dilation": DILATION, **data}
    name, dilation = data["name"], data["dilation"]
    if isinstance(dilation, bool) or not isinstance(dilation, (int, float)) or not 1 <= dilation <= MAX_DILATION:
        raise FabricError(f"fabric {name!r}: dilation = {dilation!r} must be a number from 1 to {MAX_DILATION:,.0f}")
    for key, kind in WRITTEN.items():
        if key in data:
            value = data.pop(key)
            try:
                real = kind.read(value)
            except ValueError as error:
                raise FabricError(f"fabric {name!r}: {key} = {value!r} {error}") from None
            if kind is Delay:
                data[f"{key}_ns"] = round(real * dilation)
                continue
            data[key] = round(real / dilation)
            if real and not MIN_RATE <= data[key] <= MAX_RATE:
                kept = f"{MIN_RATE / 1e3:g} kbit/s to {MAX_RATE / 1e12:g} Tbit/s"
                raise FabricError(
                    f"fabric {name!r}: {key} = {value!r} runs at {data[key]} bit/s with dilation = {dilation:g}: links take {kept}"
                )
    data.setdefault("nic_rate", round(NIC_RATE / dilation))
    return Fabric.from_dict(data)


def parse_delay(value: Any) -> int:
    """``"12ms"`` or a number of seconds, as ns. Raises ValueError, the end of a sentence that begins with the value."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)?", str(value).strip())
    if isinstance(value, bool) or not match:
        raise ValueError("is not a time: write it like '1us'")
    return _whole(float(match[1]) * {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[match[2] or "s"])


def parse_rate(value: Any) -> int:
    """``"10Mbit"`` or a number of bits/s, as bits/s. Raises ValueError, the end of a sentence that begins with the value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMG]?)(?:bit|bit/s|bps|b/s)?", str(value).strip())
    if not match:
        raise ValueError("is not a rate: write it like '10Mbit'")
    return _whole(float(match[1]) * _UNITS[match[2]])


def _whole(amount: float) -> int:
    if not 0 <= amount <= MAX_AMOUNT:
        raise ValueError(f"is not in 0..{MAX_AMOUNT:g}")
    return round(amount)


class Delay(int, metaclass=Written):
    """ns, written as :func:`parse_delay` reads it."""

    words = "a time, like '1us', or a number of seconds"
    schema: ClassVar[dict[str, Any]] = {"type": ["string", "number"], "minimum": 0, "pattern": r"^\s*\d+(\.\d+)?\s*(ns|us|ms|s)?\s*$"}
    example = '"0.992us"'
    read = staticmethod(parse_delay)


class Rate(int, metaclass=Written):
    """Bits/s, written as :func:`parse_rate` reads it."""

    words = "a rate, like '100Gbit', or a whole number of bit/s"
    schema: ClassVar[dict[str, Any]] = {"type": ["string", "integer"], "pattern": r"^\s*\d+(\.\d+)?\s*[kMG]?(bit|bit/s|bps|b/s)?\s*$"}
    example = '"100Gbit"'
    read = staticmethod(parse_rate)


WRITTEN: dict[str, type[Rate] | type[Delay]] = {
    "nic_rate": Rate, "fabric_rate": Rate, "delay": Delay, "long_haul_rate": Rate, "long_haul_delay": Delay,
}  # fmt: skip
"""Keys of a fabric file whose values are those of the real network; :class:`Fabric` holds them as they are at its dilation."""
