"""A queue pair's paths: which are good, which is next, and what makes one suspect."""
