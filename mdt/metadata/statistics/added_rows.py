"""Prunes a commit record by its column statistics."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import column_stats
from indexes import paths as column_paths
from indexes.arrays import numbers
from indexes.column_stats import STATS_SCHEMA
from indexes.predicate import Predicate
from mdt.metadata.log.commit_log import CommitRecord
from mdt.schema.definition import TableDefinition

_WHOLE = -1
"""The row group number of statistics for a whole file."""


def may_match(record: CommitRecord, predicate: Predicate, definition: TableDefinition) -> bool:
    """Return True if a row in a file that ``record`` added may match.  False is a proof.

    ``definition`` is that of the snapshot before ``record``, which must not alter the schema.
    """
    files, stats = record.table("files"), record.table("stats")
    file_stats = stats.filter(pc.equal(stats["row_group"], _WHOLE))

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        rows = file_stats.filter(pc.equal(file_stats["column"], definition.statistics_name(path)))
        if not len(rows):
            return None
        at = np.full(len(files), -1, np.int64)
        at[numbers(rows["segment"])] = np.arange(len(rows))
        batch = rows.take(pa.array(at, mask=at < 0)).select(STATS_SCHEMA.names).combine_chunks()
        return batch, column_paths.type_at(definition.schema, path)

    maybe = column_stats.prune_predicate(lookup, predicate, len(files))
    return bool(np.any(maybe & (numbers(files["rows"]) > 0)))
