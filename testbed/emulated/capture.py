"""Keeps pcaps of chosen links: one tcpdump per link, on the switch's end, both directions in one
file. A capture must be complete or say that it is not."""

from __future__ import annotations

import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

from testbed.emulated import packet_sockets
from testbed.errors import UserError
from testbed.machine.slowness import patient
from topologies.clos import Fabric

BUFFER_KIB = 65536
SNAP_ROOM = 256
START_S = 5.0


class Capture:
    def __init__(
        self,
        fabric: Fabric,
        link: str,
        directory: Path,
        switch_namespace: str,
        come_twice: bool = False,
    ) -> None:
        """Returns when frames are captured, or raises :class:`UserError`. With ``come_twice``
        frames come in twice (packet_sockets.py); the file has them once."""
        cable = fabric.link(link)
        port = cable.b  # the upper end is a switch's, on every cable
        tool = shutil.which(
            "tcpdump", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"
        )
        if tool is None:
            raise UserError("tcpdump is missing: install it with apt-get install tcpdump")
        directory.mkdir(parents=True, exist_ok=True)
        self.link = cable.name
        self.path = directory / f"{cable.name.replace(':', '_')}.pcap"
        self.captured = self.dropped = -1  # packets, known once stopped
        # Immediate: otherwise the last second of frames would sit in a block of the ring and be
        # lost when the capture ends.
        options = [
            "-i",
            port.name,
            "-w",
            str(self.path),
            "-B",
            str(BUFFER_KIB),
            "-s",
            str(fabric.frame_bytes + SNAP_ROOM),
        ]
        options += ["-U", "-n", "-Z", "root", "--immediate-mode", "--time-stamp-precision=nano"]
        self.process = subprocess.Popen(
            ["nsenter", f"--net={switch_namespace}", "--", tool, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stderr is not None
        self._messages = b""
        until = time.monotonic() + patient(START_S)
        while b"listening on" not in self._messages:
            readable = select.select(
                [self.process.stderr], [], [], max(0.0, until - time.monotonic())
            )[0]
            data = self.process.stderr.read1(4096) if readable else b""  # type: ignore[attr-defined]
            if not data:
                self.process.kill()
                reason = self._messages.decode(errors="replace").strip() or "no answer"
                raise UserError(
                    f"tcpdump does not capture {cable.name} ({reason}): see mrcbed doctor"
                )
            self._messages += data
        if come_twice:
            for sock in packet_sockets.of_process(self.process.pid):
                packet_sockets.see(sock, handed_over=False)
                sock.close()

    def stop(self, timeout: float = 1.0) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            _, text = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, text = self.process.communicate()
        for field, pattern in (
            ("captured", rb"(\d+) packets? captured"),
            ("dropped", rb"(\d+) packets? dropped by kernel"),
        ):
            if match := re.search(pattern, text):
                setattr(self, field, int(match[1]))
