"""Carries IP over the transport under test: a program on each host sends the packets of its
interface ``mrc0`` in messages.

It serves programs that know nothing of MRC. A message's buffer was asked for before it is sent, so
nothing is lost between the two hosts; a full queue drops. The precedent is IPoIB in connected mode
(RFC 4755).
"""

from __future__ import annotations

import os
import select
import struct
import sys
from collections import deque

import numpy as np

from agents import tun
from agents.communicator import Array, Communicator, CommunicatorError, Handle

NAME = "mrc0"
MTU = 9000
"""The interface's MTU, bytes: jumbo frames, as in data centres [ours]."""
BATCH = 1 << 16
"""The longest message, bytes [ours]."""
BUFFERS = 16
"""Messages that a peer may send before they were taken: as many as agents ask for at once."""
SENDS = 12
"""Messages to a peer that are under way: more than the bandwidth times delay of `demo` [ours]."""
READS = 64
"""Packets read in a turn [ours]."""
QUEUE = 1 << 20
"""Bytes that may wait for a peer: twice the bandwidth times delay of `demo` [ours]."""
NETWORK = (10, 77)
_LENGTH = struct.Struct("!I")
_PACKET = struct.Struct("!H")


def address(host: int) -> str:
    """Return the address of a host's mrc0: 10.77.0.1 for h0; in 10.77.0.0/16."""
    return "{}.{}.{}.{}".format(*NETWORK, *divmod(host + 1, 256))


class Peer:
    def __init__(self, comm: Communicator, rank: int) -> None:
        self.comm, self.rank = comm, rank
        self.queue: deque[bytes] = deque()
        self.queued = 0  # bytes
        self.sends: deque[Handle] = deque()
        self.receives: deque[Handle] = deque()
        for _ in range(BUFFERS):
            self.ask(np.empty(BATCH, np.uint8))

    def ask(self, buffer: Array) -> None:
        self.receives.append(self.comm.recv(buffer, self.rank, wait=False, at_most=True))

    def send(self) -> bool:
        while self.sends and self.sends[0].over:
            self.sends.popleft()
        sent = False
        while self.queue and len(self.sends) < SENDS:
            parts, size = [], _LENGTH.size
            while self.queue and size + _PACKET.size + len(self.queue[0]) <= BATCH:
                packet = self.queue.popleft()
                parts += [_PACKET.pack(len(packet)), packet]
                size += _PACKET.size + len(packet)
            message = b"".join((_LENGTH.pack(size), *parts))
            self.queued -= size - _LENGTH.size
            self.sends.append(
                self.comm.send(np.frombuffer(message, np.uint8), self.rank, wait=False)
            )
            sent = True
        return sent


class Interface:
    """Packets between the TUN ``fd`` and the peers. :meth:`run` ends with the agent, or with a
    signal."""

    def __init__(self, comm: Communicator, fd: int) -> None:
        self.comm, self.fd = comm, fd
        self.peers = {
            comm.hosts[rank]: Peer(comm, rank) for rank in range(comm.size) if rank != comm.rank
        }
        self.counts = {"sent": 0, "received": 0, "dropped": 0, "foreign": 0, "refused": 0}

    def run(self) -> None:
        while True:
            self.comm.pause(0)
            moved = self.read()
            for peer in self.peers.values():
                moved = self.deliver(peer) or moved
                moved = peer.send() or moved
            if not moved:
                select.select([self.fd, self.comm.fileno()], [], [])

    def read(self) -> bool:
        for number in range(READS):
            try:
                packet = os.read(self.fd, BATCH)
            except BlockingIOError:
                return number > 0
            peer = (
                self.peers.get(packet[18] * 256 + packet[19] - 1)
                if packet[0] >> 4 == 4 and tuple(packet[16:18]) == NETWORK
                else None
            )
            if peer is None:
                self.counts["foreign"] += 1  # the kernel itself sends some to every interface
            elif peer.queued + len(packet) > QUEUE:
                self.counts["dropped"] += 1
            else:
                peer.queue.append(packet)
                peer.queued += _PACKET.size + len(packet)
                self.counts["sent"] += 1
        return True

    def deliver(self, peer: Peer) -> bool:
        arrived = False
        while peer.receives[0].over:
            arrived = True
            buffer: Array = peer.receives.popleft().result
            message = buffer.tobytes()
            end, at = min(_LENGTH.unpack_from(message)[0], BATCH), _LENGTH.size
            while at + _PACKET.size <= end:
                size = _PACKET.unpack_from(message, at)[0]
                at += _PACKET.size
                try:
                    os.write(self.fd, message[at : at + size])
                    self.counts["received"] += 1
                except OSError:
                    self.counts["refused"] += 1
                at += size
            peer.ask(buffer)
        return arrived


def main() -> int:
    comm = Communicator.open()
    interface = Interface(comm, tun.attach(NAME))
    comm.tell(ip=NAME)
    try:
        interface.run()
    except CommunicatorError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
