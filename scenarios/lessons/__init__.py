"""The lessons of the course: questions, and answers computed from a student's own results."""
