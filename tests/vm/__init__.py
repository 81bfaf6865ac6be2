"""Debian's own kernels under qemu, with the testbed inside: `make vm-test`, docs/how/testing.md.
Not part of `make test`."""
