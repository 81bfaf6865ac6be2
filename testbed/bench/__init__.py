"""Benchmarks of the engine, the codec and the fabric on this machine, for ``mrcbed tools bench``
(docs/why/bench.md)."""

import agents as agents  # which decides whether modules run compiled, those of this package too
