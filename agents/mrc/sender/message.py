"""Keeps the WRITEs posted to one queue pair until the peer says that they are complete. Sans-IO."""

from __future__ import annotations

from agents.packets.memory import NOTHING, read
from agents.transport import FLUSHED, OK, WRITE, Completion, Foreign


class Message:
    def __init__(
        self,
        wr_id: int,
        memory: memoryview | Foreign,
        va: int,
        rkey: int,
        imm: int,
        psns: tuple[int, int],
        msn: int,
        rqmsn: int,
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
        at = (psn - self.first) * mtu
        end = at + mtu
        payload = read(self.memory, at, end if end < self.length else self.length)
        if payload is None:
            return False
        self.packet = payload
        return True

    def take(self) -> memoryview:
        payload, self.packet = self.packet, NOTHING
        return payload

    def over(self, qpn: int, status: int) -> Completion:
        """Release the memory: sent packets keep this message for longer."""
        self.memory = NOTHING
        return Completion(qpn, self.wr_id, WRITE, status, self.imm, self.length)


class SendQueue:
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

    def post(
        self, wr_id: int, memory: memoryview | Foreign, va: int, rkey: int, imm: int, packets: int
    ) -> None:
        m = Message(
            wr_id,
            memory,
            va,
            rkey,
            imm,
            (self.end, self.end + packets - 1),
            self.msn,
            self.immediates,
        )
        self.msn += 1
        if imm >= 0:
            self.immediates += 1
        self.end += packets
        self.messages.append(m)
        self.sending.append(m)

    def packet_sent(self, psn: int) -> None:
        if psn == self.sending[0].last:
            self.sending.pop(0)

    def complete(self, last: int) -> bool:
        news = False
        while self.messages and self.messages[0].last <= last:
            m = self.messages.pop(0)
            if m.imm >= 0:
                self.done_immediates += 1
            self.completions.append(m.over(self.qpn, OK))
            news = True
        return news

    def flush(self, una: int, status: int) -> None:
        for m in self.messages:
            self.completions.append(m.over(self.qpn, status))
            status = FLUSHED
        self.messages.clear()
        self.sending.clear()
        self.end = una

    def take(self) -> list[Completion]:
        done = self.completions
        self.completions = []
        return done
