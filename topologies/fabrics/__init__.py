"""The named fabrics, one TOML file each, and the loader for a user's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from topologies.clos import Fabric, FabricError
from topologies.structs import Doc, Refused, convert
from topologies.toml_files import find_file, read_toml, take_format
from topologies.units import Duration, Rate

HERE = Path(__file__).parent
DILATION = 10_000.0
"""Ports of 100 Gb/s run at 10 Mb/s then [ours]."""
MAX_DILATION = 1_000_000_000.0


def named_fabrics() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load_fabric(name_or_file: str, beside: Path | None = None) -> Fabric:
    """A file is looked for in the folder ``beside`` first. Raises :class:`FabricError`."""
    return fabric_of(read_fabric_file(name_or_file, beside))


def read_fabric_file(name_or_file: str, beside: Path | None = None) -> dict[str, object]:
    """Checks nothing but ``format``. Raises :class:`FabricError`."""
    path = find_file(name_or_file, HERE, beside)
    if path is None:
        raise FabricError(
            f"no fabric {name_or_file!r}: there are {', '.join(named_fabrics())}, or give a "
            ".toml file"
        )
    try:
        data = read_toml(path)[1]
        take_format(data)
    except ValueError as error:
        looked = (
            ""
            if beside is None
            else f" (looked for in {beside.resolve()} and in the working directory)"
        )
        raise FabricError(
            f"fabric file {path} {error}{'' if os.path.exists(path) else looked}"
        ) from None
    data.setdefault("name", path.stem)
    return data


def fabric_of(data: dict[str, object]) -> Fabric:
    dilation_of(data)
    data = {key: value for key, value in data.items() if key != "dilation"}
    for key, kind in WRITTEN.items():
        if key in data:
            value = data.pop(key)
            try:
                data[f"{key}_ps" if kind is Duration else key] = kind.read(value)
            except ValueError as error:
                raise FabricError(f"fabric {data['name']!r}: {key} = {value!r} {error}") from None
    return Fabric.from_dict(data)


def usual_dilation(name_or_file: str, beside: Path | None = None) -> float:
    """Raises :class:`FabricError`."""
    return dilation_of(read_fabric_file(name_or_file, beside))


class FabricFile(Struct):
    dilation: Annotated[
        float,
        Meta(ge=1.0, le=MAX_DILATION),
        Doc("how many times slower than the network machines run it", example="12500"),
    ] = DILATION


def dilation_of(data: dict[str, object]) -> float:
    try:
        return convert(
            {key: data[key] for key in FabricFile.__struct_fields__ if key in data}, FabricFile
        ).dilation
    except Refused as error:
        raise FabricError(f"fabric {data['name']!r}: {error}") from None


WRITTEN: dict[str, type[Rate] | type[Duration]] = {
    "nic_rate": Rate,
    "fabric_rate": Rate,
    "delay": Duration,
    "hop_delay": Duration,
    "long_haul_rate": Rate,
    "long_haul_delay": Duration,
}
