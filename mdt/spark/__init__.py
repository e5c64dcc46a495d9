"""Everything that imports pyspark: the table as a native Spark relation."""
