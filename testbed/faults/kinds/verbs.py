"""Faults of RDMA verbs: a host's NIC fails completions, queue pairs and calls of its programs
(agents/verbs/faults.py)."""

from __future__ import annotations

import errno
import random
from typing import Annotated

from msgspec import Meta

from agents.verbs import faults
from testbed.faults.base import Change, Drawn, Kind, Machine
from testbed.faults.keys import Key, Keys, in_us
from testbed.faults.targets import Injected
from topologies.clos import Fabric
from topologies.structs import one_of, text
from topologies.units import Span

ERRNOS = (
    "ENOMEM",
    "EAGAIN",
    "EACCES",
    "EBUSY",
    "EINVAL",
    "EIO",
    "EMFILE",
    "ENOSPC",
    "EOPNOTSUPP",
    "EPERM",
)
"""What man pages of verbs name, and what programs treat apart [ours]."""
PROGRAM = Key(
    "program", Annotated[str, text(r"[^\s\x00-\x1f]{1,255}", "a pid, or a command's name")],
    "whose verbs: a pid, a command's name or a Python file's; default: every program's",
).optional()  # fmt: skip
_COUNT = Annotated[int, Meta(ge=0, le=1 << 53)]
AFTER = Key(
    "after", _COUNT, "how many completions, queue pairs or calls are spared first"
).optional(0)
COUNT = Key("count", _COUNT, "how many are hit; default: all while it lasts").optional()
OF = Key(
    "of",
    Annotated[str, one_of((faults.SEND, faults.RECV))],
    "completions of which requests, send or recv",
).optional(faults.SEND)
STATUS = Key(
    "status",
    Annotated[str, one_of(faults.STATUSES[1:])],
    "of the completion, as verbs call it without IBV_WC_",
)
BY = Key("by", Span, "how much later a completion comes", in_us)
CALL = Key("call", Annotated[str, one_of(faults.CALLS)], "the verb, without ibv_")
ERRNO = Key("errno", Annotated[str, one_of(ERRNOS)], "the error of the verb").optional("ENOMEM")


class VerbsFault(Kind):
    on = "host"
    does = ""
    programs = True

    def draw(self, fabric: Fabric, rng: random.Random) -> Drawn:
        known = {"program": "ib_write_bw", "count": 1}
        return rng.choice(list(fabric.hosts)), {
            key.name: known[key.name] for key in self.keys if key.name in known
        }

    def not_simulated(self, on: str) -> str:
        return "is for programs of RDMA verbs"

    def value(self, keys: Keys) -> int:
        return 0

    def strike(self, fault: Injected, machine: Machine) -> Change:
        keys = fault.target.keys
        rule: dict[str, str | int] = {
            "what": self.does,
            "value": self.value(keys),
            "of": keys.get("of", keys.get("call", "")),
        }
        rule |= {key: keys[key] for key in ("program", "after", "count") if key in keys}
        return machine.verbs(fault.target.host, fault.number, rule), ()

    def undo(self, fault: Injected, machine: Machine) -> None:
        machine.verbs(fault.target.host, fault.number, None)


class WrongCompletion(VerbsFault):
    name, does = "verbs-error", faults.ERROR
    doc = "a completion has an error status, its queue pair is in ERR, and the rest is flushed"
    keys = (STATUS, OF, PROGRAM, AFTER, COUNT)

    def value(self, keys: Keys) -> int:
        return faults.STATUSES.index(keys["status"])


class LostCompletion(VerbsFault):
    name, does = "verbs-lost", faults.LOST
    doc = "a completion never comes"
    keys = (OF, PROGRAM, AFTER, COUNT)


class LateCompletion(VerbsFault):
    name, does = "verbs-late", faults.SLOW
    doc = "a completion comes later, and those behind it in its queue with it"
    keys = (BY, OF, PROGRAM, AFTER, COUNT)

    def value(self, keys: Keys) -> int:
        return keys["by"]


class DeadQueuePair(VerbsFault):
    name, does = "verbs-dead-qp", faults.DEAD
    doc = "queue pairs that can send die, and those that come to it: QP_FATAL, ERR, all flushed"
    keys = (PROGRAM, AFTER, COUNT)


class RefusedCall(VerbsFault):
    name, does = "verbs-refused", faults.REFUSED
    doc = "a verb fails"
    keys = (CALL, ERRNO, PROGRAM, AFTER, COUNT)

    def value(self, keys: Keys) -> int:
        return int(getattr(errno, keys["errno"]))


class PortEvents(VerbsFault):
    name, does = "verbs-port", faults.PORT
    doc = "programs hear PORT_ERR and find the port down, which it is not; at the end PORT_ACTIVE"
    keys = (PROGRAM,)
