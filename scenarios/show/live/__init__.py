"""A run as it happens, from the files that it writes: for ``mrcbed results top``. Nothing here disturbs a run or changes a file."""
