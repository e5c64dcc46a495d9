"""What Spark's Python workers are forked from: PySpark's own daemon, with what our tasks need
imported already.

A worker that begins with PySpark's daemon spends a second of a processor on imports, and Spark ends
those that fail or are idle for a minute.
"""

import pyarrow.compute
from pyspark import daemon

import mdt.engines.index_tasks
import mdt.engines.spark.engine

__all__ = ["daemon", "mdt", "pyarrow"]

if __name__ == "__main__":
    daemon.manager()
