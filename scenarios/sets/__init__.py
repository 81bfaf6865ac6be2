"""Sets of runs: series over seeds and settings, the paper's figures, validation, random
schedules."""
