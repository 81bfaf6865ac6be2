"""One queue pair's receiving side: places packets, acknowledges them, and advises the sender's
congestion control."""
