"""Services that free storage: cleaning, archiving of the log, and purge."""
