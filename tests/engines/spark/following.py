"""A query that follows a table with a stream and collects its batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from counting import count

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
Row = tuple[Any, ...]


def row(key, city, n):
    return {"id": key, "city": city, "n": n}


class Follower:
    """A query that collects the rows of a table's stream, run after run, from one checkpoint.

    ``scanned``: number of rows that scans produced in the last run.
    """

    def __init__(self, spark, path, folder, **options):
        self.batches: list[list[Row]] = []
        self.scanned = 0
        self.frame = spark.readStream.format("mdt").options(**options).load(path)
        self.folder = folder

    def run(self):
        """Read all available data and return the batches of this run, each sorted."""
        self.batches = []
        query = self.start(availableNow=True)
        finished(query)
        self.scanned = sum(progress["numInputRows"] for progress in query.recentProgress)
        return self.batches

    def start(self, **trigger):
        """Start the query. By default it runs on and reads new commits, too."""
        writer = self.frame.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(self.folder)
        )
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def _keep(self, rows, number):
        self.batches.append(sorted(tuple(row) for row in rows.collect()))
        count("batches of streams that were read")


def finished(query):
    assert query.awaitTermination(60)
    error = query.exception()
    if error is not None:
        raise error
