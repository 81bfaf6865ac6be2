"""``python -m mrcbed``, where the package is not installed."""

from mrcbed.start import main

if __name__ == "__main__":
    main()
