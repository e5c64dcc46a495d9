"""``python -m benchmarks spark``: mdt, Delta, Iceberg and Hudi, each on the Spark that it runs
on.
"""

from benchmarks.spark.run import ENGINES_DEFAULT, run

__all__ = ["ENGINES_DEFAULT", "run"]
