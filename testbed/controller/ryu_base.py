"""Every touch point with Ryu. Moving to os-ken, its living fork, means rewriting this file (os-ken has no wsgi) and no other.

Ryu must be imported after :func:`prepare`: eventlet has to patch the standard library first, and Ryu 4.34 looks for a name
that eventlet dropped in 0.30.3.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import Any


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

__all__ = ["EventBase", "RyuApp", "run", "serve", "set_ev_cls", "spawn"]


def spawn(work: Callable[[], None]) -> None:
    """Run ``work`` in a green thread."""
    hub.spawn(work)


class _Rest(ControllerBase):
    """Hands every request to one function; what it answers is none of Ryu's business."""

    @route("all", "/{path:.*}")
    def page(self, req: Any, path: str, **_: Any) -> Any:
        status, payload = self.data["answer"](req.method, path)
        return Response(content_type="application/json", status=status, body=json.dumps(payload, indent=2).encode() + b"\n")


def serve(answer: Callable[[str, str], tuple[int, Any]], host: str, port: int) -> int:
    """Serve ``answer(method, path)`` over HTTP on ``host``; returns the port, a free one for 0. Raises OSError if it is taken."""
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
