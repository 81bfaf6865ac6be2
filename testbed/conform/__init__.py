"""Scripts that try any endpoint, frame by frame: docs/how/conform.md."""
