"""How hypothesis looks: quickly and the same way each time in `make test`, for long and anew each
time in `make soak`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

QUICK = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    max_examples=40,
)
LONG = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    max_examples=int(os.environ.get("MRCBED_SOAK_EXAMPLES", "3000")),
    print_blob=True,
)
