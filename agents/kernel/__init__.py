"""The `tcp` and `mptcp` baselines: the kernel's own sockets behind the verbs that collectives use (docs/tcp.md).

A queue pair is one connection. Unlike ``agents.mrc`` and ``agents.roce`` this is not sans-IO: the protocol is the kernel's, and what is
here frames messages, places them, and reads the kernel's figures.
"""

NOTE = "kernel sockets bypass the fabric's delay, which agents add: TCP's and MPTCP's round trips are shorter than the others'"
"""Said beside results of these kinds."""
