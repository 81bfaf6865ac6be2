"""RDMA programs on emulated hosts: the library that stands in for the system's libibverbs, and how it is built."""
