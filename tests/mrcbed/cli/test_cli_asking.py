"""The commands that ask a fabric that is up, against the controller's own REST answers served by a
plain web server."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from mrcbed import cli
from mrcbed.cli.fabric.events import event_line
from testbed.controller.journal import Journal, Reader
from testbed.controller.links import FailedLinks, LinkChange
from testbed.controller.rest import Request, Rest
from testbed.controller.steering import Steering
from testbed.controller.views import Views
from testbed.machine import running
from testbed.machine.running import Running
from topologies import load_fabric
from topologies.paths import static_tables

FABRIC = load_fabric("tiny")
LINK = "p0-t0-0:p0-t1-1"
TOKEN = "0123456789abcdef" * 2
Ask = Callable[..., tuple[int, str, str]]


class Service:
    """A controller's REST without a controller."""

    def __init__(self) -> None:
        self.now = itertools.count(10**9).__next__
        self.links = FailedLinks(FABRIC, self.now())
        self.steering = Steering(FABRIC, self.links, Journal(), self.now)
        tables = static_tables(FABRIC)
        rest = Rest(
            Views(
                FABRIC, tables, lambda: tables, self.links, lambda: self.steering.denylist.entries
            ),
            self.steering,
            TOKEN,
        )

        class Handler(http.server.BaseHTTPRequestHandler):
            def serve(self) -> None:
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                request = Request(
                    self.command,
                    unquote(url.path),
                    dict(parse_qsl(url.query)),
                    body,
                    host=self.headers["Host"],
                    token=token,
                )
                status, payload = rest.answer(request)
                self.send_response(status)
                self.end_headers()
                if isinstance(payload, Reader):
                    self.wfile.write(
                        b"".join(json.dumps(entry).encode() + b"\n" for entry in payload.take())
                    )
                    self.wfile.write(b"\n")  # silence; then the fabric goes
                else:
                    self.wfile.write(json.dumps(payload).encode())

            do_GET = do_POST = do_DELETE = serve

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def fail(self, link: str) -> None:
        change = LinkChange(link, False, "p0-t0-0-u1", self.now())
        self.links.apply(change, self.now())
        self.steering.link_changed(change)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def ask(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ask:
    """Runs a command line: status, stdout, stderr. The fabric is found as if it were up here."""
    monkeypatch.setattr(running, "find", lambda: [Running(service.url, "tiny", TOKEN)])

    def asked(*arguments: str) -> tuple[int, str, str]:
        status = cli.execute(["fabric", *arguments])
        said = capsys.readouterr()
        assert len(said.err.splitlines()) <= 1 and "bug" not in said.err
        return status, said.out, said.err

    return asked


def test_denylist_from_empty_to_empty(ask: Ask) -> None:
    assert ask("denylist") == (0, "nothing is denied\n", "")
    assert ask("denylist", "add", "p0-t1-1:p0-t0-0", "--reason", "dirty optics") == (
        0,
        f"{LINK} is denied\n",
        "",
    )
    assert ask("denylist", "add", LINK) == (0, f"{LINK} was denied already\n", "")
    for arguments in (("denylist",), ("denylist", "list")):
        status, table, _ = ask(*arguments)
        assert (
            status == 0
            and [word in table for word in (LINK, "operator", "dirty optics")] == [True] * 3
        )
    assert [d["entry"] for d in json.loads(ask("denylist", "--json")[1])] == [LINK]
    assert ask("denylist", "remove", LINK) == (
        0,
        f"{LINK} is allowed again (it had been denied by operator)\n",
        "",
    )
    assert ask("denylist")[1] == "nothing is denied\n"


def test_what_the_controller_refuses_is_its_own_line(ask: Ask) -> None:
    assert ask("denylist", "add", "p9") == (
        2,
        "",
        "mrcbed: denylist entry 'p9': fabric 'tiny' has planes p0..p1\n",
    )
    assert ask("denylist", "remove", "p0") == (2, "", "mrcbed: p0 is not on the denylist\n")
    assert ask("denylist", "ad", "p0")[0] == 2
    assert "did you mean h3" in ask("paths", "h0", "h30")[2]


def test_the_token_comes_with_the_address_or_the_environment(
    ask: Ask, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        ask("denylist", "token")
        == ask("denylist", "token", "--url", service.url)
        == (0, f"{TOKEN}\n", "")
    )
    assert ask("denylist", "add", "p0", "--url", service.url)[0] == 0
    monkeypatch.setattr(running, "find", list)  # as to a user who may not look into root's run
    for words in (("remove", "p0"), ("add", "p1")):
        status, out, err = ask("denylist", *words, "--url", service.url)
        assert (status, out) == (2, "") and err.startswith(
            "mrcbed: a change needs the fabric's token: use sudo mrcbed fabric denylist"
        )
    assert ask("denylist", "token", "--url", service.url) == (
        2,
        "",
        "mrcbed: the token is for the fabric's owner: use sudo\n",
    )
    assert [d["entry"] for d in json.loads(ask("denylist", "--json", "--url", service.url)[1])] == [
        "p0"
    ], "looking needs none"
    monkeypatch.setenv("MRCBED_TOKEN", TOKEN)
    assert ask("denylist", "remove", "p0", "--url", service.url)[0] == 0


def test_links(ask: Ask, service: Service) -> None:
    status, table, _ = ask("links")
    assert status == 0 and table.endswith("16 links, 0 failed, 0 denied\n")
    assert all(link.name in table for link in FABRIC.links)
    assert ask("links", "--bad") == (0, "16 links, 0 failed, 0 denied\n", "")
    service.fail(LINK)
    ask("denylist", "add", "h1:p1-t0-0")
    table = ask("links", "--bad")[1]
    rows = [line.split() for line in table.splitlines() if line.strip()]
    assert rows[2][:2] == [LINK, "failed"] and rows[2][-1] == "8"
    assert rows[3][0] == "h1:p1-t0-0" and rows[3][-2:] == ["h1:p1-t0-0", str(2 * (1 + 2 * 2))]
    assert table.endswith("16 links, 1 failed, 1 denied\n")
    assert [row["link"] for row in json.loads(ask("links", "--bad", "--json")[1])] == [
        LINK,
        "h1:p1-t0-0",
    ]


def test_paths(ask: Ask, service: Service) -> None:
    service.fail(LINK)
    ask("denylist", "add", "h0>h3@p1/0")
    rows = [line.split() for line in ask("paths", "h0", "h3")[1].splitlines() if line.strip()][2:]
    found = {row[0]: row[5:] for row in rows}
    assert found == {
        "0:0": ["up"],
        "0:1": ["down", LINK],
        "1:0": ["denied", "h0>h3@p1/0"],
        "1:1": ["up"],
    }


def test_events_until_the_fabric_goes(ask: Ask, service: Service) -> None:
    service.fail(LINK)
    ask("denylist", "add", LINK, "--reason", "worn out")
    status, lines, complaint = ask("events", "--all")
    assert status == 0 and complaint == "mrcbed: the controller is gone\n"
    assert [line.split(" ms  ")[1] for line in lines.splitlines()] == [
        f"link-down        {LINK} (heard at p0-t0-0-u1)",
        f"deny             {LINK} by operator: worn out",
    ]
    entries = [json.loads(line) for line in ask("events", "--all", "--json")[1].splitlines()]
    assert [e["event"] for e in entries] == ["link-down", "deny"]
    assert [
        json.loads(line)
        for line in ask("events", "--since", str(entries[0]["t_ps"]), "--json")[1].splitlines()
    ] == entries[1:]
    assert ask("events")[1] == ""


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {
                "event": "hint-pushed",
                "links": [LINK],
                "heard_ps": 1,
                "pushed_ps": 2,
                "effect_ps": 2_500_001,
                "agents": 4,
                "of": 4,
            },
            f"hint-pushed      {LINK}; 4 of 4 agents took it after 2.50 µs",
        ),
        (
            {
                "event": "denylist-pushed",
                "entries": [],
                "heard_ps": 1,
                "pushed_ps": 2,
                "effect_ps": None,
                "agents": 0,
                "of": 4,
            },
            "denylist-pushed  nothing; 0 of 4 agents took it",
        ),
        (
            {"event": "agents-joined", "agents": ["h0", "h1"], "policy": "hint"},
            "agents-joined    2 agents, policy hint",
        ),
        ({"event": "agents-left", "agents": ["h0"]}, "agents-left      1 agents"),
        (
            {"event": "agent-lost", "agent": "h1", "reason": "it hung up"},
            "agent-lost       agent=h1, reason=it hung up",
        ),
        (
            {
                "event": "allow",
                "entry": "p0",
                "by": "operator",
                "denied_by": "policy",
                "since_ps": 1,
            },
            "allow            p0 by operator",
        ),
        ({"event": "missed", "count": 7}, "missed           7 entries, for reading too slowly"),
    ],
)
def test_every_event_reads_well(entry: dict[str, Any], said: str) -> None:
    assert event_line({"t_ps": 1_234_567_890, **entry}) == f"    1.234568 ms  {said}"


COMMANDS = [
    ("denylist",),
    ("denylist", "add", "p0"),
    ("links",),
    ("paths", "h0", "h1"),
    ("events",),
]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_several_up_are_a_choice_and_none_is_one_line(
    ask: Ask, service: Service, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(running, "find", list)
    status, out, err = ask(*arguments)
    assert (status, out) == (2, "") and err.startswith("mrcbed: no fabric with a controller is up")
    both = [Running(service.url, "tiny", TOKEN), Running("http://127.0.0.1:1", "demo", "")]
    monkeypatch.setattr(running, "find", lambda: both)
    status, _, err = ask(*arguments)
    assert status == 2 and "2 fabrics are up (tiny at http" in err and "choose with --url" in err
    assert ask(*arguments, "--url", service.url)[0] == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:80", "'127.0.0.1:80' is not a controller's address"),
        ("http://127.0.0.1:1", "no controller answers at http://127.0.0.1:1 (Connection refused)"),
        ("ftp://x", "is not a controller's address"),
    ],
)
def test_a_wrong_address_is_one_line(ask: Ask, url: str, said: str) -> None:
    for arguments in COMMANDS:
        status, _, err = ask(*arguments, "--url", url)
        assert status == 2 and said in err
