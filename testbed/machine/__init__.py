"""What a run needs of the machine itself: a sandbox, ownership, limits, its load; and what is known of its tools."""
