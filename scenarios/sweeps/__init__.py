"""Sweeps over many machines: blocks of runs, carried out by Dask workers, landed in one results directory. docs/sweeps.md is the manual."""
