"""Output for people: tables in a terminal, plots and the report page. Shows what scenarios.figures computed, and computes nothing."""
