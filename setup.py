"""Build of the package: the ``mrcbed`` command, its data files, and the protocol engine compiled by
mypyc.

The engine is compiled where a C compiler and mypyc are at hand; otherwise, or with
MRCBED_NO_COMPILE=1, the same source runs interpreted: correct, slower. One line beginning with
``mrcbed:`` says which. Dependencies are pinned in requirements/*.txt, the one place for them, and
the version stands in VERSION.

`make install` sets MRCBED_WITH_RYU=1: it can build Ryu, which no plain `pip install` can any more
(docs/how/release.md). Without it the package requires os-ken, and Ryu is an extra.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import threading
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

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
    "agents.verbs",
    "testbed.simulated.frame",
    "testbed.simulated.exchange",
    "testbed.simulated.windows",
    "testbed.simulated.pool",
    "testbed.simulated.port",
    "testbed.simulated.network",
    "testbed.simulated.hosts",
    "testbed.bench.codec",
]
"""What runs with every packet beside the engines, in either world or in a benchmark."""
RYU = ("ryu", "tinyrpc")
"""Of requirements/run.txt, what Ryu alone needs."""
DOCUMENTS = "share/doc/mrcbed"
"""README.md and docs/ of an installed copy (testbed/installation.py): `mrcbed lesson` names pages,
jobs that train read them."""


def say(line: str) -> None:
    print(f"mrcbed: {line}", flush=True)


def wanted(flag: str) -> bool:
    return os.environ.get(flag, "") not in ("", "0")


def compiler() -> str | None:
    """The C compiler that Python's own build settings name, if it is installed."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(command.split()[0])


def compiled(packages: list[str]) -> list[Any]:
    """Extensions for the named packages, built as one: calls between them are C calls. Empty if it
    cannot be, with the reason said."""
    places = [ROOT / package.replace(".", "/") for package in packages]
    paths = [
        path
        for place in places
        for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    ]
    sources = sorted(str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py")
    try:
        from mypyc.build import mypycify

        built: list[Any] = mypycify(
            ["--config-file=pyproject.toml", *sources],
            group_name="mrcbed_engine",
            multi_file=True,
            debug_level="0",
        )
        say(f"engine compiled by mypyc ({len(sources)} modules of {', '.join(packages)})")
        return built
    except ImportError:
        say("engine runs interpreted: mypy is not installed (make install brings it)")
    except SystemExit as error:  # mypycify's way to say that the source does not type-check
        say(
            "engine runs interpreted: it does not type-check "
            f"({str(error).splitlines()[-1] if str(error) else 'see above'})"
        )
    return []


class BuildOnAllCores(build_ext):
    """The engine is one extension of many C files, a file per module, and a hundred tiny ones that
    name its modules. setuptools alone would compile one file after the other."""

    def build_extensions(self) -> None:
        compile_one, compile_all = self.compiler._compile, self.compiler.compile
        self.parallel = len(os.sched_getaffinity(0))
        files: dict[int, list[Future[None]]] = {}  # of the extension that a thread builds

        def at_once(*arguments: Any, **options: Any) -> list[str]:
            own = files[threading.get_ident()] = []
            objects: list[str] = compile_all(*arguments, **options)
            for file in own:
                file.result()  # raises what gcc said
            return objects

        with ThreadPoolExecutor(self.parallel) as pool:
            self.compiler._compile = lambda *file: files[threading.get_ident()].append(
                pool.submit(compile_one, *file)
            )
            self.compiler.compile = at_once
            super().build_extensions()


def extensions() -> list[Any]:
    os.chdir(ROOT)  # mypyc names modules by their path from here
    if wanted("MRCBED_NO_COMPILE"):
        return []
    if compiler() is None:
        say(
            "engine runs interpreted: no C compiler (apt install gcc python3-dev, then make "
            "install)"
        )
        return []
    doors = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    sans_io = next(door["source_modules"] for door in doors if door["id"] == "sans-io")
    return compiled([*sans_io, *LOOP])


def pins(file: str) -> list[str]:
    """The requirements in a file, each ``name==version``."""
    return [
        text
        for line in (ROOT / file).read_text().splitlines()
        if (text := line.partition("#")[0].strip())
    ]


def requirements() -> tuple[list[str], list[str]]:
    """(what the package needs, what Ryu needs)."""
    everything = pins("requirements/run.txt")
    ryu = [pin for pin in everything if pin.partition("==")[0] in RYU]
    if wanted("MRCBED_WITH_RYU"):
        return everything, ryu
    return [pin for pin in everything if pin not in ryu] + pins("requirements/os-ken.txt"), ryu


def shared_files() -> list[tuple[str, list[str]]]:
    """What pip puts below the environment's folder: the man page and the documents."""
    pages = [
        "README.md",
        *(
            str(path.relative_to(ROOT))
            for end in ("md", "svg", "py")
            for path in sorted((ROOT / "docs").rglob(f"*.{end}"))
        ),
    ]
    folders = sorted({str(Path(page).parent) for page in pages})
    documents = [
        (str(Path(DOCUMENTS, folder)), [page for page in pages if str(Path(page).parent) == folder])
        for folder in folders
    ]
    return [("share/man/man1", ["docs/reference/mrcbed.1"]), *documents]


REQUIRED, FOR_RYU = requirements()
setup(
    name="mrcbed",
    version=(ROOT / "VERSION").read_text().strip(),
    description="A testbed for MRC: multi-plane Clos fabrics, SRv6 and an endpoint in Mininet, "
    "broken on purpose and measured",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    install_requires=REQUIRED,
    extras_require={"ryu": FOR_RYU, "sweep": pins("requirements/sweep.txt")},
    data_files=shared_files(),
    python_requires=">=3.11",
    packages=find_packages(
        include=[
            f"{room}{end}"
            for room in ("topologies", "agents", "testbed", "scenarios", "mrcbed")
            for end in ("", ".*")
        ]
    ),
    package_data={
        "": [
            "*.toml",
            "*.c",
            "library/*",
            "*.lua",
            "*.html.j2",
            "*.html",
            "*.css",
            "static/*",
            "cases/*.txt",
            "fingerprint/*.toml",
        ]
    },
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildOnAllCores},
    entry_points={"console_scripts": ["mrcbed = mrcbed.start:main"]},
    zip_safe=False,
)
