"""Everything that touches Ryu, except OpenFlow (ryu_openflow.py); framework.py may put os-ken in
Ryu's place.

Ryu must be imported after :func:`prepare`: eventlet has to patch the standard library first, and
Ryu 4.34 looks for a name that eventlet dropped in 0.30.3. Ryu's own HTTP server is not used: it has
no limits, and os-ken has none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

STREAM_BUFFER = 1 << 16


def prepare() -> None:
    """Patch the standard library, before any part of Ryu, or any module that keeps a socket, is
    imported."""
    # eventlet and Ryu warn of their own age: nothing a user can act on
    warnings.simplefilter("ignore")
    # no name is looked up here, and the resolver takes a third of the start-up
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    # os-ken reads it when its hub is imported; its default is threads
    os.environ["OSKEN_HUB_TYPE"] = "eventlet"
    import eventlet
    import eventlet.wsgi

    eventlet.monkey_patch()
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        # Ryu 4.34's HTTP server, imported with its applications, wants this name
        eventlet.wsgi.ALREADY_HANDLED = object()


prepare()

import eventlet  # noqa: E402
import eventlet.wsgi  # noqa: E402
import webob  # noqa: E402

from testbed.controller import framework  # noqa: E402
from testbed.controller.journal import MAX_READERS, Reader  # noqa: E402
from testbed.controller.rest import MAX_BODY, Request, Rest  # noqa: E402
from testbed.crowd import MOST, REQUEST_S, Crowd  # noqa: E402

cfg = framework.module("cfg")
hub = framework.module("lib.hub")
AppManager = framework.module("base.app_manager").AppManager
RyuApp = getattr(framework.module("base.app_manager"), framework.FRAMEWORKS[framework.chosen()])
EventBase = framework.module("controller.event").EventBase
set_ev_cls = framework.module("controller.handler").set_ev_cls

__all__ = ["EventBase", "RyuApp", "run", "serve", "set_ev_cls", "spawn"]


def spawn(work: Callable[[], None]) -> None:
    hub.spawn(work)


class _Connections(eventlet.GreenPool):
    """Connections belong to a :class:`Crowd` until they have shown the token or follow the
    events."""

    def __init__(self) -> None:
        super().__init__(2 * (MOST + MAX_READERS))
        self._crowd: Crowd[socket.socket] = Crowd(eventlet.spawn_after, self._close, REQUEST_S)
        self.keep = self._crowd.leave

    def spawn(self, work: Callable[[Any], None], connection: list[Any]) -> Any:
        sock = connection[1]
        self._crowd.join(sock)
        thread = super().spawn(work, connection)
        thread.link(lambda _: self.keep(sock))
        # accepting does not wait while connections do: what came is read before the next may push
        # it out
        eventlet.sleep(0)
        return thread

    @staticmethod
    def _close(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


class _Protocol(eventlet.wsgi.HttpProtocol):
    def log_message(self, *_: Any) -> None:
        """Log nothing of requests that break HTTP: strangers must not fill a log."""

    def finish(self) -> None:
        """Close the descriptor, too: eventlet leaves it to the garbage collector when an answer
        could not be written."""
        super().finish()
        self.rfile.close()


class _Rest:
    def __init__(self, rest: Rest, connections: _Connections) -> None:
        self._rest, self._connections = rest, connections

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        return self._answer(webob.Request(environ))(environ, start_response)

    def _answer(self, req: Any) -> Any:
        scheme, _, token = req.headers.get("Authorization", "").partition(" ")
        path = req.environ["PATH_INFO"].removeprefix("/")
        try:
            query, body = dict(req.GET), req.body_file.read(MAX_BODY + 1)
        except (ValueError, OverflowError, OSError):  # the last of a body that ends early
            return webob.Response(
                status=400,
                json_body={
                    "error": "the query must be UTF-8, and the body as long as Content-Length"
                },
            )
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        host = req.headers.get("Host", "")
        request = Request(req.method, path, query, body, "Origin" in req.headers, host, bearer)
        sock = req.environ["eventlet.input"].get_socket()
        if self._rest.is_owners(request):
            self._connections.keep(sock)
        status, payload = self._rest.answer(request)
        if isinstance(payload, Reader):
            self._connections.keep(sock)
            req.environ["eventlet.minimum_write_chunk_size"] = 0  # every line goes out at once
            # The kernel would hold megabytes for a reader that stalls: what it loses is counted
            # here instead.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
            # Whoever iterates over the reader closes it when the connection ends, however it ends.
            return webob.Response(
                content_type="application/x-ndjson", status=status, app_iter=payload
            )
        # A journal has megabytes, for which json with an indent takes half a second, during which
        # no other request is served.
        body = msgspec.json.format(msgspec.json.encode(payload)) + b"\n"
        return webob.Response(content_type="application/json", status=status, body=body)


def serve(rest: Rest, listener: int) -> None:
    connections = _Connections()
    application = _Rest(rest, connections)
    sock = socket.socket(-1, -1, -1, fileno=listener)  # of whatever family the descriptor is
    log = logging.getLogger("rest")
    keys = {
        "protocol": _Protocol,
        "custom_pool": connections,
        "keepalive": False,
        "debug": False,
        "log": log,
        "log_output": False,
    }
    hub.spawn(lambda: eventlet.wsgi.server(sock, application, **keys))


def run(app_class: type[Any], **arguments: Any) -> None:
    cfg.CONF(args=[], project=framework.chosen(), default_config_files=[])
    app = AppManager.get_instance().instantiate(app_class, **arguments)
    app.start()
    app.main()
