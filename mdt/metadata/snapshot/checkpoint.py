"""Conversion of a snapshot to the columns of a checkpoint.

Key parts aside, it is a pure function of the table's state.  The same records give the same
columns, with the same numbers of files and file groups.  So a damaged column of a checkpoint can be
made again from the log.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import column_stats
from indexes.arrays import column as column_of
from indexes.arrays import numbers, one_array
from indexes.key_hash import hash_keys
from mdt.limits import (
    METADATA_COMPACT_DEAD_ROWS,
    METADATA_COMPACT_FILES_SHARE,
    METADATA_COMPACT_RECORDS_MAX,
)
from mdt.metadata.files.deletion_vectors import serialize
from mdt.metadata.files.file_group import BASE, FILES
from mdt.metadata.log.checkpoint_columns import BuiltColumns, Column, Columns, schema_of, simple
from mdt.metadata.log.commit_log import STATS
from mdt.metadata.snapshot.deleted_keys import in_force
from mdt.metadata.snapshot.file_groups import NAME_SEED
from mdt.metadata.snapshot.key_parts import KeyPart, numbered_table
from mdt.metadata.snapshot.log_tail import summary_sizes
from mdt.metadata.snapshot.snapshot import Snapshot

FILES_PER_PAGE = 8_192
"""Files per page of columns that plans read few values of.

Reading a value checks about 100 KB, and 1 M files have 123 pages.
"""
SUMMARIES_PER_PAGE = 1_024
"""Files per page of wide columns: summaries, deletion vectors and row group statistics."""
STATISTICS_PER_PAGE = 32_768
"""Files per page of column statistics.  A plan reads a single page or all.

1 M files have 31 pages of 2 MB each.  With a quarter of this, a test that no stripe can exclude
takes 20 % longer in a new process.
"""
PAGES_MAX = 1_024
"""Maximum pages of a column, to keep the page table small in tables with many columns."""

STRIPE_FILES_MAX = 1_024
"""Maximum files of a stripe, a row of partition_stats.

1 M files have 977 stripes, which a plan tests in 0.1 ms.
"""
STRIPE_FILES_MIN = 128
"""Consecutive files of a partition that get stripes of their own.  Shorter runs share stripes."""

WHOLE = frozenset(("segment", "kind", "rows", "size", "block_length", "shard", "first_row"))
"""Columns of files that plans and writers need as a whole."""

Int64s = npt.NDArray[np.int64]


def is_due(snapshot: Snapshot, records: int, least: int) -> bool:
    """Return True if the next open would gain from a checkpoint of ``snapshot``.

    ``records`` is the number of records since the last checkpoint, and ``least`` the usual
    interval.  Large tables wait longer (METADATA_COMPACT_FILES_SHARE), and many dead rows advance
    it (METADATA_COMPACT_DEAD_ROWS).
    """
    if snapshot.dead_since >= METADATA_COMPACT_DEAD_ROWS:
        dead = int(snapshot.checkpoint.numpy("dead").sum())
        if snapshot.dead_since >= dead // 4:
            return True
    in_large = math.isqrt(len(snapshot) // METADATA_COMPACT_FILES_SHARE)
    return records >= max(least, min(in_large, METADATA_COMPACT_RECORDS_MAX))


def to_checkpoint(snapshot: Snapshot, key_parts: Sequence[KeyPart]) -> dict[str, Column]:
    """Return the columns of a checkpoint at ``snapshot``.  ``key_parts`` may have been merged.
    O(files).
    """
    files = snapshot.listing().combine_chunks()
    n = len(files)
    columns = {f"files/{name}": _column(files.select([name]), name) for name in FILES.names}
    columns["dead"] = Column(simple("dead", snapshot.dead_rows[snapshot.live]))
    columns |= {
        name: _paged(table, SUMMARIES_PER_PAGE) for name, table in _vectors(snapshot).items()
    }
    groups, order = _groups(files)
    columns |= {name: _named(name, values) for name, values in groups.items()}
    obsolete = _obsolete_statistics(snapshot)
    for column in snapshot.stats_columns:
        if column in obsolete:
            continue
        stats = snapshot.column_stats(column)
        table = None if stats is None else snapshot.live_of(stats)
        if table is not None and table["values"].null_count < n:
            columns[f"stats/{column}"] = _paged(table.combine_chunks(), STATISTICS_PER_PAGE)
    columns |= _stripes(columns, n)
    columns |= _row_groups(snapshot, n)
    for spec in snapshot.definition.indexes:
        columns |= _summaries(snapshot, spec)
    columns["history"] = Column(snapshot.history.combine_chunks())
    columns["key_parts"] = Column(_key_parts(snapshot, key_parts, order))
    columns |= _tombstones(snapshot)
    return columns


def _obsolete_statistics(snapshot: Snapshot) -> frozenset[str]:
    """Return the statistics columns that no restorable snapshot uses.

    Restorable snapshots are only ever lost, so statistics left out of a checkpoint are never needed
    again.
    """
    horizon = snapshot.retention.horizon
    later = (version.since for version in snapshot.definition.versions if version.since > horizon)
    return snapshot.definition.unused_statistics([horizon, *later, *snapshot.tags.states])


def _tombstones(snapshot: Snapshot) -> dict[str, Column]:
    standing = in_force(snapshot)
    if not len(standing):
        return {}
    return {"tombstones": Column(standing.stored().combine_chunks())}


def checkpoint_of(snapshot: Snapshot) -> BuiltColumns:
    """Return the columns of ``snapshot`` in memory, without merging key parts."""
    return BuiltColumns(snapshot.seq, len(snapshot), to_checkpoint(snapshot, snapshot.key_parts))


def _column(table: pa.Table, name: str) -> Column:
    return Column(table) if name in WHOLE else _paged(table, FILES_PER_PAGE)


def _paged(table: pa.Table, every: int) -> Column:
    return Column(table, max(every, -(-len(table) // PAGES_MAX)))


def _named(name: str, values: object) -> Column:
    table = simple(name, values)
    return _paged(table, FILES_PER_PAGE) if name == "group_name" else Column(table)


def _vectors(snapshot: Snapshot) -> dict[str, pa.Table]:
    """Return the deletion vector of each live file and its length and CRC, null if it has no dead
    rows.
    """
    vectors: list[bytes | None] = [None] * len(snapshot)
    crcs: list[int | None] = [None] * len(snapshot)
    numbers = snapshot.live_numbers
    for at in np.flatnonzero(snapshot.dead_rows[numbers]).tolist():
        vector = snapshot.vector(int(numbers[at]))
        if vector is not None:
            data = vectors[at] = serialize(vector)
            crcs[at] = zlib.crc32(data)
    stored = simple("vector", vectors)
    length = pc.binary_length(stored["value"]).cast(pa.int64())
    ranges = pa.table([length, pa.array(crcs, pa.int64())], schema=schema_of("vector_range"))
    return {"vector": stored, "vector_range": ranges}


def _groups(files: pa.Table) -> tuple[dict[str, object], Mapping[str, int]]:
    """Return the columns about file groups, and the numbers of the groups by id.

    Groups are numbered in the order of their first files.
    """
    encoded = one_array(files["file_id"]).dictionary_encode()
    names = encoded.dictionary
    group = np.asarray(encoded.indices.to_numpy()).astype(np.int64)
    members = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[members], np.arange(len(names) + 1))
    size, kind, rows = (np.asarray(files[name].to_numpy()) for name in ("size", "kind", "rows"))
    sizes = np.add.reduceat(size[members], starts[:-1])
    logs = np.add.reduceat((kind[members] != BASE).astype(np.int64), starts[:-1])
    hashes = hash_keys(names, NAME_SEED).hi
    by_hash = np.argsort(hashes, kind="stable")
    first = pa.array(members[starts[:-1]])
    paths = one_array(files["partition"].take(first)).dictionary_encode()
    partition = np.asarray(paths.indices.to_numpy()).astype(np.int64)
    by_size = np.lexsort((sizes, partition))
    count, is_base = len(paths.dictionary), kind == BASE
    partition_of_file = partition[group]
    columns: dict[str, object] = {
        "group": group,
        "members": members,
        "members_start": starts,
        "group_name": names,
        "group_hash": hashes[by_hash],
        "group_by_hash": by_hash,
        "group_partition": partition,
        "group_bytes": sizes,
        "group_logs": logs,
        "group_by_size": by_size,
        "partition_name": paths.dictionary,
        "partition_start": np.searchsorted(partition[by_size], np.arange(count + 1)),
        "partition_bytes": _sums(partition_of_file[is_base], size[is_base], count),
        "partition_rows": _sums(partition_of_file[is_base], rows[is_base], count),
    }
    return columns, {name: number for number, name in enumerate(names.to_pylist())}


def _sums(groups: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the sum of ``values`` for each of ``count`` numbers, as integers."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, groups, values)
    return sums


def stripe_starts(partition: Int64s) -> Int64s:
    """Return the first file of each stripe -> int64[stripes].

    ``partition`` has the partition of each file, int64[n].  A stripe has at most STRIPE_FILES_MAX
    files.  Runs of at least STRIPE_FILES_MIN files of a partition have stripes of their own.  O(n).
    """
    bounds = np.flatnonzero(np.diff(partition, prepend=-1, append=-1))
    is_long = np.diff(bounds) >= STRIPE_FILES_MIN
    long_run_bounds = bounds[1:-1][is_long[1:] | is_long[:-1]]
    return np.union1d(long_run_bounds, np.arange(0, len(partition), STRIPE_FILES_MAX))


def _stripes(columns: Mapping[str, Column], n: int) -> dict[str, Column]:
    """Return partition_stats, for tables whose statistics have several pages.

    A single page is tested as fast as its stripes.
    """
    if n <= STATISTICS_PER_PAGE:
        return {}
    group, partition = (
        numbers(columns[name].table["value"]) for name in ("group", "group_partition")
    )
    starts = stripe_starts(partition[group])
    stats = {
        name.partition("/")[2]: columns[name].table for name in columns if name.startswith("stats/")
    }
    unions = {
        f"partition_stats/{name}": Column(column_stats.union(table, starts))
        for name, table in stats.items()
    }
    if not unions:
        return {}
    return {"stripe_start": Column(simple("stripe_start", np.append(starts, n))), **unions}


def wrong_stripes(columns: Columns) -> list[str]:
    """Return the columns of partition_stats that disagree with the file statistics.  O(files)."""
    if "stripe_start" not in columns:
        return []
    starts = columns.stripe_starts()
    if starts is None:
        return ["stripe_start"]
    wrong = []
    for name in columns.names("partition_stats"):
        is_right = f"stats/{name}" in columns
        if is_right:
            stats = columns.table(f"stats/{name}").combine_chunks()
            stored = columns.table(f"partition_stats/{name}").combine_chunks()
            is_right = stored.equals(column_stats.union(stats, starts[:-1]))
        if not is_right:
            wrong.append(f"partition_stats/{name}")
    return wrong


def _row_groups(snapshot: Snapshot, n: int) -> dict[str, Column]:
    row_groups = snapshot.all_row_groups()
    if not len(row_groups):
        return {}
    row_groups = row_groups.sort_by(
        [("segment", "ascending"), ("column", "ascending"), ("row_group", "ascending")]
    ).combine_chunks()
    every = max(SUMMARIES_PER_PAGE, -(-n // PAGES_MAX))
    starts = snapshot.segment_ids[snapshot.live][::every]
    cuts = [
        *np.searchsorted(np.asarray(row_groups["segment"].to_numpy()), starts).tolist(),
        len(row_groups),
    ]
    return {"row_groups": Column(row_groups.cast(STATS), every, cuts)}


def _summaries(snapshot: Snapshot, spec: str) -> dict[str, Column]:
    """Return the summary of each live shard by an index, and its size."""
    table = snapshot.summary_table(spec).take(column_of(snapshot.live_shards))
    sizes = summary_sizes(table)
    if not bool((sizes >= 0).any()):
        return {}
    size = pa.table([pa.array(sizes, pa.int64())], schema=schema_of(f"sizes/{spec}"))
    return {
        f"sizes/{spec}": Column(size),
        f"summaries/{spec}": _paged(table.combine_chunks(), SUMMARIES_PER_PAGE),
    }


def _key_parts(
    snapshot: Snapshot, key_parts: Sequence[KeyPart], number: Mapping[str, int]
) -> pa.Table:
    """Return key parts with the group numbers of the checkpoint."""
    groups = snapshot.file_groups
    renumbered = np.array([number.get(name, -1) for name in groups.all_names()] + [-1], np.int64)
    parts = [(key_part, renumbered[key_part.numbers_in(groups)]) for key_part in key_parts]
    uncovered = sorted(number[name] for name in snapshot.uncovered if name in number)
    return numbered_table(parts, np.array(uncovered, np.int64))


def differing_columns(first: Columns, second: Columns, names: Sequence[str]) -> list[str]:
    """Return the ``names`` of the columns that differ between two sets of columns."""
    differ = []
    for name in names:
        tables = [
            columns.table(name).combine_chunks() for columns in (first, second) if name in columns
        ]
        if len(tables) == 1 or (tables and not tables[0].equals(tables[1])):
            differ.append(name)
    return differ
