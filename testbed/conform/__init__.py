"""Scripts for any endpoint: frames to send to it, frames that must come back, and frames that must not. Manual: docs/how/conform.md."""
