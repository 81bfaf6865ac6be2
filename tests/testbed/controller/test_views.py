"""REST payloads: what a person or a program reads about tables, links and paths."""

import json
from typing import Any

import pytest

from testbed.controller.links import FailedLinks, LinkChange
from testbed.controller.views import Views
from topologies import load_fabric
from topologies.paths import static_tables

FABRIC = load_fabric("demo")
TABLES = static_tables(FABRIC)


@pytest.fixture
def links() -> FailedLinks:
    return FailedLinks(FABRIC, 1)


@pytest.fixture
def views(links: FailedLinks) -> Views:
    return Views(FABRIC, TABLES, lambda: TABLES, links)


def get(views: Views, path: str, expected: int = 200) -> Any:
    status, payload = views.answer(path)
    assert status == expected
    return json.loads(json.dumps(payload))


def test_table_of_a_t0(views: Views) -> None:
    table = get(views, "/v1/tables/p1-t0-1")
    assert table["usid"] == "1401"
    assert table["as_computed"] is True
    assert table["entries"]["1802"] == "p1-t0-1-u2"
    assert table["entries"]["1c00"] == "p1-t0-1-d0"
    assert len(table["entries"]) == FABRIC.t1_per_plane + FABRIC.hosts_per_t0


def test_a_switch_that_holds_something_else_shows_it(links: FailedLinks) -> None:
    views = Views(FABRIC, TABLES, lambda: {"p0-t0-0": {0x0801: "p0-t0-0-u0"}}, links)
    table = get(views, "/v1/tables/p0-t0-0")
    assert table["as_computed"] is False
    assert table["entries"] == {"0801": "p0-t0-0-u0"}


def test_paths_and_a_failed_link(views: Views, links: FailedLinks) -> None:
    paths = get(views, "/v1/paths/h0/h7")
    assert len(paths) == 16
    assert all(path["alive"] for path in paths)
    path = paths[6]
    assert (path["ev"], path["plane"], path["uplink"]) == (1 << 16 | 2, 1, 2)
    assert path["usids"] == ["1400", "1802", "1401", "1c03"]
    assert path["address"] == "fcbb:bb00:1400:1802:1401:1c03::"
    assert path["nodes"] == ["h0", "p1-t0-0", "p1-t1-2", "p1-t0-1", "h7"]
    links.apply(LinkChange("p1-t0-1:p1-t1-2", False, "p1-t0-1-u2", 50), 52)
    assert [p["ev"] for p in get(views, "/v1/paths/h0/h7") if not p["alive"]] == [path["ev"]]
    assert get(views, "/v1/failed-links") == {
        "p1-t0-1:p1-t1-2": {"since_ps": 50, "detected_ps": 52}
    }
    assert [row["link"] for row in get(views, "/v1/links") if row["state"] == "failed"] == [
        "p1-t0-1:p1-t1-2"
    ]
    assert get(views, "/v1/events")[0]["handled_ps"] == 52


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/tables/p0-t0-9", "p0-t0-0"),
        ("/v1/paths/h0/h77", "h7"),
        ("/v1/paths/nobody/h0", "h0"),
        ("/v1/link", "/v1/links"),
        ("/favicon.ico", "/v1/"),
        ("/v1/tables/p0-t0-0/more", "/v1/tables"),
    ],
)
def test_unknown_names_get_near_ones(views: Views, path: str, near: str) -> None:
    payload = get(views, path, 404)
    assert "error" in payload
    assert any(name.startswith(near) for name in payload["near"]), payload


def test_no_path_to_oneself(views: Views) -> None:
    assert get(views, "/v1/paths/h1/h1", 400)["error"].startswith("h1 needs no path")
