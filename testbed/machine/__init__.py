"""What a run needs from the machine itself: a sandbox, ownership, limits, its load, and its tools."""
