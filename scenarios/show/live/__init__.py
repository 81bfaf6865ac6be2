"""A run as it happens, from the files that it writes: for ``mrcbed top``. Readers only; nothing here disturbs a run or changes a file."""
