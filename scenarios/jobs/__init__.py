"""Programs of computing and communicating, from a description or a trace, checked and carried out (docs/how/traces.md)."""
