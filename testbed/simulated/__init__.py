"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock.

Same engines, collectives, faults, counters and result files as the emulated world; docs/why/simulated.md says where the two differ.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too
