"""A client of the controller's REST API, for the command line, the prompt and the cluster. Knows nothing of Ryu."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from testbed.controller.denylist import OPERATOR
from testbed.errors import UserError
from testbed.machine.slowness import patient

TIMEOUT_S = 5.0


class ControllerClient:
    """``url`` as the prompt's `status` shows it, like ``http://127.0.0.1:41607``; ``token`` as `mrcbed denylist token` prints it, without
    which nothing can be changed. All methods raise :class:`UserError`, one line: the controller's error, or that no controller answers
    there."""

    def __init__(self, url: str, token: str = "", timeout: float | None = None) -> None:
        self.token, self._timeout = token, patient(TIMEOUT_S) if timeout is None else timeout
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.netloc:
            raise UserError(f"{url!r} is not a controller's address: they look like http://127.0.0.1:41607")
        self.url = url.rstrip("/")

    def get(self, page: str, **query: Any) -> Any:
        """A page of docs/controller.md, without /v1."""
        with self._open("GET", page, query=query) as answer:
            return self._json(answer)

    def deny(self, entry: str, reason: str = "", by: str = OPERATOR) -> dict[str, Any]:
        """Put an entry on the denylist; ``new`` in the answer says whether it is new."""
        with self._open("POST", "denylist", {"entry": entry, "reason": reason, "by": by}) as answer:
            return dict(self._json(answer))

    def allow(self, entry: str, by: str | None = None) -> dict[str, Any]:
        """Take an entry off the denylist: one party's denial, or everybody's."""
        with self._open("POST", "denylist", {"allow": entry, **({"by": by} if by else {})}) as answer:
            return dict(self._json(answer))

    def events(self, since: int | None = None) -> Iterator[dict[str, Any]]:
        """The journal as it grows, until the controller ends."""
        with self._open("GET", "stream", query={} if since is None else {"since": since}, endless=True) as answer:
            try:
                for line in answer:
                    if line.strip():
                        yield json.loads(line)
            except (OSError, http.client.HTTPException, ValueError):
                return  # the controller ended in the middle of a line

    def _open(self, method: str, page: str, body: Any = None, query: dict[str, Any] | None = None, endless: bool = False) -> Any:
        url = f"{self.url}/v1/{urllib.parse.quote(page)}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, self._headers, method=method)  # noqa: S310
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the loopback needs no proxy
        try:
            return opener.open(request, timeout=None if endless else self._timeout)
        except urllib.error.HTTPError as error:
            raise UserError(_error_text(error)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise UserError(f"no controller answers at {self.url} ({getattr(reason, 'strerror', None) or reason})") from None

    def _json(self, answer: Any) -> Any:
        try:
            return json.load(answer)
        except (OSError, ValueError, http.client.HTTPException):
            raise UserError(f"what answers at {self.url} is no controller of ours") from None


def _error_text(error: urllib.error.HTTPError) -> str:
    try:
        data = json.load(error)
        near = f": did you mean {' or '.join(data['near'])}?" if data.get("near") else ""
        return str(data["error"]) + near
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return f"the controller answered {error.code} {error.reason}"
