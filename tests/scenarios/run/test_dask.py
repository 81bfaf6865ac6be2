"""Dask's own scheduler and workers, started as docs/how/sweeps.md says: what they leave is a plain
run's, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from mrcbed import cli
from scenarios.run import workers
from scenarios.run.planning import blocks_of, plan
from scenarios.run.runner import results_directory
from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from testbed.machine.slowness import patient
from testbed.world import SIMULATED
from tests.waiting import wait_until

SIZE = "workload.message_bytes=32KiB"
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
DASK = str(Path(sys.executable).with_name("dask"))
TLS = "DASK_DISTRIBUTED__COMM__TLS__"
ROLES = ("CLIENT", "SCHEDULER", "WORKER")
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout key.pem -out "
    "cert.pem -days 825 -subj /CN=mrcbed"
)
QUIET = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


def certified(folder: Path) -> dict[str, str]:
    """The environment of a machine with a certificate, which is made in ``folder``."""
    folder.mkdir()
    subprocess.run(CERTIFICATE.split(), cwd=folder, stderr=subprocess.DEVNULL, check=True)
    (folder / "key.pem").chmod(0o644)  # the tests' workers are another user
    files = {
        f"{TLS}{role}__{kind}": str(folder / f"{kind.lower()}.pem")
        for role in ROLES
        for kind in ("CERT", "KEY")
    }
    return {
        **os.environ,
        **files,
        f"{TLS}CA_FILE": str(folder / "cert.pem"),
        "HOME": str(folder),
        "TMPDIR": str(folder.parent / "scratch"),
    }


class Cluster:
    """A scheduler on loopback, and workers in sessions of their own, which end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []  # type: ignore[var-annotated]
        self.environment = certified(folder / "tls")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"tls://127.0.0.1:{self.port}"

    def start(self, name: str, *words: str, **user: object) -> subprocess.Popen[bytes]:
        with open(self.folder / name, "wb") as log:
            started = subprocess.Popen(
                [DASK, *words, *QUIET],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                **user,  # type: ignore[call-overload]
            )
        self.processes.append(started)
        return started  # type: ignore[no-any-return]

    def scheduler(self) -> subprocess.Popen[bytes]:
        words = ("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--protocol", "tls")
        started = self.start("scheduler", *words, **NOBODY)
        wait_until(lambda: "Scheduler at" in self.said("scheduler"), lambda: self.said("scheduler"))
        return started

    def workers(self, name: str, count: int, **user: object) -> None:
        self.start(
            name,
            "worker",
            self.address,
            "--nworkers",
            str(count),
            "--nthreads",
            "1",
            "--memory-limit",
            "0",
            **user,
        )
        wait_until(
            lambda: self.said(name).count("Starting established connection") == count,
            lambda: self.said(name),
        )

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def pids(self) -> list[int]:
        """Processes that carry out blocks: children that multiprocessing spawned, of any of
        Dask's."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (
                    os.getsid(int(path.name)) in {p.pid for p in self.processes}
                    and b"spawn_main" in (path / "cmdline").read_bytes()
                ):
                    found.append(int(path.name))
        return found

    def run(self, out: Path, seeds: int, *words: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "mrcbed",
            "run",
            "smoke",
            "--world",
            "simulated",
            "--seeds",
            f"1-{seeds}",
            "--set",
            SIZE,
        ]
        command += ["--no-figures", "--on", self.address, "--out", str(out), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=pipe,
            text=True,
            env=self.environment,
            start_new_session=True,
        )

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # which the workers' user may enter
    folder = Path(tempfile.mkdtemp(prefix="mrcbed-dask-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "scratch").mkdir()
    (folder / "scratch").chmod(0o777)
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)


def landed(out: Path) -> int:
    return len(list((out / "raw").glob("*/run.json")))


def files(directory: Path) -> dict[str, bytes]:
    """Every file of a results directory but the manifest, which has dates and command lines."""
    found = (
        path for path in directory.rglob("*") if path.is_file() and path.name != "manifest.json"
    )
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.mark.dear(
    "a scheduler, two workers and those that take the place of killed ones, and three clients"
)
def test_killed_workers_and_clients_leave_what_a_plain_run_leaves(
    cluster: Cluster, tmp_path: Path
) -> None:
    kill(cluster, tmp_path, 14, 2)


def kill(cluster: Cluster, tmp_path: Path, seeds: int, kills: int) -> None:
    """Kill a worker after drawn numbers of runs, the last time all, then the client; stop the next
    by Ctrl-C; let the last one end."""
    drawn = random.Random(seed := int.from_bytes(os.urandom(2), "big"))
    print(f"moments drawn with seed {seed}")  # pytest shows it if the test fails
    cluster.scheduler()
    cluster.workers("workers", 2, **NOBODY)
    if NOBODY:
        cluster.workers("root", 1)
    roots = (
        {pid for pid in cluster.pids() if Path(f"/proc/{pid}").stat().st_uid == 0}
        if NOBODY
        else set()
    )
    out = tmp_path / "out"

    def until(client: subprocess.Popen[str], runs: int) -> None:
        wait_until(lambda: landed(out) >= runs or client.poll() is not None)
        assert client.poll() is None, client.communicate()

    client = cluster.run(out, seeds)
    try:
        for runs in sorted(drawn.sample(range(1, seeds - 8), kills)):
            until(client, runs)
            kills -= 1
            pids = [pid for pid in cluster.pids() if pid not in roots]
            for pid in [drawn.choice(pids)] if kills else pids:
                os.kill(pid, signal.SIGKILL)
        until(client, landed(out) + 1)
    finally:
        os.killpg(client.pid, signal.SIGKILL)
    lines = client.communicate()[1].splitlines()
    told = [line for line in lines if line.startswith("worker tls://")]
    assert len(told) == len(roots) and all(
        line.endswith(
            " is root, and carries out what it is sent: start it as a user without rights"
        )
        for line in told
    )

    had = landed(out)  # more may have landed before it was killed
    client = cluster.run(out, seeds, "--resume")
    until(client, had + 1)
    os.killpg(client.pid, signal.SIGINT)
    said = client.communicate(timeout=patient(60))[1]
    assert (
        client.returncode == 130
        and "Traceback" not in said
        and f"--resume --out {out} goes on" in said
    ), said

    client = cluster.run(out, seeds, "--resume")
    said = client.communicate(timeout=patient(120))[1]
    assert client.returncode == 0, said
    plain = tmp_path / "plain"
    simulate(
        load_scenario("smoke", seeds=range(1, seeds + 1), overrides=[SIZE]),
        results_directory("smoke", str(plain)),
        figures=False,
    )
    ours, theirs = files(out), files(plain)
    assert sorted(ours) == sorted(theirs) and len(theirs) > 7 * seeds
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    manifest, former = (json.loads((place / "manifest.json").read_text()) for place in (out, plain))
    differ = {
        key for key in manifest.keys() | former.keys() if manifest.get(key) != former.get(key)
    }
    assert differ <= {"command_line", "started", "ended", "sessions"}


def configured(environment: dict[str, str]) -> Any:
    """This process's configuration of Dask meanwhile, in the place of variables of the
    environment."""
    import dask

    keys = {"ca-file": "CA_FILE", "client.cert": "CLIENT__CERT", "client.key": "CLIENT__KEY"}
    return dask.config.set(
        {f"distributed.comm.tls.{key}": environment.get(TLS + name) for key, name in keys.items()}
    )


@pytest.mark.dear("a scheduler, a worker and the one that takes its place")
def test_an_answer_that_went_with_its_worker_is_asked_for_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask waits for it for ever: when its scheduler looks for a worker there is none, and when
    there is one it does not look."""
    from distributed import Future

    cluster.scheduler()
    cluster.workers("workers", 1, **NOBODY)
    fetch, killed = Future.result, []

    def result(future: Any) -> Any:
        if not killed:
            killed.extend(cluster.pids())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not set(killed) & set(cluster.pids()))
        return fetch(future)

    monkeypatch.setattr(Future, "result", result)
    blocks = blocks_of(plan(load_scenario("smoke", seeds=range(1, 4), overrides=[SIZE])), SIMULATED)
    with configured(cluster.environment), workers.connected(cluster.address) as client:
        carried = [
            key
            for _, entries in workers.OnWorkers(client, SIMULATED, False, print)(tmp_path, blocks)
            for key in entries
        ]
    assert killed and sorted(carried) == sorted(spec.key for block in blocks for spec in block)


def refused(capsys: pytest.CaptureFixture[str], address: str, *words: str) -> str:
    """The one line of a command that must be refused before it writes anything."""
    assert (
        cli.execute(
            [
                "run",
                "smoke",
                "--world",
                "simulated",
                "--on",
                address,
                "--out",
                "/nowhere/out",
                *words,
            ]
        )
        == 2
    )
    line = capsys.readouterr().err
    assert line.startswith("mrcbed: ") and line.count("\n") == 1, line
    return line


@pytest.mark.dear("a scheduler, and connections to it")
def test_what_does_not_fit_the_scheduler_is_one_line(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = cluster.address
    with configured({}):
        assert f"Dask has no certificates here: set {TLS}CA_FILE, " in refused(capsys, on)
    with configured(cluster.environment):
        line = refused(capsys, on)
        assert (
            f"--on {on}: no scheduler answers (Connection refused): start dask scheduler "
            f"there, and let port {cluster.port} through"
        ) in line
        assert "no scheduler answers" in refused(capsys, "tls://no-such-host.invalid:1")
        cluster.scheduler()
        monkeypatch.setattr(workers, "PATIENCE_S", 0.5)
        assert (
            cli.execute(
                [
                    "run",
                    "smoke",
                    "--world",
                    "simulated",
                    "--on",
                    on,
                    "--out",
                    str(tmp_path / "out"),
                    "--no-figures",
                ]
            )
            == 2
        )
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == "mrcbed: no worker fits: there is none: start dask worker; --resume goes on"
    with configured(certified(tmp_path / "other")):
        assert re.search("certificates do not fit .*: make both with one CA", refused(capsys, on))
        (tmp_path / "other" / "key.pem").write_text("no key")
        assert "Dask's certificates cannot be read" in refused(capsys, on)


def test_options_that_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    on = "tls://127.0.0.1:1"
    for words in (("--jobs", "2"), ("--pcap", "p0-t0-0:p0-t1-0"), ("--split", "2")):
        assert "drop --pcap, --view, --split, --switch and --jobs" in refused(capsys, on, *words)
    for address in ("tcp://127.0.0.1:1", "ws://a:1"):
        assert (
            f"--on {address}: connections are encrypted: write it like tls://10.0.0.1:8786"
            in refused(capsys, address)
        )
    for address in ("tls://127.0.0.1", "tls://:1", "tls://a:99999", "tls://\u00fc:1"):
        assert "write it like tls://10.0.0.1:8786" in refused(capsys, address)
    assert "--mixed is for --on tls://HOST:PORT: drop it" in refused(capsys, "10.0.0.1", "--mixed")


def test_without_dask_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "distributed" else find(name)
    )
    assert "needs Dask: .venv/bin/pip install -r requirements/sweep.txt" in refused(
        capsys, "tls://127.0.0.1:1"
    )
