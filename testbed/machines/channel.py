"""The coordinator's end of one machine: JSON lines to ``mrcbed tools machine`` over the standard
streams of a command (reach.py).

``{"id", "op", ...}`` goes there; ``{"id", "ok"}``, ``{"id", "error", "sort"}`` or ``{"event",
...}`` comes back. One thread reads; any thread may ask.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from agents.process.control import AgentError
from testbed.errors import ClusterDied, UserError, explain, first_line
from testbed.machine.slowness import patient
from testbed.machines.channel_coding import MOST_LINE
from testbed.machines.clocks import PINGS, Offset, Reading, offset
from testbed.machines.orders import Orders
from testbed.machines.reach import Place
from topologies import FabricError
from topologies.files import FileError, parse_json, typed

ANSWER_S = 30.0
END_S = 5.0
LOGS_S = 120.0
"""Seconds for tear-down with all logs, however slow the link [ours]."""
BEAT_S = 2.0
"""Each side sends at this interval, so that the other notices a connection that was lost without a
word."""
SILENCE_S = 20.0
"""A side that is silent for longer is gone. Longer on a slow machine."""
ERRORS: dict[str, Callable[[str], Exception]] = {"fabric": FabricError, "agent": AgentError}
COMPLAINT = 1 << 16


class Message(msgspec.Struct):
    id: int = 0
    ok: object = None
    error: str = ""
    sort: str = ""
    event: str = ""
    host: int = 1 << 16  # no host has this number
    note: dict[str, object] = {}
    facts: dict[str, object] = {}
    reason: str = ""
    name: str = ""
    data: str = ""
    stage: str = ""
    share: float = 0.0

    def __post_init__(self) -> None:
        if self.event == "note" and "event" not in self.note:
            raise ValueError("a note without `event`")


Notice = Callable[["Channel", Message], None]
_OWN = {
    "clock": msgspec.defstruct("Clock", [("theirs", int), ("after", int)]),
    "begin": msgspec.defstruct("Begun", [("booted_ns", int), ("hosts", list[int])]),
}


@cache
def _answer_of(op: str) -> Any:
    method = getattr(Orders, f"op_{op}", None)
    return _OWN.get(op, Any) if method is None else get_type_hints(method)["return"]


@contextmanager
def whole(channels: Iterable[Channel]) -> Iterator[None]:
    """Raises :class:`ClusterDied` if the answers of several machines do not fit together."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        names = ", ".join(channel.name for channel in channels)
        raise ClusterDied(
            f"{names}: their answers do not fit together ({first_line(error)}): {SAME}"
        ) from None


SAME = "install the same version on all machines"


class Channel:
    """Starts the command at once; :meth:`hello` waits for the far side. ``on_event`` is called on
    the reading thread."""

    def __init__(self, place: Place, on_event: Notice) -> None:
        self.place = place
        self.name = place.name
        self._on_event = on_event
        self._complaints = tempfile.TemporaryFile()
        self._last_serial = 0
        self._answers: dict[int, Message] = {}
        self._asked: dict[int, str] = {}
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._ended = False
        self._closing = False
        self._reason = ""  # for which it ended, as the far side says
        self._hello: Message | None = None
        self._heard = time.monotonic()
        try:
            self.process = subprocess.Popen(
                place.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise UserError(
                f"{self.name}: cannot run {place.command[0]}: {error.strerror}: install it, or "
                "give another --reach"
            ) from None
        self._reader = threading.Thread(target=self._read, name=f"mrcbed-{self.name}", daemon=True)
        self._reader.start()
        self._beater = threading.Thread(
            target=self._beat, name=f"mrcbed-beat-{self.name}", daemon=True
        )
        self._beater.start()

    # --- words ------------------------------------------------------------------------------------

    def hello(self, version: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._hello or self._ended, patient(ANSWER_S))
        if not self._hello:
            reason = (
                (self.complaint or self._status())
                if self._ended
                else f"no answer within {patient(ANSWER_S):.0f} s"
            )
            raise UserError(
                f"{self.name} is not reached ({reason}): `{' '.join(self.place.command)}` must "
                "work from here"
            )
        there = self.facts.get("mrcbed")
        if there != version:
            raise UserError(f"{self.name} has mrcbed {str(there)[:40]}, here is {version}: {SAME}")

    @property
    def facts(self) -> dict[str, object]:
        return {} if self._hello is None else self._hello.facts

    def begin(self, op: str, **keys: Any) -> int:
        with self._changed:
            self._last_serial += 1
            serial = self._last_serial
            self._asked[serial] = op
        self._write({"id": serial, "op": op, **keys})
        return serial

    def answer(self, serial: int, timeout: float = ANSWER_S) -> Any:
        """Raises what the far side raised, as an exception of the same sort, or
        :class:`ClusterDied`."""
        with self._changed:
            self._changed.wait_for(lambda: serial in self._answers or self._ended, patient(timeout))
            answer, op = self._answers.pop(serial, None), self._asked.pop(serial, "")
        if answer is None:
            if not self._ended:
                raise ClusterDied(
                    f"{self.name} did not answer within {patient(timeout):.0f} s: see whether it "
                    "is overloaded"
                )
            raise ClusterDied(self.death())
        if answer.error:
            sort, text = answer.sort, answer.error
            if sort == "fabric" or (sort == "agent" and op == "agent"):
                raise ERRORS[sort](text)
            raise (UserError if sort == "user" else ClusterDied)(f"{self.name}: {text}")
        try:
            msgspec.convert(answer.ok, _answer_of(op), str_keys=True)
        except msgspec.ValidationError as error:
            raise ClusterDied(
                f"{self.name}: its answer to {op} makes no sense ({error}): {SAME}"
            ) from None
        return answer.ok

    def ask(self, op: str, timeout: float = ANSWER_S, **keys: Any) -> Any:
        return self.answer(self.begin(op, **keys), timeout)

    def offset(self) -> Offset:
        def read() -> Reading:
            before = time.monotonic_ns()
            answer = self.ask("clock")
            return Reading(before, int(answer["theirs"]), int(answer["after"]))

        return offset(read() for _ in range(PINGS))

    # --- the end ----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._ended and not self._closing

    @property
    def complaint(self) -> str:
        self._complaints.seek(max(0, self._complaints.seek(0, os.SEEK_END) - COMPLAINT))
        lines = [
            line
            for line in self._complaints.read().decode(errors="replace").splitlines()
            if line.strip()
        ]
        return lines[-1].strip().removeprefix("mrcbed: ") if lines else ""

    def death(self) -> str:
        if self._reason:
            return f"{self.name}: {self._reason}"
        return f"machine {self.name} is gone: its command {self._status()}" + (
            f", saying {self.complaint!r}" if self.complaint else ""
        )

    def _status(self) -> str:
        try:
            status = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return (
            f"was killed by {signal.Signals(-status).name}"
            if status < 0
            else f"ended with status {status}"
        )

    def close(self, timeout: float = END_S) -> None:
        """End the far side's input: it takes its part down, and sends its logs. Kills the command
        if it says nothing for ``timeout`` seconds. Idempotent."""
        self._closing, begun = True, time.monotonic()
        with self._writing:
            if self.process.stdin is not None and not self.process.stdin.closed:
                try:
                    self.process.stdin.close()
                except OSError:
                    pass
        if self._ended and self.process.stdout is not None:
            # nobody reads it any more, and who goes on writing ends by that
            self.process.stdout.close()
        last = time.monotonic() + patient(LOGS_S)
        while self.process.poll() is None:
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now > last or now - max(begun, self._heard) > patient(timeout):
                    os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    # --- how --------------------------------------------------------------------------------------

    def _write(self, message: Mapping[str, object]) -> None:
        with self._writing:
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
            except (OSError, ValueError):
                pass  # it is gone, which the reader says

    def _read(self) -> None:
        try:
            self._dispatch()
        except Exception as error:
            # a full disk, say, where a log belongs: whoever waits for an answer must hear of it
            line, status = explain(error)
            sense = (
                f"makes no sense ({type(error).__name__}: {first_line(error)})"
                if status == 70
                else f"could not be taken ({line})"
            )
            self._reason = self._reason or f"what it sent {sense}"
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if not self._closing:
            self._on_event(self, Message(event="gone"))

    def _dispatch(self) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline(MOST_LINE + 1):
            now = time.monotonic_ns()
            self._heard = now / 1e9
            try:
                message = typed(parse_json(line, Path("its line")), Message, Path("its line"))
            except FileError:
                self._reason = (
                    f"it said {line[:80].decode(errors='replace').strip()!r} where a line of "
                    "JSON belongs: see --reach"
                )
                break
            if message.id:
                if isinstance(message.ok, dict) and "theirs" in message.ok:
                    # read here: a thread that waits for a core must not make the clock unsure
                    message.ok["after"] = now
                with self._changed:
                    self._answers[message.id] = message
                    self._changed.notify_all()
            elif message.event == "hello":
                with self._changed:
                    self._hello = message
                    self._changed.notify_all()
            elif message.event == "died":
                self._reason = message.reason
            elif message.event:
                self._on_event(self, message)

    def _beat(self) -> None:
        while not self._ended and not self._closing:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._closing, BEAT_S)
            self._write({"op": "beat"})
            if time.monotonic() - self._heard > SILENCE_S and self._hello:
                self._reason = (
                    self._reason
                    or f"nothing heard for {SILENCE_S:.0f} s: see whether it and the way to it "
                    "are up"
                )
                os.killpg(self.process.pid, signal.SIGKILL)
                return


def ask_all(
    channels: Iterable[Channel], op: str, timeout: float = ANSWER_S, **keys: Any
) -> list[Any]:
    """Ask all machines at the same time. Raises the first's error after all have answered."""
    return answers_of([(channel, channel.begin(op, **keys)) for channel in channels], timeout)


def answers_of(asked: Sequence[tuple[Channel, int]], timeout: float = ANSWER_S) -> list[Any]:
    answers: list[Any] = []
    failure: Exception | None = None
    for channel, serial in asked:
        try:
            answers.append(channel.answer(serial, timeout))
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return answers
