"""A table at a glance: summaries, notebooks and pictures."""
