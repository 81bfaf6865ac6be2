"""The lessons of the course (docs/lessons/): their questions, and the answers computed from a student's own results."""
