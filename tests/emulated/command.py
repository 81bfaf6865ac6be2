"""``mrcbed`` as people call it: a real process, judged by exit status, streams and files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.machine.slowness import patient

ROOT = Path(__file__).resolve().parents[2]
MRCBED = str(ROOT / ".venv" / "bin" / "mrcbed")
if not os.access(MRCBED, os.X_OK):
    MRCBED = str(Path(sys.executable).parent / "mrcbed")
ENGINE_NOTE = "mrcbed: the compiled engine is older"
"""Not an error: said while somebody works on the engine's source."""
UNDRAWN = [sys.executable, "-m", "tests.emulated.undrawn"]
"""The same, but that runs draw nothing."""
QUICK = (
    "--set",
    "workload.message_bytes=32768",
    "--set",
    "fault.0.at=200us",
    "--set",
    "fault.0.for=90us",
)
LONG = (
    "--set",
    "workload.steps=100000",
    "--set",
    "timeout=100",
    "--set",
    "workload.message_bytes=32768",
)
"""Runs on until somebody ends it."""


def mrcbed(*words: str | Path, drawn: bool = False, **how: Any) -> subprocess.CompletedProcess[str]:
    """A run keeps its fabric's dilation unless the test says otherwise: what is measured must not
    depend on the machine. It draws nothing unless a test looks at that (``drawn``)."""
    if words[0] == "run" and not {"--dilation", "--world"} & set(words):
        words = (*words, "--dilation", "fabric")
    command = UNDRAWN if words[0] == "run" and not drawn else [MRCBED]
    done = subprocess.run(
        [*command, *map(str, words)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(240),
        **how,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


DONE = {0: "ok", 3: "not trustworthy"}
"""Exit status and verdict of a run to its end: where trust is not the subject, the machine may have
had something else to do."""


def summary_of(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "summary.json").read_text()))


def manifest_of(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "manifest.json").read_text()))
