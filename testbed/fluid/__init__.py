"""A cluster without packets, as arithmetic on NumPy arrays: docs/why/fluid.md."""
