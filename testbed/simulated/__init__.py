"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock.

Same engines, collectives, faults, counters and result files as the emulated world; docs/simulated.md says where the two differ.
"""

EMULATED, SIMULATED = WORLDS = ("emulated", "simulated")
