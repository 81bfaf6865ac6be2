"""The documents hold together: every link leads somewhere, every path and module that is named
exists."""
