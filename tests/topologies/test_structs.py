"""Every refusal of input is one line: the dotted key, the value, what it must be; and values with
units become plain integers."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct, field

from topologies.structs import Refused, Written, convert, join, one_of, text


class Length(int, metaclass=Written):
    """Millimetres."""

    @staticmethod
    def read(value: Any) -> int:
        if not isinstance(value, str) or not value.endswith("cm"):
            raise ValueError("is not a length: write it like '3cm'")
        return 10 * int(value[:-2])


class Leg(Struct, frozen=True, forbid_unknown_fields=True):
    length: Length
    kind: Annotated[str, one_of(("wood", "steel"))] = "wood"
    for_: bool = field(name="for", default=False)
    name: Annotated[str, text("[a-z]+", "lower-case letters")] | None = None

    def __post_init__(self) -> None:
        if self.kind == "steel" and self.length > 100:
            raise Refused("length", "is too long for steel")


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    leg: list[Leg]
    weight: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    seats: Annotated[int, Meta(ge=1, le=8, multiple_of=2)] = 2
    corner: tuple[int, int] | None = None
    colours: Annotated[list[str], Meta(min_length=1)] | str = "red"
    top: Annotated[int, Meta(ge=1)] | None = None
    options: dict[str, Any] = {}


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    pass


def table(**changes: Any) -> dict[str, Any]:
    return {"leg": [{"length": "3cm"}], **changes}


def test_values_with_units_are_plain_integers() -> None:
    made = convert(table(weight=0.25), Table)
    assert type(made.leg[0].length) is int and made.leg[0].length == 30


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "house = [] must be a table"),
        ({}, "house.leg is missing"),
        (table(wieght=1), "house.wieght is not a key: did you mean 'weight'?"),
        (table(**{"a\nb": 1}), r"house.'a\nb' is not a key"),
        (table(weight=True), "house.weight = True must be a number above 0 and below 1"),
        (table(weight=float("nan")), "house.weight = nan must be a number above 0 and below 1"),
        (table(weight=1.0), "house.weight = 1.0 must be a number above 0 and below 1"),
        (table(seats=2.0), "house.seats = 2.0 must be a whole number in 1..8, a multiple of 2"),
        (table(seats=True), "house.seats = True must be a whole number in 1..8"),
        (table(seats=10), "house.seats = 10 must be"),
        (table(seats=3), "house.seats = 3 must be"),
        (table(top=0), "house.top = 0 must be a whole number from 1"),
        (table(corner=[1]), "house.corner = [1] must be a list of 2, each a whole number"),
        (table(corner=[1, "x"]), "house.corner[1] = 'x' must be a whole number"),
        (table(colours=[]), "house.colours = [] must be a list of one or more, each text, or text"),
        (table(options=3), "house.options = 3 must be a table"),
        (table(leg={}), "house.leg must be written as [[house.leg]]"),
        (
            table(leg=[{"length": "3cm"}, {"length": "3"}]),
            "house.leg[1].length = '3' is not a length: write it like '3cm'",
        ),
        (
            table(leg=[{"length": "1cm", "kind": "glass"}]),
            "house.leg[0].kind = 'glass': there are wood, steel",
        ),
        (
            table(leg=[{"length": "1cm", "kind": 3}]),
            "house.leg[0].kind = 3 must be one of wood, steel",
        ),
        (table(leg=[{"length": "1cm", "for": 1}]), "house.leg[0].for = 1 must be true or false"),
        (
            table(leg=[{"length": "1cm", "fro": 1}]),
            "house.leg[0].fro is not a key: did you mean 'for'?",
        ),
        (
            table(leg=[{"length": "1cm", "name": "a\n"}]),
            r"house.leg[0].name = 'a\n' must be lower-case letters",
        ),
        (
            table(leg=[{"length": "99cm", "kind": "steel"}]),
            "house.leg[0].length is too long for steel",
        ),
    ],
)
def test_refusals_name_key_value_and_fix_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(Refused) as caught:
        convert(data, Table, "house")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert f"{caught.value.key} {caught.value.text}" == str(caught.value)


def test_long_values_are_cut_and_no_key_is_nearest_where_there_is_none() -> None:
    with pytest.raises(Refused, match=r"^weight = 'a{10,}\.\.\. must be a number") as caught:
        convert(table(weight="a" * 10_000), Table)
    assert len(str(caught.value)) < 200
    with pytest.raises(Refused, match=r"^legs is not a key: there are none$"):
        convert({"legs": 1}, Empty)


def test_keys_are_joined_with_dots_and_indices_without() -> None:
    assert [join("", "a"), join("a", ""), join("a", "b"), join("a", "[0].b")] == [
        "a",
        "a",
        "a.b",
        "a[0].b",
    ]
