"""``mrcbed train``: a small model, data-parallel over all hosts, through failures of the fabric (docs/jobs.md)."""
