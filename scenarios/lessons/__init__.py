"""The lessons of the course (docs/start/lessons/): their questions, and the answers computed from a student's own results."""
