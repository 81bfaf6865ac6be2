"""The compiled engine and the one that keeps its ranges (ranges.py), side by side: ``python -m
tests.forms.agree --inputs 10_000_000``.

Both get the same fuzzed stories (tests/fuzz/pair.py): frames, honest and hostile, times, posts.
Each says a digest of all that its engines said and wrote, every thousand stories; the first that
differ end it with status 1. An input is a frame handed in, a time, or a WRITE posted. Clocks begin
at times of every size up to half of NEVER, which idle engines give for their deadline, and fabrics
are as slow, quick and far as there may be: products of 64 bits come near their bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

from topologies.clos import MAX_DELAY, MAX_HAUL, MAX_RATE, MIN_RATE, Fabric
from topologies.units import MAX_TIME, MS, US

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"mrc": "mrc_pair.MrcPair", "roce": "roce_pair.RocePair"}
STORIES = 1000
"""Stories of a digest."""
ORIGINS = (0, 1, 999, 2**16 - 1, 2**31 - MS, 2**32 - 1, 100 * US, 2**53 - MS, MAX_TIME, 1 << 60)
"""Times at which clocks begin."""
FABRICS = [
    Fabric("agree", 2, 2, 2, 2, nic_rate=rate, fabric_rate=inner, mtu=mtu, **more)
    for rate, inner, mtu in (
        (10**11, 10**11, 4096),
        (MIN_RATE, MIN_RATE, 8192),
        (MAX_RATE, MAX_RATE, 8192),
        (MIN_RATE, MAX_RATE, 256),
    )
    for more in (
        {},
        {"delay_ps": MAX_DELAY},
        {"sites": 2, "long_haul_delay_ps": MAX_HAUL, "long_haul_rate": MIN_RATE},
    )
]


def recorded(target: type[Any]) -> type[Any]:
    """A pair whose ``digest`` takes in all that its engines do, and whose ``inputs`` are
    counted."""

    class Recorded(target):  # type: ignore[misc]
        def __init__(self, random: Random) -> None:
            self.random = random
            self.digest = hashlib.blake2b(digest_size=16)
            self.inputs = 0
            self.slower = 1
            super().__init__()

        def origin(self) -> int:
            return self.random.choice(ORIGINS)

        def place(self) -> Fabric:
            if not self.templates:
                return super().place()
            fabric = self.random.choice(FABRICS)
            self.slower = max(1, fabric.rtt_ps(*self.hosts) // self.usual.base_rtt_ps)
            return fabric

        def say(self, *what: Any) -> None:
            self.digest.update(repr(what).encode())

        def give(self, side: int, port: int, frame: bytes | bytearray) -> None:
            self.inputs += 1
            super().give(side, port, frame)

        def send(self, side: int) -> tuple[int, bytes] | None:
            sent: tuple[int, bytes] | None = super().send(side)
            self.say(sent)
            return sent

        def wait(self, time: int) -> None:
            self.inputs += 1
            super().wait(time * self.slower)
            self.say([engine.deadline() for engine in self.engines])

        def post(self, side: int, n: int, imm: int) -> None:
            self.inputs += 1
            super().post(side, n, imm)

        def look(self) -> None:
            for side, engine in enumerate(self.engines):
                self.say(engine.completions(), engine.events(), engine.counters(), engine.windows())
                self.digest.update(self.arenas[side])
            super().look()

    return Recorded


def stories(name: str, inputs: int, seed: int) -> None:
    """Play stories until the engines had so many inputs; a line per digest: stories, inputs,
    digest. A crash is a line, too."""
    module, kind = TARGETS[name].split(".")
    random = Random(seed)
    pair = recorded(getattr(importlib.import_module(f"tests.fuzz.{module}"), kind))(random)
    seeds = pair.seeds()
    count = 0
    while pair.inputs < inputs:
        for _ in range(STORIES):
            data = random.choice(seeds) if random.random() < 0.2 else b""
            data += random.randbytes(random.randrange(1, 40))
            count += 1
            try:
                pair.one(data)
            except Exception as error:
                traceback.print_exc()
                print(f"{count} {type(error).__name__}: {error}; story {data.hex()}", flush=True)
                return
        print(count, pair.inputs, pair.digest.hexdigest(), flush=True)


def child(name: str, inputs: int, seed: int, kept: bool) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.forms.agree",
        "--play",
        name,
        "--inputs",
        str(inputs),
        "--seed",
        str(seed),
    ]
    environment = os.environ | {"PYTHONHASHSEED": "0", "MRCBED_INTERPRETED": "1" if kept else "0"}
    return subprocess.Popen(
        [*command, *(["--kept"] if kept else [])],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def compare(name: str, inputs: int, seed: int) -> bool:
    """Whether both forms say the same to the end."""
    both = [child(name, inputs, seed, kept) for kept in (False, True)]
    last = "0 0"
    try:
        while True:
            compiled, from_source = (
                process.stdout.readline().strip() if process.stdout else "" for process in both
            )
            if compiled != from_source or " " not in compiled or ":" in compiled:
                break
            last = compiled
            print(f"{name}: {compiled}", flush=True)
    finally:
        for process in both:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
    if compiled == from_source == "" and int(last.split()[1]) >= inputs:
        return True
    print(
        f"{name}, seed {seed}, after {last.split()[0]} stories: compiled "
        f"{compiled or 'ended'!r}, from source {from_source or 'ended'!r}"
    )
    return False


def main() -> int:
    """Exit status 0; 1 if they differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.forms.agree",
        description="Compiled engine against source that keeps its ranges.",
    )
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--target",
        choices=list(TARGETS),
        action="append",
        help="one of them, repeatable; without: all",
    )
    parser.add_argument("--play", choices=list(TARGETS), help=argparse.SUPPRESS)
    parser.add_argument("--kept", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        if args.kept:
            from tests.forms import ranges

            with ranges.kept():
                stories(args.play, args.inputs, args.seed)
        else:
            from mrcbed.doctor import require_compiled

            require_compiled()
            stories(args.play, args.inputs, args.seed)
        return 0
    verdicts = [compare(name, args.inputs, args.seed) for name in args.target or TARGETS]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
