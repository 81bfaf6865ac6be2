"""One queue pair's receiving side: placing packets, acknowledging them, and advising the sender's congestion control."""
