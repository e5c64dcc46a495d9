"""Table services: rollback, compaction, check.  Those that change the table are transactions like any other."""
