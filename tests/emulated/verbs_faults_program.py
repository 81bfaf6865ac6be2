"""A program of test_verbs_faults.py: it injects faults of verbs into its own NIC, by MRCBED_FAULTS,
and says what it sees of each.

Rank 0 has memory that rank 1 writes into. In the clone, since nobody else may read the tests' own
folders. It runs with Debian's Python.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import os
import socket
import sys
import time

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPS_RESET,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT, SIZE, QUEUE = 7002, 4096, 16
ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE


class Faults:
    """The lines of MRCBED_FAULTS."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["MRCBED_FAULTS"])
        self.lines = self.sock.makefile("rw")

    def __call__(self, words: str) -> str:
        print(words, file=self.lines, flush=True)
        return self.lines.readline().strip()

    def inject(self, kind: str, words: str = "") -> None:
        answer = self(f"inject {kind} h1 program={os.getpid()} {words}")
        assert answer.startswith("ok "), answer

    def close(self) -> None:
        self.lines.close()
        self.sock.close()


class Side:
    def __init__(self, peer) -> None:
        self.peer, self.lines, self.ctx = peer, peer.makefile("r"), Context(name="mrcbed0")
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 4 * QUEUE)
        self.mr = MR(self.pd, SIZE, ACCESS)
        self.qp = QP(self.pd, self.init())

    def init(self) -> QPInitAttr:
        return QPInitAttr(
            qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(QUEUE, QUEUE, 1, 1, 0)
        )

    def connect(self) -> None:
        """Exchange what the queue pairs need; both are in RTS afterwards."""
        gid = self.ctx.query_gid(1, 0).gid
        theirs = self.swap(
            {"qpn": self.qp.qp_num, "gid": gid, "addr": self.mr.buf, "rkey": self.mr.rkey}
        )
        self.addr, self.rkey = theirs["addr"], theirs["rkey"]
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp.to_init(attr)
        attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn = 3, theirs["qpn"], 0, 0
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 0
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.ah_attr = AHAttr(
            port_num=1, is_global=1, gr=GlobalRoute(dgid=GID(theirs["gid"]), sgid_index=0), dlid=0
        )
        self.qp.to_rts(attr)
        self.swap({})

    def swap(self, mine):
        self.peer.sendall(json.dumps(mine).encode() + b"\n")
        return json.loads(self.lines.readline())

    def reset(self) -> None:
        attr = QPAttr()
        attr.qp_state = IBV_QPS_RESET
        self.qp.modify(attr, 1)
        self.connect()

    def write(self, *numbers: int) -> None:
        for number in numbers:
            wr = SendWR(
                number, IBV_WR_RDMA_WRITE, 1, sg=[self.piece()], send_flags=IBV_SEND_SIGNALED
            )
            wr.set_wr_rdma(self.rkey, self.addr)
            self.qp.post_send(wr)

    def receive(self) -> None:
        self.qp.post_recv(RecvWR(wr_id=9, num_sge=1, sg=[self.piece()]))

    def piece(self):
        return SGE(self.mr.buf, 64, self.mr.lkey)

    def poll(self, count: int):
        """Wait for so many completions."""
        found = []
        while len(found) < count:
            found += [(wc.wr_id, wc.status) for wc in self.cq.poll(count - len(found))[1]]
        return found

    def state(self):
        return int(self.qp.query(1)[0].qp_state)

    def event(self):
        event = self.ctx.get_async_event()
        event.ack()
        return int(event.event_type)


def attempt(make) -> str:
    try:
        made = make()
    except PyverbsRDMAError as error:
        return str(error.error_code)
    made.close()
    return "made"


def suffer(side: Side, faults: Faults) -> None:
    print(
        "wrong:",
        faults("inject verbs-lost h9"),
        "|",
        faults("inject verbs-error h1 status=nothing"),
    )
    for call, make in (
        ("reg_mr", lambda: MR(side.pd, SIZE, ACCESS)), ("create_cq", lambda: CQ(side.ctx, 4)),
        ("create_qp", lambda: QP(side.pd, side.init())),
    ):  # fmt: skip
        faults.inject("verbs-refused", f"call={call} after=1 count=1 errno=ENOSPC")
        print("refused:", call, attempt(make), attempt(make), attempt(make), faults("heal"))
    faults.inject("verbs-lost", "after=1 count=1")
    side.write(1, 2, 3)
    print("lost:", side.poll(2), faults("heal"))
    side.write(*range(QUEUE))
    print("not lost:", len(side.poll(QUEUE)))
    faults.inject("verbs-late", "by=1000s count=1")
    side.write(1, 2)
    time.sleep(0.5)
    print("late:", side.cq.poll(2)[0], faults("heal"), side.poll(2))
    faults.inject("verbs-error", "status=rem_access_err after=1 count=1")
    side.receive()
    side.write(1, 2, 3, 4)
    print("error:", side.poll(5), side.state(), faults("heal"))
    side.swap({"reset": True})
    side.reset()
    side.write(5)
    print("well again:", side.poll(1))
    side.receive()
    faults.inject("verbs-dead-qp", "count=1")
    print("dead:", side.event(), side.poll(1), side.state(), faults("heal"))
    faults.inject("verbs-port")
    print(
        "port:",
        side.event(),
        int(side.ctx.query_port(1).state),
        faults("heal"),
        side.event(),
        int(side.ctx.query_port(1).state),
    )
    print("cable:", faults("inject link h1:p0-t0-0").split()[0])
    faults.close()
    again = Faults()  # and ends with it in place
    again.inject("verbs-refused", "call=reg_mr")
    print("left:", attempt(lambda: MR(side.pd, SIZE, ACCESS)))


def main() -> None:
    if os.environ["RANK"] == "0":
        with socket.create_server(("", PORT)) as listener:
            peer, _ = listener.accept()
    else:
        peer = socket.create_connection((sys.argv[1], PORT))
    side = Side(peer)
    side.connect()
    if os.environ["RANK"] == "1":
        suffer(side, Faults())
    elif side.swap({}):
        side.reset()
        side.lines.readline()  # until the other is gone


main()
