"""A machine's end: orders that make no sense are refused in one line, before anything is built."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.faults.kinds import read_words, resolve
from testbed.faults.targets import Injected, Target
from testbed.machines.channel_coding import Wire
from testbed.machines.far import Begin
from testbed.machines.orders import Orders
from topologies import load_fabric

CLOCK = {"dilation": 12_500.0, "origin": 7}
GOOD = {
    "wall_offset_ns": 5, "clock": CLOCK, "fabric": load_fabric("tiny").to_dict(), "machine": 1,
    "addresses": ["10.0.0.1", "10.0.0.2"], "results": "",
}  # fmt: skip


def test_a_begin_is_read() -> None:
    read = Begin.read({**GOOD, "id": 1, "op": "begin"})
    assert read.addresses == ("10.0.0.1", "10.0.0.2") and read.clock.clock().to_dict() == CLOCK


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall_offset_ns": float("nan")},
        {"wall_offset_ns": 1 << 80},
        {"wall_offset_ns": "5"},
        {"clock": {"dilation": 0, "origin": 7}},
        {"clock": {"dilation": 1.0}},
        {"machine": 2},
        {"machine": -1},
        {"machine": None},
        {"addresses": []},
        {"addresses": ["10.0.0.1"] * 99},
        {"addresses": ["x", "y"]},
        {"addresses": [1, 2]},
        {"addresses": "ab"},
        {"fabric": []},
        {"fabric": {}},
        {"results": 5},
        {"addresses": ["10.0.0.1"] * 9},
    ],
)
def test_a_begin_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, UserError)) as refused:
        Begin.read({**GOOD, **wrong})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", GOOD)
def test_a_begin_that_lacks_something_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Begin.read({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("nothing", {}, "there is no order 'nothing'"),
        ("__init__", {}, "there is no order"),
        ("heal", {"x": 1}, "order 'heal': got an unexpected"),
        ("clear", {}, "order 'clear': missing"),
        ("clear", {"number": "1"}, "order 'clear': Expected `int`"),
        ("ping", {"src": 0, "dsts": [None], "seconds": 1}, "order 'ping': Expected `int`"),
        ("strike", {"target": {"kind": 1}}, "order 'strike'"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    name: str, keys: dict[str, Any], said: str
) -> None:
    orders = Orders(cast(Cluster, None), cast(Wire, None), cast(Any, None))
    with pytest.raises(UserError, match=said):
        orders.carry_out(name, keys)


@pytest.mark.parametrize(
    "fault",
    ["flap p0-t0-0:p0-t1-0 period=1us duty=0.5", "path-loss h0>h3@p0/1 probability=0.1", "kill h1"],
)
def test_a_fault_comes_over_as_it_was_resolved(fault: str) -> None:
    kind, on, keys = read_words(fault.split(), "")
    target = resolve(load_fabric("tiny"), kind, on, keys, 5)
    struck: list[Target] = []

    def strike(target: Target) -> Injected:
        struck.append(target)
        return Injected(3, target, 70)

    orders = Orders(
        cast(Cluster, SimpleNamespace(strike=strike)), cast(Wire, None), cast(Any, None)
    )
    answer = orders.carry_out("strike", json.loads(json.dumps({"target": asdict(target)})))
    assert struck == [target] and answer == {
        "number": 3,
        "told_ps": 70,
        "due_ps": None,
        "down": True,
    }
