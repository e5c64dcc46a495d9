"""TPC-DS on Spark: some of its queries on plain Parquet files and on tables of mdt with the same
rows, facts in the order of their dates.

Rows and queries are those of duckdb's extension `tpcds`. Figures are no TPC results: nothing is
audited.
"""
