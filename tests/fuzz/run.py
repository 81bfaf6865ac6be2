"""Coverage-guided fuzzing: ``python -m tests.fuzz.run --seconds 60`` (all targets) or ``--target
codec``. Needs atheris (`make fuzz`).

Each target runs in a process of its own, libFuzzer's. The corpus it grows lies in
``build/fuzz/<target>``; it begins with the one in ``tests/fuzz/corpus/<target>``. A finding ends
that target's run: the inputs since its world was made are kept in ``build/fuzz/found``, and the
exit status is 1. ``--replay FILE --target NAME`` runs such a file again, without atheris.
``--seed`` writes the committed corpus.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "fuzz"
CORPUS = HERE / "corpus"
TARGETS = {
    "codec": "codec.Codec",
    "mrc": "mrc_pair.MrcPair",
    "roce": "roce_pair.RocePair",
    "mrc-frame": "frames.MrcFrames",
    "roce-frame": "frames.RoceFrames",
    "stream": "stream.Stream",
    "control": "control.Control",
    "immediates": "immediates.Immediates",
    "prompt": "prompt.PromptLines",
}
LARGEST_MIB = 2048
SLOWEST_S = 600
"""An input may take that long before it counts as a hang: the process may run on a part of a
core."""


class Target(Protocol):
    """What is fuzzed. A target whose world outlives an input keeps the inputs since it was made in
    ``story``."""

    max_len: int
    words: Sequence[bytes]

    def one(self, data: bytes) -> None: ...
    def seeds(self) -> list[bytes]: ...


def make(name: str) -> Target:
    """The target of that name."""
    module, kind = TARGETS[name].split(".")
    made: Target = getattr(importlib.import_module(f"tests.fuzz.{module}"), kind)()
    return made


def corpus(name: str) -> list[bytes]:
    """The committed inputs of a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def write_seeds(name: str) -> int:
    """Make the committed corpus of a target anew from what it says itself; how many."""
    shutil.rmtree(CORPUS / name, ignore_errors=True)
    (CORPUS / name).mkdir(parents=True)
    seeds = list(dict.fromkeys(make(name).seeds()))
    for k, data in enumerate(seeds):
        (CORPUS / name / f"{k:03d}").write_bytes(data)
    return len(seeds)


def replay(name: str, path: Path) -> None:
    """Run a kept story (a JSON list of hexadecimal inputs) or one raw input; what it finds is
    raised."""
    data = path.read_bytes()
    target = make(name)
    for one in (
        [bytes.fromhex(text) for text in json.loads(data)] if path.suffix == ".json" else [data]
    ):
        target.one(one)


def keep(name: str, target: Target, data: bytes) -> Path:
    """Write down what led to a finding."""
    found = WORK / "found"
    found.mkdir(parents=True, exist_ok=True)
    path = found / f"{name}-{os.getpid()}.json"
    story = list(getattr(target, "story", ())) or [data]
    path.write_text(json.dumps([one.hex() for one in story]))
    return path


def fuzz_here(name: str, limit: str) -> None:
    """Fuzz in this process. Never returns: libFuzzer ends it."""
    # its finder, which chooses source over compiled modules, must come behind the one that
    # instruments
    importlib.import_module("agents")
    import atheris

    with atheris.instrument_imports(
        include=["agents", "topologies", "mrcbed.prompt", "testbed.emulated.prompt"]
    ):
        target = make(name)

    def one(data: bytes) -> None:
        try:
            target.one(data)
        except BaseException:
            print(f"finding: {keep(name, target, data)}", file=sys.stderr)
            traceback.print_exc()
            raise

    words = []
    if target.words:  # libFuzzer takes no empty dictionary
        dictionary = WORK / f"{name}.words"
        dictionary.write_text(
            "".join('"' + "".join(f"\\x{b:02x}" for b in word) + '"\n' for word in target.words)
        )
        words = [f"-dict={dictionary}"]
    atheris.Setup(
        [
            sys.argv[0],
            limit,
            "-print_final_stats=1",
            f"-rss_limit_mb={LARGEST_MIB}",
            f"-timeout={SLOWEST_S}",
            f"-artifact_prefix={WORK}/",
            f"-max_len={target.max_len}",
            *words,
            str(WORK / name),
            str(CORPUS / name),
        ],
        one,
    )
    atheris.Fuzz()


def run(name: str, limit: str) -> dict[str, Any]:
    """One target in a process of its own; its figures. ``said``: the end of what it said, if it
    found something."""
    (WORK / name).mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with (WORK / f"{name}.log").open("w+", errors="replace") as log:
        status = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.run", "--in-process", name, f"--limit={limit}"],
            cwd=ROOT,
            env={**os.environ, "MRCBED_INTERPRETED": "1"},
            stdout=log,
            stderr=log,
            check=False,
        ).returncode
        log.seek(0)
        said = log.read()
    took = time.monotonic() - begun
    counts = (
        re.findall(r"^stat::number_of_executed_units:\s*(\d+)", said, re.M)
        or re.findall(r"^#(\d+)\s", said, re.M)
        or ["0"]
    )
    covered = re.findall(r"\bcov: (\d+)", said) or ["0"]
    executions = int(counts[-1])
    made = {
        "target": name,
        "executions": executions,
        "seconds": round(took),
        "per_second": round(executions / took),
        "branches": int(covered[-1]),
        "status": status,
    }
    return made if status == 0 else {**made, "said": said[-4000:]}


def main() -> int:
    """Exit status 0; 1 with a finding; 2 when it cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.run",
        description="Fuzz everything that reads what comes from outside.",
    )
    parser.add_argument(
        "--target",
        choices=list(TARGETS),
        action="append",
        help="one of them, repeatable; without: all",
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, help="executions of each target, instead of --seconds")
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="a kept finding, or any input, of the one --target",
    )
    parser.add_argument("--seed", action="store_true", help="write the committed corpus anew")
    parser.add_argument("--in-process", choices=list(TARGETS), help=argparse.SUPPRESS)
    parser.add_argument("--limit", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = args.target or list(TARGETS)
    if args.in_process:
        fuzz_here(args.in_process, args.limit)
    if args.replay is not None:
        if len(names) != 1:
            parser.error("--replay needs one --target")
        replay(names[0], args.replay)
        print("nothing found")
        return 0
    if args.seed:
        print(", ".join(f"{name}: {write_seeds(name)}" for name in names))
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("tests.fuzz: atheris is not installed: use `make fuzz`", file=sys.stderr)
        return 2
    limit = f"-max_total_time={args.seconds}" if args.runs is None else f"-runs={args.runs}"
    made = []
    for name in names:
        made.append(run(name, limit))
        print(json.dumps(made[-1]), flush=True)
    return 1 if any(result["status"] for result in made) else 0


if __name__ == "__main__":
    raise SystemExit(main())
