"""Keeps the WRITEs that were posted to one queue pair, until the peer says that they are complete. Sans-IO; owned by the requester."""

from __future__ import annotations

from agents.packets.memory import NOTHING, read
from agents.transport import FLUSHED, OK, WRITE, Completion, Foreign


class Message:
    """One posted WRITE; ``psns`` are its first and last."""

    def __init__(
        self, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int, psns: tuple[int, int], msn: int, rqmsn: int
    ) -> None:
        self.wr_id = wr_id
        self.memory: memoryview | Foreign = memory
        self.length = len(memory)
        self.va = va
        self.rkey = rkey
        self.imm = imm
        self.first, self.last = psns
        self.msn = msn
        self.rqmsn = rqmsn
        self.packet: memoryview = NOTHING  # payload of the packet that is about to go

    def read(self, psn: int, mtu: int) -> bool:
        """Read the payload of a packet of at most ``mtu`` bytes; returns False if it cannot be read."""
        at = (psn - self.first) * mtu
        end = at + mtu
        payload = read(self.memory, at, end if end < self.length else self.length)
        if payload is None:
            return False
        self.packet = payload
        return True

    def take(self) -> memoryview:
        """Return what was read, once."""
        payload, self.packet = self.packet, NOTHING
        return payload

    def over(self, qpn: int, status: int) -> Completion:
        """Let go of the memory: packets that were sent are remembered for longer."""
        self.memory = NOTHING
        return Completion(qpn, self.wr_id, WRITE, status, self.imm, self.length)


class SendQueue:
    """Posted WRITEs in order, numbered, and the completions of those that are done."""

    def __init__(self, qpn: int) -> None:
        self.qpn = qpn
        self.messages: list[Message] = []  # posted and not completed
        self.sending: list[Message] = []  # with PSNs not sent yet
        self.end = 0  # first PSN not posted
        self.msn = 0
        self.immediates = 0
        self.done_immediates = 0
        self.completions: list[Completion] = []

    def start(self, psn: int) -> None:
        self.end = psn

    def post(self, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int, packets: int) -> None:
        """Queue a WRITE that takes so many PSNs."""
        m = Message(wr_id, memory, va, rkey, imm, (self.end, self.end + packets - 1), self.msn, self.immediates)
        self.msn += 1
        if imm >= 0:
            self.immediates += 1
        self.end += packets
        self.messages.append(m)
        self.sending.append(m)

    def packet_sent(self, psn: int) -> None:
        """Enter that PSN ``psn`` was sent for the first time."""
        if psn == self.sending[0].last:
            self.sending.pop(0)

    def complete(self, last: int) -> bool:
        """Complete all up to PSN ``last``, as the peer says; returns False if that completes no message."""
        news = False
        while self.messages and self.messages[0].last <= last:
            m = self.messages.pop(0)
            if m.imm >= 0:
                self.done_immediates += 1
            self.completions.append(m.over(self.qpn, OK))
            news = True
        return news

    def flush(self, una: int, status: int) -> None:
        """Give the first outstanding request the cause, and flush all others, in order: the queue pair has failed."""
        for m in self.messages:
            self.completions.append(m.over(self.qpn, status))
            status = FLUSHED
        self.messages.clear()
        self.sending.clear()
        self.end = una

    def take(self) -> list[Completion]:
        """Take the completions since the last call."""
        done = self.completions
        self.completions = []
        return done
