"""The process from which Spark's Python workers are forked: PySpark's own daemon, with the imports
of our tasks.

A worker that is forked from PySpark's daemon spends a second of a processor on imports, and Spark
ends workers that fail or are idle for a minute.
"""

import pyarrow.compute
from pyspark import daemon

import mdt.engines.index_tasks
import mdt.engines.spark.engine

__all__ = ["daemon", "mdt", "pyarrow"]

if __name__ == "__main__":
    daemon.manager()
