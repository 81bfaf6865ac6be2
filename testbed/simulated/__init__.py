"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock.

docs/why/simulated.md says where it differs from the emulated world.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too
