"""Services that free storage: cleaning, the archive of the log, and purge."""
