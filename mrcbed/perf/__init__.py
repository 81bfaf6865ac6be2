"""Bandwidth and latency in the tables that people know: nccl-tests' and perftest's (docs/how/jobs.md)."""
