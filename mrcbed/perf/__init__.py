"""nccl-tests' and perftest's tables of bandwidth and latency (docs/how/jobs.md)."""
