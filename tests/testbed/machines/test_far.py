"""A machine's end: orders that make no sense are refused in one line, before anything is built."""

from __future__ import annotations

from typing import Any, cast

import pytest

from testbed.emulated.cluster import Cluster
from testbed.errors import UserError
from testbed.machines.far import Begin
from testbed.machines.orders import Orders
from testbed.machines.wire import Wire
from topologies import load_fabric

GOOD = {"offset": 5, "fabric": load_fabric("tiny").to_dict(), "machine": 1, "addresses": ["10.0.0.1", "10.0.0.2"], "results": ""}


def test_a_begin_is_read() -> None:
    assert Begin.read({**GOOD, "id": 1, "op": "begin"}).addresses == ("10.0.0.1", "10.0.0.2")


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": float("nan")}, {"offset": 1 << 80}, {"offset": "5"}, {"machine": 2}, {"machine": -1}, {"machine": None},
        {"addresses": []},
        {"addresses": ["10.0.0.1"] * 99}, {"addresses": ["x", "y"]}, {"addresses": [1, 2]}, {"addresses": "ab"}, {"fabric": []},
        {"fabric": {}},
        {"results": 5}, {"addresses": ["10.0.0.1"] * 9},
    ],
)  # fmt: skip
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
        ("nothing", {}, "there is no order 'nothing'"), ("__init__", {}, "there is no order"),
        ("heal", {"x": 1}, "order 'heal': got an unexpected"),
        ("clear", {}, "order 'clear': missing"), ("clear", {"number": "1"}, "order 'clear': Expected `int`"),
        ("ping", {"src": 0, "dsts": [None], "seconds": 1}, "order 'ping': Expected `int`"), ("inject", {"kind": 1}, "order 'inject'"),
    ],
)  # fmt: skip
def test_an_order_that_makes_no_sense_is_refused(name: str, keys: dict[str, Any], said: str) -> None:
    orders = Orders(cast(Cluster, None), cast(Wire, None), cast(Any, None))
    with pytest.raises(UserError, match=said):
        orders.carry_out(name, keys)
