"""Builds the verbs library of programs, when it is first asked for or by `make verbs`. Needs gcc
and libibverbs' header.

``layout.h`` is generated from :mod:`agents.verbs.layout`: whole numbers as ``MRCBED_<NAME>``, sizes
of structures as ``MRCBED_SIZE_OF_<NAME>``, places of a queue pair's attributes as
``MRCBED_QP_<NAME>``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from agents.verbs import layout
from testbed.errors import UserError

SOURCES = Path(__file__).resolve().with_name("library")
BUILT = Path(__file__).resolve().with_name("libmrcbed-verbs.so")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
LINKED = (
    "-shared",
    "-Wl,-soname,libmrcbed-verbs.so",
    f"-Wl,--version-script={SOURCES / 'exports.map'}",
    "-Wl,-Bsymbolic",  # its own calls stay in it, whoever else has functions of these names
    "-Wl,-z,nodelete",  # it watches forks for as long as the process lives
    "-Wl,-z,now",  # no symbol is looked up between a fork and what a child may do there
)


def header() -> str:
    lines = ["/* Generated from agents/verbs/layout.py by testbed/verbs/build.py. */"]
    for name, value in vars(layout).items():
        if name.isupper() and isinstance(value, int):
            lines.append(f"#define MRCBED_{name} {value}")
        elif name.isupper() and isinstance(value, Struct):
            lines.append(f"#define MRCBED_SIZE_OF_{name} {value.size}")
    lines += [
        f"#define MRCBED_QP_{name.upper()} {place}"
        for place, name in enumerate(layout.QP_ATTRIBUTES)
    ]
    lines.append(f"#define MRCBED_QP_ATTRIBUTES {len(layout.QP_ATTRIBUTES)}")
    socket = layout.SOCKET.replace("\0", r"\0")
    lines += [
        f'#define MRCBED_SOCKET "{socket}"',
        f"#define MRCBED_SOCKET_BYTES {len(layout.SOCKET)}",
    ]
    return "\n".join(lines) + "\n"


def missing() -> str | None:
    if shutil.which("gcc") is None:
        return "the verbs library cannot be built: no gcc: apt install gcc libc6-dev"
    finds = subprocess.run(
        ("gcc", "-E", "-xc", "-", "-o", os.devnull),
        input=b"#include <infiniband/verbs.h>\n",
        capture_output=True,
    )
    return (
        "the verbs library cannot be built: no infiniband/verbs.h: apt install libibverbs-dev"
        if finds.returncode
        else None
    )


def compile_library(to: Path, options: Sequence[str] = ()) -> None:
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".verbs-") as scratch:
        Path(scratch, "layout.h").write_text(header())
        # whoever loads the library meanwhile has the old file or the new one
        built = Path(scratch, to.name)
        command = (
            "gcc",
            "-O2",
            *WARNINGS,
            "-fvisibility=hidden",
            "-fPIC",
            "-pthread",
            f"-I{scratch}",
            *options,
            *LINKED,
        )
        result = subprocess.run(
            (*command, *sources, "-o", str(built), "-ldl"), capture_output=True, text=True
        )
        if result.returncode:
            first = next(
                (line for line in result.stderr.splitlines() if "error" in line),
                result.stderr.strip(),
            )
            raise UserError(f"gcc refused the verbs library: {first}: please report it")
        built.replace(to)


def library() -> Path:
    """Return the library's path, built where it is older than its sources. Raises
    :class:`UserError`."""
    inputs = [*SOURCES.iterdir(), Path(__file__), Path(layout.__file__)]
    if not BUILT.exists() or BUILT.stat().st_mtime_ns < max(
        path.stat().st_mtime_ns for path in inputs if path.exists()
    ):
        lacking = missing()
        if lacking is not None:
            raise UserError(lacking)
        compile_library(BUILT)
    return BUILT


if __name__ == "__main__":
    try:
        library()
    except UserError as error:
        print(f"mrcbed: {error}", file=sys.stderr)
        sys.exit(error.status)
