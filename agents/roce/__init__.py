"""The RoCE baseline: RoCEv2 Reliable Connection as deployed today, sans-IO, behind ``agents.transport.Engine``."""
