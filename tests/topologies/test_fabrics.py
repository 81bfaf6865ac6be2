"""The named fabrics are what the documentation says, and a user's own file is read or refused
clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies import FabricError, load_fabric, named_fabrics
from topologies.fabrics import usual_dilation
from topologies.units import parse_rate


def test_named_fabrics() -> None:
    assert {"tiny", "demo", "wide", "demo-1p"} <= set(named_fabrics())
    shapes = {name: load_fabric(name) for name in named_fabrics()}
    assert (shapes["tiny"].host_count, shapes["tiny"].planes) == (4, 2)
    assert (shapes["demo"].host_count, shapes["demo"].paths_per_pair) == (8, 16)
    assert (
        shapes["wide"].host_count,
        shapes["wide"].paths_per_pair,
        shapes["wide"].t1_per_plane,
    ) == (8, 128, 16)
    assert shapes["demo-1p"].planes == 1
    assert shapes["demo-1p"].host_rate == shapes["demo"].host_rate


def test_own_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "format = 3\nplanes = 2\nt0_per_plane = 2\nt1_per_plane = 1\nhosts_per_t0 = 1\n"
        'nic_rate = "15Gbit"\nbuffer_bdp = 4\n'
    )
    fabric = load_fabric(str(file))
    assert (fabric.name, fabric.nic_rate, fabric.buffer_bdp) == ("mine", 15 * 10**9, 4.0)
    assert usual_dilation(str(file)) == 10_000
    file.write_text(f"{file.read_text()}dilation = 25000\n")
    assert usual_dilation(str(file)) == 25_000 and load_fabric(str(file)) == fabric, (
        "the network is the same"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("planes = ", "not valid TOML"),
        ("plane = 2", "did you mean 'planes'"),
        ("planes = 2", "t0_per_plane is missing"),
        ('nic_rate = "fast"', "is not a rate"),
        ("dilation = 0.5", "dilation = 0.5 must be a number in 1"),
    ],
)
def test_bad_files(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(f"format = 3\n{body}")
    with pytest.raises(FabricError, match=message):
        load_fabric(str(file))


def test_absent() -> None:
    with pytest.raises(FabricError, match="there are cluster-b, cluster-d, demo"):
        load_fabric("dema")
    with pytest.raises(FabricError, match="fabric file /nonexistent/x.toml cannot be read"):
        load_fabric("/nonexistent/x.toml")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10Mbit", 10**7), ("2.5 Gbit/s", 2_500_000_000), ("900kbps", 900_000), (5, 5), ("7", 7)],
)
def test_rates(text: object, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["10 Mbyte", "-1", True, ""])
def test_bad_rates(text: object) -> None:
    with pytest.raises(ValueError, match="is not a rate: write it like '10Mbit'"):
        parse_rate(text)
