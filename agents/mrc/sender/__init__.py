"""One queue pair's sending side: what is to be sent, what is in flight, what was lost, and how much
may be in flight."""
