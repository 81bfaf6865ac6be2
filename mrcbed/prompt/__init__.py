"""Mininet's prompt with our commands added."""
