"""Debian's own kernels under qemu, with the testbed inside: `make vm-test`, docs/testing.md. Not part of `make test`."""
