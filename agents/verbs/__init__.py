"""The agent's half of RDMA verbs: a host's agent as the NIC of programs that use libibverbs
(docs/how/verbs.md)."""
