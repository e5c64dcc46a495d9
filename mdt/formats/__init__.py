"""Metadata of other table formats, derived from our commit records: Delta Lake and Iceberg."""
