"""Checks what this machine can do for the testbed: what was found, why it matters, and the fix.

It changes nothing, needs no root (though it checks less without), and never raises: a check that
fails itself becomes "unknown".
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.dataplane.build import OBJECT, fresh_object
from testbed.emulated import ovs
from testbed.errors import UserError
from testbed.installation import ROOT, is_clone, remedy
from testbed.machine import awake, cleanup, surroundings
from testbed.machine.probes import NOT_TRIED, PATH
from testbed.machine.quota import quota_cores
from testbed.machine.slowness import patient
from testbed.verbs.build import library

KERNEL = (6, 1)  # Debian 12's own
Status = Literal["ok", "missing", "limited", "optional", "unknown"]
"""missing: required and lacking. limited: works with less. optional: lacking and not needed.
unknown: could not be checked."""


@dataclass(frozen=True)
class Check:
    group: str
    name: str
    status: Status
    found: str
    why: str
    fix: str = ""


def _check(
    group: str, name: str, ok: bool, found: str, why: str, fix: str, otherwise: Status = "missing"
) -> Check:
    return Check(group, name, "ok" if ok else otherwise, found, why, "" if ok else fix)


# --- the kernel -----------------------------------------------------------------------------------

PIVOT = (
    "enter this system by pivot_root instead: sudo systemd-nspawn -D FOLDER, or a container; "
    "or boot it"
)
UPGRADE = "boot Debian 12's kernel (linux-image-amd64), not a container's or a cut-down one"
HALTPOLL = "under KVM: sudo modprobe cpuidle_haltpoll force=1"
FEATURES: dict[str, tuple[Status, str]] = {  # name -> status when lacking, why
    "namespaces": ("missing", "every host and the switches live in network namespaces"),
    "root directory": (
        "missing",
        "every process of a host enters a mount namespace, and must find the same files there",
    ),
    "veth": ("missing", "every cable is a veth pair"),
    "AF_PACKET": ("missing", "agents send and receive whole frames"),
    "HTB": ("missing", "link rates and the two queues of a port"),
    "clsact": ("missing", "the switch programs attach to it"),
    "BPF at tc": ("missing", "switches are eBPF programs"),
    "BTF": ("missing", "describes the maps of the data plane"),
    "data plane loads": ("missing", "the switches' own programs must pass this kernel's verifier"),
    "seg6": (
        "limited",
        (
            "ping, iperf3 and other programs in hosts use the kernel's SRv6; MRC and RoCE do not "
            "need it"
        ),
    ),
    "seg6 encap.red": ("limited", "as above: routes without a routing header"),
    "seg6local End.DT6": ("limited", "as above: the receiving side"),
    "seg6local next-csid": ("optional", "only an independent check of the uSID shift"),
    "TBF": ("limited", "fabrics with pfc = true, whose switches pause ports"),
    "TUN": (
        "limited",
        "gives TCP and MPTCP the fabric's delay; without it their round trips are shorter",
    ),
    "MPTCP": ("optional", 'only for scenarios with kind = "mptcp"'),
    "bridge": (
        "optional",
        "only for the management network of launch --verbs and the prompt's verbs",
    ),
    "VXLAN": ("optional", "only for one fabric on several machines (--on): frames cross by it"),
    "time namespaces": ("optional", "as above: all machines of a fabric have one clock"),
    "AF_XDP": ("optional", "not used"),
    "netem": ("optional", "not needed: the agents delay frames"),
    "RED": ("optional", "not needed: queues are managed by eBPF"),
    "fq": ("optional", "not needed: agents pace themselves"),
    "VRF": ("optional", "not needed"),
}


FIXES = {
    "data plane loads": "sudo make install builds it again",
    "root directory": PIVOT,
    "TUN": "sudo modprobe tun; a container: docker run --device /dev/net/tun",
}
"""Features that another kernel would not mend."""


def kernel() -> Iterator[Check]:
    release = platform.release()
    numbers = tuple(int(n) for n in re.findall(r"\d+", release)[:2])
    yield _check(
        "kernel",
        "version",
        numbers >= KERNEL,
        f"Linux {release}",
        "6.1 or later has every feature used",
        UPGRADE,
    )
    if os.geteuid() != 0:
        for name, (_, why) in FEATURES.items():
            yield Check(
                "kernel", name, "unknown", "only root can try it", why, "sudo mrcbed doctor"
            )
    else:
        yield from _probed()
        if awake.virtual():
            lacks = awake.lacking()
            why = (
                "idle cores of a virtual machine do not halt during a run; else timers of links "
                "are late more often"
            )
            yield _check(
                "kernel",
                "cpu_dma_latency",
                not lacks,
                lacks or "works",
                why,
                HALTPOLL if "driver" in lacks else UPGRADE,
                "limited",
            )
    controllers = _read("/sys/fs/cgroup/cgroup.controllers") or (
        "version 1" if os.path.isdir("/sys/fs/cgroup/cpu") else ""
    )
    yield _check(
        "kernel",
        "cgroups",
        bool(controllers),
        controllers or "none",
        "not needed: only Mininet's CPU-limited hosts",
        "",
        "optional",
    )
    yield from _open_vswitch()


def _open_vswitch() -> Iterator[Check]:
    lacking = ovs.installed()
    if not lacking and ovs.datapath() == "system":
        found = "the kernel's datapath would forward"
    elif not lacking and ovs.loadable():
        found = "user space would forward: the kernel's module is here, but not loaded"
    else:
        found = (
            f"not installed: {lacking} not found"
            if lacking
            else "user space would forward: this kernel has no openvswitch module"
        )
    why = "only for --switch ovs; its service need not run"
    if not lacking and ovs.datapath() == "netdev":
        why += f". In user space: about {ovs.USERSPACE_LIMIT:,} packets/s"
        why += "; before a run: sudo modprobe openvswitch" if ovs.loadable() else ""
    yield _check(
        "kernel",
        "Open vSwitch",
        not lacking,
        found,
        why,
        "sudo apt-get install openvswitch-switch",
        "optional",
    )


def _probed() -> Iterator[Check]:
    command = [sys.executable, "-m", "testbed.machine.probes"]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            command.append(str(fresh_object(Path(scratch))))
        except UserError:
            pass  # without clang: tools() says so
        process = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=False
        )
    verdicts: dict[str, str] = json.loads(process.stdout) if process.returncode == 0 else {}
    for name, (lacking, why) in FEATURES.items():
        if name not in verdicts:
            yield Check(
                "kernel",
                name,
                "unknown",
                "could not be tried",
                why,
                "first install what is missing above and below",
            )
        elif verdicts[name].endswith(" is missing"):
            yield Check(
                "kernel",
                name,
                "unknown",
                verdicts[name],
                why,
                "install that tool: sudo make install",
            )
        else:
            fix = "" if lacking == "optional" else FIXES.get(name, UPGRADE)
            yield _check(
                "kernel",
                name,
                verdicts[name] in ("", NOT_TRIED),
                verdicts[name] or "works",
                why,
                fix,
                lacking,
            )


# --- programs and packages ------------------------------------------------------------------------

TOOLS: dict[str, tuple[Status, str, str]] = {  # tool -> status when lacking, why, Debian package
    "mnexec": ("missing", "Mininet starts every host with it", "mininet"),
    "ip": ("missing", "creates links and routes", "iproute2"),
    "tc": ("missing", "sets rates, attaches programs", "iproute2"),
    "bpftool": ("missing", "loads the data plane", "bpftool"),
    "ethtool": ("missing", "turns offloads off", "ethtool"),
    "ifconfig": ("missing", "Mininet's interface commands call it", "net-tools"),
    "nsenter": ("missing", "runs commands in the switches' namespace", "util-linux"),
    "clang": ("limited", "compiles the data plane", "clang libbpf-dev"),
    "gcc": (
        "limited",
        "compiles the engine; without it the engine runs interpreted, slower",
        "gcc python3-dev",
    ),
    "iperf3": ("limited", "background traffic in scenarios, and the prompt's iperf", "iperf3"),
    "ping": ("limited", "pingall at the prompt", "iputils-ping"),
    "tcpdump": ("limited", "captures (--pcap)", "tcpdump"),
    "tshark": ("limited", "reads captures with the MRC dissector", "tshark"),
    "ovs-vswitchd": ("optional", "only for --switch ovs", "openvswitch-switch"),
    "ib_write_bw": ("optional", "perftest, programs for launch --verbs", "perftest"),
    "ibv_devinfo": ("optional", "shows the device, under launch --verbs", "ibverbs-utils"),
}
# Debian's python3 has it there; our own needs none.
PYVERBS = Path("/usr/lib/python3/dist-packages/pyverbs")


def tools() -> Iterator[Check]:
    for tool, (lacking, why, package) in TOOLS.items():
        path = shutil.which(tool, path=PATH)
        yield _check(
            "tools",
            tool,
            path is not None,
            path or "not found",
            why,
            f"sudo apt-get install {package}",
            lacking,
        )
    why, fix = "Python programs of launch --verbs", "sudo apt-get install python3-pyverbs"
    yield _check(
        "tools",
        "pyverbs",
        PYVERBS.is_dir(),
        str(PYVERBS) if PYVERBS.is_dir() else "not found",
        why,
        fix,
        "optional",
    )


def packages() -> Iterator[Check]:
    recent = sys.version_info[:2] >= (3, 11)
    yield _check(
        "Python",
        "python",
        recent,
        platform.python_version(),
        "3.11 or later",
        "sudo make install uses Debian 12's python3",
    )
    odd = []
    pins = list(_pins())
    for name, version in pins:
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                "Python",
                name,
                "missing",
                "not installed",
                f"version {version} was tested",
                remedy(),
            )
            continue
        if have != version:
            odd.append(f"{name} {have} (tested: {version})")
    found = (
        "; ".join(odd)
        if odd
        else f"{len(pins)} packages at the versions tested"
        if pins
        else "mrcbed itself is not installed"
    )
    yield _check(
        "Python",
        "versions",
        not odd,
        found,
        "other versions may behave differently",
        remedy(),
        "limited",
    )


def _pins() -> Iterator[tuple[str, str]]:
    try:
        requirements = importlib.metadata.requires("mrcbed") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        name, equals, version = requirement.partition("==")
        if equals and ";" not in version:
            yield name, version


def engine_state() -> tuple[bool, str]:
    """Return (compiled, state as text) of the engine as this process would import it."""
    import agents

    setting = os.environ.get("MRCBED_INTERPRETED", "")
    if setting == "stale":
        return False, "interpreted: the compiled engine is older than its source"
    if setting not in ("", "0"):
        return False, "interpreted, as MRCBED_INTERPRETED asks"
    folder = Path(agents.__path__[0], "mrc")
    modules = [
        f"agents.mrc.{path.stem}"
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__" and path.stat().st_size
    ]
    specs = [importlib.util.find_spec(module) for module in modules]
    built = sum(spec is not None and str(spec.origin).endswith(".so") for spec in specs)
    if built == len(modules):
        return True, f"compiled ({built} modules)"
    return False, "interpreted"


def require_compiled() -> None:
    """Exit with one line if the engine is interpreted though this machine could compile it."""
    compiled, state = engine_state()
    if not compiled and not os.environ.get("MRCBED_NO_COMPILE") and shutil.which("gcc", path=PATH):
        sys.exit(
            f"mrcbed: the engine is {state}, though a C compiler is here: see build/engine.log"
        )


def built() -> Iterator[Check]:
    why = "a compiled engine carries about twice the packets"
    try:
        compiled, found = engine_state()
        fix = (
            remedy()
            if is_clone()
            else (
                "apt-get install gcc python3-dev, then pip install the source archive "
                "(docs/how/release.md)"
            )
        )
        yield _check("build", "engine", compiled, found, why, fix, "limited")
    except OSError as error:
        yield Check(
            "build", "engine", "unknown", f"cannot be read: {error.strerror}", why, "use sudo"
        )
    why, clang = "the switches' programs", shutil.which("clang", path=PATH) is not None
    present = os.path.exists(OBJECT)
    if is_clone() or present:
        # a run can compile it itself, with clang
        lacking: Status = "limited" if clang else "missing"
        found = OBJECT.name if present else "not built"
        yield _check("build", "eBPF object", present, found, why, remedy(), lacking)
    else:  # from a wheel, which holds the source alone
        found = (
            "clang compiles it when a run starts, in half a second"
            if clang
            else "cannot be compiled: no clang"
        )
        yield _check(
            "build", "eBPF object", clang, found, why, "sudo apt-get install clang libbpf-dev"
        )
    try:
        found, fix = str(library()), ""
    except UserError as error:
        found, fix = "not there", str(error)
    yield Check(
        "build",
        "verbs library",
        "optional" if fix else "ok",
        found,
        "only for launch --verbs and the prompt's verbs",
        fix,
    )
    isal = importlib.util.find_spec("isal") is not None
    yield _check(
        "build",
        "isal",
        isal,
        "present" if isal else "absent",
        "checksums in an eighth of zlib's time",
        remedy(),
        "limited",
    )


# --- the machine ----------------------------------------------------------------------------------


def machine() -> Iterator[Check]:
    root = os.geteuid() == 0
    yield _check(
        "machine",
        "root",
        root,
        f"uid {os.geteuid()}",
        "namespaces, links and BPF need it",
        "use sudo",
    )
    cpus, limit = len(os.sched_getaffinity(0)), quota_cores()
    found = f"{cpus}, of which a CPU quota allows {limit:.2g}" if limit < cpus else str(cpus)
    why, fix = (
        "the named fabrics' usual dilations are for 2",
        "raise --dilation (auto does), or add CPUs",
    )
    if limit < cpus:
        fix += ", or raise the quota (docker --cpus, a pod's CPU limit, systemd's CPUQuota=)"
    yield _check("machine", "CPUs", min(cpus, limit) >= 2, found, why, fix, "limited")
    yield from _processor()
    yield from _container()
    memory = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo") or "")
    gigabytes = int(memory[1]) / 1e6 if memory else 0.0
    yield _check(
        "machine",
        "memory",
        gigabytes >= 1.5,
        f"{gigabytes:.1f} GB available",
        "8 hosts take about 1 GB",
        "free some",
        "limited",
    )
    limits = ", ".join(
        f"{name} {_read(f'/proc/sys/net/core/{name}') or '?'}" for name in ("rmem_max", "wmem_max")
    )
    yield Check(
        "machine",
        "socket buffers",
        "ok",
        limits,
        "for information: agents, as root, may exceed these limits",
    )
    yield from _leftovers()


def _processor() -> Iterator[Check]:
    kind, lacking = (
        platform.machine(),
        surroundings.lacking_instructions(_read("/proc/cpuinfo") or ""),
    )
    if kind != "x86_64":
        why = (
            "the testbed has been tried on x86-64 alone: packages may have to be compiled, and "
            "nobody has run the tests here"
        )
        yield Check(
            "machine", "processor", "limited", kind, why, "an x86-64 machine, or try it and report"
        )
        return
    found = f"{kind}, without {', '.join(lacking)}" if lacking else f"{kind}, version 2 or later"
    fix = (
        "give the virtual machine a CPU of its host's model (libvirt: host-passthrough; qemu: "
        "-cpu host, or Nehalem)"
    )
    yield _check("machine", "processor", not lacking, found, "NumPy needs x86-64-v2", fix)


def _container() -> Iterator[Check]:
    kind = surroundings.container()
    lacking = (
        surroundings.lacking_capabilities(_read("/proc/self/status") or "")
        if os.geteuid() == 0
        else []
    )
    if kind or lacking:
        found = (
            f"{kind or 'none seen'}, without {', '.join(lacking)}"
            if lacking
            else f"{kind}, with every right needed"
        )
        why = (
            "the host's kernel is the one that counts: the container can bring neither its "
            "version nor its modules"
        )
        yield _check(
            "machine",
            "container",
            not lacking,
            found,
            why,
            "docker run --privileged, or a virtual machine: docs/guests/README.md",
        )


def _leftovers() -> Iterator[Check]:
    marks = cleanup.marked()
    running = {mark for mark in marks.values() if cleanup.alive(mark)}
    others = len({*cleanup.namespaces("net").values()} - {0, cleanup.namespace("self", "net")})
    found = (
        f"{others} others with processes; {len(running)} run{'s' * (len(running) != 1)} under way"
    )
    yield Check(
        "machine",
        "network namespaces",
        "ok",
        found,
        "for information: parallel runs disturb each other's figures",
    )
    remains = [f"process {pid}" for pid, mark in sorted(marks.items()) if mark not in running]
    try:
        remains += [
            f"{path}"
            for path in (Path("/sys/fs/bpf/mrcbed"),)
            if os.path.exists(path) and not running
        ]
        remains += [
            f"interface {name}"
            for name in os.listdir("/sys/class/net")
            if re.fullmatch(r"p\d+-t[01]-\d+-[uds]\d+|h\d+-p\d+", name)
        ]
    except OSError:
        pass  # a bpffs that only root may look into
    clean = not remains
    yield _check(
        "machine",
        "leftovers",
        clean,
        ", ".join(remains) or "none",
        "a run removes what it created",
        "sudo mrcbed tools clean",
        "limited",
    )


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


GROUPS: tuple[Callable[[], Iterator[Check]], ...] = (machine, kernel, tools, packages, built)


def examine() -> list[Check]:
    """Return every check. Never raises."""
    checks: list[Check] = []
    for group in GROUPS:
        try:
            checks.extend(group())
        except Exception as error:  # a doctor that dies of a symptom helps nobody
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            checks.append(
                Check(
                    group.__name__,
                    "(check failed)",
                    "unknown",
                    reason,
                    "the rest of this group was not checked",
                    "please report it",
                )
            )
    return checks


def well(checks: list[Check]) -> bool:
    return not any(check.status == "missing" for check in checks)
