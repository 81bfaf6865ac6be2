"""A client of the controller's REST API, without Ryu."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from testbed.controller.denylist import OPERATOR, Denial
from testbed.errors import UserError
from testbed.machine.slowness import patient
from topologies.files import FileError, parse_json

TIMEOUT_S = 5.0
MOST = 64 << 20
"""The most bytes of an answer [ours]: the links of the largest emulated fabric take less than one
MiB."""
MOST_LINE = 1 << 20
_URL = re.compile(r"http://(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?/?")


_DENIED = msgspec.defstruct("Denied", [("entry", str), ("new", bool)])
_REMOVED = msgspec.defstruct("Removed", [("entry", str), ("removed", list[Denial])])
_EVENT = msgspec.defstruct("Event", [("t_ps", int), ("event", str)])
_LINK = msgspec.defstruct(
    "Link",
    [("link", str), ("state", str), ("since_ps", int), ("denied", list[str]), ("paths", int)],
)
_PATH = msgspec.defstruct(
    "Path",
    [
        ("plane", int),
        ("uplink", int),
        ("address", str),
        ("switches", list[str]),
        ("links", list[str]),
        ("denied_by", list[str]),
        ("state", Literal["up", "down", "denied"]),
    ],
)
PAGES: dict[str, Any] = {
    "links": list[_LINK],  # type: ignore[valid-type]
    "paths": list[_PATH],  # type: ignore[valid-type]
    "denylist": list[Denial],
    "journal": list[_EVENT],  # type: ignore[valid-type]
    "failed-links": dict,
}
"""First word of a page -> what readers use of it; the answer is checked against it."""


class ControllerClient:
    """A client of the controller at ``url``. Changes need ``token`` (`mrcbed fabric denylist
    token`). An answer must come whole within the timeout. All methods raise :class:`UserError`."""

    def __init__(self, url: str, token: str = "", timeout: float | None = None) -> None:
        self.token, self._timeout = token, patient(TIMEOUT_S) if timeout is None else timeout
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        parts = _URL.fullmatch(url)
        if parts is None or int(parts[2] or 80) > 65535:
            raise UserError(
                f"{url!r} is not a controller's address: they look like http://127.0.0.1:41607"
            )
        if not re.fullmatch(r"[!-~]*", token):
            raise UserError(
                "the controller's token must be one word: give it as mrcbed fabric denylist "
                "token prints it"
            )
        self._host, self._port = parts[1].strip("[]"), int(parts[2] or 80)
        self.url = url.rstrip("/")

    def get(self, page: str, **query: int) -> Any:
        return self._ask("GET", page, query=query, kind=PAGES.get(page.partition("/")[0], Any))

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> dict[str, object]:
        return dict(
            self._ask(
                "POST", "denylist", {"entry": entry, "reason": reason, "by": by}, kind=_DENIED
            )
        )

    def allow(self, entry: str, by: str | None = None) -> dict[str, Any]:
        return dict(
            self._ask(
                "POST", "denylist", {"allow": entry, **({"by": by} if by else {})}, kind=_REMOVED
            )
        )

    def events(self, since: int | None = None) -> Iterator[dict[str, Any]]:
        with self._open(
            "GET", "stream", query={} if since is None else {"since": since}, endless=True
        ) as answer:
            while True:
                try:
                    line = answer.readline(MOST_LINE + 1)
                except (OSError, http.client.HTTPException):
                    return
                if not line.endswith(b"\n"):
                    if len(line) > MOST_LINE:
                        raise self._stranger()
                    return  # the controller ended, perhaps in the middle of a line
                if line.strip():
                    yield self._read(line, _EVENT)

    def _ask(
        self,
        method: str,
        page: str,
        body: Any = None,
        query: dict[str, int] | None = None,
        kind: Any = Any,
    ) -> Any:
        with self._open(method, page, body, query) as answer:
            data = answer.read(MOST + 1)
            if answer.length:  # of what was announced
                raise http.client.IncompleteRead(data, answer.length)
        if len(data) > MOST:
            raise self._stranger()
        return self._read(data, kind)

    @contextmanager
    def _open(
        self,
        method: str,
        page: str,
        body: Any = None,
        query: dict[str, int] | None = None,
        endless: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        """With ``endless`` only the answer's head must come within the timeout."""
        path = f"/v1/{urllib.parse.quote(page)}" + (
            f"?{urllib.parse.urlencode(query)}" if query else ""
        )
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        late = threading.Event()
        alarm: threading.Timer | None = None
        try:
            connection.connect()
            # which an answer keeps open, and the connection may not
            own: socket.socket = connection.sock
            # a byte now and then is no answer
            alarm = threading.Timer(self._timeout, _hang_up, [own, late])
            alarm.start()
            connection.request(
                method, path, None if body is None else json.dumps(body).encode(), self._headers
            )
            answer = connection.getresponse()
            if answer.status not in (200, 201):
                raise UserError(_error_text(answer))
            if endless:
                alarm.cancel()
                own.settimeout(None)
            yield answer
            if late.is_set():
                raise TimeoutError
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or " ".join(
                str(error).split()
            )[:100]
            if late.is_set():
                reason = f"no whole answer within {self._timeout:g} s"
            raise UserError(f"no controller answers at {self.url} ({reason})") from None
        finally:
            if alarm is not None:
                alarm.cancel()
                alarm.join()  # no thread stays behind: whoever calls may fork
            connection.close()

    def _read(self, data: bytes, kind: Any) -> Any:
        try:
            value = parse_json(data, Path(self.url))
            msgspec.convert(value, kind)
        except (FileError, msgspec.ValidationError):
            raise self._stranger() from None
        return value

    def _stranger(self) -> UserError:
        return UserError(
            f"what answers at {self.url} is not a controller of mrcbed: give the address that "
            "the prompt's status shows"
        )


def _hang_up(own: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):  # it is over
        own.shutdown(socket.SHUT_RDWR)


def _error_text(answer: http.client.HTTPResponse) -> str:
    try:
        data = parse_json(answer.read(MOST_LINE), Path())
        near = f": did you mean {' or '.join(data['near'])}?" if data.get("near") else ""
        return str(data["error"])[:1000] + near
    except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
        return f"the controller answered {answer.status} {answer.reason}"
