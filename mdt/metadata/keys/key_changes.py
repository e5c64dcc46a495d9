"""Changes of indexes of record keys by a commit: the keys that it put into other file groups, those
that it removed, and the values of a column in rows that it changed.

Rows that replace a row in the same file group change no keys. These follow from the commit record
and the key maps of its files, and only the keys in the answer are read from data files. In tables
that other writers share, ended keys are looked up: inserts may have repeated them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import UInt64Array
from mdt.errors import Corrupt, Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.hudi.record_index_records import LOCATIONS
from mdt.hudi.record_keys import sort_keys
from mdt.limits import HFILE_ENTRIES_BYTES_MAX, LOCATIONS_BYTES_MAX, SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.files.key_map import build
from mdt.metadata.files.paths import commit as record_path
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.locate import find
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import read_columns
from mdt.schema.definition import TableDefinition

KEYS = pa.schema([("key", pa.string()), ("partition", pa.string())])
"""Record keys, with the partition path in which each was."""
_RECORD_KEY = pa.field(RECORD_KEY, pa.string())

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """What a commit does to an index of record keys.

    Attributes:
        located: Keys that are new in their file group -> LOCATIONS.
        deleted: Keys that are in no file group any more -> KEYS.
    """

    located: pa.Table
    deleted: pa.Table


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a file: their positions and the hashes of their keys, n each."""

    segment: Segment
    position: npt.NDArray[np.int64]
    hi: UInt64Array
    lo: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.position)

    @property
    def mask(self) -> Bools:
        """A mask of the rows of the file."""
        chosen = np.zeros(self.segment.rows, np.bool_)
        chosen[self.position] = True
        return chosen

    def rows(self, chosen: Bools) -> _Rows:
        """Return the chosen rows."""
        return _Rows(self.segment, self.position[chosen], self.hi[chosen], self.lo[chosen])


def key_changes(
    metadata: Metadata, record: CommitRecord, after: Snapshot, *, by_partition: bool
) -> KeyChanges:
    """Return the changes of keys by ``record``. O(rows of the files that it adds and removes).

    Args:
        after: The snapshot at the record.
        by_partition: A key that moves to another partition is deleted in the one where it was.

    Raises Corrupt, Missing if a file was cleaned since, and Unsupported for too many keys.
    """
    before = metadata.state(record.seq - 1)
    each = metadata.storage.each
    old_rows = (partial(_rows, metadata, before, *rows) for rows in _ended_rows(record, before))
    new_rows = (partial(_rows, metadata, after, *rows) for rows in _added_rows(record, after))
    old, new = _by_group(each(old_rows)), _by_group(each(new_rows))
    moved_in, moved_out = dict[str, list[_Rows]](), dict[str, list[_Rows]]()
    for group in sorted({*old, *new}):
        only_old, only_new = _without_common(old.get(group, []), new.get(group, []))
        for moved, parts in ((moved_out, only_old), (moved_in, only_new)):
            for rows in parts:
                scope = rows.segment.partition if by_partition else ""
                moved.setdefault(scope, []).append(rows)
    places = [(rows.segment, rows.mask) for rows in chain(*moved_in.values())]
    ended = chain.from_iterable(
        _without_common(parts, moved_in.get(scope, []))[0] for scope, parts in moved_out.items()
    )
    ended_places = [(rows.segment, rows.mask) for rows in ended]

    def locations(places: Sequence[tuple[Segment, Bools]]) -> pa.Table:
        parts = each(partial(_locations, metadata, *place) for place in places)
        return joined(parts, LOCATIONS, LOCATIONS_BYTES_MAX)

    ended_keys = each(partial(_deleted, metadata, *place) for place in ended_places)
    deleted, located = metadata.storage.together(
        partial(joined, ended_keys, KEYS, LOCATIONS_BYTES_MAX), partial(locations, places)
    )
    if after.is_shared and len(deleted):
        is_live, live_places = _still_live(metadata, after, ended_places, deleted, by_partition)
        deleted = deleted.filter(pc.invert(is_live))
        located = joined([located, locations(live_places)], LOCATIONS, LOCATIONS_BYTES_MAX)
    return KeyChanges(located, deleted)


def _still_live(
    metadata: Metadata,
    after: Snapshot,
    places: Sequence[tuple[Segment, Bools]],
    deleted: pa.Table,
    by_partition: bool,
) -> tuple[pa.Array, list[tuple[Segment, Bools]]]:
    """Return a mask of ended keys that are live in another row, and files with a mask of one row of
    each: inserts of other writers may repeat keys, and an index has one row of a key.

    Args:
        places: Files of the ended rows, with a mask of these.
        deleted: Their keys, KEYS.
    """
    definition = after.definition
    schema = pa.schema(map(definition.schema.field, definition.key))
    reads = (partial(_read, metadata, definition, *place, schema) for place in places)
    columns = joined(
        (part.cast(schema) for part in metadata.storage.each(reads)), schema, LOCATIONS_BYTES_MAX
    )
    texts = plain(deleted["key"])
    keys = keys_for(definition.key_index, texts, sort_keys(columns, definition.key))
    partition = deleted["partition"].to_numpy() if by_partition else None
    file, position = np.full((2, len(deleted)), -1, np.int64)
    hits = find(metadata, after, keys, definition.key_hash.hash(texts), partition)
    for hit in hits:
        file[hit.key], position[hit.key] = hit.file, hit.position
    found = []
    for number in np.unique(file[file >= 0]).tolist():
        chosen = np.zeros(after.segment(number).rows, np.bool_)
        chosen[position[file == number]] = True
        found.append((after.segment(number), chosen))
    return pa.array(file >= 0), found


def joined(parts: Iterable[pa.Table], schema: pa.Schema, bytes_max: int) -> pa.Table:
    """Return tables as one -> ``schema``.

    Raises Unsupported if they have more than ``bytes_max`` bytes.

    >>> joined([], KEYS, 100).num_rows
    0
    """
    tables, size = [schema.empty_table()], 0
    for part in parts:
        tables.append(part)
        size += part.nbytes
        if size > bytes_max:
            raise Unsupported(f"{', '.join(schema.names)} have more than {bytes_max:,} bytes")
    return pa.concat_tables(tables)


def value_changes(
    metadata: Metadata, record: CommitRecord, after: Snapshot, columns: Iterable[pa.Field]
) -> tuple[pa.Table, pa.Table]:
    """Return the record keys and the values of columns in the rows that ``record`` deletes, and in
    those that it inserts -> RECORD_KEY and the columns each. O(these rows).

    Rows that it copies, as compactions and clusterings do, are not read.

    Args:
        after: The snapshot at the record.
        columns: Columns of the table.

    Raises the errors of :func:`key_changes`, and Unsupported if they take too much memory.
    """
    deleted = _deleted_rows(record, metadata.state(record.seq - 1), frozenset())
    inserted, definition = _inserted_rows(record, after), after.definition
    schema = pa.schema({RECORD_KEY: pa.string()} | {field.name: field.type for field in columns})
    values = partial(_values, metadata, definition)
    old, new = metadata.storage.together(
        partial(values, deleted, schema), partial(values, inserted, schema)
    )
    return old, new


def live_locations(metadata: Metadata, snapshot: Snapshot) -> Iterator[pa.Table]:
    """Return the locations of all keys of a snapshot, a file at a time -> LOCATIONS.

    Raises Corrupt and Missing.
    """
    return metadata.storage.each(
        partial(_locations, metadata, segment, live) for segment, live in _live_rows(snapshot)
    )


def live_values(
    metadata: Metadata, snapshot: Snapshot, definition: TableDefinition, column: pa.Field
) -> pa.Table:
    """Return the record keys and the values of a column in all rows of a snapshot -> ``key`` and
    ``value``.

    Args:
        definition: Of the snapshot, or of a later one.
        column: A column of it.

    Raises Corrupt, Missing, and Unsupported if they take too much memory.
    """
    schema = pa.schema([_RECORD_KEY, column])
    values = _values(metadata, definition, _live_rows(snapshot), schema)
    return values.rename_columns(["key", "value"])


def _values(
    metadata: Metadata,
    definition: TableDefinition,
    rows: Iterable[tuple[Segment, Bools]],
    schema: pa.Schema,
) -> pa.Table:
    reads = (partial(_read, metadata, definition, *chosen, schema) for chosen in rows)
    parts = (part.cast(schema) for part in metadata.storage.each(reads))
    # escaped, they have at most twice as many bytes
    return joined(parts, schema, HFILE_ENTRIES_BYTES_MAX)


def _live_rows(snapshot: Snapshot) -> Iterator[tuple[Segment, Bools]]:
    """Yield all files with live rows, with a mask of these."""
    for number in snapshot.live_numbers.tolist():
        chosen = _live(snapshot, number)
        if chosen.any():
            yield snapshot.segment(number), chosen


def _live(snapshot: Snapshot, number: int) -> Bools:
    """Return a mask of the live rows of a file."""
    live = np.ones(snapshot.segment(number).rows, np.bool_)
    dead = snapshot.vector(number)
    if dead is not None:
        live[np.asarray(dead.to_array())] = False
    return live


def added_numbers(record: CommitRecord, after: Snapshot) -> list[int]:
    """Return the numbers of the files that a record adds, in the snapshot ``after`` it.

    Raises Corrupt if it lacks one of them.
    """
    first = record.seq * SEGMENTS_PER_COMMIT_MAX
    added = [first + ordinal for ordinal in record.table("files")["segment"].to_pylist()]
    return _numbers(after, added)


def _added_rows(record: CommitRecord, after: Snapshot) -> Iterator[tuple[Segment, Bools]]:
    """Yield the files that a record adds, with a mask of their live rows."""
    for number in added_numbers(record, after):
        chosen = _live(after, number)
        if chosen.any():
            yield after.segment(number), chosen


def _inserted_rows(record: CommitRecord, after: Snapshot) -> Iterator[tuple[Segment, Bools]]:
    """Yield the files that a record adds, with a mask of their live rows that it did not copy."""
    fresh = record.table("fresh")
    ordinals, vectors = (fresh[name].to_pylist() for name in ("segment", "positions"))
    new_in = dict(zip(ordinals, vectors, strict=True))
    for segment, chosen in _added_rows(record, after):
        ordinal = segment.id % SEGMENTS_PER_COMMIT_MAX
        if ordinal in new_in:
            chosen &= _mask(segment, new_in[ordinal], record)
        if chosen.any():
            yield segment, chosen


def _ended_rows(record: CommitRecord, before: Snapshot) -> Iterator[tuple[Segment, Bools]]:
    """Yield files with a mask of the rows that were live before a record and are not after it."""
    removed = frozenset(record.table("removed")["segment"].to_pylist())
    for number in _numbers(before, removed):
        chosen = _live(before, number)
        if chosen.any():
            yield before.segment(number), chosen
    yield from _deleted_rows(record, before, removed)


def _deleted_rows(
    record: CommitRecord, before: Snapshot, left_out: Container[int]
) -> Iterator[tuple[Segment, Bools]]:
    """Yield files with a mask of the rows that a record deletes.

    Args:
        left_out: Ids of segments to leave out.
    """
    vectors = record.table("vectors")
    pairs = zip(vectors["segment"].to_pylist(), vectors["positions"].to_pylist(), strict=True)
    dead_in = {segment: data for segment, data in pairs if segment not in left_out}
    for number in _numbers(before, dead_in):
        segment = before.segment(number)
        chosen = _mask(segment, dead_in[segment.id], record)
        if chosen.any():
            yield segment, chosen


def _mask(segment: Segment, data: bytes, record: CommitRecord) -> Bools:
    """Return a mask of positions that a record has of a segment."""
    chosen = np.zeros(segment.rows, np.bool_)
    stored = positions(data, segment.rows, path=record_path(record.seq))
    chosen[np.asarray(stored.to_array())] = True
    return chosen


def _numbers(snapshot: Snapshot, ids: Collection[int]) -> list[int]:
    """Return the numbers of segments in a snapshot. Raises Corrupt if it lacks one of them."""
    if not ids:
        return []
    wanted = np.array(sorted(ids), np.int64)
    numbers = np.searchsorted(snapshot.segment_ids, wanted)
    found = snapshot.segment_ids[np.minimum(numbers, len(snapshot.segment_ids) - 1)]
    if not np.array_equal(found, wanted):
        raise Corrupt("a record changes files that are not in its snapshot", path="")
    return numbers.tolist()


def _rows(metadata: Metadata, snapshot: Snapshot, segment: Segment, chosen: Bools) -> _Rows:
    """Return rows with the hashes of their keys."""
    if segment.key_map is not None:
        stored = metadata.objects.key_map(segment.key_map).verify_all()
    else:
        keys = _read_keys(metadata, segment, np.ones(segment.rows, np.bool_))
        stored = build(snapshot.definition.key_hash.hash(keys), None)
    position = np.asarray(stored.position).astype(np.int64)
    selected = chosen[position]
    return _Rows(segment, position[selected], stored.hi[selected], stored.lo[selected])


def _by_group(parts: Iterable[_Rows]) -> dict[str, list[_Rows]]:
    """Return rows by their file group."""
    found: dict[str, list[_Rows]] = {}
    for rows in parts:
        found.setdefault(rows.segment.file_id, []).append(rows)
    return found


def _without_common(old: Sequence[_Rows], new: Sequence[_Rows]) -> tuple[list[_Rows], list[_Rows]]:
    """Return the rows of each side whose keys are not on the other side."""
    if not old or not new:
        return list(old), list(new)
    hi = np.concatenate([rows.hi for rows in (*old, *new)])
    lo = np.concatenate([rows.lo for rows in (*old, *new)])
    is_new = np.repeat([False, True], [sum(map(len, old)), sum(map(len, new))])
    order, run = _in_runs(hi, lo)
    has_old, has_new = np.zeros((2, len(hi)), np.bool_)
    has_old[run[~is_new[order]]] = True
    has_new[run[is_new[order]]] = True
    is_common = np.empty(len(hi), np.bool_)
    is_common[order] = (has_old & has_new)[run]
    ends = np.cumsum([len(rows) for rows in (*old, *new)])
    kept = [
        rows.rows(~common)
        for rows, common in zip((*old, *new), np.split(is_common, ends[:-1]), strict=True)
    ]
    return (
        [rows for rows in kept[: len(old)] if len(rows)],
        [rows for rows in kept[len(old) :] if len(rows)],
    )


def _in_runs(
    hi: UInt64Array, lo: npt.NDArray[np.uint16]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return an order in which equal hashes follow each other, and the number of the run of equal
    ones at each place -> int64[n] each.
    """
    order = np.argsort(hi, kind="stable")  # fast, because it merges sorted key maps
    differs_hi, differs_lo = (np.diff(words[order]) != 0 for words in (hi, lo))
    if (differs_lo & ~differs_hi).any():
        order = np.lexsort((lo, hi))
        differs_hi, differs_lo = (np.diff(words[order]) != 0 for words in (hi, lo))
    return order, np.concatenate([[0], np.cumsum(differs_hi | differs_lo)])


def _locations(metadata: Metadata, segment: Segment, chosen: Bools) -> pa.Table:
    keys = _read_keys(metadata, segment, chosen)
    texts = segment.partition, segment.file_id, segment.instant
    places = [pa.repeat(text, len(keys)) for text in texts]
    return pa.table([keys, *places], schema=LOCATIONS)


def _deleted(metadata: Metadata, segment: Segment, chosen: Bools) -> pa.Table:
    keys = _read_keys(metadata, segment, chosen)
    return pa.table([keys, pa.repeat(segment.partition, len(keys))], schema=KEYS)


def _read_keys(metadata: Metadata, segment: Segment, chosen: Bools) -> pa.Array:
    """Return the record keys of the chosen rows of a file -> string[n]."""
    definition = metadata.cached_snapshot().definition
    table = _read(metadata, definition, segment, chosen, pa.schema([_RECORD_KEY]))
    return table[RECORD_KEY].combine_chunks().cast(pa.string())


def _read(
    metadata: Metadata,
    definition: TableDefinition,
    segment: Segment,
    chosen: Bools,
    schema: pa.Schema,
) -> pa.Table:
    """Return columns ``schema`` of the chosen rows of a file of the table ``definition``."""
    starts = np.cumsum((0, *segment.row_groups))
    with_rows = [
        number
        for number in range(len(segment.row_groups))
        if chosen[starts[number] : starts[number + 1]].any()
    ]
    parts = [chosen[starts[number] : starts[number + 1]] for number in with_rows]
    return read_columns(
        metadata.storage,
        definition,
        segment,
        schema,
        row_groups=with_rows,
        mask=np.concatenate(parts),
    )
