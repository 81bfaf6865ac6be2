"""Collectives over the verbs, one module each. They know queue pairs and memory, never packets."""
