"""Checks and carries out programs of computing and communicating, from descriptions or traces
(docs/how/traces.md)."""
