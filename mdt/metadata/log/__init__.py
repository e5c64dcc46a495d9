"""The commit log: how records are written, read and verified, and how long they stay."""
