"""The tables and pictures of the pages: which runs they are of and what each cell says. The head of tables.toml explains its keys."""
