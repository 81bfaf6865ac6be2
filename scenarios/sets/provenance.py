"""Stamps stored figures with the code that they are of: a fingerprint of each world.

``python -m scenarios.sets.provenance WORLD`` prints one.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from scenarios.run.manifest import ROOMS, git
from scenarios.run.resume import write_json
from scenarios.schema.scenario import Scenario, load_scenario
from scenarios.sets.series import Item, PartLike
from testbed.errors import UserError
from testbed.installation import ROOT
from testbed.results.summary import Run
from testbed.world import EMULATED, SIMULATED, WORLDS
from topologies.files import FileError, read_json

REFERENCE = ROOT / "results" / "reference"
FINGERPRINTS, STAMP = "fingerprints.json", "stamp.json"
AGAIN = "mrcbed tools figures --pages"
# scenarios whose logs are the simulated world's fingerprint
SMALL = Path(__file__).parent / "fingerprint"
BELOW = (
    *("agents", "topologies"),
    *(
        f"testbed/{name}"
        for name in (
            "controller",
            "dataplane",
            "emulated",
            "faults",
            "machine",
            "reconvergence.py",
            "world.py",
        )
    ),
)  # what emulated figures depend on
# of a scenario: they change no figure, but for the seeds
ASIDE = ("description", "expects", "file", "seeds", "text", "timeout_s")
DIGITS = 16
OLDER = "*made on an older state*"


def simulated(logs: Path | None = None) -> str:
    """Hash the logs of :data:`SMALL`, which are the same bytes on every machine; ``logs`` keeps
    them."""
    from scenarios.run.simulate import simulate

    if logs is None:
        with tempfile.TemporaryDirectory(prefix="mrcbed-fingerprint-") as place:
            return simulated(Path(place))
    digest = hashlib.sha256()
    for path in sorted(SMALL.glob("*.toml")):
        (logs / path.stem).mkdir()
        simulate(load_scenario(str(path)), logs / path.stem, figures=False)
    for log in sorted(logs.rglob("*.jsonl")):
        digest.update(f"{log.relative_to(logs)}\0".encode() + log.read_bytes())
    return digest.hexdigest()[:DIGITS]


def emulated(root: Path = ROOT) -> str:
    """Hash the source below the emulated world, without comments and docstrings."""
    digest = hashlib.sha256()
    for path in sorted(
        path
        for below in BELOW
        for path in ((root / below).rglob("*") if (root / below).is_dir() else [root / below])
    ):
        if path.suffix in (".py", ".c", ".h"):
            text = path.read_text(encoding="utf-8")
            said = " ".join(
                _syntax(ast.parse(text))
                if path.suffix == ".py"
                else re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S).split()
            )
            digest.update(f"{path.relative_to(root)}\0{said}\0".encode())
    return digest.hexdigest()[:DIGITS]


def _syntax(node: object) -> Iterator[str]:
    """Walk a syntax tree without strings that stand alone, and without empty fields, which later
    Pythons add."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if value is not None and value != []:
                yield name
                yield from _syntax(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for child in node:
            if not (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield from _syntax(child)
        yield "]"
    else:
        yield repr(node)


COMPUTED = {SIMULATED: simulated, EMULATED: emulated}


@cache
def fingerprint(world: str) -> str:
    """Compute it in a process of its own: what forks later must not have loaded anything with
    threads."""
    done = subprocess.run(
        [sys.executable, "-m", "scenarios.sets.provenance", world],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(
            f"the {world} world's fingerprint cannot be computed: "
            f"{done.stderr.strip().splitlines()[-1]}"
        )
    return done.stdout.strip()


def stored(reference: Path = REFERENCE) -> dict[str, str]:
    """Return world -> its fingerprint. Raises :class:`UserError`."""
    try:
        return read_json(reference / FINGERPRINTS, dict[str, str])
    except (OSError, FileError) as error:
        raise UserError(f"{FINGERPRINTS} cannot be read ({error}): write it with {AGAIN}") from None


def hashed(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:DIGITS]


def asked(scenario: Scenario) -> str:
    """Hash what differs from defaults, seeds aside, so that a new option changes nothing."""
    return hashed(_stated(scenario))


def _stated(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _stated(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stated(one) for one in value]
    if isinstance(value, msgspec.Struct):
        defaults = {f.name: f.default for f in msgspec.structs.fields(value)}
    elif dataclasses.is_dataclass(value):
        defaults = {f.name: f.default for f in dataclasses.fields(value)}
    else:
        return value if isinstance(value, (str, int, float, NoneType)) else repr(value)
    named = {
        name: (getattr(value, name), default)
        for name, default in defaults.items()
        if name not in ASIDE
    }
    return {
        name: _stated(own) for name, (own, default) in named.items() if own != default and own != {}
    }


# --- stamps ---------------------------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True):
    world: str
    fingerprint: str  # "": of an older state, or of several
    scenario: str = ""  # asked()
    commit: str = ""  # "+": with changes; "": no git
    date: str = ""


class OfPart(Begun, frozen=True):
    seeds: tuple[int, ...] = ()
    runs: int = 0


class Stamp(msgspec.Struct, frozen=True):
    commit: str
    date: str
    parts: dict[str, OfPart] = {}

    def words(self, older: bool = False) -> str:
        worlds = (
            " and ".join(dict.fromkeys(part.world for part in self.parts.values())) or "computed"
        )
        commit = f"commit {self.commit}" if self.commit else ""
        seeds = " and ".join(dict.fromkeys(_seeds(part.seeds) for part in self.parts.values()))
        return ", ".join(
            filter(None, (worlds.capitalize(), commit, self.date, seeds, OLDER if older else ""))
        )


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    whole = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"seeds {seeds[0]} to {seeds[-1]}" if whole else f"seeds {', '.join(map(str, seeds))}"


def here() -> tuple[str, str]:
    """Return the commit, with "+" if source differs from it, and the date (UTC)."""
    found = git(*ROOMS)
    return f"{found['commit'][:8]}{'+' * found['dirty']}" if found else "", time.strftime(
        "%Y-%m-%d", time.gmtime()
    )


def world_of(part: PartLike, scenario: Scenario) -> str:
    return SIMULATED if part.simulated(scenario) else EMULATED


def begin(part: PartLike, scenario: Scenario, directory: Path) -> None:
    """Note the code of a part's runs before them. Runs of several states have no fingerprint."""
    world = world_of(part, scenario)
    now = fingerprint(world)
    mixed = (directory / "manifest.json").is_file() and begun(directory, world).fingerprint != now
    write_json(
        directory / STAMP,
        msgspec.to_builtins(Begun(world, "" if mixed else now, asked(scenario), *here())),
    )


def begun(directory: Path, world: str) -> Begun:
    try:
        return read_json(directory / STAMP, Begun)
    except (OSError, FileError):
        return Begun(world, "")


def stamp(item: Item, out: Path, runs: Mapping[str, Sequence[Run]]) -> Stamp:
    parts = {}
    for part in item.parts:
        if part.name in runs:
            of = runs[part.name]
            it = begun(
                item.directory(part, out), SIMULATED if part.world == SIMULATED else EMULATED
            )
            parts[part.name] = OfPart(
                **msgspec.structs.asdict(it),
                seeds=tuple(sorted({run.seed for run in of})),
                runs=len(of),
            )
    commit, date = here()
    commits = dict.fromkeys(part.commit for part in parts.values()) or {commit: None}
    return Stamp(
        ", ".join(filter(None, commits)),
        max((part.date for part in parts.values()), default=date),
        parts,
    )


def write() -> None:
    write_json(REFERENCE / FINGERPRINTS, {world: fingerprint(world) for world in WORLDS})


if __name__ == "__main__":
    print(COMPUTED[sys.argv[1]]())
