"""REST: a request goes in, a status and a payload come out. No Ryu, no socket.

Every local user may read. A change needs the token that the controller's owner holds; a web page
may change nothing even with it.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from msgspec import Struct

from testbed.controller.denylist import CLUSTERMAPPER, OPERATOR
from testbed.controller.journal import MAX_READERS, OWNERS_READERS, Reader, TooManyReaders
from testbed.controller.steering import Steering
from testbed.controller.views import PAGES, Answer, Views
from topologies import FabricError
from topologies.structs import Refused, convert, one_of

MAX_BODY = 65_536
MAX_REASON = 200
MAX_NAME = 80
ASKERS = (OPERATOR, CLUSTERMAPPER)
_OUR_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?", re.IGNORECASE)
"""A page of another site reaches the loopback by giving its own name our address (DNS rebinding);
the browser sends that name as ``Host``. Any port is right, as an SSH tunnel has its own."""
HOW_TO_CHANGE = (
    "a change needs the fabric's token: use sudo mrcbed fabric denylist, or send the header "
    "'Authorization: Bearer TOKEN' with the token that sudo mrcbed fabric denylist token prints"
)


class BadRequest(Exception):
    """The text says in one line what is wrong."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    from_browser: bool = False
    host: str = "localhost"
    token: str = ""


Asker = Annotated[str, one_of(ASKERS)]


class _Deny(Struct, frozen=True, forbid_unknown_fields=True):
    entry: str
    reason: str = ""
    by: Asker = OPERATOR

    def __post_init__(self) -> None:
        if len(self.reason) > MAX_REASON or not self.reason.isprintable():
            raise Refused("reason", f"must be one line of at most {MAX_REASON} characters")


class _Allow(Struct, frozen=True, forbid_unknown_fields=True):
    """``by`` None removes everybody's denials, which only an operator may do."""

    allow: str
    by: Asker | None = None


class Rest:
    def __init__(self, views: Views, steering: Steering, token: str) -> None:
        self._views, self._steering, self._token = views, steering, token.encode()

    def is_owners(self, request: Request) -> bool:
        return hmac.compare_digest(request.token.encode(), self._token)

    def answer(self, request: Request) -> Answer:
        parts = [part for part in request.path.split("/") if part]
        if parts[:1] == ["v1"]:
            parts = parts[1:]
            stream = ["stream"]
        else:
            stream = ["events"]
        shows = request.method in ("GET", "HEAD")
        if not _OUR_NAMES.fullmatch(request.host):
            return 403, {
                "error": (
                    f"this is 127.0.0.1, not {request.host[:MAX_NAME]!r}: use the address that "
                    "the prompt's status shows"
                )
            }
        try:
            if not shows and request.from_browser:
                return 403, {
                    "error": (
                        "web pages may not change anything here: use curl, mrcbed fabric "
                        "denylist, or a program"
                    )
                }
            if not shows and not self.is_owners(request):
                return 401, {"error": HOW_TO_CHANGE}
            if shows and parts == stream:
                return 200, self._stream(request)
            if shows and parts == ["journal"]:
                return 200, self._steering.journal.since(self._since(request, -1))
            if shows and parts == ["agents"]:
                return 200, self._agents()
            if shows and parts == ["denylist"]:
                return 200, [asdict(denial) for denial in self._steering.denylist.denials]
            if request.method == "POST" and parts == ["denylist"]:
                return self._post(request)
            if request.method == "DELETE" and parts[:1] == ["denylist"] and len(parts) > 1:
                filters = {key: value for key, value in request.query.items() if key == "by"}
                allowed = convert({"allow": "/".join(parts[1:]), **filters}, _Allow)
                return self._allow(allowed)
        except (BadRequest, Refused, FabricError) as error:
            return 400, {"error": str(error)}
        except TooManyReaders:
            return 503, {"error": "too many readers follow the events already: end one"}
        if not shows:
            changes = "only POST /denylist and DELETE /denylist/ENTRY change something"
            return 405, {
                "error": f"{request.method} {request.path} is not served: {changes}",
                "pages": PAGES,
            }
        return self._views.answer("/".join(["v1", *parts]))

    def _stream(self, request: Request) -> Reader | list[Any]:
        if request.method == "HEAD":
            return []
        most = MAX_READERS if self.is_owners(request) else MAX_READERS - OWNERS_READERS
        return self._steering.journal.follow(
            self._since(request, None) if "since" in request.query else None, most
        )

    @staticmethod
    def _since(request: Request, default: Any) -> Any:
        if "since" not in request.query:
            return default
        try:
            return int(request.query["since"])
        except ValueError:
            raise BadRequest(
                f"since={request.query['since']!r} must be a time in ps, as entries have in t_ps"
            ) from None

    def _agents(self) -> dict[str, object]:
        agents = self._steering.agents.agents
        return {
            "policy": self._steering.policy,
            "agents": [a.name for a in agents],
            "owe_an_answer": [a.name for a in agents if a.asked],
        }

    def _post(self, request: Request) -> Answer:
        if len(request.body) > MAX_BODY:
            return 413, {"error": f"a request has at most {MAX_BODY} bytes"}
        try:
            data = json.loads(request.body)
        except (ValueError, RecursionError):
            raise BadRequest(
                'the body must be JSON, like {"entry": "p0-t0-0:p0-t1-3", "reason": "why"}'
            ) from None
        if not isinstance(data, dict) or ("entry" in data) == ("allow" in data):
            raise BadRequest('the body must be an object with either "entry" (to deny) or "allow"')
        if "allow" in data:
            allowed = convert(data, _Allow)
            return self._allow(allowed)
        denied = convert(data, _Deny)
        denial, new = self._steering.deny(denied.entry, denied.reason, denied.by)
        return (201 if new else 200), {**asdict(denial), "new": new}

    def _allow(self, allowed: _Allow) -> Answer:
        removed = self._steering.allow(allowed.allow, allowed.by, allowed.by or OPERATOR)
        if not removed:
            author = f" by {allowed.by}" if allowed.by else ""
            return 404, {
                "error": f"{allowed.allow} is not on the denylist{author}",
                "denylist": self._steering.denylist.entries,
            }
        return 200, {"entry": removed[0].entry, "removed": [asdict(denial) for denial in removed]}
