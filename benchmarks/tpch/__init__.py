"""TPC-H on Spark: plain Parquet files beside tables of mdt with the same rows in the same order;
all 22 queries, and what scans skip.

After the TPC Benchmark H specification, revision 3; rows by tpchgen-cli. Figures are no TPC
results: nothing is audited.
"""
