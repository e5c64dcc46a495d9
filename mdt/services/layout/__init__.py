"""Services that rewrite rows: compaction, clustering, and sizes of file groups."""
