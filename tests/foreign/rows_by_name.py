"""Runs in the environment of Hudi's bundle: writes the rows of tables in a metastore as Parquet.

``python rows_by_name.py bundle.jar folder thrift://host:port name…``. The rows of ``name`` are in
``folder/name``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(jar, folder, address, *names):
    """Write the rows of each table."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.hadoop.hive.metastore.uris={address}"
        " --conf spark.sql.catalogImplementation=hive pyspark-shell"
    )
    from hudi_table import session

    spark = session(jar, Path(folder))
    for name in names:
        spark.table(f"default.{name}").write.parquet(f"{folder}/{name}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
