"""Scenario files: what may stand in one, read and checked before anything is built."""
