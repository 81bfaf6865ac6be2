"""tshark with the dissector, also for tests that run as root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "testbed/wireshark/mrc.lua"
NOBODY = 65_534
READS_ALL = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READS_ALL)
"""As root tshark 4.4 loads no script of a user's, and says nothing of it. Captures of tests lie
where only root may read."""


def tshark(*words: str | Path, script: bool = True) -> subprocess.CompletedProcess[str]:
    become = AS_NOBODY if os.geteuid() == 0 else ()
    load = ("-X", f"lua_script:{SCRIPT}") if script else ()
    return subprocess.run(
        [*become, "tshark", *load, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
