"""Shows a run path by path (docs/how/view.md): log lines become frames (fold), a page shows them
(static), as one file (inline)."""
