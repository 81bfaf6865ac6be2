"""The fabric as a discrete-event model in virtual time (docs/why/simulated.md). No root, no
sockets, no processes, no clock."""

import agents as agents  # which decides whether modules run compiled, those of this package too
