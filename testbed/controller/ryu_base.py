"""Every touch point with Ryu but OpenFlow (ryu_openflow.py). Moving to os-ken, its living fork, means rewriting this file (os-ken has no
wsgi) and the imports of that one.

Ryu must be imported after :func:`prepare`: eventlet has to patch the standard library first, and Ryu 4.34 looks for a name
that eventlet dropped in 0.30.3.
"""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

STREAM_BUFFER = 1 << 16
"""Bytes under way to a reader of the event stream [ours]."""


def prepare() -> None:
    """To be called before anything of Ryu, or any module that keeps a socket, is imported."""
    warnings.simplefilter("ignore")  # eventlet and Ryu warn of their own age: nothing a user can act on
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # no name is looked up here, and the resolver takes a third of the start-up
    import eventlet
    import eventlet.wsgi

    eventlet.monkey_patch()
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()  # Ryu's wsgi refers to it in its websocket support, which we do not use


prepare()

from ryu import cfg  # noqa: E402
from ryu.app.wsgi import ControllerBase, Response, WSGIApplication, WSGIServer, route  # noqa: E402
from ryu.base.app_manager import AppManager, RyuApp  # noqa: E402
from ryu.controller.event import EventBase  # noqa: E402
from ryu.controller.handler import set_ev_cls  # noqa: E402
from ryu.lib import hub  # noqa: E402

from testbed.controller.journal import Reader  # noqa: E402
from testbed.controller.rest import MAX_BODY, Request  # noqa: E402

__all__ = ["EventBase", "RyuApp", "run", "serve", "set_ev_cls", "spawn"]


def spawn(work: Callable[[], None]) -> None:
    """Run ``work`` in a green thread."""
    hub.spawn(work)


class _Rest(ControllerBase):
    """Hands every request to one function; what it answers is none of Ryu's business."""

    @route("all", "/{path:.*}")
    def page(self, req: Any, path: str, **_: Any) -> Any:
        request = Request(req.method, path, dict(req.GET), req.body_file.read(MAX_BODY + 1), "Origin" in req.headers)
        status, payload = self.data["answer"](request)
        if isinstance(payload, Reader):
            req.environ["eventlet.minimum_write_chunk_size"] = 0  # every line goes out at once
            # The kernel would hold megabytes for a reader that stalls: what it loses is counted here instead.
            req.environ["eventlet.input"].get_socket().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
            return Response(content_type="application/x-ndjson", status=status, app_iter=_Closing(payload))
        return Response(content_type="application/json", status=status, body=json.dumps(payload, indent=2).encode() + b"\n")


class _Closing:
    """The reader as WSGI wants it: iterated once, and closed when the connection ends, however it ends."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._reader)

    def close(self) -> None:
        self._reader.close()


def serve(answer: Callable[[Request], tuple[int, Any]], host: str, port: int) -> int:
    """Serve ``answer(request)`` over HTTP on ``host``; returns the port, a free one for 0. Raises OSError if it is taken."""
    application = WSGIApplication()
    application.register(_Rest, {"answer": answer})
    cfg.CONF.set_override("wsapi_host", host)  # Ryu's default is every interface
    cfg.CONF.set_override("wsapi_port", port)
    server = WSGIServer(application)
    hub.spawn(server)
    return int(server.server.getsockname()[1])


def run(app_class: type[RyuApp], **arguments: Any) -> None:
    """Instantiate one application, start it, and block in its ``main()``, which runs beside its event loop."""
    cfg.CONF(args=[], project="ryu", default_config_files=[])
    app = AppManager.get_instance().instantiate(app_class, **arguments)
    app.start()
    app.main()
