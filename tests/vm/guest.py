"""The checks, inside the guest: runs each step, writes its log, and copies everything to the second
drive as a tar after each step.

Started by init.sh as root, in the clone, with Debian's Python and nothing but the standard library.
Knows its parts and its limit from the kernel's command line (``mrcbed.parts=doctor,smoke
mrcbed.limit=2400``). Judges correctness, never times: tests with the marker `quiet` do not run, and
a run may be `not trustworthy` (exit status 3).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path("/results")
DRIVE = "/dev/vda"
"""virtio: its drivers are modules of Debian's kernels, which init.sh loads."""
BEGIN, END = "vm: begin", "vm: end"
"""Markers on the console: what stands between them is for the person who waits."""
LEAST_S = 20.0
"""A step starts only if so much time is left, s [ours]."""
TROUBLE = re.compile(
    r"BUG:|WARNING:|Oops|general protection|soft lockup|blocked for more than|Out of memory"
)
COUNTED = re.compile(r"htb: too many events")
LACKS_NOTHING = (
    r'(?s)\A(?!.*"name": "(?!cpu_dma_latency")[^"]*",\s+"status": "(missing|limited|unknown)")'
)
"""Only under KVM a guest can have a driver that keeps its idle cores awake."""
NETEM_WORKS = r'"netem",\s+"status": "ok",\s+"found": "works"'
USER = ("runuser", "-u", "vagrant", "--")


@dataclass(frozen=True)
class Step:
    """One command. ``user``: by the ordinary user, who calls sudo where root is needed.
    ``accepted``: exit statuses that are success."""

    part: str
    name: str
    command: tuple[str, ...]
    limit_s: float
    user: bool = False
    accepted: tuple[int, ...] = (0,)
    tests: bool = False
    expects: str = ""
    """A regular expression that the output must match."""

    @property
    def label(self) -> str:
        return self.name.replace(" ", "-")


@dataclass
class Outcome:
    part: str
    name: str
    by: str
    status: str  # passed, FAILED, not run
    seconds: float = 0.0
    tests: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    detail: str = ""


def _mrcbed(
    part: str, name: str, *arguments: str, limit_s: float, sudo: bool = True, expects: str = ""
) -> Step:
    """A command of the ordinary user, through sudo."""
    command = ("sudo", "-n") * sudo + (".venv/bin/mrcbed", *arguments)
    return Step(part, name, command, limit_s, user=True, accepted=(0, 3), expects=expects)


def _pytest(part: str, name: str, *files: str, limit_s: float, more: tuple[str, ...] = ()) -> Step:
    """Emulated tests, by root in a sandbox. Those that measure stay out."""
    python = ".venv/bin/python"
    command = (
        python,
        "-m",
        "testbed.machine.sandbox",
        "--",
        python,
        "-m",
        "pytest",
        *(f"tests/emulated/{file}.py" for file in files),
        "-vv",
        "-m",
        "not soak and not quiet",
        "--timeout",
        "900",
        "-p",
        "no:cacheprovider",
        *more,
    )
    return Step(part, name, command, limit_s, tests=True)


STEPS = (
    Step(
        "doctor",
        "doctor as root",
        (".venv/bin/mrcbed", "doctor", "--json"),
        300,
        expects=LACKS_NOTHING,
    ),
    _mrcbed("doctor", "doctor through sudo", "doctor", limit_s=300),
    Step(
        "doctor",
        "doctor as user",
        (".venv/bin/mrcbed", "doctor"),
        300,
        user=True,
        accepted=(2,),
        expects="Not ready: root missing",
    ),
    _mrcbed(
        "smoke",
        "smoke simulated as user",
        "run",
        "smoke",
        "--world",
        "simulated",
        limit_s=900,
        sudo=False,
    ),
    _mrcbed("smoke", "smoke through sudo", "run", "smoke", limit_s=1200),
    _pytest("dataplane", "data plane", "test_dataplane", limit_s=900),
    _pytest("queue", "queues", "test_queue", limit_s=900),
    Step("ovs", "kernel datapath loads", ("modprobe", "openvswitch"), 60),
    Step(
        "ovs",
        "doctor sees the kernel datapath",
        (".venv/bin/mrcbed", "doctor", "--json"),
        300,
        expects="the kernel's datapath would",
    ),
    _pytest("ovs", "Open vSwitch", "test_ovs", limit_s=1800),
    Step("netem", "netem loads", ("modprobe", "sch_netem"), 60),
    Step(
        "netem",
        "doctor tries netem",
        (".venv/bin/mrcbed", "doctor", "--json"),
        300,
        expects=NETEM_WORKS,
    ),
    _pytest("faults", "faults", "test_packet_faults", "test_faults", "test_failover", limit_s=2700),
    _pytest("cleanup", "clean-up", "test_cleanup", limit_s=3600),
    _mrcbed("demo", "demo through sudo", "run", "demo", "--transport", "mrc", limit_s=2400),
)
PARTS = tuple(dict.fromkeys(step.part for step in STEPS))


def carry_out(step: Step, limit_s: float) -> Outcome:
    """Run it with a limit; its output goes to a file, its junit report beside it."""
    outcome = Outcome(step.part, step.name, "user" if step.user else "root", "FAILED")
    log, report = RESULTS / f"{step.label}.log", RESULTS / f"{step.label}.xml"
    command = [
        *(USER if step.user else ()),
        *step.command,
        *([f"--junitxml={report}"] if step.tests else []),
    ]
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            outcome.detail = f"ended after its limit of {limit_s:.0f} s"
            status = None
    outcome.seconds = time.monotonic() - began
    text = log.read_text(errors="replace")
    if step.tests:
        _read_report(outcome, report, text)
    if status in step.accepted and not outcome.failed:
        outcome.status = "passed"
        if step.expects and not re.search(step.expects, text):
            outcome.status, outcome.detail = "FAILED", f"output does not match {step.expects!r}"
    elif status is not None and not outcome.detail:
        lines = [line for line in text.strip().splitlines() if line.strip()]
        outcome.detail = f"exit status {status}: {lines[-1] if lines else 'no output'}"
    if status == 3 and outcome.status == "passed":
        outcome.detail = "not trustworthy"
    return outcome


def _read_report(outcome: Outcome, report: Path, text: str) -> None:
    """Counts of pytest's junit report; of the verbose log where the run was ended before it wrote
    one."""
    if not report.exists():
        lines = re.findall(r"^(\S+::\S+) (PASSED|FAILED|ERROR|SKIPPED)", text, re.MULTILINE)
        outcome.tests = len(lines)
        outcome.failed = [name for name, verdict in lines if verdict in ("FAILED", "ERROR")]
        return
    cases = list(ET.parse(report).getroot().iter("testcase"))
    outcome.tests = len(cases)
    outcome.skipped = sum(case.find("skipped") is not None for case in cases)
    outcome.failed = [
        f"{case.get('classname', '')}::{case.get('name', '')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    if not cases or len(cases) == outcome.skipped:
        outcome.failed.append("no test ran")


def kernel_log() -> Outcome:
    """What the kernel complained of meanwhile. Complaints of time are counted only."""
    text = subprocess.run(
        ["dmesg"], capture_output=True, text=True, errors="replace", check=False
    ).stdout
    (RESULTS / "kernel.log").write_text(text)
    trouble = [line for line in text.splitlines() if TROUBLE.search(line)]
    counted = len(COUNTED.findall(text))
    detail = "; ".join(trouble[:3]) or (
        f"{counted} times `htb: too many events`" if counted else ""
    )
    return Outcome("kernel", "kernel log", "root", "FAILED" if trouble else "passed", detail=detail)


def publish(outcomes: list[Outcome]) -> None:
    """Everything so far onto the second drive; what is there survives whatever happens next."""
    facts = {
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "steps": [asdict(outcome) for outcome in outcomes],
    }
    (RESULTS / "summary.json").write_text(json.dumps(facts, indent=1))
    # of this clone, without the agents' logs
    runs = [str(path) for path in Path("results").glob("*-20*")]
    subprocess.run(
        ["tar", "-cf", DRIVE, "--exclude=raw", *runs, "-C", str(RESULTS), "."], check=True
    )
    os.sync()


def main() -> None:
    said = dict(word.partition("=")[::2] for word in Path("/proc/cmdline").read_text().split())
    parts = said.get("mrcbed.parts", "").split(",")
    until = time.monotonic() + float(said.get("mrcbed.limit", 2400))
    RESULTS.mkdir(exist_ok=True)
    steps, outcomes = (
        [step for part in parts for step in STEPS if step.part == part],
        list[Outcome](),
    )
    for number, step in enumerate(steps, 1):
        left = until - time.monotonic()
        if left < LEAST_S:
            outcomes.append(
                Outcome(
                    step.part,
                    step.name,
                    "user" if step.user else "root",
                    "not run",
                    detail="no time was left",
                )
            )
            continue
        print(f"{BEGIN} {number}/{len(steps)} {step.name}", flush=True)
        outcome = carry_out(step, min(step.limit_s, left))
        outcomes.append(outcome)
        print(
            f"{END} {step.name}: {outcome.status} in {outcome.seconds:.0f} s {outcome.detail}",
            flush=True,
        )
        publish(outcomes)
    outcomes.append(kernel_log())
    publish(outcomes)


if __name__ == "__main__":
    main()
