"""RDMA verbs from Python: every other rank writes a line, its rank as immediate, into memory of
rank 0, which prints it. Needs pyverbs. sudo .venv/bin/mrcbed launch --verbs --fabric tiny
docs/examples/verbs_write.py {server}"""

import os
import socket
import sys
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

context = Context(name="mrcbed0")
pd, cq = PD(context), CQ(context, 16)


def connect(connection: socket.socket) -> tuple[Any, Any, int, int]:
    """Make a queue pair and a region of 64 bytes, and exchange with the other side over TCP what it
    needs of them."""
    there = connection.makefile("rw", buffering=1)
    qp = QP(
        pd,
        QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1, max_recv_wr=1)),
    )
    mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    print(qp.qp_num, context.query_gid(1, 0), mr.buf, mr.rkey, file=there)
    qpn, gid, address, rkey = there.readline().split()
    to = QPAttr(port_num=1, path_mtu=e.IBV_MTU_4096)
    to.dest_qp_num, to.ah_attr = (
        int(qpn),
        AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=GID(gid), sgid_index=0)),
    )
    to.timeout, to.retry_cnt, to.rnr_retry, to.qp_access_flags = 14, 7, 7, e.IBV_ACCESS_REMOTE_WRITE
    qp.to_rts(to)
    qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]))  # for the immediate
    print("ready", file=there)
    there.readline()
    return qp, mr, int(rkey), int(address)


def completion() -> Any:
    while not (found := cq.poll()[1]):
        pass
    assert not found[0].status, found[0].status
    return found[0]


if len(sys.argv) == 1:
    with socket.create_server(("", 7000)) as listener:
        ends = [connect(listener.accept()[0]) for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    for wc in [completion() for _ in ends]:
        mr = next(mr for qp, mr, *_ in ends if qp.qp_num == wc.qp_num)
        print(f"rank {socket.ntohl(wc.imm_data)} wrote: {mr.read(wc.byte_len, 0).decode()}")
else:
    qp, mr, *there = connect(socket.create_connection((sys.argv[1], 7000)))
    text, rank = f"greetings from {os.environ['MRCBED_HOST']}", int(os.environ["RANK"])
    mr.write(text, len(text))
    wr = SendWR(
        num_sge=1,
        sg=[SGE(mr.buf, len(text), mr.lkey)],
        opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM,
        imm_data=socket.htonl(rank),
    )
    wr.set_wr_rdma(*there)
    qp.post_send(wr)
    completion()
