"""The engine and the second endpoint (tests/second) on real sockets, each in a host's namespace;
and the judge behind a veth."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.emulated.cluster import Cluster
from tests.emulated.ring import wait_until

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).parents[2]
BYTES, MESSAGES = 9_000, 5


class Host:
    def __init__(self, cluster: Cluster, kind: str, host: int) -> None:
        words = [
            "nsenter",
            f"--net={cluster.net.path_of(f'h{host}')}",
            "--",
            sys.executable,
            "-m",
            "tests.emulated.interop_host",
        ]
        self.process = subprocess.Popen(
            [*words, kind, "tiny", str(host)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.done: list[dict[str, Any]] = []

    def ask(self, op: str, **keys: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"op": op, **keys}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def finished(self) -> int:
        self.done += self.ask("completions")
        return sum(done["kind"] == "write" for done in self.done)

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(20)


@contextmanager
def hosts(cluster: Cluster, *kinds: str) -> Iterator[list[Host]]:
    made = [Host(cluster, kind, host) for kind, host in zip(kinds, (0, 3), strict=True)]
    try:
        yield made
    finally:
        for host in made:
            host.end()


@pytest.mark.dear("two endpoints in Python on a network of 10 Mb/s")
@pytest.mark.parametrize("story", ["healthy", "a dead path", "a port falls"])
@pytest.mark.parametrize("kinds", [("engine", "second"), ("second", "second")], ids=" and ".join)
def test_both_write_to_each_other(tiny: Cluster, kinds: tuple[str, str], story: str) -> None:
    with hosts(tiny, *kinds) as (one, other):
        made = one.ask("create", peer=3), other.ask("create", peer=0)
        for host, remote in ((one, made[1]), (other, made[0])):
            host.ask("connect", **{key: remote[key] for key in ("host", "qpn", "psn", "mpr")})
        if story != "healthy":
            tiny.inject(
                "link", {"a dead path": "p0-t0-0:p0-t1-0", "a port falls": "h3:p1-t0-1"}[story]
            )
        if story == "a port falls" and kinds[1] == "second":
            other.ask("port", plane=1, up=False)
        data = [Random(number).randbytes(BYTES) for number in range(MESSAGES)]
        for host, there in ((one, 1), (other, 0)):
            for number, sent in enumerate(data):
                host.ask(
                    "write",
                    id=number,
                    bytes=list(sent),
                    va=made[there]["va"] + number * BYTES,
                    rkey=made[there]["rkey"],
                )
        assert wait_until(lambda: min(one.finished(), other.finished()) == MESSAGES, 60)
        for host in (one, other):
            assert bytes.fromhex(host.ask("memory", at=0, length=MESSAGES * BYTES)) == b"".join(
                data
            )
            assert {done["status"] for done in host.done} == {"ok"} and host.ask("violations") == []
        tiny.heal()


@pytest.mark.dear("a process for each case")
@pytest.mark.parametrize("kind", ["engine", "second"])
def test_the_judge_plays_over_interfaces(kind: str) -> None:
    """In a network namespace of its own, which takes the cables with it whatever happens."""
    cables = " && ".join(
        f"ip link add h0-p{plane} mtu 9000 up type veth peer name judge-p{plane} mtu 9000 && ip "
        f"link set judge-p{plane} up"
        for plane in range(2)
    )
    connect = f"{sys.executable} -m tests.emulated.interop_host {kind} tiny 0"
    cases = ["trims/trimmed", "write/four-*", "sends/only", "probes/on-its-ev"]
    # which machines take for `tiny`'s
    where = ["judge-p0,judge-p1", "--connect", connect, "--fabric", "tiny", "--base-rtt", "100ms"]
    judge = [sys.executable, "-m", "mrcbed", "conform", *where, *cases]
    words = ["unshare", "--net", "sh", "-c", f"{cables} && exec {shlex.join(judge)}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "4 cases: 4 passed, 0 failed, 0 unsupported\n", (
        done.stdout + done.stderr
    )
