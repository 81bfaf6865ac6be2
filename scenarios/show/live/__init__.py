"""A run as it happens, from the files that it writes. Nothing here disturbs a run or changes a file."""
