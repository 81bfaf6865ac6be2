"""What people see: tables in a terminal, plots and the report page. Draws what scenarios.figures computed, computes nothing."""
