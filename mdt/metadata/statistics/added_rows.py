"""Whether rows that one commit record has added may match a predicate, by the column statistics
that it carries.
"""

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
"""Stands for all row groups of a file."""


def may_match(record: CommitRecord, predicate: Predicate, definition: TableDefinition) -> bool:
    """Return whether a row in a file that ``record`` added may match; False is a proof.

    ``definition``: that of the state before ``record``, which alters nothing.
    """
    files, told = record.table("files"), record.table("stats")
    of_files = told.filter(pc.equal(told["row_group"], _WHOLE))

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        found = of_files.filter(pc.equal(of_files["column"], definition.statistics_name(path)))
        if not len(found):
            return None
        at = np.full(len(files), -1, np.int64)
        at[numbers(found["segment"])] = np.arange(len(found))
        stats = found.take(pa.array(at, mask=at < 0)).select(STATS_SCHEMA.names).combine_chunks()
        return stats, column_paths.type_at(definition.schema, path)

    maybe = column_stats.prune_predicate(lookup, predicate, len(files))
    return bool(np.any(maybe & (numbers(files["rows"]) > 0)))
