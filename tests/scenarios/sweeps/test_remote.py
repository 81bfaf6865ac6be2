"""A head, workers and sweeps as processes of their own, with certificates, on loopback; and the line that each mistake gets."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mrcbed import cli
from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.sweeps import machines, work
from scenarios.sweeps.sweep import JOURNAL
from scenarios.sweeps.tls import Identity, make_certificates, reach
from testbed.crowd import MOST_IN_TURNS, REQUEST_S
from testbed.machine.slowness import patient
from tests.conftest import ATTACKERS
from tests.scenarios.small import undrawn
from tests.scenarios.sweeps.support import MRCBED, files, gone, landed, workers_of
from tests.waiting import wait_until

pytest.importorskip("distributed")
SIZE = "workload.message_bytes=32KiB"
SEEDS = 6
OLD = """import sys; from scenarios.sweeps import machines; from mrcbed import cli
machines.version = lambda: '0.0.9+0123456789ab'
sys.exit(cli.execute())"""


class Process:
    """A command that runs until the test ends, with its standard error in a file."""

    def __init__(self, log: Path, *words: str, start: tuple[str, ...] = MRCBED) -> None:
        self.log = log
        self.process = subprocess.Popen([*start, *words], stdout=subprocess.DEVNULL, stderr=open(log, "w"), start_new_session=True)

    def said(self, pattern: str) -> str:
        """Wait for a line and return its first group."""
        wait_until(lambda: re.search(pattern, self.log.read_text()) or self.process.poll() is not None)
        found = re.search(pattern, self.log.read_text())
        assert found, self.log.read_text()
        return found[1] if found.groups() else found[0]

    def kill(self) -> None:
        """End the process and all of its session at once, as a power cut does."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[list[Process]]:
    """Processes to end after the test."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["head", "worker", "sweep"])
    return folder


def head(start: list[Process], log: Path, certificates: Path, listen: str = "127.0.0.1:0") -> str:
    start.append(Process(log, "head", "--listen", listen, "--tls", str(certificates / "head")))
    return start[-1].said(r"head: (tls://127\.0\.0\.1:\d+)")


def worker(start: list[Process], log: Path, certificates: Path, address: str, command: tuple[str, ...] = MRCBED) -> Process:
    start.append(Process(log, "worker", address, "--tls", str(certificates / "worker"), start=command))
    start[-1].said("works for tls://")
    return start[-1]


@pytest.fixture(scope="module")
def meeting(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A head for every test whose own workers are gone at its end. Dask says nothing on its own, and Ctrl-C ends it."""
    ours: list[Process] = []
    try:
        address = head(ours, tmp_path_factory.mktemp("meeting") / "head", certificates)
        yield ours[0]
        assert ours[0].log.read_text().splitlines() == [f"head: {address}"]
        told_to_end(ours[0], signal.SIGINT)
    finally:
        ours[0].kill()


def address_of(meeting: Process) -> str:
    return meeting.said(r"head: (tls://127\.0\.0\.1:\d+)")


def told_to_end(process: Process, number: int, children: int = 0) -> None:
    """A head or a worker is told to end: it does, in order, with all that it has started."""
    started = workers_of(process.process.pid)
    assert len(started) == children
    (os.killpg if number == signal.SIGINT else os.kill)(process.process.pid, number)  # a terminal's Ctrl-C is for all of its processes
    assert process.process.wait(patient(60)) == 0
    assert process.log.read_text().splitlines()[-1] == "mrcbed: ended"
    assert all(map(gone, started))


def asked(address: str, certificates: Path, out: Path, *words: str) -> list[str]:
    """The words of a command for the runs of these tests on a head."""
    return [
        *words,
        "smoke",
        "--seeds",
        f"1-{SEEDS}",
        "--on",
        address,
        "--tls",
        str(certificates / "sweep"),
        "--set",
        SIZE,
        "--out",
        str(out),
    ]


@pytest.mark.dear("two heads and three processes with work, of Dask each")
def test_a_worker_and_then_the_head_are_lost_and_another_worker_joins(start: list[Process], certificates: Path, tmp_path: Path) -> None:
    address = head(start, tmp_path / "head", certificates)
    lost = worker(start, tmp_path / "w1", certificates, address)
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[3] for line in listening.splitlines() if any(f"pid={process.process.pid}," in line for process in start)]
    assert ours and all(place.startswith("127.0.0.1:") for place in ours), "nothing listens to other machines unasked"
    out = tmp_path / "out"
    words = [*MRCBED, *asked(address, certificates, out, "sweep"), "--no-figures"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(landed(out)) >= 1 or first.poll() is not None)
    lost.kill()
    had = len(landed(out))
    joined = worker(start, tmp_path / "w2", certificates, address)
    wait_until(lambda: len(landed(out)) > had or first.poll() is not None)
    start[0].kill()
    said = first.communicate(timeout=patient(90))[1]
    assert first.returncode == 2, said
    assert said.splitlines()[-1].startswith("mrcbed: the head is gone"), said

    assert head(start, tmp_path / "head2", certificates, address.removeprefix("tls://")) == address
    wait_until(lambda: joined.log.read_text().count("works for") == 2)  # it has waited for the head
    assert f"{address} is gone: waits for it" in joined.log.read_text()
    with undrawn():
        assert cli.execute([*asked(address, certificates, out, "run"), "--world", "simulated", "--resume"]) == 0
    assert start[-1].log.read_text().splitlines() == [f"head: {address}"]  # Dask says nothing on its own
    runs = landed(out)
    assert len(runs) == len(set(runs)) == SEEDS
    entries = [json.loads(line) for line in (out / JOURNAL).read_text().splitlines()]
    assert {entry["machine"]["cpu"] for entry in entries} == {machines.facts("simulated")["cpu"]}
    plain = tmp_path / "plain"
    scenario = load_scenario("smoke", seeds=range(1, SEEDS + 1), overrides=[SIZE])
    with undrawn():
        simulate(scenario, results_directory("smoke", str(plain)))
    assert files(out) == files(plain)


@pytest.mark.dear("a worker is two processes of Dask")
def test_another_version_at_the_far_end_is_one_line_and_ctrl_c_ends_the_worker(
    meeting: Process, start: list[Process], certificates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("scenarios.sweeps.sweep.UNLIKE_S", 0.5)
    address = address_of(meeting)
    other = worker(start, tmp_path / "w", certificates, address, (sys.executable, "-c", OLD))
    assert cli.execute([*asked(address, certificates, tmp_path / "out", "sweep"), "--no-figures"]) == 2
    *told, last = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mrcbed: ")]
    here = re.escape(machines.version())
    line = rf"worker tls://127\.0\.0\.1:\d+ has mrcbed 0\.0\.9\+0123456789ab, not {here}: install the same version on both"
    assert len(told) == 1 and re.fullmatch(f"mrcbed: {line}", told[0])
    assert re.fullmatch(f"mrcbed: no worker fits: {line}; --resume goes on", last)
    told_to_end(other, signal.SIGINT, 1)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that must be refused."""
    assert cli.execute(list(words)) == 2
    line = capsys.readouterr().err
    assert line.startswith("mrcbed: ") and line.count("\n") == 1, line
    return line


@pytest.mark.dear("a head starts, if none did before")
def test_a_certificate_of_another_ca_is_one_line(
    meeting: Process, certificates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = address_of(meeting)
    make_certificates(tmp_path / "others", ["sweep"])
    line = refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "a"), "--on", address, "--tls", str(tmp_path / "others" / "sweep"))
    assert "certificates do not fit" in line and "mrcbed certs" in line
    line = refused(capsys, "worker", address, "--tls", str(tmp_path / "others" / "sweep"))
    assert line.startswith(f"mrcbed: worker {address}: certificates do not fit")
    ours = tmp_path / "ours"  # it trusts the head, but the head does not trust it
    ours.mkdir()
    for name, folder in (
        ("ca.pem", certificates / "sweep"),
        ("cert.pem", tmp_path / "others/sweep"),
        ("key.pem", tmp_path / "others/sweep"),
    ):
        (ours / name).write_bytes((folder / name).read_bytes())
    assert "certificates do not fit" in refused(capsys, "worker", address, "--tls", str(ours))


def test_files_that_do_not_fit_are_one_line(certificates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on = ("--on", "tls://127.0.0.1:1")
    line = refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "a"), *on, "--tls", str(tmp_path))
    assert "ca.pem is missing" in line
    for name in ("ca.pem", "cert.pem"):
        (tmp_path / name).write_bytes((certificates / "sweep" / name).read_bytes())
    (tmp_path / "key.pem").write_bytes((certificates / "worker" / "key.pem").read_bytes())
    assert "key values mismatch" in refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "b"), *on, "--tls", str(tmp_path))
    assert "--tls DIR is missing" in refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "c"), *on)


def test_a_head_that_does_not_answer_is_one_line(certificates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{taken.getsockname()[1]}"
        line = refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "a"), "--on", address, "--tls", str(certificates / "sweep"))
        assert not (tmp_path / "a").exists()
        assert f"--on {address}: nobody answers (Connection refused): start mrcbed head there" in line
        assert "nobody answers" in refused(capsys, "worker", address, "--tls", str(certificates / "worker"))
    assert "nobody answers" in refused(capsys, "worker", "tls://no-such-host.invalid:1", "--tls", str(certificates / "worker"))
    assert "nobody answers" in refused(capsys, "worker", f"tls://{'a' * 80}:1", "--tls", str(certificates / "worker"))
    for wrong in ("tcp://127.0.0.1:1", "127.0.0.1:1", "tls://:1", "tls://a:99999"):
        assert "write it like tls://head:8786" in refused(capsys, "worker", wrong, "--tls", str(certificates / "worker"))


def test_an_address_that_a_head_cannot_have_is_one_line(certificates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def line(listen: str) -> str:
        said = refused(capsys, "head", "--listen", listen, "--tls", str(certificates / "head"))
        assert said.startswith(f"mrcbed: --listen {listen}: ") and said.endswith(": give an address of this machine and a free port\n")
        return said

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "Address already in use" in line(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "Cannot assign requested address" in line("192.0.2.77:8786")  # RFC 5737: nobody's
    for wrong in ("no-such-host.invalid:1", "300.1.1.1:1", "[::zz]:1", "a..b:1", "a" * 80 + ":1"):
        line(wrong)


def listening(*pids: int) -> list[int]:
    """The ports at which these processes listen."""
    lines = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split()[3].rpartition(":")[2]) for line in lines if any(f"pid={pid}," in line for pid in pids)]


@pytest.mark.dear("thousands of connections, and a worker is two processes of Dask")
def test_strangers_neither_read_pages_of_dask_nor_keep_anybody_out(
    meeting: Process, start: list[Process], certificates: Path, tmp_path: Path, crowd: list[socket.socket]
) -> None:
    address = address_of(meeting)
    working = worker(start, tmp_path / "w", certificates, address)
    (child,) = workers_of(working.process.pid)
    ports = {pid: listening(pid) for pid in (meeting.process.pid, child)}
    assert [len(own) for own in ports.values()] == [1, 1], "nothing but what asks for a certificate"
    for pid, (port,) in ports.items():
        quiet = len(os.listdir(f"/proc/{pid}/fd"))
        with socket.create_connection(("127.0.0.1", port), patient(10)) as plain, suppress(ConnectionResetError):
            plain.sendall(b"GET /info/main/workers.html HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert b"HTTP" not in plain.recv(1 << 16)
        for number in range(ATTACKERS):
            crowd.append(socket.create_connection(("127.0.0.1", port), patient(30)))
            crowd[-1].sendall(b"\x16\x03\x01"[: number % 4])  # the first bytes of a greeting
            if number % 100 == 99:
                reach(f"tls://127.0.0.1:{port}", Identity(certificates / "sweep"), "worker")
        assert len(os.listdir(f"/proc/{pid}/fd")) - quiet <= MOST_IN_TURNS + 32
        crowd[-1].settimeout(patient(2 * REQUEST_S))
        with suppress(ConnectionResetError):
            assert crowd[-1].recv(1) == b"", "who shows no certificate goes"
    assert cli.execute([*asked(address, certificates, tmp_path / "out", "sweep"), "--no-figures"]) == 0
    assert meeting.log.read_text().splitlines() == [f"head: {address}"]
    assert len(working.log.read_text().splitlines()) == 1
    told_to_end(working, signal.SIGTERM, 1)


def test_an_emulated_worker_needs_sudo_and_must_not_be_root(
    certificates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("worker", "tls://127.0.0.1:1", "--world", "emulated", "--tls", str(certificates / "worker"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "must not be root" in refused(capsys, *words)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))  # without any sudo
    assert "needs root for its blocks: allow 'NOPASSWD: " in refused(capsys, *words)
    (tmp_path / "sudo").write_text("#!/bin/sh\necho 'a password is required' >&2\nexit 1\n")
    (tmp_path / "sudo").chmod(0o755)
    assert "needs root for its blocks" in refused(capsys, *words)
    assert "mrcbed block needs root" in refused(capsys, "block", "-")
    assert work.root_command()[:2] == ["sudo", "-n"]


def test_without_dask_a_sweep_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else find(name))
    line = refused(capsys, "sweep", "smoke", "--out", str(tmp_path / "out"))
    assert line.startswith("mrcbed: sweeps need Dask: .venv/bin/pip install -r requirements-sweep.txt")
    assert not (tmp_path / "out").exists()


@pytest.mark.dear("a head ends, if this test is the last")
def test_options_that_exclude_each_other(capsys: pytest.CaptureFixture[str], certificates: Path) -> None:
    on = ("--on", "tls://127.0.0.1:1", "--tls", str(certificates / "sweep"))
    assert "drop one of the two" in refused(capsys, "sweep", "smoke", "--jobs", "2", *on)
    assert "drop --pcap, --view, --split and --switch" in refused(capsys, "run", "smoke", "--pcap", "p0-t0-0:p0-t1-0", *on)
    assert "--mixed needs --on" in refused(capsys, "sweep", "smoke", "--mixed")
    assert "one dilation for all" in refused(capsys, "sweep", "smoke", "--dilation", "auto")
    assert "go one at a time" in refused(capsys, "sweep", "smoke", "--world", "emulated", "--jobs", "2")
    assert Identity(certificates / "sweep").context().verify_mode.name == "CERT_REQUIRED"
