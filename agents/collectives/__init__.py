"""Collectives over the verbs, one module each. They know queue pairs and memory, never packets."""

import os

# An agent is one thread on a share of a core: NumPy's BLAS would start a pool in every one of them.
# Set before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
