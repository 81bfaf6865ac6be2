"""The command line as a process: what it does where the machine, the shell or the user will not let
it finish. One line, never a trace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.mrcbed.cli.conftest import Said

SCENARIO = """
format = 3
fabric = "tiny"
[workload]
kind = "ring-allreduce"
message_bytes = "16KiB"
steps = 2
warmup_steps = 0
[[transport]]
kind = "mrc"
"""
MRCBED = f"{sys.executable} -m mrcbed"
TREE = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TREE)}
WORDS = "run mine.toml --world simulated --out out"
RUN = f"{MRCBED} {WORDS}"
UNDRAWN = f"{sys.executable} undrawn.py {WORDS}"
"""The same run without figures and report, which take most of its CPU time."""
PROGRAM = """
from mrcbed.start import main

if __name__ == "__main__":
    from scenarios.show import html, plots, replay_page

    plots.draw_all = replay_page.replay = html.write_report = lambda directory: []
    main()
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    (tmp_path / "undrawn.py").write_text(PROGRAM)
    return tmp_path


def shell(line: str, where: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        command,
        cwd=where,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.dear("a whole run in a process with Python's checking allocator")
@pytest.mark.parametrize(
    ("line", "leaves", "says"),
    [
        (f"{MRCBED} fabric graph tiny >&-", "mine.toml", ""),
        (f"{MRCBED} fabric graph tiny | true", "mine.toml", ""),
        (
            f"PYTHONMALLOC=debug {UNDRAWN} >/dev/full",
            "out/runs.csv",
            "standard output cannot be written (No space",
        ),
    ],
    ids=["closed", "gone", "full"],
)
def test_what_nobody_reads_is_done_all_the_same(
    line: str, leaves: str, says: str, here: Path
) -> None:
    """The run with Python's checking allocator, which ends a process otherwise: a library's C code
    has crashed at exit."""
    ended = shell(line, here)
    assert ended.returncode == 0, ended.stderr
    assert says in ended.stderr and "bug" not in ended.stderr and "Exception" not in ended.stderr
    assert (here / leaves).is_file()


@pytest.mark.parametrize("limit", ["-v 900000", "-d 300000"])
def test_too_little_memory_is_refused_before_anything_runs(limit: str, here: Path) -> None:
    ended = shell(f"ulimit {limit}; {RUN}", here)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert "too little: ulimit" in ended.stderr and not (here / "out").exists()


FEW = (
    "no more processes or threads may start here: raise the limit (ulimit -u, or pids.max of "
    "the cgroup)"
)
JOBS = "processes and threads are needed for --jobs 2, and only"


@pytest.mark.dear("a command as a process, as another user")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="a user's other processes count, too: becomes another user"
)
@pytest.mark.parametrize(
    ("limit", "command", "status", "says"),
    [
        (4, f"{UNDRAWN} --jobs 1", 0, "done"),
        (12, f"{RUN} --seeds 1-2 --jobs 2", 2, JOBS),
        (1, f"{RUN} --split 2", 2, FEW),
    ],
)
def test_few_processes_are_one_line_and_no_wait(
    limit: int, command: str, status: int, says: str, here: Path
) -> None:
    """The limit of a user's processes and threads, which a cgroup has too. Each case is a user that
    no other test may be."""
    user = 1_000_000 + 100 * os.getpid() + limit
    here.chmod(0o777)
    for parent in here.parents:  # pytest's own folders are its user's alone
        if parent.is_relative_to(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(0o755)
    ended = shell(
        f"ulimit -u {limit}; exec setpriv --reuid={user} --regid={user} --clear-groups -- "
        f"{command}",
        here,
    )
    # Arrow's allocator, which does without
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("<jemalloc>")]
    assert ended.returncode == status and says in lines[-1] and "Traceback" not in ended.stderr, (
        ended.stderr
    )


def stopped_at(stage: str, where: Path) -> tuple[int, str]:
    """Exit status and last line of a run that gets SIGTERM when it says that it has come to
    ``stage``."""
    command = [*RUN.split(), "--set", "workload.steps=20"]
    with subprocess.Popen(
        command,
        cwd=where,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith(stage):
                    process.send_signal(signal.SIGTERM)
                    break
            last = process.stderr.read().splitlines()[-1:]
            return process.wait(timeout=120), "".join(last)
        finally:
            process.kill()


@pytest.mark.dear("a whole run as a process, stopped at each of its stages")
@pytest.mark.parametrize("stage", ["mrc on", "writing results", "drawing"])
def test_every_phase_ends_on_sigterm(stage: str, here: Path) -> None:
    # on a busy machine this process may be so late that the other has nothing left to stop
    for attempt in range(3):
        where = here / f"{attempt}"
        where.mkdir()
        shutil.copy(here / "mine.toml", where)
        status, last = stopped_at(stage, where)
        if status == 130:
            break
    assert status == 130, last
    assert (
        last.startswith("mrcbed: interrupted: ")
        and "of 1 runs are finished and kept in out" in last
    )
    assert last.endswith("--resume --out out goes on")
    assert (where / "out" / "manifest.json").is_file()


@pytest.mark.usefixtures("here")
def test_where_one_may_not_write_is_one_line(mrcbed: Said) -> None:
    assert "cannot make the results directory /proc/nowhere" in mrcbed.refused(
        *WORDS.split()[:-1], "/proc/nowhere"
    )
