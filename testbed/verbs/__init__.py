"""RDMA programs on emulated hosts: the verbs library that is preloaded into them, and its build."""
