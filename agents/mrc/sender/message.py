"""What the requester remembers of a posted WRITE until the peer says it is complete. No behaviour; made once per message."""

from __future__ import annotations


class Message:
    """One posted WRITE."""

    def __init__(self, wr_id: int, memory: memoryview, va: int, rkey: int, imm: int, first: int, last: int, msn: int, rqmsn: int) -> None:
        self.wr_id = wr_id
        self.memory = memory
        self.length = len(memory)
        self.va = va
        self.rkey = rkey
        self.imm = imm
        self.first = first
        self.last = last
        self.msn = msn
        self.rqmsn = rqmsn
