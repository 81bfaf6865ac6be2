"""Runs: one scenario carried out in either world, and what is written while it goes."""
