"""The Star Schema Benchmark on one flat table: generator, the 13 queries, and what indexes save on
Spark and in process.

After O'Neil, O'Neil, Chen: "Star Schema Benchmark", revision 3, 2009.
"""
