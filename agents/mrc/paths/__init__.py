"""A queue pair's paths: which are good, whose turn it is, and what makes one suspect."""
