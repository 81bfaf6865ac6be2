"""The lessons of the course (docs/start/lessons/): questions, and answers computed from a student's own results."""
