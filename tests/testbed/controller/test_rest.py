"""REST: what changes something, what is refused, and that bad input is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.controller.journal import MAX_READERS, OWNERS_READERS, Journal, Reader
from testbed.controller.links import FailedLinks, LinkChange
from testbed.controller.rest import MAX_BODY, Request, Rest
from testbed.controller.steering import Steering
from testbed.controller.views import PAGES, Views, paths_over
from topologies import Fabric, load_fabric
from topologies.paths import path_evs, path_links, static_tables

FABRIC = load_fabric("demo")
TABLES = static_tables(FABRIC)
LINK = "p1-t0-1:p1-t1-2"
TOKEN = "0123456789abcdef" * 2


class Service:
    def __init__(self) -> None:
        ticks = iter(range(1000, 10**6))
        self.links = FailedLinks(FABRIC, 1)
        self.steering = Steering(FABRIC, self.links, Journal(), lambda: next(ticks))
        views = Views(
            FABRIC, TABLES, lambda: TABLES, self.links, lambda: self.steering.denylist.entries
        )
        self.rest = Rest(views, self.steering, TOKEN)

    def ask(self, method: str, path: str, expected: int = 200, body: Any = b"", **more: Any) -> Any:
        """As the owner asks, unless ``more`` says otherwise."""
        more = {"token": TOKEN, **more}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, payload = self.rest.answer(Request(method, path, body=data, **more))
        assert status == expected, payload
        if isinstance(payload, Reader):
            return payload
        if status >= 400:
            assert "\n" not in payload["error"] and payload["error"]
        return json.loads(json.dumps(payload))


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_every_listed_page_answers(service: Service, prefix: str) -> None:
    for page in service.ask("GET", "/")["pages"]:
        path = (
            page.removeprefix("/v1")
            .replace("{switch}", "p0-t0-0")
            .replace("{src}", "h0")
            .replace("{dst}", "h7")
        )
        if path == "/events":
            continue
        if path == "/stream" and not prefix:
            path = "/events"
        service.ask("GET", prefix + path)
        service.ask("HEAD", prefix + path)
    assert service.ask("GET", "/v1/events") == [], "the old page: a list of link changes"


def test_deny_and_allow(service: Service) -> None:
    said = service.ask(
        "POST", "/denylist", 201, {"entry": "p1-t1-2:p1-t0-1", "reason": "dirty optics"}
    )
    assert said == {
        "entry": LINK,
        "by": "operator",
        "reason": "dirty optics",
        "since_ps": said["since_ps"],
        "new": True,
    }
    assert service.ask("POST", "/v1/denylist", 200, {"entry": LINK})["new"] is False
    service.ask("POST", "/denylist", 201, {"entry": LINK, "by": "clustermapper", "reason": "lossy"})
    service.ask("POST", "/denylist", 201, {"entry": "h0>h7@p0/3"})
    assert [(d["entry"], d["by"]) for d in service.ask("GET", "/denylist")] == [
        (LINK, "operator"), (LINK, "clustermapper"), ("h0>h7@p0/3", "operator"),
    ]  # fmt: skip
    gone = service.ask("DELETE", f"/denylist/{LINK}", query={"by": "clustermapper"})
    assert [d["by"] for d in gone["removed"]] == ["clustermapper"]
    assert len(service.ask("DELETE", "/v1/denylist/h0>h7@p0/3")["removed"]) == 1, (
        "an entry with a slash in it"
    )
    assert service.ask("POST", "/denylist", 200, {"allow": LINK})["entry"] == LINK
    assert service.ask("GET", "/denylist") == []
    assert [e["event"] for e in service.ask("GET", "/journal")] == ["deny"] * 3 + ["allow"] * 3


def test_taking_off_what_is_not_on_is_a_404(service: Service) -> None:
    service.ask("POST", "/denylist", 201, {"entry": LINK})
    assert service.ask("DELETE", "/denylist/p0", 404)["denylist"] == [LINK]
    assert (
        "by clustermapper"
        in service.ask("DELETE", f"/denylist/{LINK}", 404, query={"by": "clustermapper"})["error"]
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        (b"[" * 50_000, "must be JSON"),
        (["p0"], "must be an object with either"),
        ({}, "must be an object with either"),
        ({"entry": "p0", "allow": "p0"}, "must be an object with either"),
        ({"entry": "p0", "raeson": "x"}, "raeson is not a key: did you mean 'reason'"),
        ({"entry": 7}, "entry = 7 must be text"),
        ({"entry": "p0", "reason": ["x"]}, "reason = ['x'] must be text"),
        ({"entry": "p0", "reason": "a\nb"}, "one line"),
        ({"entry": "p0", "reason": "x" * 300}, "at most 200"),
        ({"entry": "p0", "by": "policy"}, "there are operator, clustermapper"),
        ({"entry": "p77"}, "planes p0..p3"),
        ({"entry": "p0-t0-0:p0-t1-9"}, "no link"),
        ({"allow": "h99>h0@p0/0"}, "hosts h0..h7"),
        ({"allow": "p0", "reason": "x"}, "reason is not a key"),
    ],
)
def test_bad_input_is_400_and_one_line(service: Service, body: Any, message: str) -> None:
    assert message in service.ask("POST", "/denylist", 400, body)["error"]
    service.ask("POST", "/denylist", 413, b" " * (MAX_BODY + 1))
    assert service.ask("GET", "/denylist") == [] and service.ask("GET", "/journal") == []


def test_web_pages_may_look_but_not_change(service: Service) -> None:
    service.ask("POST", "/denylist", 403, {"entry": LINK}, from_browser=True)
    service.ask("DELETE", f"/denylist/{LINK}", 403, from_browser=True)
    service.ask("GET", "/links", from_browser=True)


@pytest.mark.parametrize(
    "token", ["", "0", TOKEN[:-1], TOKEN + "0", TOKEN[:-1] + "e", TOKEN.upper(), "\u00e9" * 32]
)
def test_without_the_token_everybody_may_look_and_nobody_change(
    service: Service, token: str
) -> None:
    service.ask("POST", "/denylist", 201, {"entry": LINK})
    for method, path, body in [
        ("POST", "/denylist", {"entry": "p0"}),
        ("POST", "/denylist", {"allow": LINK}),
        ("POST", "/denylist", {"entry": "p0", "by": "clustermapper"}),
        ("DELETE", f"/denylist/{LINK}", {}),
        ("PUT", "/denylist", {}),
    ]:
        assert (
            "sudo mrcbed fabric denylist"
            in service.ask(method, path, 401, body, token=token)["error"]
        )
    assert [d["entry"] for d in service.ask("GET", "/denylist", token=token)] == [LINK]
    assert [e["event"] for e in service.ask("GET", "/journal", token=token)] == ["deny"]


def test_requests_that_name_the_loopback_are_answered(service: Service) -> None:
    for host in (
        "127.0.0.1",
        "127.0.0.1:41607",
        "localhost",
        "LocalHost:8080",
        "[::1]",
        "[::1]:41607",
    ):
        service.ask("GET", "/links", host=host)
        service.ask("POST", "/denylist", 201, {"entry": LINK}, host=host)
        service.ask("POST", "/denylist", 200, {"allow": LINK}, host=host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:41607",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:1@evil.example",
        "127.0.0.1:80:80",
        "127.0.0.2",
        "127.0.0.1,evil.example",
        "0.0.0.0",
        "::1",
        "localhost:",
        "localhost\n",
        "x" * 70_000,
    ],
)
def test_another_hosts_name_gets_nothing(service: Service, host: str) -> None:
    """A web page that gave its own name our address (DNS rebinding) may not even look."""
    for path in ("/links", "/", "/events", "/nothing"):
        assert "this is 127.0.0.1" in service.ask("GET", path, 403, host=host)["error"]
    service.ask("POST", "/denylist", 403, {"entry": LINK}, host=host)
    assert service.ask("GET", "/denylist") == [] and service.steering.journal.readers == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/links"),
        ("DELETE", "/v1/tables/p0-t0-0"),
        ("PUT", "/denylist"),
        ("DELETE", "/denylist"),
        ("POST", "/agents"),
    ],
)
def test_all_else_only_shows(service: Service, method: str, path: str) -> None:
    assert service.ask(method, path, 405, {})["pages"] == PAGES


def test_links_say_who_denies_them(service: Service) -> None:
    for entry in (LINK, "p1", "p2-t1-0", "h0>h7@p0/0"):
        service.ask("POST", "/denylist", 201, {"entry": entry})
    denied = {row["link"]: row["denied"] for row in service.ask("GET", "/v1/links")}
    assert denied[LINK] == [LINK, "p1"]
    assert denied["h3:p1-t0-0"] == ["p1"] and denied["p2-t0-1:p2-t1-0"] == ["p2-t1-0"]
    assert denied["h0:p0-t0-0"] == [], "a path entry forbids the path, not the link"
    assert sum(bool(words) for words in denied.values()) == 8 + 2 * 4 + 2


def test_paths_are_up_down_or_denied(service: Service) -> None:
    service.ask("POST", "/denylist", 201, {"entry": "h0>h7@p0/3"})
    service.ask("POST", "/denylist", 201, {"entry": "p2"})
    service.links.apply(LinkChange(LINK, False, "p1-t0-1-u2", 50), 52)
    rows = {(row["plane"], row["uplink"]): row for row in service.ask("GET", "/paths/h0/h7")}
    assert {key: row["state"] for key, row in rows.items() if row["state"] != "up"} == {
        (0, 3): "denied", (1, 2): "down", **{(2, u): "denied" for u in range(4)},
    }  # fmt: skip
    assert rows[0, 3]["denied_by"] == ["h0>h7@p0/3"] and rows[0, 3]["alive"] is True
    assert (
        rows[1, 2]["switches"] == ["p1-t0-0", "p1-t1-2", "p1-t0-1"] and rows[1, 2]["alive"] is False
    )
    assert {row["state"] for row in service.ask("GET", "/paths/h7/h0") if row["plane"] == 0} == {
        "up"
    }, "one direction only"


@pytest.mark.parametrize(
    "fabric",
    [
        load_fabric("tiny"),
        FABRIC,
        load_fabric("tiny").with_(name="uneven", t1_per_plane=3, hosts_per_t0=3),
        load_fabric("two-sites"),
    ],
)
def test_paths_over_a_link_are_as_counted_one_by_one(fabric: Fabric) -> None:
    counted = dict.fromkeys(fabric.links_by_name, 0)
    for src in range(fabric.host_count):
        for dst in range(fabric.host_count):
            for value in path_evs(fabric, src, dst) if src != dst else ():
                for link in path_links(fabric, src, dst, value):
                    counted[link.name] += 1
    assert {link.name: paths_over(fabric, link) for link in fabric.links} == counted


@pytest.mark.parametrize("path", ["/events", "/v1/stream"])
def test_the_stream_replays_if_asked(service: Service, path: str) -> None:
    service.ask("POST", "/denylist", 201, {"entry": LINK})
    at = service.ask("GET", "/journal")[0]["t_ps"]
    assert service.ask("GET", path).take() == []
    assert [e["entry"] for e in service.ask("GET", path, query={"since": "0"}).take()] == [LINK]
    assert service.ask("GET", path, query={"since": str(at)}).take() == []


def test_a_time_that_is_none_is_400(service: Service) -> None:
    for page in ("/events", "/journal"):
        assert (
            "a time in ps" in service.ask("GET", page, 400, query={"since": "yesterday"})["error"]
        )


def test_too_many_readers_are_503_and_strangers_leave_room_for_the_owners_readers(
    service: Service,
) -> None:
    for _ in range(MAX_READERS - OWNERS_READERS):
        service.ask("GET", "/events", token="")
    service.ask("GET", "/events", 503, token="")
    for _ in range(OWNERS_READERS):
        service.ask("GET", "/events")
    service.ask("GET", "/events", 503)
