"""A large table of other writers whose files were not opened yet.

Reading the footers of all files takes longer than a filter that needs few of them. Until then,
Hudi's partition ``column_stats`` names the files that may have rows of a filter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import BoolArray
from indexes.column_stats import STATS_SCHEMA, prune_predicate
from indexes.predicate import Predicate, columns
from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi.column_ranges import column_ranges, has_ranges
from mdt.hudi.column_stats_records import FileKeys
from mdt.hudi.read.column_statistics import COLUMN_STATS
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.index_partition import IndexPartition
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.hudi.read.table_schema import TableSchema, load_schema
from mdt.stores.storage import Storage

_PART_MAX = 0.25
"""Part of the file groups from which on all are read."""


@dataclass(slots=True)
class UnreadFiles:
    """The newest state of a table whose files were not opened.

    Attributes:
        schema: Its columns.
        digest: Digest of its timeline.
        statistics: Hudi's column statistics.
        keys: Key of the base file of each slice in them.
        read: Number of file groups that filters have read, each as often as it was read.
    """

    state: TableState
    schema: TableSchema
    digest: str
    statistics: IndexPartition
    keys: pa.Array
    read: int = 0

    def matching(self, predicate: Predicate, schema: pa.Schema) -> list[FileSlice] | None:
        """Return the slices that may have rows of ``predicate``, or None if all files should be
        read: for many slices, after many filters, or without usable statistics.

        Args:
            schema: The table's columns, with Hudi's meta columns.
        """
        slices = self.state.slices
        try:
            maybe = self._may_match(predicate, schema)
        except (Corrupt, Missing, Unsupported):
            return None
        count = int(np.count_nonzero(maybe))
        if count > _PART_MAX * len(slices) or self.read + count > len(slices):
            return None
        self.read += count
        return [slices[number] for number in np.flatnonzero(maybe).tolist()]

    def _may_match(self, predicate: Predicate, schema: pa.Schema) -> BoolArray:
        """Return False for the slices that have no row of ``predicate``, bool[slices].

        Slices with log files always may have some.
        """
        tested = {}
        for name in columns(predicate):
            if name in schema.names and has_ranges(schema.field(name).type):
                tested[name] = schema.field(name).type
        ranges = column_ranges(self.statistics, tested)

        def lookup(name: str) -> tuple[pa.Table, pa.DataType] | None:
            if name not in tested:
                return None
            places = pc.index_in(self.keys, ranges[name]["suffix"])
            return ranges[name].select(STATS_SCHEMA.names).take(places), tested[name]

        slices = self.state.slices
        maybe = prune_predicate(lookup, predicate, len(slices))
        return maybe | np.array([one.base is None or bool(one.logs) for one in slices], np.bool_)


def load_unread(source: Storage, state: TableState, digest: str) -> UnreadFiles | None:
    """Return a state with Hudi's column statistics, or None if they are absent or out of step.

    Raises Corrupt, Missing, and Unsupported for a table without columns.
    """
    if COLUMN_STATS not in state.table.metadata_partitions:
        return None
    try:
        metadata = load_metadata_table(source)
        if metadata is None or metadata.problem(state.timeline):
            return None
        statistics = IndexPartition(source, metadata, state.timeline, COLUMN_STATS)
    except (Corrupt, Missing, Unsupported):
        return None
    names = ["" if one.base is None else one.base.name for one in state.slices]
    keys = FileKeys.of([one.partition for one in state.slices], names).suffixes
    return UnreadFiles(state, load_schema(source, state), digest, statistics, keys)
