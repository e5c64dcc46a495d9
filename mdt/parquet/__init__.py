"""Parquet features beyond pyarrow: footers, page maps, digests, and reads of single pages."""
