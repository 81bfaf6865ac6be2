"""The machine below a run: a sandbox, ownership, limits, its load, and its tools."""
