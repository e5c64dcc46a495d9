"""A large table of other writers whose files were not opened yet.

Reading the footers of all files takes longer than a filter that needs few of them. Until then,
Hudi's partition ``column_stats`` names the files that may have rows of a filter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, compress

import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.column_stats import STATS_SCHEMA, prune_predicate
from indexes.predicate import Predicate, columns
from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi.column_ranges import column_ranges, file_keys, has_ranges
from mdt.hudi.read.column_statistics import COLUMN_STATS
from mdt.hudi.read.file_slices import Files
from mdt.hudi.read.index_partition import IndexPartition
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import TableState, load_replaced_groups, state_of
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.hudi.read.service_metadata import GroupId
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.read.table_schema import TableSchema, schema_of_commits
from mdt.stores.storage import Storage

_LOG = "."
"""The names of log files begin with it."""
_PART_MAX = 0.25
"""Part of the file groups from which on all are read."""


@dataclass(slots=True)
class UnreadFiles:
    """The newest state of a table whose files were not opened.

    Attributes:
        files: Names of its files.
        schema: Its columns.
        digest: Digest of its timeline.
        statistics: Hudi's column statistics.
        replaced: Replaced file groups.
        visible: Number of other file groups with a completed base file.
        read: Number of file groups that filters have read, each as often as it was read.
    """

    table: TableProperties
    timeline: Timeline
    files: Files
    schema: TableSchema
    digest: str
    statistics: IndexPartition
    replaced: Collection[GroupId]
    visible: int
    read: int = 0

    def matching(
        self, source: Storage, predicate: Predicate, schema: pa.Schema
    ) -> tuple[TableState, int] | None:
        """Return the state with the slices that may have rows of ``predicate``, and the number of
        the other slices. None if all files should be read: for many slices, after many filters, or
        without usable statistics.

        Args:
            schema: The table's columns, with Hudi's meta columns.
        """
        try:
            files = self._may_match(predicate, schema)
            groups = _with_groups_of(self.files, files)
            state = state_of(source, self.table, self.timeline, groups)
        except (Corrupt, Missing, Unsupported):
            return None
        slices = []
        for file_slice in state.slices:
            base, partition = file_slice.base, file_slice.partition
            if base is None or file_slice.logs or base.name in files[partition]:
                slices.append(file_slice)
        left_out = self.visible - _count_visible(groups, self.timeline, self.replaced)
        total = len(state.slices) + left_out
        if len(slices) > _PART_MAX * total or self.read + len(slices) > total:
            return None
        self.read += len(slices)
        return replace(state, slices=slices), total - len(slices)

    def _may_match(self, predicate: Predicate, schema: pa.Schema) -> Files:
        """Return the base files that may have rows of ``predicate``, and all log files."""
        tested = {}
        for name in columns(predicate):
            if name in schema.names and has_ranges(schema.field(name).type):
                tested[name] = schema.field(name).type
        ranges = column_ranges(self.statistics, tested)
        names = pa.array([*chain.from_iterable(self.files.values())], pa.large_string())
        keys = file_keys([*self.files], [*map(len, self.files.values())], names)

        def lookup(name: str) -> tuple[pa.Table, pa.DataType] | None:
            if name not in tested:
                return None
            places = pc.index_in(keys, ranges[name]["file"])
            return ranges[name].select(STATS_SCHEMA.names).take(places), tested[name]

        maybe = prune_predicate(lookup, predicate, len(names))
        maybe |= flags(pc.starts_with(names, _LOG))
        files, begin = {}, 0
        for partition, sizes in self.files.items():
            part = maybe[begin : begin + len(sizes)]
            begin += len(sizes)
            if part.any():
                files[partition] = dict(compress(sizes.items(), part))
        return files


def _with_groups_of(files: Files, chosen: Files) -> Files:
    """Return all files of the file groups of the ``chosen`` ones."""
    group_files = {}
    for partition, names in chosen.items():
        groups = set(map(_group, names))
        sizes = files[partition].items()
        group_files[partition] = {name: size for name, size in sizes if _group(name) in groups}
    return group_files


def _group(name: str) -> str:
    """Return the beginning of the id of a file group, which all names of its files share."""
    return name.removeprefix(_LOG).partition("_")[0]


def _count_visible(files: Files, timeline: Timeline, replaced: Collection[GroupId]) -> int:
    """Return the number of file groups with a completed base file that were not replaced."""
    hidden, count = {(path, _group(file_id)) for path, file_id in replaced}, 0
    is_completed = cache(lambda end: timeline.is_completed(end.partition(".")[0]))
    for partition, names in files.items():
        groups = {_group(name) for name in names if is_completed(name.rpartition("_")[2])}
        count += len(groups)
        if hidden:
            count -= sum((partition, group) in hidden for group in groups)
    return count


def has_groups(files: Files, count: int) -> bool:
    """Return True if there are ``count`` file groups or more, with replaced and pending ones.

    >>> has_groups({"p": {"a_0-1-0_20240229120000123.parquet": 9, ".a_2024022912.log.1": 9}}, 2)
    False
    """
    for names in files.values():
        count -= len(set(map(_group, names)))
        if count <= 0:
            return True
    return False


def log_bytes(source: Storage, table: TableProperties, timeline: Timeline, files: Files) -> int:
    """Return the size of the log files in the newest slices. Raises Corrupt and Missing."""
    logs = {}
    for partition, sizes in files.items():
        partition_logs = {name: size for name, size in sizes.items() if name.startswith(_LOG)}
        if partition_logs:
            logs[partition] = partition_logs
    state = state_of(source, table, timeline, _with_groups_of(files, logs))
    return sum(log.size for file_slice in state.slices for log in file_slice.logs)


def load_unread(
    source: Storage, table: TableProperties, timeline: Timeline, files: Files, digest: str
) -> UnreadFiles | None:
    """Return the state of a table with Hudi's column statistics, or None if they are absent or out
    of step, or if no commit has the columns, or if older files have other names of columns.

    Raises Corrupt, Missing, and Unsupported for columns that cannot be read.
    """
    if COLUMN_STATS not in table.metadata_partitions:
        return None
    try:
        metadata = load_metadata_table(source)
        if metadata is None or metadata.problem(timeline):
            return None
        statistics = IndexPartition(source, metadata, timeline, COLUMN_STATS)
        replaced = load_replaced_groups(source, timeline)
    except (Corrupt, Missing, Unsupported):
        return None
    schema = schema_of_commits(source, table, timeline)
    if schema is None or schema.history is not None:
        return None
    visible = _count_visible(files, timeline, replaced)
    return UnreadFiles(table, timeline, files, schema, digest, statistics, replaced, visible)
