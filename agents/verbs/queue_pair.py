"""A program's queue pair: its state, its work requests on their way, and what becomes of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from agents.transport import (
    FLUSHED,
    LOCAL_PROTECTION,
    OK,
    PEER_UNKNOWN,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
)  # fmt: skip
from agents.verbs import layout, states
from agents.verbs.completion_queue import CompletionQueue
from agents.verbs.faults import ERROR, LOST, RECV, SEND, Rule
from agents.verbs.memory import Gathered

SUCCESS: Final = 0
LOC_LEN_ERR: Final = 1
LOC_QP_OP_ERR: Final = 2
LOC_PROT_ERR: Final = 4
WR_FLUSH_ERR: Final = 5
"""enum ibv_wc_status."""
STATUSES: Final = {
    OK: SUCCESS,
    FLUSHED: WR_FLUSH_ERR,
    REMOTE_INVALID: 9,
    REMOTE_ACCESS: 10,
    REMOTE_OPERATION: 11,
    RETRY_EXCEEDED: 12,
    PEER_UNKNOWN: 12,
    LOCAL_PROTECTION: LOC_PROT_ERR,
}
"""A peer that does not know the queue pair is as one that never answers."""
RDMA_WRITE: Final = 0
RDMA_WRITE_WITH_IMM: Final = 1
"""enum ibv_wr_opcode."""
WC_RDMA_WRITE: Final = 1
WC_RECV_WITH_IMM: Final = 129
WITH_IMM: Final = 2
"""enum ibv_wc_opcode, and of enum ibv_wc_flags."""


class Send:
    """``memory``: what the engine reads. ``status``: not SUCCESS if it fails when its turn
    comes."""

    def __init__(
        self, wr_id: int, flags: int, memory: Any, target: tuple[int, int, int], status: int
    ) -> None:
        self.wr_id = wr_id
        self.signaled = flags & layout.SIGNALED != 0
        self.memory: Any = memory
        self.va, self.rkey, self.imm = target
        self.length = len(memory)
        self.status = status


class QueuePair:
    """``caps``: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data. ``pd``:
    handle."""

    def __init__(
        self, qpn: int, pd: int, send_cq: CompletionQueue, recv_cq: CompletionQueue, caps: list[int]
    ) -> None:
        self.qpn = qpn
        self.pd = pd
        self.send_cq, self.recv_cq = send_cq, recv_cq
        self.caps = caps
        self.attributes = dict.fromkeys(layout.QP_ATTRIBUTES, 0)
        self.peer = -1  # host number
        self.made = False  # the engine has it, too
        self.made_ps = 0  # since then
        self.known = True  # the engine has at least its number
        self.sends: deque[Send] = deque()  # posted and not over, in order
        self.given = 0  # the first so many of them are the engine's
        self.receives: deque[int] = deque()
        self.sends_over = 0
        self.receives_over = 0
        self.refused = False  # one of our requests brought it to ERROR, and its completion says so
        self.broken = False  # a fault failed one of its requests
        # which fault a request meets
        self.met: Callable[[QueuePair, str, bool], Rule | None] | None = None
        self.offset = 0  # of the oldest send on this host, copied so far
        self.messages = 0  # sent and completed, with their bytes
        self.bytes = 0
        self.immediates = 0  # received
        self.told = (0, 0, 0)  # the three, as the log has them

    @property
    def state(self) -> int:
        return int(self.attributes["state"])

    def enter(self, state: int) -> None:
        self.attributes["state"] = self.attributes["cur_state"] = state

    def send_over(self, now: int, status: int, vendor: int) -> None:
        send = self.sends.popleft()
        if self.given:
            self.given -= 1
        self.sends_over += 1
        if status == SUCCESS:
            status, lost = self.spoilt(SEND, send.signaled)
        else:
            lost = False
        if status == SUCCESS:
            self.messages += 1
            self.bytes += send.length
            if lost or not send.signaled:
                return
        elif status != WR_FLUSH_ERR:
            self.refused = True
        # of one that is too long it would not fit its field
        length = send.length if status == SUCCESS else 0
        self.send_cq.add(
            now,
            send.wr_id,
            status,
            WC_RDMA_WRITE,
            vendor,
            length,
            0,
            self.qpn,
            self.dest(),
            0,
            self.sends_over & 0xFFFF_FFFF,
            1,
        )

    def receive_over(self, now: int, status: int, imm: int, length: int) -> None:
        wr_id = self.receives.popleft()
        self.receives_over += 1
        flags = 0
        if status == SUCCESS:
            status, lost = self.spoilt(RECV, True)
            if lost:
                return
        if status == SUCCESS:
            flags = WITH_IMM
            self.immediates += 1
        self.recv_cq.add(
            now,
            wr_id,
            status,
            WC_RECV_WITH_IMM,
            0,
            length,
            swapped(imm),
            self.qpn,
            self.dest(),
            flags,
            self.receives_over & 0xFFFF_FFFF,
            0,
        )

    def spoilt(self, of: str, shown: bool) -> tuple[int, bool]:
        """Returns a status, and whether the completion is lost."""
        if self.broken:
            return WR_FLUSH_ERR, False
        rule = None if self.met is None else self.met(self, of, shown)
        if rule is None or rule.what != ERROR:
            return SUCCESS, rule is not None and rule.what == LOST
        self.broken = self.refused = True
        return rule.value, False

    def dest(self) -> int:
        return int(self.attributes["dest_qpn"])

    def write_over(self, now: int, status: int) -> None:
        verdict = STATUSES[status]
        if verdict in (LOC_PROT_ERR, WR_FLUSH_ERR):
            memory = self.sends[0].memory
            verdict = (
                LOC_PROT_ERR if isinstance(memory, Gathered) and memory.failed else WR_FLUSH_ERR
            )
        self.send_over(now, verdict, status)

    def flush(self, now: int, most: int) -> int:
        done = 0
        while self.sends and done < most:
            self.send_over(now, WR_FLUSH_ERR, 0)
            done += 1
        while self.receives and done < most:
            self.receive_over(now, WR_FLUSH_ERR, 0, 0)
            done += 1
        return done

    def forget(self) -> None:
        self.sends.clear()
        self.receives.clear()
        self.given = self.offset = self.sends_over = self.receives_over = 0
        self.refused = self.broken = False

    def attribute(self, mask: int, values: dict[str, int]) -> None:
        for bit, names in states.FIELDS.items():
            if mask & bit:
                for name in names:
                    self.attributes[name] = values[name]


def swapped(imm: int) -> int:
    return (imm & 0xFF) << 24 | (imm & 0xFF00) << 8 | imm >> 8 & 0xFF00 | imm >> 24 & 0xFF
