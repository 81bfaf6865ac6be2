"""The RoCE baseline: RoCEv2 Reliable Connection as deployed today, sans-IO, behind
``agents.transport.Engine``."""

from __future__ import annotations

from typing import Final

NOTE: Final = (
    "RoCE runs without PFC here: where a lossless fabric would pause its senders, a full "
    "buffer drops."
)
