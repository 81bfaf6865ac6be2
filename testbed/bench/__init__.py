"""Benchmarks: how fast the engine, the codec and the fabric are on this machine, for ``mrcbed tools bench``."""

import agents as agents  # which decides whether modules run compiled, those of this package too
