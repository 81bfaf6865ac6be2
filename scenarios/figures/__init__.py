"""Figures: everything that is computed from a run's logs afterwards."""
