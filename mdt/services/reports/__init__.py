"""Reports about a table: summaries, notebook output and pictures."""
