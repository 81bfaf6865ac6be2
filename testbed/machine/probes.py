"""Tries what the testbed asks of the kernel, in a network and mount namespace that vanish with this
process.

Runs as root: ``python -m testbed.machine.probes [eBPF object]``. Prints one JSON object, name -> ""
if it works, :data:`NOT_TRIED` if it probably would, else the reason. It must leave nothing, so it
loads no module.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable

from testbed.machine.slowness import patient

PATH = os.pathsep.join(
    dict.fromkeys(
        [
            *os.environ.get("PATH", "").split(os.pathsep),
            "/usr/local/sbin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ]
    )
)
"""Debian keeps half of the tools in directories that only root's PATH has."""
CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWTIME = 0x40000000, 0x00020000, 0x80
MS_REC_PRIVATE = 0x4000 | 0x40000
BPF_PROG_LOAD, BPF_OBJ_PIN, BPF_BTF_LOAD = 5, 6, 18
_libc = ctypes.CDLL(None, use_errno=True)

COMMANDS: dict[str, str] = {  # on the veth pair v0, v1
    "HTB": "tc qdisc add dev v0 root handle 1: stab overhead 0 linklayer ethernet htb default 2",
    "clsact": "tc qdisc add dev v0 clsact",
    "seg6": "ip -6 route add fd00:1::/64 encap seg6 mode encap segs fcbb:bb00:: dev v0",
    "seg6 encap.red": (
        "ip -6 route add fd00:2::/64 encap seg6 mode encap.red segs fcbb:bb00:: dev v0"
    ),
    "seg6local End.DT6": (
        "ip -6 route add fcbb:bb00:1::/48 encap seg6local action End.DT6 table 255 dev v0"
    ),
    "seg6local next-csid": (
        "ip -6 route add fcbb:bb00:2::/48 encap seg6local action End flavors next-csid lblen 32 "
        "nflen 16 dev v0"
    ),
    "TBF": "tc qdisc replace dev v1 root handle 4: tbf rate 10mbit burst 5000 limit 100000",
    "TUN": "ip tuntap add dev tun0 mode tun",
    "bridge": "ip link add bridge0 type bridge",
    "VXLAN": "ip link add vxlan0 type vxlan external dstport 47908",
    "netem": "tc qdisc replace dev v1 root handle 5: netem delay 1ms",
    "RED": "tc qdisc replace dev v1 root handle 6: red limit 100000 avpkt 1000 bandwidth 10Mbit",
    "fq": "tc qdisc replace dev v1 root handle 7: fq",
    "VRF": "ip link add vrf0 type vrf table 10",
}
MODULES = {
    "bridge": "bridge",
    "VXLAN": "vxlan",
    "netem": "sch_netem",
    "RED": "sch_red",
    "fq": "sch_fq",
    "VRF": "vrf",
}
NOT_TRIED = "its module is there; not tried, since no run needs it"


def run(command: str, stdin: str = "") -> str:
    arguments = command.split()
    tool = shutil.which(arguments[0], path=PATH)
    if tool is None:
        return f"{arguments[0]} is missing"
    process = subprocess.run(
        [tool, *arguments[1:]],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patient(10),
        check=False,
    )
    lines = (process.stderr or process.stdout).strip().splitlines()
    return (
        ""
        if process.returncode == 0
        else (lines[-1] if lines else f"exit status {process.returncode}")
    )


def refused(action: str) -> str:
    return f"{action}: {os.strerror(ctypes.get_errno())}"


def bpf(command: int, attributes: bytes) -> int:
    number = 321 if os.uname().machine == "x86_64" else 280
    buffer = ctypes.create_string_buffer(attributes, 128)
    return int(_libc.syscall(number, command, ctypes.byref(buffer), len(buffer)))


def bpf_program(folder: str) -> str:
    code = ctypes.create_string_buffer(struct.pack("=QQ", 0xB7, 0x95), 16)  # r0 = 0; exit
    license_ = ctypes.create_string_buffer(b"Apache-2.0")
    program = bpf(
        BPF_PROG_LOAD,
        struct.pack("=IIQQ", 3, 2, ctypes.addressof(code), ctypes.addressof(license_)),
    )
    if program < 0:
        return refused("loading a program")
    path = ctypes.create_string_buffer(f"{folder}/probe".encode())
    if bpf(BPF_OBJ_PIN, struct.pack("=QII", ctypes.addressof(path), program, 0)) < 0:
        return refused("pinning a program")
    return run(f"tc filter add dev v0 ingress bpf da pinned {folder}/probe")


def btf() -> str:
    strings = b"\0int\0"
    types = struct.pack("=IIII", 1, 1 << 24, 4, 32)
    blob = (
        struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
        + types
        + strings
    )
    buffer = ctypes.create_string_buffer(blob, len(blob))
    return (
        ""
        if bpf(BPF_BTF_LOAD, struct.pack("=QQIII", ctypes.addressof(buffer), 0, len(blob), 0, 0))
        >= 0
        else refused("loading BTF")
    )


def family(number: int, kind: int, protocol: int) -> str:
    try:
        socket.socket(number, kind, protocol).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def optional_module(name: str) -> str | None:
    if (
        name not in MODULES
        or not os.path.isdir(f"/lib/modules/{os.uname().release}")
        or os.path.isdir(f"/sys/module/{MODULES[name]}")
    ):
        return None
    return "no such module" if run(f"modprobe -n -q {MODULES[name]}") else NOT_TRIED


def root_directory() -> str:
    """Say whether this process keeps its root directory in its own mount namespace, as Mininet's
    mnexec does. In a plain chroot it gets the root of the namespace, another file system."""
    namespace, root = os.open("/proc/self/ns/mnt", os.O_RDONLY), os.open("/", os.O_RDONLY)
    before = os.fstat(root)
    if _libc.setns(namespace, CLONE_NEWNS):
        return refused("setns")
    after = os.stat("/")
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.close(namespace)
    return (
        ""
        if (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
        else "a plain chroot, which every host would leave"
    )


def main(program: str) -> dict[str, str]:
    if _libc.unshare(CLONE_NEWNET | CLONE_NEWNS):
        return {"namespaces": refused("unshare")}
    _libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
    verdicts = {
        "namespaces": "",
        "MPTCP": family(socket.AF_INET6, socket.SOCK_STREAM, 262),
        "AF_XDP": family(44, socket.SOCK_RAW, 0),
    }
    # of later children alone
    verdicts["time namespaces"] = refused("unshare") if _libc.unshare(CLONE_NEWTIME) else ""
    verdicts["AF_PACKET"] = family(socket.AF_PACKET, socket.SOCK_RAW, 0)
    verdicts["veth"] = (
        run("ip link add v0 index 1000 type veth peer name v1 index 1001")
        or run("ip link set v0 up")
        or run("ip link set v1 up")
    )
    for name, command in COMMANDS.items():
        verdict = optional_module(name)
        verdicts[name] = run(command) if verdict is None else verdict
    verdicts["root directory"] = root_directory()
    folder = tempfile.mkdtemp(prefix="mrcbed-probe-")
    try:
        # The directory is the machine's, the file system over it this mount namespace's alone.
        checks: dict[str, Callable[[], str]] = {
            "BPF at tc": lambda: bpf_program(folder),
            "BTF": btf,
        }
        if program:
            checks["data plane loads"] = lambda: run(
                f"bpftool prog loadall {program} {folder}/progs type tc pinmaps {folder}"
            )
        if _libc.mount(b"bpf", folder.encode(), b"bpf", 0, None):
            return {**verdicts, **dict.fromkeys(checks, refused("mounting a bpffs"))}
        verdicts.update({name: check() for name, check in checks.items()})
        _libc.umount2(folder.encode(), 2)
    finally:
        os.rmdir(folder)
    return verdicts


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1] if len(sys.argv) > 1 else "")))
