"""A disk image of a Debian release with its own kernel and the testbed in it, made without loop
devices and without a network of the guest.

mmdebstrap makes a root folder; the provisioning script of the Vagrantfile, as it stands there,
installs this clone in it, in a chroot and so at this machine's speed; mke2fs writes the folder to
an image. The folder stays in build/vm/RELEASE, so the next image takes a minute. Package registries
are this machine's own: Debian's mirrors of /etc/apt (or MIRROR), pip's settings. Needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/vm"
SHARED = "/vagrant"
"""Where Vagrant puts the clone."""
RELEASES = ("bookworm", "trixie")
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
DISK_BYTES = 6 << 30  # sparse
INSTALL_S = 3600
NEEDED = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "qemu-system-x86_64": "qemu-system-x86",
    "unshare": "util-linux",
}
MOUNTS = """
set -eu
root=$1; shift
mount --make-rprivate /
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
mount -t tmpfs tmp "$root/tmp"
mount -t tmpfs run "$root/run"
for file in /etc/resolv.conf "$@"; do
  if [ -f "$file" ]; then mkdir -p "$root$(dirname "$file")"; touch "$root$file"; mount --bind "$(readlink -f "$file")" "$root$file"; fi
done
mkdir -p "$root/root/.cache/pip"; mount --bind "$PIP_CACHE" "$root/root/.cache/pip"
exec chroot "$root" /bin/sh -c "$SCRIPT"
"""  # noqa: E501


NAMES_CHROOT = """cd /home/vagrant/mrcbed && .venv/bin/mrcbed doctor --json >/tmp/doctor.json || true
grep '"found": "a plain chroot, ' /tmp/doctor.json && exit 0
cat /tmp/doctor.json; echo "doctor does not notice that this is a plain chroot"; exit 1"""  # noqa: E501


@dataclass(frozen=True)
class Image:
    release: str
    kernel: Path
    disk: Path


def lacking() -> list[str]:
    """Debian packages of the programs that making and booting an image takes and that are not
    here."""
    return sorted({package for tool, package in NEEDED.items() if shutil.which(tool) is None})


def require_tools() -> None:
    """Raises :class:`UserError`."""
    if os.geteuid() != 0:
        raise UserError("making an image needs root: sudo make vm-test")
    if os.uname().machine != "x86_64":
        raise UserError(
            f"images are made for x86-64 only, this machine is {os.uname().machine}: use "
            "docs/guests/ there"
        )
    if packages := lacking():
        raise UserError(
            f"missing: sudo apt-get install --no-install-recommends {' '.join(packages)}"
        )


def provisioning() -> str:
    """The command by which the Vagrantfile's machine is provisioned, as a shell script. Raises
    :class:`UserError`."""
    text = (ROOT / "Vagrantfile").read_text()
    found = re.search(
        r'config\.vm\.provision "shell", path: "(\S+)", args: \[(.*)\]$', text, re.MULTILINE
    )
    if found is None:
        raise UserError(
            'the Vagrantfile has no line config.vm.provision "shell", path: "...", args: [...]'
        )
    return shlex.join([f"{SHARED}/{found[1]}", *re.findall(r'"(.*?)"', found[2])])


def make(release: str, mirror: str, log: Path) -> Image:
    """The image of a release with this clone as it is now, uncommitted changes included. Raises
    :class:`UserError`."""
    folder = BUILD / release
    root, kernel, disk = folder / "root", folder / "vmlinuz", folder / "disk.img"
    folder.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    if not (root / "etc/debian_version").exists():
        _base(release, root, mirror, log)
    _copy_clone(root / SHARED.strip("/"))
    _in_chroot(root, provisioning(), log)
    _in_chroot(
        root,
        "cd /home/vagrant/mrcbed && runuser -u vagrant -- make -o apt .venv/.stamps/dev "
        "PIP_FLAGS=--no-cache-dir",
        log,
    )
    _in_chroot(root, NAMES_CHROOT, log)
    init = root / "check"
    shutil.copy(ROOT / "tests/vm/init.sh", init)
    init.chmod(0o755)
    shutil.copy(max((root / "boot").glob("vmlinuz-*")), kernel)
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    _run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(root), str(disk)], log)
    return Image(release, kernel, disk)


def _base(release: str, root: Path, mirror: str, log: Path) -> None:
    """A minimal system with a kernel, sudo, and the user of Vagrant's boxes. Neither make nor
    rsync: the script must see to these."""
    main, security = (mirror, "") if mirror else _mirrors()
    lines = [f"deb {main} {release} main", f"deb {main} {release}-updates main"]
    if security:
        lines.append(f"deb {security} {release}-security main")
    partial = root.with_name("root.partial")
    _remove(partial)
    _run(
        [
            "mmdebstrap",
            "--variant=minbase",
            "--include=linux-image-cloud-amd64,sudo,ca-certificates",
            release,
            str(partial),
            *lines,
        ],
        log,
    )
    _in_chroot(
        partial,
        "useradd -m -s /bin/bash vagrant && echo 'vagrant ALL=(ALL) NOPASSWD: ALL' "
        ">/etc/sudoers.d/vagrant",
        log,
    )
    _remove(root)
    partial.rename(root)


def _mirrors() -> tuple[str, str]:
    """(Debian's archive, its security archive or "") that this machine uses. Raises
    :class:`UserError`."""
    uris = (
        re.findall(r"^URIs: *(\S+)", SOURCES.read_text(), re.MULTILINE) if SOURCES.exists() else []
    )
    listed = Path("/etc/apt/sources.list")
    uris += (
        re.findall(r"^deb +(?:\[.*?\] +)?(\S+)", listed.read_text(), re.MULTILINE)
        if listed.exists()
        else []
    )
    archive = next((uri for uri in uris if "security" not in uri), "")
    if not archive:
        raise UserError(
            "apt's sources here name no Debian archive: give one, as in make vm-test "
            "MIRROR=http://HOST/debian"
        )
    return archive, next((uri for uri in uris if "security" in uri), "")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _copy_clone(target: Path) -> None:
    """What `vagrant up` would copy: the files of the clone, without what it built."""
    _remove(target)
    target.mkdir()
    git = [
        "git",
        "-c",
        f"safe.directory={ROOT}",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    names = (
        subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    )
    for name in filter(None, names):
        source, place = ROOT / name, target / name
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)


def _in_chroot(root: Path, script: str, log: Path) -> None:
    """Run a script as root in the folder. Processes and mounts that it leaves end with its
    namespaces; services do not start."""
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    cache = BUILD / "pip"
    cache.mkdir(exist_ok=True)
    settings = dict(_settings())
    certificates = [
        value for value in (settings.get("PIP_CERT"), settings.get("SSL_CERT_FILE")) if value
    ]
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PIP_CACHE": str(cache),
        "SCRIPT": script,
        **settings,
    }
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        MOUNTS,
        "sh",
        str(root),
        *certificates,
    ]
    try:
        _run(command, log, variables)
    finally:
        policy.unlink()


def _settings() -> Iterator[tuple[str, str]]:
    """How this machine reaches package registries: proxies, and pip's settings of its files and
    variables."""
    for name, value in os.environ.items():
        if name.lower() in ("http_proxy", "https_proxy", "no_proxy", "ssl_cert_file"):
            yield name, value
    listed = subprocess.run(
        [f"{ROOT}/.venv/bin/python", "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for key in ("index-url", "trusted-host", "proxy", "cert"):
        found = re.search(rf"^(?:global|install|:env:)\.{key}='(.*)'$", listed, re.MULTILINE)
        if found:
            yield f"PIP_{key.upper().replace('-', '_')}", found[1]


def _run(command: list[str], log: Path, variables: dict[str, str] | None = None) -> None:
    with log.open("ab") as out, tempfile.TemporaryFile() as nothing:
        try:
            process = subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", "nice", "-n", "15", *command],
                stdin=nothing,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=variables,
                timeout=INSTALL_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{command[0]} was ended after {INSTALL_S} s: see {log}") from None
    if process.returncode != 0:
        raise UserError(
            f"{command[0]} failed (exit status {process.returncode}): see the end of {log}"
        )
