"""Writes the pages that are generated, and finds what pages name that does not exist. ``python -m
docs.tools`` checks."""
