"""Benchmarks: how fast the engine, the codec and the fabric are on this machine. Behind ``mrcbed tools bench``.

Figures that depend on the machine are given as ratios within one run where that is possible: the engine beside a bare sender of the same
frames on the same paths, minutes apart at most, on the same cores.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too
