"""The state of a table after a commit, in memory and as checkpoints."""
