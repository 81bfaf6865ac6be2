"""Build of the package: the ``mrcbed`` command, its data files, and the protocol engine compiled by mypyc.

The engine is compiled where a C compiler and mypyc are at hand; otherwise, or with MRCBED_NO_COMPILE=1, the same source
runs interpreted: correct, slower. One line beginning with ``mrcbed:`` says which. Dependencies are pinned in
requirements*.txt, the one place for them.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
LOOP = [
    "agents.nic",
    "agents.transport",
    "agents.lateness",
    "agents.delay_line",
    "agents.collectives",
    "agents.process.agent",
    "agents.process.calls",
    "agents.process.flow_log",
    "agents.process.loop",
    "testbed.simulated.frame",
    "testbed.simulated.port",
    "testbed.simulated.network",
    "testbed.simulated.hosts",
    "testbed.bench.codec",
]
"""What runs with every packet beside the engines, in either world or in a benchmark."""
INLINE = ["--param=large-unit-insns=200000", "--param=inline-unit-growth=400"]
"""All engines are one C file: gcc would stop inlining in one so large (some 8 % of the packets per second)."""


def say(line: str) -> None:
    print(f"mrcbed: {line}", flush=True)


def compiler() -> str | None:
    """The C compiler that Python's own build settings name, if it is installed."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(command.split()[0])


def compiled(packages: list[str]) -> list[Any]:
    """Extensions for the named packages, built as one: calls between them are C calls. Empty if it cannot be, with the reason said."""
    places = [ROOT / package.replace(".", "/") for package in packages]
    paths = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])]
    sources = sorted(str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py")
    try:
        from mypyc.build import mypycify

        built: list[Any] = mypycify(["--config-file=pyproject.toml", *sources], opt_level="3", group_name="mrcbed_engine")
        for extension in built:
            extension.extra_compile_args += INLINE
        say(f"engine compiled by mypyc ({len(sources)} modules of {', '.join(packages)})")
        return built
    except ImportError:
        say("engine runs interpreted: mypy is not installed (make install brings it)")
    except SystemExit as error:  # mypycify's way to say that the source does not type-check
        say(f"engine runs interpreted: it does not type-check ({str(error).splitlines()[-1] if str(error) else 'see above'})")
    return []


def extensions() -> list[Any]:
    os.chdir(ROOT)  # mypyc names modules by their path from here
    if os.environ.get("MRCBED_NO_COMPILE", "") not in ("", "0"):
        return []
    if compiler() is None:
        say("engine runs interpreted: no C compiler (apt install gcc python3-dev, then make install)")
        return []
    doors = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    sans_io = next(door["source_modules"] for door in doors if door["id"] == "sans-io")
    return compiled([*sans_io, *LOOP])


setup(
    name="mrcbed",
    version="0.1.0",
    description="A testbed for MRC: multi-plane Clos fabrics, SRv6 and an endpoint in Mininet, broken on purpose and measured",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=[f"{room}{end}" for room in ("topologies", "agents", "testbed", "scenarios") for end in ("", ".*")]),
    package_data={"": ["*.toml", "*.bpf.c", "*.bpf.o", "*.h", "*.lua", "*.html.j2", "*.html", "*.css", "*.js"]},
    ext_modules=extensions(),
    entry_points={"console_scripts": ["mrcbed = testbed.cli:main"]},
    zip_safe=False,
)
