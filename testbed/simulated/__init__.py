"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock."""

import agents as agents  # which decides whether modules run compiled, those of this package too
