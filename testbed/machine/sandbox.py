"""A private process tree for one run: whatever ends, everything of the run ends with it
(docs/why/architecture.md).

    front (root's own namespaces)  ->  init (pid 1 of a private PID namespace)  ->  worker (does all
    the work)

``mrcbed`` calls :func:`run`; ``python -m testbed.machine.sandbox -- COMMAND...`` wraps any command.
The front waits, forwards signals and passes the worker's exit status on. Init reaps and forwards.
When init goes, the kernel ends every process of the namespace, and with the last of them go network
namespaces, pins and sockets.

Init has a session of its own: a terminal's Ctrl-C reaches the front alone and comes down the chain
once, never three times. Must stay free of heavy imports, and must never leave a mount in the
machine's own mount namespace.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.errors import UserError, explain
from testbed.machine import agent_user
from testbed.machine.stopping import go_on, raise_from_now_on
from testbed.streams import take_standard_streams

RUN_MARK = "MRCBED_RUN"
"""Every process of a run has this variable, by which clean-up finds it: ``<PID namespace of the
front>.<its pid>.<its start time>``."""
_INSIDE = "MRCBED_SANDBOX"
_UIDS = "MRCBED_UIDS"
_MOST_UIDS = 65
"""A run has up to 64 hosts, and one user for other processes."""
NOBODY = 65534
MARKS = (RUN_MARK, _INSIDE, _UIDS)
RUN_DIR = "/run/mrcbed"
PROGRAMS_DIR = "/run/mrcbed-programs"
"""Programs of other users may pass through it, and each run sees its own."""
BPFFS = "/sys/fs/bpf"

_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x4000, 0x40000, 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)
_WATCHED = {*_FORWARDED, signal.SIGCHLD}
_libc = ctypes.CDLL(None, use_errno=True)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP ends the run: a KeyboardInterrupt that a prompt can tell from Ctrl-C."""


_stop_requested = False


def stop_requested() -> bool:
    return _stop_requested


def inside() -> bool:
    return os.environ.get(_INSIDE) == str(os.stat("/proc/self/ns/pid").st_ino)


def agent_uid(process: int) -> int:
    """Return the user, and group, of an agent process: each has another (agent_user.py), unless
    nearly all numbers are taken. Only inside a sandbox."""
    first, *others = os.environ[_UIDS].split(",")
    return int(others[process % len(others)] if others else first)


def caller_uid() -> int | None:
    number = os.environ.get("SUDO_UID", "")
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else None


def group_of(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


def unprivileged_uid() -> int:
    """Return a user without rights: one of the run's that no agent has, outside a sandbox who
    called sudo, or nobody. -1 without root."""
    if os.geteuid() != 0:
        return -1
    return int(os.environ[_UIDS].split(",")[0]) if inside() else caller_uid() or NOBODY


def start_time(pid: int | str = "self") -> str:
    """Return clock ticks since boot, which with the pid name a process for good. Raises OSError."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def run(work: Callable[[], int]) -> int:
    """Return the exit status of ``work``, 128 + n if signal n ended it. Raises
    :class:`UserError`."""
    if os.geteuid() != 0:
        raise UserError("mrcbed needs root: run it with sudo")
    go_on()
    take_standard_streams()
    sys.stdout.flush()
    sys.stderr.flush()
    mark = f"{os.stat('/proc/self/ns/pid').st_ino}.{os.getpid()}.{start_time()}"
    own_pid_ns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    alive, alive_writer = os.pipe()  # init reads `alive`: end of file means that the front is gone
    signals_before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    # a half-suspended cluster is of no use
    stop_before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        _check(_libc.unshare(_CLONE_NEWPID), "a private PID namespace")
        try:
            init = os.fork()
        finally:
            if os.getpid() != 1:
                # later children of the front are the machine's again
                _libc.setns(own_pid_ns, _CLONE_NEWPID)
        if init == 0:
            os.close(alive_writer)
            _init(work, mark, alive, signals_before)
        return _wait(init, init_is_all=True)
    finally:
        for fd in (alive, alive_writer, own_pid_ns):
            os.close(fd)
        signal.signal(signal.SIGTSTP, stop_before)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals_before)


@contextmanager
def child_apart() -> Iterator[None]:
    """Make the child that this thread starts meanwhile pid 1 of a PID namespace: it sees and
    signals no other process of the run, and what it starts ends with it. Start one child only: none
    can be born into its namespace once it has ended."""
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWPID), "a PID namespace for one process")
        try:
            yield
        finally:
            _check(_libc.setns(own, _CLONE_NEWPID), "the way back into the run's PID namespace")
    finally:
        os.close(own)


def _check(result: int, request: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise UserError(
            f"the kernel refused {request} ({os.strerror(code)}): see mrcbed doctor; an "
            "unprivileged container will not do"
        )


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _name(name: bytes) -> None:
    _libc.prctl(_PR_SET_NAME, name, 0, 0, 0)


def _wait(child: int, init_is_all: bool) -> int:
    """Forward signals to ``child`` until it ends. As init (``init_is_all`` False) reap strangers
    too."""
    while True:
        info = signal.sigwaitinfo(_WATCHED)
        if info.si_signo != signal.SIGCHLD:
            try:
                os.kill(child, info.si_signo)
            except ProcessLookupError:
                pass
            continue
        while True:
            try:
                pid, status = os.waitpid(child if init_is_all else -1, os.WNOHANG)
            except ChildProcessError:
                return 1
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break


def _init(work: Callable[[], int], mark: str, alive: int, mask: set[int | signal.Signals]) -> None:
    status = 2
    try:
        _die_with_parent()
        if select.select([alive], [], [], 0)[0]:  # the front died before we asked to die with it
            os._exit(1)
        os.setsid()
        _name(b"mrcbed-init")
        os.environ[RUN_MARK] = mark
        space = os.stat("/proc/self/ns/pid").st_ino
        # before /proc shows our own processes alone
        os.environ[_UIDS] = ",".join(map(str, agent_user.choose(space, _MOST_UIDS)))
        _mounts()
        os.environ[_INSIDE] = str(space)
        worker = os.fork()
        if worker == 0:
            os.close(alive)
            _worker(work, mask)
        status = _wait(worker, init_is_all=False)
    except BaseException as error:
        line, status = explain(error)
        print(f"mrcbed: {line}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _mounts() -> None:
    _check(_libc.unshare(_CLONE_NEWNS), "a private mount namespace")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    _check(
        _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None),
        "a /proc of its own",
    )
    if not os.path.isdir(BPFFS):
        raise UserError(
            f"{BPFFS} is missing: mount sysfs, and use a kernel with BPF; see mrcbed doctor"
        )
    _check(
        _libc.mount(
            b"bpffs", BPFFS.encode(), b"bpf", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"mode=0700"
        ),
        "a bpffs of its own",
    )
    for folder, mode in ((RUN_DIR, b"mode=0700"), (PROGRAMS_DIR, b"mode=0711")):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _check(
            _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, mode),
            f"a tmpfs on {folder}",
        )


def _worker(work: Callable[[], int], mask: set[int | signal.Signals]) -> None:
    status = 1
    try:
        _die_with_parent()
        if os.getppid() != 1:
            os._exit(1)
        _name(b"mrcbed-worker")
        raise_from_now_on()
        signal.signal(signal.SIGTERM, _terminate)
        signal.signal(signal.SIGHUP, _terminate)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - _WATCHED)
        status = work()
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException as error:
        line, status = explain(error)
        if status == 70 and os.environ.get("MRCBED_DEBUG"):
            import traceback

            traceback.print_exc()
        print(f"mrcbed: {line}", file=sys.stderr)
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            pass
        os._exit(status)


def _terminate(number: int, _frame: FrameType | None) -> None:
    """Signals in the worker raise once, so that nothing interrupts the tear-down that follows."""
    global _stop_requested
    if not _stop_requested:
        _stop_requested = True
        raise Terminated(f"signal {number}")


def become(command: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"mrcbed: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


def main(arguments: list[str]) -> int:
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        print("usage: python -m testbed.machine.sandbox -- COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    try:
        return run(lambda: become(command))
    except UserError as error:
        print(f"mrcbed: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
