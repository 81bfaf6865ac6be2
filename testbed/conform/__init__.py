"""Scripts for any endpoint: what is sent to it, what must come back, and what must not. docs/conform.md."""
