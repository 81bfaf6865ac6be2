"""The `tcp` and `mptcp` baselines: the kernel's own sockets behind the verbs that collectives use (docs/why/tcp.md).

A queue pair is one connection. Unlike ``agents.mrc`` and ``agents.roce`` this is not sans-IO: the protocol is the kernel's, and what is
here frames messages, places them, and reads the kernel's figures.
"""

NOTE = "TCP and MPTCP ran without the fabric's delay, for want of a TUN (mrcbed doctor): their round trips are shorter."
"""A note beside results of these kinds that lack the delay."""
