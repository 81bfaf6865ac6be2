"""``python -m testbed.cli``: the same as ``mrcbed``, where the package is not installed."""

from testbed.start import main

if __name__ == "__main__":
    main()
