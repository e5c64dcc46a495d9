"""Services that write rows anew: compaction, clustering, and the sizes of file groups."""
