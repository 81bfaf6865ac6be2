"""Hosts and switches of an emulated fabric, as Mininet nodes.

A host is Mininet's own: a shell in a network namespace. A switch is eBPF programs on ports in the
namespace that all switches share, so it has no shell.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import signal
import socket
import subprocess
from typing import Any

from mininet.node import Host, Node, Switch

from testbed.errors import UserError


class FabricHost(Host):
    @classmethod
    def setup(cls) -> None:
        """Check nothing: fabric.py checks mnexec, and Mininet would look for ifconfig."""

    def __init__(self, name: str, address: str = "", number: int = 0, **params: Any) -> None:
        self.address = address
        self.number = number
        super().__init__(name, **params)
        # programs may print any bytes
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def IP(self, intf: Any = None) -> str:
        return self.address

    def _popen(self, cmd: Any, **params: Any) -> Any:
        """Only the shell keeps its end of the terminal. If we held it too, we would never hear of
        the shell's death."""
        process = super()._popen(cmd, **params)
        if self.slave is not None and params.get("stdin") == self.slave:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.slave, inheritable=False)
            os.close(nothing)
        return process

    def read(self, size: int = 1024) -> str:
        try:
            return str(super().read(size))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise UserError(
                f"the shell of {self.name} was ended from outside: start again"
            ) from None

    def monitor(self, timeoutms: int | None = None, findPid: bool = True) -> str:
        """Look for a process number only where one comes: Mininet takes any byte 1 for the head of
        one and waits for the rest."""
        return str(super().monitor(timeoutms, findPid and (self.lastCmd or "").endswith("&")))

    def config(self, **_params: Any) -> dict[str, str]:
        return {}

    def terminate(self) -> None:
        if self.shell and self.shell.poll() is None:
            try:
                os.killpg(self.shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        fd = self.stdout.fileno() if self.shell else -1
        self.cleanup()
        Node.outToNode.pop(fd, None)
        Node.inToNode.pop(fd, None)


class FabricSwitch(Switch):
    """``cmd``, ``popen`` and the prompt's ``<switch> command`` run a process in the switches'
    namespace, once."""

    stdin: Any
    stdout: Any

    @classmethod
    def setup(cls) -> None:
        """Check nothing: the data plane was loaded before."""

    def __init__(self, name: str, number: int = 0, net: Any = None, **params: Any) -> None:
        self.number = number
        self.net = net
        self._running: subprocess.Popen[bytes] | None = None
        params["inNamespace"] = True
        super().__init__(name, dpid=f"{number + 1:x}", **params)

    def startShell(self, mnopts: Any = None) -> None:
        self.pid = os.getpid()  # Mininet shows it; the switches' namespace is held by this process

    def config(self, **_params: Any) -> dict[str, str]:
        return {}

    def defaultIntf(self) -> Any:
        return Node.defaultIntf(self)

    def start(self, _controllers: Any = None) -> None:
        self.net.faults.set_switch(self.name, True)

    def stop(self, deleteIntfs: bool = False) -> None:
        self.net.faults.set_switch(self.name, False)

    def terminate(self) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait()
        self._finish()

    # --- commands, one process each ---------------------------------------------------------------

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("mncmd", ["nsenter", f"--net={self.net.switch_namespace}", "--"])
        return super().popen(*args, **kwargs)

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        if self._running is not None:
            raise AssertionError(f"{self.name} is still running its last command")
        command = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        line = " ".join(str(w) for w in command)
        self.lastCmd = line
        # A socket, not a pipe: at its end the prompt sees it readable, where a pipe would only hang
        # up and keep the prompt waiting.
        own_end, child_end = socket.socketpair()
        running = subprocess.Popen(
            ["nsenter", f"--net={self.net.switch_namespace}", "--", "sh", "-c", line or ":"],
            stdin=subprocess.PIPE,
            stdout=child_end.fileno(),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        child_end.close()
        self._running, self.stdin, self.stdout = running, running.stdin, own_end
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout, select.POLLIN | select.POLLHUP)
        self.waiting = True

    def sendInt(self, intr: str = "\x03") -> None:
        if self._running is not None and self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGINT)

    def write(self, data: str) -> None:
        try:
            os.write(self.stdin.fileno(), data.encode())
        except (BrokenPipeError, AttributeError, ValueError):
            pass

    def monitor(self, timeoutms: int | None = None, findPid: bool = True) -> str:
        if self.stdout is None or not self.pollOut.poll(timeoutms):
            return ""
        data = os.read(self.stdout.fileno(), 65536)
        if not data:
            self._finish()
        return data.decode(errors="replace")

    def _finish(self) -> None:
        if self._running is not None:
            self._running.wait()
            for pipe in (self.stdin, self.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
        self._running, self.stdin, self.stdout, self.waiting = None, None, None, False

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        self.sendCmd(*args)
        return str(self.waitOutput(bool(kwargs.get("verbose"))))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {','.join(str(i) for i in self.intfList())}> "
