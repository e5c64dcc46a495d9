"""The Parquet files of a table as other formats see them, and how a commit changes them.

Formats that record Parquet files and deleted positions see each base file as it is. The data blocks
that a commit wrote into the log files of a partition are one file to them: its twin
(:mod:`mdt.formats.twins`). :func:`change_of` depends only on the state before a commit and on its
record, so that every publisher derives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.column_stats import STATS_SCHEMA, Stats, from_table
from mdt.formats.twins import NewTwin, Twin, Twins
from mdt.hudi.file_names import parse_base
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition

_NO_DEAD = BitMap()
_FACTS = ("partition", "name", "size", "rows")
"""Columns of FILES that other formats record."""
_VALUES = STATS_SCHEMA.names.index("values")
_WHOLE = -1
"""The row group number of statistics for a whole file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file with its deleted rows.

    Attributes:
        path: Relative to the table.
        partition: Partition path.
        size: Bytes.
        rows: Number of rows, deleted rows included.
        dead: Positions of deleted rows.
        stats: Column -> statistics, deleted rows included. Columns without are left out.
    """

    path: str
    partition: str
    size: int
    rows: int
    dead: BitMap = field(default_factory=BitMap)
    stats: Mapping[str, Stats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """The files that a commit removes and adds, sorted by path. A file with newly deleted rows is
    in both. Files without live rows are in no state.

    Attributes:
        twins: The twins that the commit adds.
        still_dead: If deleted rows of a file become live again, all unchanged files with deleted
            rows. Only imports make rows live again.
    """

    removed: Sequence[DataFile] = ()
    added: Sequence[DataFile] = ()
    twins: Sequence[NewTwin] = ()
    still_dead: Sequence[DataFile] = ()


def change_of(
    before: Snapshot, record: CommitRecord, definition: TableDefinition, twins: Twins
) -> Change:
    """Return the change of the commit ``record`` to the state ``before`` it.

    Args:
        definition: The definition after the commit.
        twins: The twins of the table.
    """
    touched = _Touched.from_record(before, record)
    bases = _base_files(before, touched.bases)
    old_twins = twins.find(before, touched.logs)
    removed = [*bases, *(_twin_file(twin, before) for twin in old_twins)]
    changed = touched.changed_bases
    stats = dict(zip(changed, _stats_of_snapshot(before, changed, definition), strict=True))
    added = [
        replace(file, dead=file.dead | touched.deleted.get(number, _NO_DEAD), stats=stats[number])
        for number, file in zip(touched.bases, bases, strict=True)
        if number in stats
    ]
    added += [_twin_file(twin, before, touched.removed, touched.deleted) for twin in old_twins]
    new_stats = _stats_of_record(record, definition)
    added += _new_base_files(record, new_stats)
    new = twins.make(record, new_stats)
    for each in new:
        twin = each.twin
        added.append(DataFile(twin.path, twin.partition, twin.size, twin.rows, stats=twin.stats))
    return Change(*_changed(removed, added), new)


def files_of(snapshot: Snapshot, twins: Twins) -> list[DataFile]:
    """Return all files of a state, sorted by path. O(files)."""
    bases, twin_files = _live_files(snapshot, twins)
    stats = _stats_of_snapshot(snapshot, list(bases), snapshot.definition)
    files = [replace(file, stats=of) for file, of in zip(bases.values(), stats, strict=True)]
    return _visible([*files, *twin_files])


def difference(before: Snapshot, after: Snapshot, record: CommitRecord, twins: Twins) -> Change:
    """Return the change from a state to a later one, of which ``record`` is the last commit.
    O(files).
    """
    new = twins.make(record, _stats_of_record(record, after.definition))
    old_bases, old_twins = _live_files(before, twins)
    bases, twin_files = _live_files(after, twins)
    old = {file.path: file for file in (*old_bases.values(), *old_twins)}
    changed = {number: file for number, file in bases.items() if old.get(file.path) != file}
    stats = _stats_of_snapshot(after, list(changed), after.definition)
    added = [replace(file, stats=of) for file, of in zip(changed.values(), stats, strict=True)]
    added += [file for file in twin_files if old.get(file.path) != file]
    staying = {file.path: file for file in (*bases.values(), *twin_files)}
    removed = [file for path, file in old.items() if staying.get(path) != file]
    still_dead = list[DataFile]()
    if _revives(before, old, staying):
        still_dead = [file for path, file in staying.items() if file.dead and old.get(path) == file]
    return Change(*_changed(removed, added), new, _visible(still_dead))


def _revives(before: Snapshot, old: Mapping[str, DataFile], new: Mapping[str, DataFile]) -> bool:
    """Return True if deleted rows of a file become live again, or a removed file may come back.

    A base file that is older than the last commit may have been removed. The snapshot does not
    tell: it has the files that were removed after the checkpoint that it was read from.

    Args:
        before: The snapshot with the files ``old``.
    """
    if any(path in old and not old[path].dead <= file.dead for path, file in new.items()):
        return True
    added = (parse_base(path.rpartition("/")[2]) for path in new.keys() - old.keys())
    return any(base is not None and base.instant <= before.last_time for base in added)


def _live_files(snapshot: Snapshot, twins: Twins) -> tuple[dict[int, DataFile], list[DataFile]]:
    """Return the base files of a state by number, without statistics, and the twins."""
    numbers = snapshot.live_numbers
    is_log = snapshot.kind[numbers] == LOG
    bases, logs = numbers[~is_log].tolist(), numbers[is_log].tolist()
    files = dict(zip(bases, _base_files(snapshot, bases), strict=True))
    return files, [_twin_file(twin, snapshot) for twin in twins.find(snapshot, logs)]


def _changed(
    removed: Iterable[DataFile], added: Iterable[DataFile]
) -> tuple[list[DataFile], list[DataFile]]:
    """Return both without the files that are in both with the same deleted rows.

    A file of a twin with deleted rows only may go, which changes nothing. Readers of Delta take a
    file that one version removes and adds with the same vector for removed.
    """
    before, after = ({file.path: file.dead for file in files} for files in (removed, added))
    same = {path for path in before.keys() & after.keys() if before[path] == after[path]}
    changed = ([file for file in files if file.path not in same] for files in (removed, added))
    old, new = map(_visible, changed)
    return old, new


def _visible(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files with live rows, sorted by path. Other formats do not list the rest."""
    return sorted((file for file in files if len(file.dead) < file.rows), key=_path_of)


def _path_of(file: DataFile) -> str:
    return file.path


def _numbers_by_segment(snapshot: Snapshot, segments: Sequence[int]) -> dict[int, int]:
    """Return segment -> number of the live files among ``segments``."""
    ids, wanted = snapshot.segment_ids, np.array(segments, np.int64)
    at = np.searchsorted(ids, wanted)
    is_known = at < len(ids)
    is_known[is_known] = ids[at[is_known]] == wanted[is_known]
    is_known[is_known] = snapshot.live[at[is_known]]
    return dict(zip(wanted[is_known].tolist(), at[is_known].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Touched:
    """The files of a state that a commit changes, by number.

    Attributes:
        removed: Files that it removes.
        deleted: Positions that it adds to the deletion vectors of other files.
        bases, logs: All of these that are no log files, and that are.
    """

    removed: frozenset[int]
    deleted: Mapping[int, BitMap]
    bases: Sequence[int]
    logs: Sequence[int]

    @classmethod
    def from_record(cls, before: Snapshot, record: CommitRecord) -> _Touched:
        """Return the files of ``before`` that ``record`` changes."""
        segments = record.table("removed")["segment"].to_pylist()
        removed = frozenset(_numbers_by_segment(before, segments).values())
        table, path = record.table("vectors"), paths.commit(record.seq)
        segments, deleted = table["segment"].to_pylist(), dict[int, BitMap]()
        numbers = _numbers_by_segment(before, segments)
        for segment, data in zip(segments, table["positions"].to_pylist(), strict=True):
            number = numbers.get(segment)
            if number is not None and number not in removed:
                deleted[number] = positions(data, int(before.rows[number]), path=path)
        touched = sorted({*removed, *deleted})
        is_log = before.kind == LOG
        bases = [number for number in touched if not is_log[number]]
        return cls(removed, deleted, bases, [number for number in touched if is_log[number]])

    @property
    def changed_bases(self) -> list[int]:
        """The files that are no log files and stay."""
        return [number for number in self.bases if number not in self.removed]


def _base_files(snapshot: Snapshot, numbers: Sequence[int]) -> list[DataFile]:
    """Return the files ``numbers``, none of which is a log file, without statistics."""
    facts = snapshot.files.take(_FACTS, np.array(numbers, np.int64))
    rows = zip(numbers, *(column.to_pylist() for column in facts.columns), strict=True)
    files = list[DataFile]()
    for number, partition, name, size, count in rows:
        dead = snapshot.vector(number) or _NO_DEAD
        files.append(DataFile(paths.data_file(partition, name), partition, size, count, dead))
    return files


def _twin_file(
    twin: Twin,
    snapshot: Snapshot,
    removed: AbstractSet[int] = frozenset(),
    deleted: Mapping[int, BitMap] | None = None,
) -> DataFile:
    """Return a twin with the rows that are deleted, or whose log files are removed."""
    numbers = _numbers_by_segment(snapshot, [segment for segment, _, _ in twin.blocks])
    dead = BitMap()
    for segment, first, rows in twin.blocks:
        number = numbers.get(segment)
        if number is None or number in removed:
            dead.add_range(first, first + rows)
            continue
        block_dead = (snapshot.vector(number) or _NO_DEAD) | (deleted or {}).get(number, _NO_DEAD)
        dead |= block_dead.shift(first)
    return DataFile(twin.path, twin.partition, twin.size, twin.rows, dead, twin.stats)


def _stats_of_record(
    record: CommitRecord, definition: TableDefinition
) -> dict[int, dict[str, Stats]]:
    """Return the statistics of the new files by ordinal and column."""
    stats = record.table("stats")
    stats = stats.filter(pc.equal(stats["row_group"], _WHOLE))
    of_file: dict[int, dict[str, Stats]] = {}
    names = {definition.statistics_name(name): name for name in definition.schema.names}
    rows = from_table(stats.select(STATS_SCHEMA.names))
    ordinals, columns = stats["segment"].to_pylist(), stats["column"].to_pylist()
    for ordinal, column, column_stats in zip(ordinals, columns, rows, strict=True):
        if column in names:
            of_file.setdefault(ordinal, {})[names[column]] = column_stats
    return of_file


def _new_base_files(
    record: CommitRecord, stats: Mapping[int, Mapping[str, Stats]]
) -> Iterator[DataFile]:
    files = record.table("files").select(["partition", "name", "size", "rows", "kind"])
    for ordinal, row in enumerate(files.to_pylist()):
        if row["kind"] != LOG:
            path, of_file = paths.data_file(row["partition"], row["name"]), stats.get(ordinal, {})
            yield DataFile(path, row["partition"], row["size"], row["rows"], stats=of_file)


def _stats_of_snapshot(
    snapshot: Snapshot, numbers: Sequence[int], definition: TableDefinition
) -> list[dict[str, Stats]]:
    """Return the statistics of each of the files ``numbers``, ascending, by column."""
    found: list[dict[str, Stats]] = [{} for _ in numbers]
    names = definition.schema.names if numbers else []
    tables = snapshot.column_stats_of(
        [definition.statistics_name(name) for name in names], np.array(numbers, np.int64)
    )
    for name, table in zip(names, tables, strict=True):
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for of_file, row in zip(found, rows, strict=True):
            if row[_VALUES] is not None:
                of_file[name] = Stats(*row)
    return found
