"""Benchmarks: how fast the engine, the codec and the fabric are on this machine, for ``mrcbed tools bench``.

Where possible, figures are ratios within one run: the engine beside a bare sender of the same frames on the same paths and cores, minutes
apart at most.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too
