"""Background traffic: one iperf3 flow between two hosts of a running fabric, on one path, with
addresses and routes of its own."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from agents.clock import WallClock
from testbed.emulated import bringup
from testbed.errors import UserError
from testbed.machine.probes import PATH
from testbed.machine.slowness import patient
from testbed.world import Stream
from topologies import addressing
from topologies.clos import Fabric

PROTOCOLS = ("tcp", "udp")
CONGESTION = ("cubic", "bbr", "reno")
MAX_STREAMS = 128
PORT = 5201
HEADERS = 14 + 40 + 40 + 8
LISTEN_S = 3.0
CONNECT_MS = 3000
ANSWER_S = 1.5
POLL_S = 0.005

Popen = Callable[..., "subprocess.Popen[bytes]"]


def require_iperf3() -> None:
    if shutil.which("iperf3", path=PATH) is None:
        raise UserError(
            "iperf3 is missing: install it with apt-get install iperf3 (mrcbed doctor shows what "
            "else may be)"
        )


def datagram_bytes(fabric: Fabric) -> int:
    return fabric.frame_bytes - HEADERS


def wire_rate(fabric: Fabric, payload_bps: float) -> float:
    return payload_bps * fabric.frame_bytes / datagram_bytes(fabric)


def route_lines(fabric: Fabric, stream: Stream) -> tuple[list[str], list[str]]:
    addresses = [addressing.text(a) for a in addressing.background_addresses(stream.number)]

    def lines(near: int, far: int, own: str, peer: str) -> list[str]:
        segment = addressing.text(addressing.path_address(fabric, near, far, stream.ev))
        port = f"h{near}-p{addressing.ev_fields(stream.ev)[0]}"
        return [
            f"addr add {own}/128 dev lo nodad",
            (
                f"route add {peer}/128 encap seg6 mode encap.red segs {segment} via "
                f"{addressing.GATEWAY} dev {port} src {own}"
            ),
        ]

    first, last = addresses
    return lines(stream.src, stream.dst, first, last), lines(stream.dst, stream.src, last, first)


def command_lines(fabric: Fabric, clock: WallClock, stream: Stream) -> tuple[list[str], list[str]]:
    own, peer = (addressing.text(a) for a in addressing.background_addresses(stream.number))
    seconds = max(1, math.ceil(round(clock.wall_s(stream.length), 6)))
    client = [
        "iperf3",
        "-J",
        "-c",
        peer,
        "-B",
        own,
        "-p",
        str(PORT),
        "-t",
        str(seconds),
        "--connect-timeout",
        str(CONNECT_MS),
    ]
    client += ["-P", str(stream.parallel), "--extra-data", json.dumps(clock.to_dict())]
    if stream.protocol == "udp":
        client += ["-u", "-l", str(datagram_bytes(fabric))]
    else:
        client += ["-C", stream.congestion]
    if stream.rate_bps is not None:
        client += ["-b", str(bringup.kernel_rate(stream.rate_bps / stream.parallel, clock))]
    return ["iperf3", "-s", "-1", "-J", "-B", peer, "-p", str(PORT)], client


class Iperf:
    def __init__(
        self,
        fabric: Fabric,
        clock: WallClock,
        stream: Stream,
        popen: Popen,
        path_of: Callable[[str], str],
        stem: Path,
    ) -> None:
        self.fabric, self.clock, self.stream, self.stem = fabric, clock, stream, stem
        self._popen, self._path_of = popen, path_of
        self._server: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[bytes] | None = None
        self._files: list[IO[bytes]] = []
        self._added: list[tuple[int, str]] = []
        self._end_requested_at: float | None = None
        self.cut = False  # ended by us before its time

    def prepare(self) -> None:
        require_iperf3()
        try:
            for host, lines in zip(
                (self.stream.src, self.stream.dst),
                route_lines(self.fabric, self.stream),
                strict=True,
            ):
                for line in lines:  # one at a time: what was not added is not ours to take away
                    bringup.run_batch("ip", [line], self._path_of(f"h{host}"))
                    self._added.append((host, line))
            self._server = self._start(
                self.stream.dst,
                command_lines(self.fabric, self.clock, self.stream)[0],
                "-server.json",
            )
            self._wait_until_listening(self._server)
        except BaseException:
            self.end()
            raise

    def _start(self, host: int, command: list[str], ending: str) -> subprocess.Popen[bytes]:
        file = open(f"{self.stem}{ending}", "wb")
        self._files.append(file)
        return self._popen(
            f"h{host}", command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )

    def _wait_until_listening(self, server: subprocess.Popen[bytes]) -> None:
        address = addressing.background_addresses(self.stream.number)[1]
        # as the kernel prints them
        words = (int.from_bytes(address[i : i + 4], sys.byteorder) for i in range(0, 16, 4))
        endpoint = f"{''.join(f'{word:08X}' for word in words)}:{PORT:04X}"
        until = time.monotonic() + patient(LISTEN_S)
        while time.monotonic() < until and server.poll() is None:
            with suppress(OSError):
                lines = (
                    line.split()
                    for line in Path(f"/proc/{server.pid}/net/tcp6").read_text().splitlines()[1:]
                )
                if any(line[1] == endpoint and line[3] == "0A" for line in lines):
                    return
            time.sleep(POLL_S)
        report = Path(f"{self.stem}-server.json").read_text(errors="replace").split("\n")
        reason = next(
            (line.strip() for line in report if "error" in line),
            f"it did not listen within {patient(LISTEN_S):.0f} s",
        )
        raise UserError(
            f"iperf3 as server in h{self.stream.dst} did not come up ({reason}): try it there by "
            "hand, mrcbed up has a prompt"
        )

    def begin(self) -> None:
        self._client = self._start(
            self.stream.src, command_lines(self.fabric, self.clock, self.stream)[1], ".json"
        )

    @property
    def begun(self) -> bool:
        return self._client is not None

    @property
    def over(self) -> bool:
        return self._client is not None and self._client.poll() is not None

    def ask(self) -> None:
        if self._end_requested_at is not None:
            return
        self._end_requested_at = time.monotonic()
        if self._client is not None and self._client.poll() is None:
            self.cut = True
            self._client.send_signal(signal.SIGTERM)

    def end(self) -> None:
        self.ask()
        until = (self._end_requested_at or 0.0) + patient(ANSWER_S)
        if self._client is not None:
            _end(self._client, until)
        if self._server is not None:
            # the client's last word ends it; one that never met a client waits for ever
            _end(self._server, until if self.begun else 0.0)
        for file in self._files:
            file.close()
        self._files = []
        for host, line in reversed(self._added):
            parts = line.split()
            with suppress(UserError):  # it may have disappeared with its host
                deletion = f"{parts[0]} del {parts[2]} dev {parts[parts.index('dev') + 1]}"
                bringup.run_batch("ip", [deletion], self._path_of(f"h{host}"))
        self._added = []


def _end(process: Any, until: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, until - time.monotonic()))
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patient(ANSWER_S))
            return
