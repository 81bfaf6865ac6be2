"""The tables and pictures of the pages. The head of tables.toml explains its keys."""
