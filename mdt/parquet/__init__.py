"""What we know of Parquet files beyond pyarrow: footers, page maps, digests, single pages."""
