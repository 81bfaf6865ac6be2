"""A scenario or fabric file with any one of its values changed is refused in one line, or is read
at once. Nothing is run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mrcbed.cli.common import parse_seeds
from scenarios.schema.keys import FABRIC, keys
from scenarios.schema.scenario import ScenarioError, read_scenario_file, scenario_of
from testbed.errors import UserError
from topologies import FabricError
from topologies.clos import MAX_LINKS
from topologies.fabrics import fabric_of
from topologies.units import S, parse_size

DEEP: list[Any] = []
for _ in range(900):
    DEEP = [DEEP]
BAD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    0.5,
    float("nan"),
    float("inf"),
    1e300,
    10**7,
    10**12,
    10**15,
    2**63,
    2**64,
    10**400,
    "",
    "x",
    "x" * 100_000,
    "9" * 400,
    "../../x",
    "/etc/passwd",
    "a/b",
    "a\nb",
    "a\0b",
    "\x1b[31m",
    "\ud800",
    "\u2028",
    [],
    [[]],
    [0] * 100_000,
    {},
    {"x": 1},
    {"x": {"x": -1}},
    DEEP,
)
SCENARIOS = (
    "smoke",
    "cross-traffic",
    "incast-victim",
    "job-mixed",
    "long-haul",
    "learned-paths",
    "failure-rate",
)
WORDS = ("9" * 400 + "bit", "9" * 400 + "s", "-1", "1e300", "99999min", "999999TiB", "nan")
# what is deep, TOML's reader refuses
VALUES = [*(value for value in BAD if value is not DEEP), *WORDS]
SMALL = {"name": "mine", "planes": 2, "t0_per_plane": 2, "t1_per_plane": 2, "hosts_per_t0": 2}


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a file that holds a value, of long lists the first two."""
    if path:
        yield path
    for key, value in (
        data.items()
        if isinstance(data, dict)
        else enumerate(data[:2])
        if isinstance(data, list)
        else ()
    ):
        yield from places(value, (*path, key))


def cases() -> list[tuple[str, tuple[Any, ...], Any]]:
    """(scenario, place in its file that no scenario before has, entries of a list being alike, a
    value for it), in any order."""
    seen: set[Any] = set()
    found = []
    for name in SCENARIOS:
        for place in places(read_scenario_file(name)[2]):
            like = tuple("#" if isinstance(part, int) else part for part in place)
            found += [(name, place, bad) for bad in VALUES if like not in seen]
            seen.add(like)
    random.Random(1).shuffle(found)
    return found


def tried(name: str, place: tuple[Any, ...], bad: Any) -> None:
    """It is refused in one line, or has bounds."""
    path, text, made = read_scenario_file(name)
    at: Any = made
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = bad
    try:
        scenario = scenario_of(path, text, made)
    except (ScenarioError, FabricError) as error:
        assert "\n" not in str(error), (place, repr(bad)[:40])
    else:
        assert scenario.timeout_s < 10**5 and scenario.workload.steps <= 1_000_000
        assert all(len(t.fabric.links) <= MAX_LINKS and t.qps <= 64 for t in scenario.transports)


def test_a_scenario_with_any_value_changed_is_refused_in_one_line_or_read() -> None:
    """A part of the cases; `make soak` tries all (tests/soak/test_hostile_values.py)."""
    for case in cases()[::8]:
        tried(*case)


@pytest.mark.parametrize("name", [key.name for key in keys(FABRIC) if key.name != "format"])
def test_a_fabric_with_any_value_is_refused_in_one_line_or_small(name: str) -> None:
    for bad in VALUES:
        try:
            fabric = fabric_of({**SMALL, name: bad})
        except FabricError as error:
            assert "\n" not in str(error), repr(bad)[:40]
        else:
            assert len(fabric.links) <= MAX_LINKS and fabric.base_rtt_ps < 3 * S


def test_a_fabric_has_a_bound_on_all_its_cables() -> None:
    shape = {
        **SMALL,
        "planes": 16,
        "t0_per_plane": 1024,
        "t1_per_plane": 1024,
        "hosts_per_t0": 1024,
    }
    with pytest.raises(
        FabricError,
        match="33,554,432 cables are more than 65,536: use fewer planes, switches or hosts",
    ):
        fabric_of(shape)
    assert fabric_of(SMALL).cable_count == len(fabric_of(SMALL).links) == 16
    two = fabric_of({**SMALL, "sites": 2, "long_haul_delay": "1us"})
    assert two.cable_count == len(two.links)


def test_seeds_and_sizes_have_bounds() -> None:
    with pytest.raises(UserError, match="to 10,000 seeds at most"):
        parse_seeds("1-6000,7001-13000")
    with pytest.raises(ValueError, match="is more than 1 TiB"):
        parse_size("1025GiB")
    assert parse_size("1024GiB") == 1 << 40
