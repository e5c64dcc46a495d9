"""Apache Iceberg: the directory ``metadata`` of a table, derived from our commit records."""
