"""Shows what scenarios.figures computed: tables in a terminal, plots and the report page."""
