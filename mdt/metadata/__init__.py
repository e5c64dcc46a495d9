"""The metadata table: commit records, checkpoints, and the snapshots made from both."""
