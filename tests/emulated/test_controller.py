"""The controller process against the kernel: a real map, real interfaces that flap, a real HTTP
view. Needs root."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.clock import WallClock
from testbed.controller.client import ControllerClient
from testbed.controller.journal import MAX_READERS
from testbed.controller.southbound.netlink import socket_in
from testbed.errors import UserError
from tests.emulated.ring import PATIENCE_S, wait_until
from topologies import load_fabric
from topologies.fabrics import DILATION
from topologies.paths import static_tables

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

FABRIC = load_fabric("tiny")
CLOCK = WallClock(DILATION)
PORTS = {port.name: 1000 + port.number for port in FABRIC.ports}
LINK = next(link for link in FABRIC.links if link.kind == "fabric")
NIC = next(link for link in FABRIC.links if link.kind == "nic")
ROOT = Path(__file__).resolve().parents[2]
TOKEN = "0123456789abcdef" * 2
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class Lab:
    """The fabric's cables in an anonymous namespace, and an empty routes map in a bpffs of its
    own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.maps = folder / "bpf"
        self.maps.mkdir()
        subprocess.run(["mount", "-t", "bpf", "bpf", self.maps], check=True)
        self.make_map()
        holder = subprocess.Popen(
            ["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdin and holder.stdout
        holder.stdin.write(b"x")
        holder.stdin.flush()
        holder.stdout.read(1)  # cat runs: the namespace is there
        self.fd = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY)
        holder.stdin.close()
        holder.wait()
        self.netns = f"/proc/{os.getpid()}/fd/{self.fd}"
        batch = "".join(
            f"link add {li.a.name} index {PORTS[li.a.name]} type veth peer name {li.b.name} "
            f"index {PORTS[li.b.name]}\nlink set {li.a.name} up\nlink set {li.b.name} up\n"
            for li in FABRIC.links
        )
        subprocess.run(
            ["nsenter", f"--net={self.netns}", "ip", "-batch", "-"],
            input=batch,
            text=True,
            check=True,
        )
        self.control = socket_in(self.netns)

    def make_map(self) -> None:
        what = ["type", "hash", "key", "4", "value", "4", "entries", "4096", "name", "routes"]
        subprocess.run(["bpftool", "map", "create", self.maps / "routes", *what], check=True)

    def set_port(self, name: str, up: bool) -> int:
        """Returns when the kernel was being told."""
        request = fcntl.ioctl(self.control, SIOCGIFFLAGS, struct.pack("16sh14x", name.encode(), 0))
        flags = struct.unpack_from("h", request, 16)[0]
        told = CLOCK.now()
        fcntl.ioctl(
            self.control,
            SIOCSIFFLAGS,
            struct.pack("16sh14x", name.encode(), flags | IFF_UP if up else flags & ~IFF_UP),
        )
        return told

    def routes(self) -> dict[int, int]:
        """The map, read by bpftool and not by our own code."""
        dump = subprocess.run(
            ["bpftool", "-j", "map", "dump", "pinned", self.maps / "routes"],
            check=True,
            capture_output=True,
        )
        word = lambda text: int.from_bytes(bytes(int(b, 16) for b in text), sys.byteorder)  # noqa: E731
        return {word(entry["key"]): word(entry["value"]) for entry in json.loads(dump.stdout)}

    def config(self, **changes: Any) -> Path:
        path = self.folder / "controller.json"
        data = {
            "fabric": FABRIC.to_dict(),
            "clock": CLOCK.to_dict(),
            "ports": PORTS,
            "netns": self.netns,
            "maps": str(self.maps),
            "southbound": "ebpf",
        }
        path.write_text(
            json.dumps(
                {**data, "rest_host": "127.0.0.1", "rest_port": 0, "token": TOKEN, **changes}
            )
        )
        return path

    def close(self) -> None:
        self.control.close()
        os.close(self.fd)
        subprocess.run(["umount", self.maps], check=True)


class Controller:
    def __init__(self, config: Path, root: Path = ROOT) -> None:
        command = [sys.executable, "-m", "testbed.controller", "--config", str(config)]
        self.process = subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != "ready":
            self.process.kill()
            raise AssertionError(self.process.communicate())
        self.port = int(line[1])
        self.begun()

    def begun(self) -> None:
        """What has been entered so far is another test's."""
        self.seen, self.since = len(self.get("/v1/events")), CLOCK.now()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S
        ) as answer:
            assert answer.headers["Content-Type"].startswith("application/json")
            return json.load(answer)

    def event(self, number: int) -> dict[str, Any]:
        """The ``number``-th change of a link in this test, waited for."""
        assert wait_until(lambda: len(self.get("/v1/events")) > self.seen + number), self.get(
            "/v1/events"
        )
        return dict(self.get("/v1/events")[self.seen + number])

    def kill(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def living(lab: Lab) -> Iterator[Controller]:
    controller = Controller(lab.config())
    yield controller
    said = controller.kill()
    assert said == "", "a healthy controller has nothing to say"


@pytest.fixture
def controller(lab: Lab, living: Controller) -> Iterator[Controller]:
    """One for all tests, which find every cable whole, nothing denied and every table right."""
    living.begun()
    yield living
    for port in PORTS:
        lab.set_port(port, True)
    assert (
        wait_until(lambda: living.get("/v1/failed-links") == {}) and living.get("/denylist") == []
    )
    assert lab.routes() == expected_routes()


def expected_routes() -> dict[int, int]:
    return {
        number << 16 | usid: PORTS[port]
        for number, switch in enumerate(FABRIC.switches)
        for usid, port in static_tables(FABRIC)[switch].items()
    }


def test_programs_every_table(lab: Lab, controller: Controller) -> None:
    assert lab.routes() == expected_routes()
    assert all(table["as_computed"] for table in controller.get("/v1/tables").values())


def test_it_runs_from_a_home_that_is_closed_to_others(lab: Lab, tmp_path: Path) -> None:
    """Debian 13 makes homes so, and a clone may be as private. The controller is a user 0 to whom
    the kernel refuses these."""
    home = tmp_path / "home"
    for room in ("agents", "testbed", "topologies"):
        shutil.copytree(ROOT / room, home / room, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.chown(path, 1000, 1000)
    controller = Controller(lab.config(), home)
    code = Path(f"/proc/{controller.process.pid}/cwd").resolve()
    lab.set_port(LINK.a.name, False)
    assert code == home and controller.event(0)["link"] == LINK.name
    assert controller.kill() == ""
    lab.set_port(LINK.a.name, True)


def test_a_table_spoilt_behind_its_back_shows(lab: Lab, controller: Controller) -> None:
    key = next(iter(expected_routes())).to_bytes(4, sys.byteorder)
    subprocess.run(
        ["bpftool", "map", "delete", "pinned", lab.maps / "routes", "key", *(str(b) for b in key)],
        check=True,
    )
    tables = controller.get("/v1/tables")
    assert [name for name, table in tables.items() if not table["as_computed"]] == [
        FABRIC.switches[0]
    ]
    value = PORTS[
        static_tables(FABRIC)[FABRIC.switches[0]][int.from_bytes(key, sys.byteorder)]
    ].to_bytes(4, sys.byteorder)
    words = ["key", *(str(b) for b in key), "value", *(str(b) for b in value)]
    subprocess.run(["bpftool", "map", "update", "pinned", lab.maps / "routes", *words], check=True)
    assert all(table["as_computed"] for table in controller.get("/v1/tables").values())


@pytest.mark.parametrize(
    ("port", "link"), [(LINK.a.name, LINK.name), (LINK.b.name, LINK.name), (NIC.a.name, NIC.name)]
)
@pytest.mark.quiet
def test_flaps_are_handled_within_100_ms(
    lab: Lab,
    controller: Controller,
    port: str,
    link: str,
    record_property: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Either end of a cable, and a host's end, whose carrier loss is all that the switch's side
    sees."""
    assert controller.get("/v1/failed-links") == {}
    took = []
    for number in range(12):
        up = number % 2 == 1
        told = lab.set_port(port, up)
        event = controller.event(number)
        assert (event["link"], event["up"]) == (link, up)
        assert list(controller.get("/v1/failed-links")) == ([] if up else [link])
        took.append(event["handled_ps"] - told)
    assert statistics.median(took) < CLOCK.patience(0.1), "a single one may have to wait for a core"
    record_property("handled_ms", [round(CLOCK.wall_s(t) * 1e3, 3) for t in took])
    with capsys.disabled():
        ms = [CLOCK.wall_s(t) * 1e3 for t in took]
        print(
            f" {port}: handled after {statistics.median(ms):.2f} ms, at most {max(ms):.2f}", end=""
        )


@pytest.mark.quiet
def test_everything_at_once(lab: Lab, controller: Controller) -> None:
    """Every cable down in one go: the map has them all, each in time, and the paths are dead."""
    told = {link.name: lab.set_port(link.b.name, False) for link in FABRIC.links}
    controller.event(len(FABRIC.links) - 1)
    failed = controller.get("/v1/failed-links")
    assert set(failed) == set(told)
    assert statistics.median(
        failed[name]["detected_ps"] - at for name, at in told.items()
    ) < CLOCK.patience(0.1)
    assert not any(path["alive"] for path in controller.get("/v1/paths/h0/h3"))


def test_it_finds_a_link_down_and_removes_routes_not_its_own_and_its_death_changes_none(
    lab: Lab,
) -> None:
    stale = ["key", "hex", "01", "00", "63", "00", "value", "hex", "01", "00", "00", "00"]
    subprocess.run(["bpftool", "map", "update", "pinned", lab.maps / "routes", *stale], check=True)
    lab.set_port(LINK.b.name, False)
    controller = Controller(lab.config())
    assert wait_until(lambda: list(controller.get("/v1/failed-links")) == [LINK.name])
    dead = [path for path in controller.get("/v1/paths/h0/h3") if not path["alive"]]
    assert dead and all(LINK.name in path["links"] for path in dead)
    assert lab.routes() == expected_routes()
    controller.kill()
    assert lab.routes() == expected_routes()
    lab.set_port(LINK.b.name, True)


def test_listens_on_the_loopback_alone(controller: Controller) -> None:
    listening = []
    for table in ("tcp", "tcp6"):
        rows = [
            line.split() for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        ]
        listening += [
            row[1]
            for row in rows
            if row[3] == "0A" and int(row[1].split(":")[1], 16) == controller.port
        ]
    assert listening == [
        f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}:{controller.port:04X}"
    ]


def test_is_in_a_namespace_of_its_own(controller: Controller, lab: Lab) -> None:
    """Neither in the machine's, where REST answers, nor in the switches', whose links it hears
    of."""
    own = os.stat(f"/proc/{controller.process.pid}/ns/net").st_ino
    assert own not in (os.stat("/proc/self/ns/net").st_ino, os.stat(lab.netns).st_ino)


def test_404_is_json_with_near_names(controller: Controller) -> None:
    for path in ("/v1/tables/p0-t0-7", "/nothing"):
        with pytest.raises(urllib.error.HTTPError) as error:
            controller.get(path)
        assert error.value.code == 404
        assert json.load(error.value)["near"]


def stream(controller: Controller, query: str = "", buffer: int = 0) -> socket.socket:
    """A connection on which the stream has been asked for."""
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(PATIENCE_S)
    made.connect(("127.0.0.1", controller.port))
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    made.sendall(f"GET /events{query} HTTP/1.0\r\n{head}".encode())
    return made


def lines(
    connection: socket.socket, enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """What the stream says, until it is enough."""
    data = b""
    while True:
        data += connection.recv(1 << 16)
        head, _, body = data.partition(b"\r\n\r\n")
        said = [json.loads(line) for line in body.split(b"\n")[:-1] if line]
        if enough(said):
            assert b"200 OK" in head and b"application/x-ndjson" in head
            return said


@pytest.mark.quiet
def test_events_stream_as_they_happen(lab: Lab, controller: Controller) -> None:
    lab.set_port(LINK.b.name, False)
    controller.event(0)
    replayed = stream(controller, f"?since={controller.since}")
    (first,) = lines(replayed, lambda said: len(said) == 1)
    assert first["event"] == "link-down"
    news = stream(controller, f"?since={first['t_ps']}")
    told = lab.set_port(LINK.b.name, True)
    (entry,) = lines(news, lambda said: len(said) == 1)
    assert (entry["event"], entry["link"]) == ("link-up", LINK.name) and told < entry[
        "heard_ps"
    ] <= entry["t_ps"]
    assert controller.get(f"/v1/journal?since={entry['t_ps'] - 1}") == [entry]
    for connection in (replayed, news):
        connection.close()


@pytest.mark.quiet
def test_a_reader_that_stalls_holds_nobody_up(lab: Lab, controller: Controller) -> None:
    """It loses entries, is told how many, and everyone else goes on as if it were not there."""
    stalled = stream(controller, f"?since={controller.since}", buffer=2048)
    reason = "x" * 200
    turns = 1_800  # 200 B each: more than the sockets' buffers and the reader's own thousand hold
    with http_connection(controller.port) as connection:
        for turn in range(turns):
            body = {"entry": "p0", "reason": reason} if turn % 2 == 0 else {"allow": "p0"}
            connection.request(
                "POST", "/denylist", json.dumps(body), {"Authorization": f"Bearer {TOKEN}"}
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 201)
    told = lab.set_port(LINK.b.name, False)
    assert controller.event(0)["handled_ps"] > told
    said = lines(
        stalled, lambda said: said[-1:] != [] and said[-1]["event"] in ("missed", "link-down")
    )
    (missed,) = [e for e in said if e["event"] == "missed"]
    assert missed["count"] + len(said) - 1 == turns + 1, (
        "every entry was told, or counted as not told"
    )
    stalled.close()


@contextlib.contextmanager
def http_connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    yield connection
    connection.close()


def test_readers_that_leave_make_room(lab: Lab) -> None:
    controller = Controller(lab.config())
    lab.set_port(LINK.b.name, False)
    controller.event(0)
    readers: list[socket.socket] = []

    def full() -> bool:
        reader = stream(controller, "?since=0")
        if b"200 OK" in reader.recv(1 << 16):
            readers.append(reader)
        else:
            # writing is what shows that those before are gone: the first write brings a reset, the
            # second fails
            reader.close()
            for up in (True, False):
                lab.set_port(LINK.b.name, up)
        return len(readers) == MAX_READERS

    for _ in range(3):
        assert wait_until(full)
        with pytest.raises(urllib.error.HTTPError) as error:
            controller.get("/events")
        assert error.value.code == 503
        while readers:
            readers.pop().close()
    controller.kill()
    lab.set_port(LINK.b.name, True)


def test_the_denylist_over_http(controller: Controller) -> None:
    url = f"http://127.0.0.1:{controller.port}"
    client = ControllerClient(url, TOKEN)
    assert client.deny("h0>h3@p1/0", "why not")["new"] is True
    headers = {"Authorization": f"Bearer {TOKEN}"}
    delete = urllib.request.Request(f"{url}/denylist/h0%3Eh3@p1/0", None, headers, method="DELETE")
    with urllib.request.urlopen(delete, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["entry"] == "h0>h3@p1/0"
    assert client.get("denylist") == []
    with pytest.raises(UserError, match="has planes p0..p1"):
        client.deny("p9")
    headers["Origin"] = "http://example.org"
    asked_by_a_page = urllib.request.Request(
        f"{url}/denylist", b'{"entry": "p0"}', headers, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(asked_by_a_page, timeout=PATIENCE_S)
    assert error.value.code == 403 and client.get("denylist") == []


def test_its_owner_alone_names_agents(lab: Lab) -> None:
    """Nonsense on the line is answered in one line, and what is no agent is left out."""
    command = [sys.executable, "-m", "testbed.controller", "--config", str(lab.config())]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    url = f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
    answers = {
        "rubbish": "error JSONDecodeError",
        "[]": "error TypeError",
        '{"agents": {}}': "error KeyError: 'policy'",
        '{"agents": {}, "policy": "all"}': "error ValueError: no policy 'all'",
        '{"agents": {"h0": "/nowhere"}, "policy": "hint"}': "agents 0 of 1",
        '{"agents": {}, "policy": "none"}': "agents 0 of 0",
    }
    for line, answer in answers.items():
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(answer)
    assert [e["event"] for e in ControllerClient(url).get("journal")] == ["agent-lost"]
    process.stdin.close()  # the line may end; the controller goes on
    assert ControllerClient(url).get("failed-links") == {}
    process.kill()
    process.wait()
    assert process.stderr and process.stderr.read() == ""


def test_ignores_the_terminals_ctrl_c(controller: Controller) -> None:
    controller.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert controller.get("/v1/failed-links") == {}


def test_dies_with_its_owner(lab: Lab) -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'testbed.controller', '--config', "
        f"{str(lab.config())!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()

    def gone() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        return True

    assert wait_until(gone), "the controller outlived its owner"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"maps": "/nowhere"}, "no BPF map at /nowhere/routes"),
        ({"netns": "/nowhere"}, "no network namespace at /nowhere"),
        ({"netns": "/dev/null"}, "cannot enter network namespace /dev/null"),
        ({}, "set rest_port to 0"),
    ],
    ids=["no map", "no namespace", "no such namespace", "a taken port"],
)
def test_what_is_wrong_is_one_line(lab: Lab, change: dict[str, Any], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = lab.config(**(change or {"rest_port": taken.getsockname()[1]}))
        command = [sys.executable, "-m", "testbed.controller", "--config", str(config)]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
        )
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
