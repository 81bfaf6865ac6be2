"""A run as it happens, from its files. Nothing here disturbs a run or changes a file."""
