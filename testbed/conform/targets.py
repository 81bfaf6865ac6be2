"""The targets of cases: our engine, any object in virtual time, or an endpoint on interfaces."""

from __future__ import annotations

import importlib
import json
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from agents.clock import WallClock
from testbed.conform.play import Unsupported
from testbed.errors import UserError, first_line
from topologies import Fabric
from topologies.units import US

ETH_P_ALL = 3
ANSWER_S = 10.0
STATUSES = ("ok", "flushed", "invalid", "access", "operation", "retries", "unknown")
MEMORY = 1 << 20


Row = tuple[int, int, str, str, int | None, int]
"""A finished request: qpn, id, "write" or "receive", status, immediate, length."""
METHODS = {
    "register(memory)": "(va, rkey)",
    "create_qp(peer)": "a dictionary of host, qpn, psn and mpr",
    "connect_qp(now, qpn, remote)": "nothing; remote is such a dictionary of the judge's",
    "post_recv(qpn, id)": "nothing",
    "post_write(qpn, id, data, va, rkey, imm)": "nothing; imm may be None",
    "receive(now, plane, frame)": "nothing",
    "port_state(now, plane, up)": "nothing",
    "transmit(now)": "(plane, frame) or None",
    "deadline()": "when it wants to be asked again, or None",
    "completions()": (
        "rows of (qpn, id, kind, status, immediate or None, length); kind is write or receive"
    ),
}
"""Methods of an endpoint in Python -> what each returns. Times are ps."""
ORDERS = {
    '{"op": "create"}': (
        "host, qpn, psn and mpr of a new queue pair; va, rkey and length of memory full of A5 "
        "that may be written"
    ),
    '{"op": "connect", "host":, "qpn":, "psn":, "mpr":}': "null, once the queue pair is in RTS",
    '{"op": "write", "id":, "bytes": [...], "va":, "rkey":, "imm":}': "null; imm may be missing",
    '{"op": "recv", "id":}': "null",
    '{"op": "port", "plane":, "up":}': "null",
    '{"op": "completions"}': "a list of id, kind, status, imm and length, each once",
    '{"op": "memory", "at":, "length":}': "the bytes as hexadecimal digits",
}
"""Orders to the command of --connect, a line of JSON each -> what it answers."""


def rows(completions: Sequence[Any]) -> list[Row]:
    kinds = ("write", "receive")
    return [
        (
            c.qpn,
            c.wr_id,
            kinds[bool(c.kind)],
            STATUSES[c.status],
            None if c.imm < 0 else c.imm,
            c.length,
        )
        for c in completions
    ]


def answers(finished: Sequence[Row]) -> list[dict[str, int | str | None]]:
    return [
        dict(zip(("id", "kind", "status", "imm", "length"), row[1:], strict=True))
        for row in finished
    ]


class Virtual:
    way_rtts = 0.0

    def __init__(self, endpoint: Any, peer: int) -> None:
        self.endpoint, self.peer = endpoint, peer
        self.time = US
        self.memory = bytearray(b"\xa5" * MEMORY)
        self.qpn = 0

    def parameters(self) -> dict[str, int]:
        va, rkey = self.endpoint.register(self.memory)[:2]
        made: dict[str, int] = self.endpoint.create_qp(self.peer)
        self.qpn = made["qpn"]
        return {**made, "va": va, "rkey": rkey, "length": MEMORY}

    def connect(self, remote: dict[str, int]) -> None:
        self.endpoint.connect_qp(self.time, self.qpn, remote)

    def now(self) -> int:
        return self.time

    def send(self, plane: int, frame: bytes) -> None:
        self.endpoint.receive(self.time, plane, frame)

    def until(self, when: int) -> tuple[int, bytes] | None:
        while True:
            made: tuple[int, bytes] | None = self.endpoint.transmit(self.time)
            if made is not None:
                return made
            deadline: int | None = self.endpoint.deadline()
            if deadline is None or deadline >= when:
                self.time = when
                return None
            self.time = max(self.time + 1, deadline)

    def order(self, op: str, **keys: Any) -> Any:
        if op == "write":
            self.endpoint.post_write(
                self.qpn,
                keys["id"],
                bytes(keys["bytes"]),
                keys["va"],
                keys["rkey"],
                keys.get("imm"),
            )
        elif op == "recv":
            self.endpoint.post_recv(self.qpn, keys["id"])
        elif op == "port":
            self.endpoint.port_state(self.time, keys["plane"], keys["up"])
        elif op == "completions":
            return answers(self.endpoint.completions())
        else:
            return self.memory[keys["at"] : keys["at"] + keys["length"]].hex()
        return None

    def close(self) -> None:
        return None


class OurEngine:
    def __init__(self, fabric: Fabric, host: int, seed: int = 0) -> None:
        from agents.mrc.endpoint import Endpoint  # what is judged; nothing else here knows it
        from agents.transport import NEVER

        self.engine, self.never = Endpoint(fabric, host, {}, seed), NEVER
        for name in ("register", "create_qp", "connect_qp", "post_recv", "port_state"):
            setattr(self, name, getattr(self.engine, name))

    def post_write(
        self, qpn: int, wr_id: int, data: bytes, va: int, rkey: int, imm: int | None
    ) -> None:
        self.engine.post_write(qpn, wr_id, memoryview(data), va, rkey, -1 if imm is None else imm)

    def receive(self, now: int, plane: int, frame: bytes) -> None:
        self.engine.receive(now, plane, frame, 0, len(frame))

    def transmit(self, now: int) -> tuple[int, bytes] | None:
        self.engine.timer(now)
        port = self.engine.transmit(now)
        if port < 0:
            return None
        frame = self.engine.tx_frame + bytes(self.engine.tx_payload or b"") + self.engine.tx_trailer
        self.engine.sent(now, port, True)
        return port, frame

    def deadline(self) -> int | None:
        at = self.engine.deadline()
        return None if at >= self.never else at

    def completions(self) -> list[Row]:
        return rows(self.engine.completions())


class Wire:
    """An endpoint on interfaces, one per plane, or behind their veths. ``command`` takes the
    ORDERS."""

    way_rtts = 1.0

    def __init__(self, interfaces: Sequence[str], command: str) -> None:
        self.name, self.clock = command, WallClock()
        self.sockets: list[socket.socket] = []
        try:
            for interface in interfaces:
                self.sockets.append(
                    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
                )
                self.sockets[-1].bind((interface, ETH_P_ALL))
            self.process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        except PermissionError:
            raise UserError("raw sockets need root: sudo mrcbed conform") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{', '.join(interfaces)}, {command}: {first_line(error)}") from None

    def parameters(self) -> dict[str, int]:
        answer: dict[str, int] = self._ask("create")
        missing = [
            key
            for key in ("host", "qpn", "psn", "mpr", "va", "rkey", "length")
            if not isinstance(answer.get(key), int)
        ]
        if missing:
            raise UserError(
                f"{self.name}: its answer to create lacks {', '.join(missing)}: "
                "docs/reference/conform.md"
            )
        return answer

    def connect(self, remote: dict[str, int]) -> None:
        self._ask("connect", **remote)

    def now(self) -> int:
        return self.clock.now()

    def send(self, plane: int, frame: bytes) -> None:
        if plane >= len(self.sockets):
            raise Unsupported(f"it has no port to plane {plane}")
        self.sockets[plane].send(frame)

    def until(self, when: int) -> tuple[int, bytes] | None:
        while (left := when - self.clock.now()) > 0:
            for sock in select.select(self.sockets, [], [], self.clock.wall_s(left))[0]:
                frame, address = sock.recvfrom(1 << 16)
                # a kernel sends others
                if (
                    address[2] != socket.PACKET_OUTGOING
                    and frame[12:14] == b"\x86\xdd"
                    and frame[20] == 41
                ):
                    return self.sockets.index(sock), frame
        return None

    def order(self, op: str, **keys: Any) -> Any:
        return self._ask(op, **keys)

    def _ask(self, op: str, **keys: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"op": op, **keys}) + "\n")
            ready = select.select([self.process.stdout], [], [], ANSWER_S)[0]
            line = self.process.stdout.readline() if ready else ""
            answer = json.loads(line)
            if not isinstance(answer, dict | list | str | None):
                raise ValueError
        except (OSError, ValueError):
            raise UserError(
                f"{self.name}: no line of JSON in answer to {op}: docs/reference/conform.md says "
                "what is asked"
            ) from None
        if isinstance(answer, dict) and "unsupported" in answer:
            raise Unsupported(str(answer["unsupported"])[:200])
        return answer

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def virtual(name: str, fabric: Fabric, host: int, peer: int) -> Virtual:
    """Make a target. ``name``: ``engine``, or MODULE:FACTORY, called with (fabric, host). Raises
    :class:`UserError`."""
    if name == "engine":
        return Virtual(OurEngine(fabric, host), peer)
    module, _, factory = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the caller's own folder, as python -m finds them
    try:
        make = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{name}: {first_line(error)}: give engine, MODULE:FACTORY, or interfaces with "
            "--connect"
        ) from None
    return Virtual(make(fabric, host), peer)
