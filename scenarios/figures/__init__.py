"""Computes figures from a run's logs."""
