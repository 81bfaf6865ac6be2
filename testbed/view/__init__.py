"""Shows a run path by path: log lines become frames (fold), a page shows them (static), as one file (inline). Format: docs/how/view.md."""
