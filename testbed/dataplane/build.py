"""Compiles fabric.bpf.c, in `make install` or when the object is older than its source. Must not
need root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from agents.packets import dscp
from testbed.dataplane import layout
from testbed.errors import UserError
from topologies import addressing, clos
from topologies.addressing import BACKGROUND_PREFIX, BLOCK, INNER_PREFIX

SOURCE = Path(__file__).with_name("fabric.bpf.c")
OBJECT = SOURCE.with_suffix(".o")
_INPUTS = (
    SOURCE,
    *(
        Path(str(module)).with_suffix("").with_suffix(".py")
        for module in (__file__, layout.__file__, dscp.__file__, clos.__file__, addressing.__file__)
    ),
)


def compile_object(out: Path, udp_port: int = clos.UDP_PORT) -> Path:
    """Raises :class:`UserError` without clang or libbpf's headers."""
    clang = shutil.which("clang")
    if clang is None:
        raise UserError("clang is missing: install it with apt-get install clang libbpf-dev")
    constants = {
        "PORTS": layout.MAX_PORTS,
        "SWITCHES": layout.MAX_SWITCHES,
        "ROUTES": layout.MAX_ROUTES,
        "PATH_FAULTS": layout.MAX_PATH_FAULTS,
        "PORT_BASE": layout.PORT_BASE,
        "HANDED_OVER": f"0x{layout.HANDED_OVER:x}u",
        "LOCATOR_BLOCK": f"0x{BLOCK.hex()}u",
        **{f"DSCP_{name}": value for value, name in dscp.NAMES.items()},
        "TRIM_BYTES": layout.TRIM_BYTES,
        "MRC_UDP_PORT": udp_port,
        "PROBE_UDP_PORT": udp_port + 1,  # as agents/clustermapper/probes.py has it
        "DELAY_TUN": layout.DELAY_TUN,
        "TRUNK": layout.TRUNK,
        "SWITCH_MAC": f"0x{addressing.SWITCH_MAC.hex()}u",
        "HELD": layout.MAX_HELD,
        "INNER_HIGH": f"0x{INNER_PREFIX[:4].hex()}u",
        "BACKGROUND_HIGH": f"0x{BACKGROUND_PREFIX[:4].hex()}u",
        "BACKGROUND_LOW": f"0x{BACKGROUND_PREFIX[4:].hex()}",
    }
    # asm/types.h lives there, and -target bpf does not look there
    include = sorted(Path("/usr/include").glob("*-linux-gnu"))
    command = [
        clang,
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-Wall",
        "-Werror",
        *(f"-I{d}" for d in include),
    ]
    command += [*(f"-D{k}={v}" for k, v in constants.items()), "-c", str(SOURCE), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next(
            (line for line in done.stderr.splitlines() if "error" in line),
            done.stderr.strip()[:200],
        )
        hint = (
            "install libbpf-dev and linux-libc-dev"
            if "file not found" in first
            else "this is a bug in fabric.bpf.c"
        )
        raise UserError(f"clang could not compile the data plane ({first}): {hint}")
    return out


def fresh_object(scratch: Path, udp_port: int = clos.UDP_PORT) -> Path:
    usable = udp_port == clos.UDP_PORT and OBJECT.exists()
    if usable and OBJECT.stat().st_mtime_ns >= max(
        path.stat().st_mtime_ns for path in _INPUTS if path.exists()
    ):
        return OBJECT
    return compile_object(scratch / "fabric.bpf.o", udp_port)


if __name__ == "__main__":
    try:
        compile_object(OBJECT)
    except UserError as error:
        sys.exit(f"mrcbed: {error}")
