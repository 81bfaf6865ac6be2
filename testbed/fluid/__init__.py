"""A cluster without packets: which links are up, the rates that flows then have, and what a failure loses. Everything is arithmetic on
NumPy arrays."""
