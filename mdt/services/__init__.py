"""Table services: compaction, clustering, index builds, check.  Those that change the table are
transactions like any other.
"""
