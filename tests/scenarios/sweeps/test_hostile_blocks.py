"""A valid block with any one of its values changed is refused in one line that names the key, or is a block that a scenario file could
have made. Nothing is run."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from scenarios.run.planning import blocks_of, plan
from scenarios.schema.scenario import load_scenario
from scenarios.schema.scenario_tables import KINDS
from scenarios.sweeps import blocks
from testbed.controller.steering import POLICIES
from testbed.errors import UserError
from topologies.clos import MAX_LINKS

HERE = "1.0"
DEEP: list[Any] = []
for _ in range(900):
    DEEP = [DEEP]
BAD: tuple[Any, ...] = (
    None, True, -1, 0, 3, 0.5, float("nan"), float("inf"), 1e300, 10**7, 10**12, 10**15, 2**63, 2**64, 10**400, "", "x", "x" * 100_000,
    "9" * 400, "../../x", "/etc/passwd", "a/b", "a\nb", "a\0b", "\x1b[31m", "\ud800", "\u2028", [], [[]], [0] * 100_000, {}, {"x": 1},
    {"x": {"x": -1}}, DEEP,
)  # fmt: skip
SIMULATED = ("incast-victim", "job-mixed", "permutation", "long-haul", "learned-paths", "flapping", "one-of-many")
BASES = {**dict.fromkeys(("smoke", "cross-traffic", "t1-silent"), "emulated"), **dict.fromkeys(SIMULATED, "simulated")}
"""Scenarios that between them have every table, and several faults."""
UNITS = ("_ps", "_bps", "_bytes", "_s", "s", "")


def block_of(name: str) -> str:
    """The first block of a scenario."""
    return blocks.written(blocks_of(plan(load_scenario(name)))[0], BASES[name], HERE, 12_500 if BASES[name] == "emulated" else None)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a block that holds a value, of long lists the first two."""
    if path:
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


@cache
def cases() -> dict[str, list[tuple[Any, ...]]]:
    """Scenario -> the places of its block that no block before it has, entries of a list being alike."""
    seen: set[Any] = set()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name in BASES:
        data = json.loads(block_of(name))
        for path in places(data):
            like = tuple("#" if isinstance(part, int) else part for part in path)
            case = (like, data["scenario"]["workload"]["kind"] if "workload" in path else name if "keys" in path else "")
            if case not in seen:
                seen.add(case)
                found.setdefault(name, []).append(path)
    return found


def refusal(data: Any) -> str:
    """Why a block is refused; "" if it is not. What is not refused must be small and safe."""
    try:
        block, specs = blocks.read(json.dumps(data), HERE)
    except UserError as error:
        return str(error)
    work, names = specs[0].scenario.workload, [spec.key for spec in specs] + [flow.name for flow in specs[0].scenario.backgrounds]
    assert not any("/" in name or "\0" in name or name.startswith(".") for name in names)
    assert work.steps <= 1_000_000 and work.message_bytes <= 1 << 40 and specs[0].scenario.timeout_s < 10**5
    for spec in specs:
        assert spec.transport.kind in KINDS and spec.transport.controller in POLICIES
        assert 1 <= spec.transport.qps <= 64 and len(spec.transport.fabric.links) <= MAX_LINKS
    assert 0 <= block.seed < 1 << 63
    return ""


def changed(text: str, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    data = json.loads(text)
    at = data
    for part in path[:-1]:
        at = at[part]
    change(at, path[-1])
    return data


@pytest.mark.parametrize("name", BASES)
def test_a_block_with_any_value_changed_is_refused_or_small(name: str) -> None:
    change_values(name, 12)


def change_values(name: str, share: int) -> None:
    """Each value comes to one of ``share`` places."""
    text = block_of(name)
    assert refusal(json.loads(text)) == ""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = 0
    for turn, path in enumerate(cases()[name]):
        key = next(part for part in reversed(path) if isinstance(part, str))
        words = {*filter(None, map(str, path[:-1])), key, *(key.removesuffix(unit) for unit in UNITS)}
        for bad in BAD[turn % share :: share]:
            data = changed(text, path, lambda at, last, bad=bad: at.__setitem__(last, bad))  # type: ignore[misc]
            line = refusal(data)
            count += 1
            where = (path, repr(bad)[:40], line)
            assert len(line) <= blocks.MAX_LINE and line.isprintable(), where
            # what one value does to another is told of the other: a workload does not fit a fabric, a name is no transport's
            assert not line or any(word in line for word in words), where
    assert count >= len(BAD) // share
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000  # kB


@pytest.mark.parametrize("name", BASES)
def test_a_block_with_a_key_more_or_less_or_an_entry_twice_is_refused(name: str) -> None:
    text = block_of(name)
    for path in cases()[name]:
        data = changed(text, path, lambda at, last: at.insert(last, at[last]) if isinstance(at, list) else at.__setitem__("unheard-of", 1))
        free = path[0] == "settings" or path[:2] == ("scenario", "seeds")
        line = refusal(data)
        assert line or free, path
        assert "unheard-of" in line or isinstance(path[-1], int) or free or "keys" in path or "used" in path, (path, line)
        if path[:2] == ("scenario", "workload") or path[:2] == ("scenario", "transports"):
            less = changed(text, path, lambda at, last: at.__delitem__(last))
            line = refusal(less)
            assert len(line) <= blocks.MAX_LINE and line.isprintable()


@pytest.mark.parametrize(
    ("name", "path", "value", "reason"),
    [
        ("cross-traffic", "scenario.backgrounds.0.name", "../../x", "scenario.backgrounds[0].name = '../../x' must be letters, digits"),
        (
            "job-mixed",
            "scenario.workload.jobs.0.layers",
            10**12,
            "scenario.workload.jobs[0].layers = 1000000000000 must be a whole number in",
        ),
        ("smoke", "scenario.transports.0.controller", "x", "scenario.transports[0].controller = 'x': there are none, hint, denylist"),
        ("smoke", "scenario.transports.0.qps", 10**7, "scenario.transports[0].options.qps = 10000000 must be a whole number in 1..64"),
        ("smoke", "scenario.workload.steps", 10**15, "scenario.workload.steps = 1000000000000000 must be a whole number in 1..1000000"),
        ("smoke", "scenario.workload.senders", 3, "scenario.workload.senders is nothing that a scenario file makes"),
        ("smoke", "scenario.timeout_s", -1, "scenario.timeout_s"),
        ("cross-traffic", "dilation", 0.5, "dilation"),
        ("smoke", "scenario.transports.0.fabric.hosts_per_t0", 1 << 10, "workload.kind : ring-allreduce over 2048 ranks: 2 to 512"),
        ("learned-paths", "scenario.transports.0.options", {"congestion": "a." * 5000 + "b:c"}, "options.congestion = 'a.a.a."),
        ("smoke", "used", {"7": "p0-t0-0:p0-t1-0"}, "used names fault 7"),
        ("smoke", "used", {"0": "../x"}, "used"),
    ],
)
def test_a_refusal_names_the_key_as_the_block_has_it(name: str, path: str, value: Any, reason: str) -> None:
    parts = [int(word) if word.isdigit() else word for word in path.split(".")]
    line = refusal(changed(block_of(name), tuple(parts), lambda at, last: at.__setitem__(last, value)))
    assert line.startswith("block: ") and reason in line
