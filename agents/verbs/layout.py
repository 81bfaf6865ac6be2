"""The protocol between a program's verbs library and the agent of its host: requests, rings,
numbers.

testbed/verbs/build.py makes the C library's header of this module: a whole number in capitals
becomes a macro ``MRCBED_…``.

A *session* is a connection to the abstract Unix socket :data:`SOCKET` of the host's network
namespace, SOCK_SEQPACKET, one for each opened device. A request is :data:`REQUEST`, its answer
:data:`ANSWER`, one at a time; :data:`DOORBELL` alone has no answer. Descriptors travel beside them
(SCM_RIGHTS). The agent makes all memory that both write, sealed against shrinking. It believes
nothing in it: it keeps its own counts, and checks what it reads.

Numbers are little-endian, except immediates and GIDs, which stay as the program wrote them. Work
requests of a session go through one ring; each completion queue has one. Ring counters are 32 bits
and wrap; a place is the counter modulo the size, a power of two.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

SOCKET: Final = "\0mrcbed-verbs"
VERSION: Final = 1
"""Version of everything here; :data:`HELLO` compares it."""

ARGUMENTS: Final = 30
REQUEST: Final = Struct(f"<II{ARGUMENTS}Q")
"""op, serial, arguments."""
ANSWER: Final = Struct(f"<Ii{ARGUMENTS}Q")
"""serial, error (an errno, 0 for none), results."""

# --- requests: their arguments -> results, by position; descriptors in [] -------------------------

HELLO: Final = 1
"""version, pid (the program's view; the agent uses the kernel's) [/proc/self/mem] -> host number,
node GUID (a number), transport (:data:`MRC`, :data:`ROCE`), most QPs, WRs of a QP, SGEs, inline
bytes, CQs, CQEs, MRs, bytes of an MR, PDs, GIDs, slots of the work ring, dilation x 1000, ports
[work ring, async events' socket]."""
QUERY_PORT: Final = 2
"""port -> ibv_port_state, physical state (5 link up, 3 disabled), Mb/s, ibv_mtu code of the path
MTU."""
QUERY_GID: Final = 3
"""port, index -> the GID's first 8 bytes and last 8, as little-endian numbers of the bytes in their
order, type (1: RoCE v2)."""
ALLOC_PD: Final = 4
"""-> handle."""
DEALLOC_PD: Final = 5
"""handle. EBUSY while it has regions or queue pairs."""
REG_MR: Final = 6
"""pd, address, bytes, iova, access (ibv_access_flags), offset into the descriptor, whether one
comes [file that the region maps, shared] -> handle, lkey, rkey. The descriptor must be a memfd
sealed against shrinking, else EINVAL; without one, the agent reads and writes through
/proc/self/mem."""
DEREG_MR: Final = 7
"""handle."""
CREATE_CHANNEL: Final = 8
"""-> handle [socket]: a datagram of 8 bytes, a CQ's handle, for each event."""
DESTROY_CHANNEL: Final = 9
"""handle. EBUSY while it has CQs."""
CREATE_CQ: Final = 10
"""CQEs wanted, channel (0: none) -> handle, CQEs [ring]."""
DESTROY_CQ: Final = 11
"""handle. EBUSY while it has queue pairs."""
CREATE_QP: Final = 12
"""pd, send CQ, receive CQ, ibv_qp_type, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
max_inline_data, sq_sig_all -> QPN, and those five maxima as granted (in this order)."""
DESTROY_QP: Final = 13
"""QPN."""
MODIFY_QP: Final = 14
"""QPN, ibv_qp_attr_mask, then :data:`QP_ATTRIBUTES` in their order -> the QP's state afterwards."""
QUERY_QP: Final = 15
"""QPN -> :data:`QP_ATTRIBUTES`, in their order."""
DOORBELL: Final = 16
"""No answer: there is something in the work ring, and the agent said that it sleeps."""
REQUESTS: Final = 16

QP_ATTRIBUTES: Final = (
    "state",
    "cur_state",
    "access",
    "pkey_index",
    "port",
    "path_mtu",
    "dest_qpn",
    "rq_psn",
    "sq_psn",
    "dgid_first",
    "dgid_last",
    "is_global",
    "sgid_index",
    "hop_limit",
    "traffic_class",
    "max_dest_rd_atomic",
    "max_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "en_sqd_async_notify",
    "qkey",
)
"""As in ibv_qp_attr (enums by value); dgid as in :data:`QUERY_GID`."""

MRC: Final = 0
ROCE: Final = 1

# --- the work ring --------------------------------------------------------------------------------

RINGS_AT: Final = 4096
"""Where entries begin. Before them lies a page of counters, u32 each, in cache lines of their
own:"""
TAIL_AT: Final = 64
"""Entries (work ring: slots) written."""
HEAD_AT: Final = 128
"""Entries (slots) taken."""
FLAG_AT: Final = 192
"""Work ring: 1 while the agent sleeps or is about to: a program that has moved the tail then sends
:data:`DOORBELL`. CQ: what the program has armed: 0 nothing, 1 the next completion, 2 the next
solicited one or error; the agent writes 0 when it sends the event."""
FAILED_AT: Final = 256
"""CQ: 1 once it has overflowed: polling it is an error for ever."""

SLOT: Final = 64
"""Bytes of a slot of the work ring, and of a CQE."""
SLOTS: Final = 1 << 14
WORK: Final = Struct("<BBBBIQQIIIIQII8x")
"""An entry's first slot: kind, opcode (ibv_wr_opcode), flags, SGEs, QPN, wr_id, remote address,
rkey, immediate (big-endian: read it as a little-endian u32 here), bytes of inline data, slots of
this entry, then the first SGE: address, bytes, lkey. More SGEs follow, four a slot, or inline data,
64 bytes a slot (then SGEs is 0). An entry never crosses the ring's end: a :data:`PADDING` of the
slots that are left comes before it."""
SGE: Final = Struct("<QII")
"""address, bytes, lkey."""
PADDING: Final = 0
SEND: Final = 1
RECV: Final = 2
"""Kinds of an entry; a receive request has no opcode, remote address, rkey and immediate."""
SIGNALED: Final = 1
SOLICITED: Final = 2
INLINE: Final = 4
FENCE: Final = 8
"""Flags; signaled is already what the request and sq_sig_all make together."""
MOST_SGES: Final = 16
MOST_INLINE: Final = 512

# --- completion queues ----------------------------------------------------------------------------

CQE: Final = Struct("<QIIIIIIIIIIQ8x")
"""wr_id, ibv_wc_status, ibv_wc_opcode, vendor_err, byte_len, immediate (big-endian, as above), QPN,
source QPN, ibv_wc_flags, retired, is_send (0: a receive), network time in ps. ``retired``: send (or
receive) requests of the queue pair that have ended, modulo 2^32: so many places of its queue are
free again."""

EVENT: Final = Struct("<IIQ")
"""An asynchronous event: ibv_event_type, 0, then the QPN, the CQ's handle or the port."""
CHANNEL_EVENT: Final = Struct("<Q")
