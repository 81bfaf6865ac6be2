"""The edge between an engine and the kernel: packet sockets, pacing, and the delay that a link
would have."""
