"""Faults of the verbs: rules by which a host's NIC fails completions, queue pairs and calls of its
programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from agents.verbs import layout

if TYPE_CHECKING:
    from agents.verbs.session import Session

STATUSES: Final = (
    "success",
    "loc_len_err",
    "loc_qp_op_err",
    "loc_eec_op_err",
    "loc_prot_err",
    "wr_flush_err",
    "mw_bind_err",
    "bad_resp_err",
    "loc_access_err",
    "rem_inv_req_err",
    "rem_access_err",
    "rem_op_err",
    "retry_exc_err",
    "rnr_retry_exc_err",
    "loc_rdd_viol_err",
    "rem_inv_rd_req_err",
    "rem_abort_err",
    "inv_eecn_err",
    "inv_eec_state_err",
    "fatal_err",
    "resp_timeout_err",
    "general_err",
)
"""enum ibv_wc_status, by value."""
CALLS: Final = {
    "alloc_pd": layout.ALLOC_PD,
    "reg_mr": layout.REG_MR,
    "create_comp_channel": layout.CREATE_CHANNEL,
    "create_cq": layout.CREATE_CQ,
    "create_qp": layout.CREATE_QP,
    "modify_qp": layout.MODIFY_QP,
}
ERROR, LOST, SLOW, DEAD, REFUSED, PORT = "error", "lost", "slow", "dead-qp", "refused", "port"
SEND, RECV = "send", "recv"
UNLIMITED: Final = 1 << 62
MOST_RULES: Final = 256
"""Most rules of a host [ours]."""
_MOST_WORDS: Final = 4096
"""Bytes of a command line that are looked at [ours]."""


class Rule:
    """``value``: a completion's status, its delay in ps, or a call's errno. ``of``: the side of a
    queue pair, or the call. ``program``: a pid or a command's name, "" for all. The first ``after``
    that it fits are spared, then ``count`` are hit."""

    def __init__(
        self,
        what: str,
        value: int = 0,
        of: str = "",
        program: str = "",
        after: int = 0,
        count: int = UNLIMITED,
    ) -> None:
        if what not in (ERROR, LOST, SLOW, DEAD, REFUSED, PORT):
            raise ValueError(f"no fault of verbs does {what!r}")
        self.what = what
        self.value = value
        self.of = of
        self.program = program
        self.after = after
        self.count = count
        self.seen = 0
        self.hits = 0

    def meant(self, session: Session) -> bool:
        return not self.program or self.program in session.names()


class Faults:
    def __init__(self) -> None:
        self.rules: dict[int, Rule] = {}

    def find(self, session: Session, of: str, *what: str) -> Rule | None:
        found: Rule | None = None
        for rule in self.rules.values():
            if rule.what in what and rule.of == of and rule.meant(session):
                rule.seen += 1
                if found is None and rule.seen > rule.after and rule.hits < rule.count:
                    rule.hits += 1
                    found = rule
        return found

    def refusal(self, session: Session, op: int) -> int:
        if self.rules:
            for name, request in CALLS.items():
                if request == op:
                    rule = self.find(session, name, REFUSED)
                    return 0 if rule is None else rule.value
        return 0

    def port_down(self, session: Session) -> bool:
        return any(rule.what == PORT and rule.meant(session) for rule in self.rules.values())


def names_of(pid: int) -> set[str]:
    names = {str(pid)}
    try:
        names.add(_read(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n"))
        first, *others = _read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
        names |= {
            os.path.basename(word)
            for word in [first, *others]
            if word == first or word.endswith(".py")
        }
    except OSError:
        pass  # it has ended
    return names


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data: Any = os.read(fd, _MOST_WORDS)
        return bytes(data)
    finally:
        os.close(fd)
