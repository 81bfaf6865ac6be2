"""``mrcbed up`` as people call it, fed from a pipe: what it answers, and that nothing stays,
whatever dies."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.machine import running
from testbed.machine.slowness import patient
from testbed.view.read import first_of_each, read_frames, read_run
from tests.emulated.command import MRCBED, ROOT, mrcbed
from tests.emulated.remains import Outside
from tests.emulated.ring import PATIENCE_S, wait_until

pytestmark = pytest.mark.sandbox


class Up:
    """A prompt that waits for lines."""

    def __init__(self, directory: Path, fabric: str, *options: str) -> None:
        self.said = directory / "said"
        with self.said.open("wb") as said:
            self.front = subprocess.Popen(
                [MRCBED, "up", fabric, *options],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
            )
        self.seen = Outside(self.front)

    def text(self) -> str:
        return self.said.read_text()

    def tell(self, line: str) -> None:
        assert self.front.stdin is not None
        self.front.stdin.write(f"{line}\n".encode())
        self.front.stdin.flush()

    def wait_for(self, words: str, timeout: float = 4 * PATIENCE_S) -> None:
        until = time.monotonic() + timeout
        while words not in " ".join(self.text().split()):  # the prompt wraps its lines
            assert self.front.poll() is None and time.monotonic() < until, self.text()
            time.sleep(0.02)

    def ready(self) -> None:
        """The prompt answers: ``broken`` has no side effect."""
        self.tell("broken")
        self.wait_for("every link is up")
        self.seen.look()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Any]:
    made: list[Up] = []

    def begin(fabric: str, *options: str) -> Up:
        made.append(Up(tmp_path, fabric, *options))
        return made[-1]

    yield begin
    for run in made:
        run.front.kill()
        run.front.wait()
        assert run.front.stdin is not None
        try:
            run.front.stdin.close()
        except BrokenPipeError:
            pass


def test_a_view_cuts_a_cable_under_an_all_reduce_and_its_replay_is_kept(
    up: Any, tmp_path: Path
) -> None:
    cable = "p0-t0-0:p0-t1-1"
    run = up("tiny", "--view-control", "--out", str(tmp_path / "out"))
    run.ready()
    host, token, control = re.search(r"view: http://(\S+?)/#(\S+?)&(\S+)", run.text()).groups()
    reader = http.client.HTTPConnection(host, timeout=patient(20))
    reader.request("GET", "/frames", headers={"Authorization": f"Bearer {token}"})
    frames, shown = reader.getresponse(), []

    def until(kind: str, **fields: Any) -> None:
        while not (shown and shown[-1]["f"] == kind and fields.items() <= shown[-1].items()):
            shown.append(json.loads(frames.readline())[1])

    run.tell("allreduce steps=30 bytes=32768")
    until("step", ok=True)
    writer = http.client.HTTPConnection(host, timeout=patient(20))
    headers = {
        "Authorization": f"Bearer {control}",
        "Origin": f"http://{host}",
        "Content-Type": "application/json",
    }
    writer.request("POST", "/command", json.dumps({"do": "cut", "link": cable}), headers)
    assert writer.getresponse().status == 200
    until("fault", links=[cable], gone=False)
    until("path", state="died")
    assert "after the cut" in shown[-1]["why"]
    run.wait_for("every sum right")
    run.tell("broken")
    run.wait_for(f"mrcbed> {cable}")
    run.tell("exit")
    assert run.front.wait(PATIENCE_S) == 0, run.text()
    run.seen.assert_gone()
    [key] = first_of_each(tmp_path / "out")
    replayed = Counter(
        json.dumps(frame, sort_keys=True)
        for frame in read_frames(tmp_path / "out", read_run(tmp_path / "out", key))
    )
    for frame in shown[2:]:
        replayed[json.dumps(frame, sort_keys=True)] -= 1
    assert min(replayed.values()) == 0 and (tmp_path / "out" / "replay.html").is_file()


def test_the_fabric_lives_on_after_any_line(up: Any) -> None:
    run = up("tiny")
    run.ready()
    for line in (
        b"dpctl show",
        b"source /nosuch",
        b"break [/red]",
        b"help [bold]",
        b"\xff\xfe\0",
        b"h0 exit",
        b"py [][1]",
        b"[" * 70_000,
    ):
        run.front.stdin.write(line + b"\n")
    run.tell("allreduce steps=2 bytes=32768")
    run.wait_for("every sum right")
    run.seen.look()
    run.tell("exit")
    assert run.front.wait(PATIENCE_S) == 1, run.text()
    run.seen.assert_gone()
    assert "tiny is up" in run.text() and "2 steps of 32768 B over 4 ranks" in run.text()
    assert (
        "no switch '[/red]'" in run.text()
        and "internal error" not in run.text()
        and "Traceback" not in run.text()
    )


READERS = (
    "h0 true",
    "h0 cat",
    "p0-t0-0 cat",
    "sh cat",
    'py __import__("os").system("cat")',
    "h0 read x; echo got [$x]",
)
"""Commands whose programs would read what they get, and one that Mininet's prompt alone would hand
a key."""


def scripted(*lines: str, fabric: str = "tiny") -> subprocess.CompletedProcess[str]:
    return mrcbed("up", fabric, input="".join(f"{line}\n" for line in lines))


def test_no_program_gets_the_lines_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("".join(f"{line}\nbroken\n" for line in READERS))
    done = scripted(
        *(word for line in READERS for word in (line, "broken")),
        f"source {tmp_path / 'more'}",
        "broken",
        "exit",
    )
    assert done.returncode == 0 and "no command" not in done.stdout, done.stdout
    assert done.stdout.count("every link is up") == 2 * len(READERS) + 1
    assert done.stderr.count("got []") == 2


def test_a_script_with_a_line_that_failed_ends_with_1_once_all_are_run() -> None:
    """Which lines count as failed: test_prompt.py."""
    done = scripted("py 1/0", "h0 false", "broken")
    assert done.returncode == 1 and "every link is up" in done.stdout


def test_keys_of_a_terminal_reach_the_program_also_from_a_sourced_file(tmp_path: Path) -> None:
    """Several at once, as one pastes them; and what is wrong there is no matter of the exit
    status."""
    (tmp_path / "lines").write_text("h0 cat\nbroken\n")
    ours, theirs = pty.openpty()
    front = subprocess.Popen(
        [MRCBED, "up", "tiny"], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = ""

    def type_after(words: str, keys: str) -> None:
        nonlocal said
        until = time.monotonic() + 4 * PATIENCE_S
        while words not in said:
            assert time.monotonic() < until, said
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 4096).decode()
        said = ""
        os.write(ours, keys.encode())

    try:
        type_after("mrcbed> ", "nosuch\n")
        type_after("no command 'nosuch'", "h0 env PS1='inner> ' sh\n")
        type_after("\ninner> ", "echo $((6*7))\n")
        type_after("42", "exit\n")
        type_after("mrcbed> ", f"source {tmp_path / 'lines'}\n")
        type_after("lines", "for cat\n")
        type_after("for cat", "\x04")
        type_after("every link is up", "exit\n")
        assert front.wait(patient(10)) == 0
    finally:
        front.kill()
        front.wait()
        os.close(ours)


def test_the_end_of_the_pipe_ends_it(up: Any) -> None:
    run = up("tiny")
    run.ready()
    run.front.stdin.close()
    assert run.front.wait(PATIENCE_S) == 0, run.text()
    run.seen.assert_gone()


def test_an_agents_death_ends_the_waiting_prompt_and_names_it(up: Any) -> None:
    run = up("tiny")
    run.ready()
    os.kill(run.seen.pid_of("agent-h1 "), signal.SIGKILL)
    run.seen.assert_gone()
    assert run.front.wait() == 1
    assert (
        "the agent of h1 " in run.text().splitlines()[-1]
        and "SIGKILL" in run.text()
        and "Traceback" not in run.text()
    )


def test_kill_9_of_the_worker_takes_even_wide_away(up: Any) -> None:
    run = up("wide")
    run.ready()
    assert len(run.seen.processes()) > 16, "a shell and an agent per host at least"
    os.kill(run.seen.worker(), signal.SIGKILL)
    run.seen.assert_gone()
    assert run.front.wait() == 137


def test_other_shells_find_it_and_lose_it_again(up: Any, tmp_path: Path) -> None:
    """Denied from outside, seen at the prompt; once it is gone, killed or not, nothing answers and
    nothing is left to mislead."""
    run = up("tiny")
    run.ready()
    said = mrcbed("fabric", "denylist", "add", "p0-t0-0:p0-t1-1", "--reason", "from outside")
    assert said.returncode == 0, said.stderr
    run.tell("denied")
    run.wait_for("from outside")
    run.tell("break p1-t0-0:p1-t1-0")
    assert wait_until(
        lambda: "1 failed, 1 denied" in mrcbed("fabric", "links", "--bad").stdout, 4 * PATIENCE_S
    )
    events = subprocess.Popen(
        [MRCBED, "fabric", "events", "--all"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert events.stdout is not None and events.stdout.readline().rstrip().endswith(
        "4 agents, policy none"
    )
    os.kill(run.seen.worker(), signal.SIGKILL)
    run.seen.assert_gone()
    assert events.wait(PATIENCE_S) == 0 and events.stderr is not None
    assert (
        "link-down" in events.stdout.read()
        and events.stderr.read() == "mrcbed: the controller is gone\n"
    )
    events.stdout.close()
    events.stderr.close()
    gone = mrcbed("fabric", "links")
    assert gone.returncode == 2 and gone.stderr.startswith(
        "mrcbed: no fabric with a controller is up"
    )
    assert not running.NOTE.exists(), "it was in the run's own tmpfs"


def test_a_policy_without_a_controller_is_refused() -> None:
    said = mrcbed("up", "tiny", "--no-controller", "--policy", "hint")
    assert (
        said.returncode == 2
        and said.stderr == "mrcbed: --policy hint needs the controller: drop --no-controller\n"
    )
