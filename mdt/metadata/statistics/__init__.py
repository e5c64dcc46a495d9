"""Column statistics and index summaries, and the files that they rule out."""
