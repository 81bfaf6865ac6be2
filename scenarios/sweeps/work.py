"""The worker's side: carries out one block and answers with an archive of its runs. Called by Dask, and by ``mrcbed block`` as root.

A simulated block runs in the worker's own process. An emulated one needs root, which a worker does not have: it goes as JSON to
``sudo mrcbed block -``, whose answer is an archive. Root never reads a pickle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from scenarios.sweeps import blocks
from scenarios.sweeps.archive import pack
from scenarios.sweeps.machines import facts, version
from testbed.errors import UserError, explain
from testbed.machine.slowness import patient
from testbed.simulated import EMULATED, SIMULATED
from testbed.simulated.cluster import SimulatedCluster

BRING_UP = 75
"""Exit status of ``mrcbed block`` after a bring-up that failed: EX_TEMPFAIL of sysexits.h, "try again later"."""
END_S = 30.0
Answer = dict[str, Any]
"""``archive`` and ``machine``; or ``problem``, one line, and ``bring_up``, whether another machine may do better."""


def answer(text: str, folder: str | None = None) -> Answer:
    """Carry out a block and return the answer. ``folder``: where temporary files may be; None: as TMPDIR says."""
    machine: Any = None
    try:
        block, specs = blocks.read(text, version())
        machine = facts(block.world)
        if block.world == SIMULATED:
            with tempfile.TemporaryDirectory(prefix="mrcbed-block-", dir=folder) as place:
                blocks.carry_out(specs, Path(place), SimulatedCluster)
                archive = pack(Path(place), [spec.key for spec in specs])
        else:
            archive = _through_root(text)
        return {"archive": archive, "machine": machine}
    except Exception as error:
        return {"problem": explain(error)[0], "bring_up": isinstance(error, blocks.BringUpFailed), "machine": machine}


def root_command() -> list[str]:
    """Return the command that carries out an emulated block from its standard input."""
    program = Path(sys.executable).with_name("mrcbed")
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), str(program), "block", "-"]


def check_root() -> None:
    """Check that this user may run ``mrcbed block -`` as root without a password. Raises :class:`UserError`."""
    if os.geteuid() == 0:
        return
    command = root_command()[2:]
    try:
        done = subprocess.run(["sudo", "-n", "-l", *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
        allowed = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    if not allowed:
        raise UserError(
            f"--world {EMULATED} needs root for its blocks: allow 'NOPASSWD: {' '.join(command)}' in sudoers, or use --world {SIMULATED}"
        )


def _through_root(text: str) -> bytes:
    """Let root carry out a block; return its archive. Its standard input stays open as long as we live: root ends with us."""
    with tempfile.TemporaryFile() as complaint:
        process = subprocess.Popen(root_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaint)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            archive = process.stdout.read()
        except BrokenPipeError:
            archive = b""
        finally:
            process.stdin.close()
            status = process.wait()
        complaint.seek(0)
        lines = complaint.read().decode(errors="replace").splitlines()
    if status == 0:
        return archive
    line = (lines or [f"{' '.join(root_command())} ended with status {status}"])[-1].removeprefix("mrcbed: ")
    raise blocks.BringUpFailed(line) if status == BRING_UP else UserError(line)


def block_as_root(source: int, sink: BinaryIO) -> int:
    """``mrcbed block -``: read one emulated block from a file descriptor, carry it out in a sandbox, write the archive to ``sink``.

    The end of ``source`` before that is the end of the worker, and ends us. Raises :class:`UserError`.
    """
    from testbed.emulated.cluster import Cluster
    from testbed.machine import sandbox

    text = _line(source)
    block, specs = blocks.read(text, version(), EMULATED)
    assert block.dilation is not None
    factory = partial(Cluster, dilation=block.dilation)
    done = threading.Event()
    _end_with(source, done)

    def work() -> int:
        with tempfile.TemporaryDirectory(prefix="mrcbed-block-") as place:
            try:
                blocks.carry_out(specs, Path(place), factory, lambda key: print(key, file=sys.stderr, flush=True))
            except blocks.BringUpFailed as error:
                print(f"mrcbed: {error}", file=sys.stderr)
                return BRING_UP
            sink.write(pack(Path(place), [spec.key for spec in specs]))
            sink.flush()
        return 0

    try:
        return sandbox.run(work)
    finally:
        done.set()


def _line(source: int) -> bytes:
    """Read a line, or what there is of one that is longer than any block."""
    text = b""
    while len(text) <= blocks.MAX_BYTES and not text.endswith(b"\n"):
        part = os.read(source, 1 << 16)
        if not part:
            break
        text += part
    return text


def _end_with(source: int, done: threading.Event) -> None:
    """End this process when ``source`` ends, unless it is ``done``; the sandbox ends with it."""

    def watch() -> None:
        while os.read(source, 1 << 16):
            pass
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # as a user's: the fabric goes, and the temporary files
            done.wait(patient(END_S))
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
