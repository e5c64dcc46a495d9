"""THE metadata table: a log of commit records, compacted checkpoints, and the snapshot that both
make; one module a part.
"""
