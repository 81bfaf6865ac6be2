"""The `tcp` and `mptcp` baselines: the kernel's own sockets behind the verbs that collectives use
(docs/why/tcp.md).

A queue pair is one connection. This is not sans-IO: the kernel has the protocol.
"""

NOTE = (
    "TCP and MPTCP ran without the fabric's delay, for want of a TUN (mrcbed doctor): their "
    "round trips are shorter."
)
