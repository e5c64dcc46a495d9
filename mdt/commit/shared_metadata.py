"""Hudi's metadata table of a table that other Hudi writers share: our commits keep it, too.

:func:`keep` adds a log file to each file group of it that a commit changes, and a deltacommit, as a
writer of Hudi does. Hudi's writers compact, clean and archive the metadata table. It is removed,
and Hudi's next writer makes it again, if it is out of step, if a partition of it cannot be kept
right, or if no writer of Hudi has compacted it for long.

No partition is removed alone. A writer of Hudi 1.2 that fails to make a missing one, as beside
something pending in version 6, may leave the others named and stop keeping them. Its readers fail
if an index has a definition and no partition.

Commits hold Hudi's lock, if the table has one. Names and bytes are determined by the commit record
and by what Hudi's writers have put before, so a publisher can go on after a crash.

Source: Apache Hudi 1.2, ``HoodieBackedTableMetadataWriter.java``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from mdt import logs
from mdt.commit import hudi_record_index, hudi_secondary_index, publish
from mdt.commit.hudi_column_stats import Indexed
from mdt.commit.hudi_metadata import DAMAGE, put_deltacommit
from mdt.commit.metadata_partitions import partitions_in, remove_metadata_table
from mdt.commit.operation import WITHOUT_FILES
from mdt.commit.record_entries import RecordEntries
from mdt.errors import Corrupt, Unsupported
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.column_stats_records import FORMS
from mdt.hudi.metadata_table_files import (
    BLOOM_FILTERS,
    BLOOM_SCHEMA,
    COLUMN_STATS,
    FILES,
    INDEX_SCHEMA,
    LAYOUTS,
    PARTITION_STATS,
    RECORD_INDEX,
    SCHEMA,
    SECONDARY_SCHEMA,
    STATS_SCHEMA,
    Group,
    Layout1,
    Slice,
)
from mdt.hudi.properties import PENDING_METADATA_PARTITIONS
from mdt.hudi.read import hfile
from mdt.hudi.read.fields import Fields
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.index_partition import (
    IndexPartition,
    group_numbers,
    numbered_slices,
    schema_of,
)
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import (
    SecondaryIndex,
    index_partitions,
    load_definitions,
    sampled_times,
    secondary_indexes,
)
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import (
    FOLDER,
    MetadataTable,
    load_metadata_table,
    pending_instants,
)
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.timeline import date_us
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

_LOGS_MAX = 100
"""Log files of the partition ``files`` after which the metadata table is removed. Hudi's writers
compact it after 10 deltacommits, so none has written for long.
"""
_SCHEMAS = {
    COLUMN_STATS: STATS_SCHEMA,
    PARTITION_STATS: STATS_SCHEMA,
    RECORD_INDEX: INDEX_SCHEMA,
    BLOOM_FILTERS: BLOOM_SCHEMA,
}
"""Partitions that commits can keep -> Avro schema of their records. Others are secondary indexes,
and ``files`` has the schema of its base file.
"""

Slices = Mapping[str, list[FileSlice]]
"""Beginning of names of file groups -> their slices, in the order of their numbers."""


def is_shared(metadata: Metadata, snapshot: Snapshot) -> bool:
    """Return True if another writer keeps a metadata table of a table that it shares with us."""
    return snapshot.is_shared and bool(partitions_in(metadata.watch.properties or {}))


def lost_partitions(metadata: Metadata, snapshot: Snapshot) -> set[str]:
    """Return the partitions of a shared metadata table that commits cannot keep. All of them if the
    metadata table is out of step, and none if there is no such table.

    Raises Corrupt if the properties of the table cannot be read, and Unavailable.
    """
    if not is_shared(metadata, snapshot):
        return set()
    return lost_partitions_of(metadata.storage, snapshot.definition, _instants(snapshot))


def lost_partitions_of(
    storage: Storage, definition: TableDefinition, instants: Collection[str]
) -> set[str]:
    """Return the partitions of a metadata table that commits cannot keep, if the table in
    ``storage`` is adopted with ``definition``.

    Args:
        instants: Instants of its live base files.

    Raises Corrupt if the properties of the table cannot be read, and Unavailable.
    """
    properties = load_properties(storage)
    named = partitions_in(properties.stored)
    if not named:
        return named
    try:
        table = _load(storage, properties)
        table.require_in_step()
        return named - table.kept(definition, instants, table.slices(named & {RECORD_INDEX}))
    except DAMAGE as error:
        _warn(storage, error)
        return named


def keep(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Add ``record`` to the metadata table. Call it before the record is published, and after all
    earlier records are.

    Removes the metadata table if that is not possible. A commit without files comes before a
    removal, and needs none.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Corrupt if the properties of the table cannot be read, and Unavailable.
    """
    if not newest.is_shared or not publish.has_instant(record):
        return
    # Hudi's writers may have made it while this one waited for the lock
    properties = load_properties(metadata.storage)
    if not partitions_in(properties.stored):
        return
    try:
        _load(metadata.storage, properties).add(metadata, record, newest)
    except DAMAGE as error:
        if record.header["operation"] != WITHOUT_FILES:
            _warn(metadata.storage, error)
            remove_metadata_table(metadata)


def _instants(snapshot: Snapshot) -> list[str]:
    instants: list[str] = snapshot.files.column("instant").unique().to_pylist()
    return instants


def _warn(storage: Storage, error: Exception) -> None:
    logs.METADATA.warning("%s: cannot keep Hudi's metadata table: %s", storage.url, error)


def _load(storage: Storage, properties: TableProperties) -> _SharedTable:
    data = load_timeline(storage, properties)  # before that of the metadata table
    table, definitions = storage.together(
        partial(load_metadata_table, storage), partial(load_definitions, storage, properties)
    )
    if table is None:
        raise Unsupported("it has no properties")
    layout = LAYOUTS[6 if properties.layout == 1 else 9]
    return _SharedTable(storage, properties, data, table, layout, definitions)


@dataclass(frozen=True, slots=True)
class _SharedTable:
    """Hudi's metadata table at one moment.

    Attributes:
        properties: Those of the data table.
        data: The timeline of the data table, which was loaded before.
        layout: Names and bodies of its files.
        definitions: Hudi's definitions of indexes, by name.
    """

    storage: Storage
    properties: TableProperties
    data: Timeline
    table: MetadataTable
    layout: Layout1
    definitions: Fields

    def require_in_step(self, record: CommitRecord | None = None) -> None:
        """Raise Unsupported if it lacks a commit, or if something is pending that no writer at work
        explains.

        Args:
            record: The commit record that is added.
        """
        stored, own = self.properties.stored, "" if record is None else record.instant
        if FILES not in partitions_in(stored):
            raise Unsupported("it does not list files")
        if stored.get(PENDING_METADATA_PARTITIONS):
            raise Unsupported("an index is being built")
        problem = self.table.problem(self.data)
        if problem:
            raise Unsupported(problem)
        at_work = {own}
        if self.properties.layout != 1:  # names of log files have the instants of their writers
            at_work |= pending_instants(self.data)
        dead = pending_instants(self.table.timeline) - at_work
        if dead:
            raise Unsupported(f"Hudi's metadata table has the pending instant {min(dead)}")
        if record is not None and record.completion:
            last = max((file.completion for file in self.table.timeline.writes()), default="")
            if last >= record.completion:
                raise Unsupported(f"it has the commit {last}, after that of {own}")

    def kept(
        self,
        definition: TableDefinition,
        instants: Collection[str],
        slices: Mapping[str, Slices],
        entries: RecordEntries | None = None,
    ) -> set[str]:
        """Return the partitions that commits can keep.

        Args:
            definition: Before a commit or, with its ``entries``, after it.
            instants: Instants of live files.
            slices: Those of the record index, if there is one.

        Raises Corrupt and Missing.
        """
        named = partitions_in(self.properties.stored)
        kept = named & {FILES}
        if definition.parsed.write_footer_bloom:
            kept |= named & {BLOOM_FILTERS}
        if RECORD_INDEX in named and self._keeps_record_index(
            definition, instants, slices[RECORD_INDEX]
        ):
            kept.add(RECORD_INDEX)
            # a key that is live twice may have the same value, and then one entry for both rows
            is_once = not hudi_record_index.problem(definition)
            if is_once and (entries is None or not entries.record.alters):
                kept.update(self._secondary(definition))
        indexed = self._indexed(definition)
        if indexed is not None and self._has_bounds(definition, entries):
            kept |= named & {COLUMN_STATS, PARTITION_STATS}
        return kept

    def _keeps_record_index(
        self, definition: TableDefinition, instants: Collection[str], prefixes: Collection[str]
    ) -> bool:
        """Return True if commits can keep the record index, of the table or of each partition."""
        by_partition = bool(index_partitions(prefixes))
        if not prefixes or hudi_record_index.problem(definition, by_partition=by_partition):
            return False
        return self.properties.time_zone == "UTC" or self._has_times_in_utc(instants)

    def _secondary(self, definition: TableDefinition) -> dict[str, tuple[SecondaryIndex, pa.Field]]:
        """Return the secondary indexes that commits can keep beside a record index, with their
        columns in the table, by partition of the metadata table.
        """
        found = {}
        for index in secondary_indexes(partitions_in(self.properties.stored), self.definitions):
            column = hudi_secondary_index.column_of(definition, index)
            if column is not None and index.is_known:
                found[index.name] = index, column
        return found

    def _has_times_in_utc(self, instants: Collection[str]) -> bool:
        """Return True if the record index has an instant of the table, read in UTC.

        Hudi's writers take a key with another instant for new, and insert its row again.
        """
        index = IndexPartition(self.storage, self.table, self.data, RECORD_INDEX)
        groups = ((p, number) for p in index.prefixes() for number in range(index.size(p)))
        for group in (index.group(*place) for place in groups):
            files = [block for block in group.blocks if not isinstance(block, pa.Array)]
            if group.base is not None:
                files.append((group.base, schema_of(group.base)))
            sampled = [sampled_times(file, schema) for file, schema in files if file.count]
            if sampled:
                times = {*pa.concat_arrays(sampled).to_pylist()}
                known = chain(self.data.completed, instants)  # often the first one is among them
                return any(date_us(instant) // 1000 in times for instant in known)
        return True  # no key has an instant

    def _indexed(self, definition: TableDefinition) -> Indexed | None:
        """Return the content of the column statistics, or None if there are none or they cannot be
        kept.

        Hudi 1.2 has two forms of timestamps in version 8, and cannot join them.
        """
        fields = None
        if COLUMN_STATS in partitions_in(self.properties.stored):
            fields = self.definitions.record(COLUMN_STATS)
        indexed = None if fields is None else Indexed.from_hudi(definition, fields)
        has_one_form = indexed is None or indexed.form is FORMS[9] or self.properties.layout == 1
        return indexed if has_one_form else None

    def _has_bounds(self, definition: TableDefinition, entries: RecordEntries | None) -> bool:
        """Return True if the column statistics get all files of a record that must be there.

        Bounds of partitions are joined from them, and Hudi's writers do so since version 8.
        """
        if entries is None:
            return True
        if entries.record.alters:
            return False
        needs_all = self.properties.layout != 1 and bool(definition.partition_by)
        needs_all = needs_all or PARTITION_STATS in partitions_in(self.properties.stored)
        return not needs_all or entries.bounds.is_complete

    def slices(self, partitions: Collection[str]) -> dict[str, Slices]:
        """Return the slices of partitions. Raises Corrupt and Missing."""
        listed = (partial(self.table.state, self.storage, name) for name in partitions)
        states = zip(partitions, self.storage.together(*listed), strict=True)
        return {name: numbered_slices(state, f"{FOLDER}/{name}") for name, state in states}

    def add(self, metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
        """Put the log files and the instants of a record."""
        if record.instant in self.table.timeline.completed:
            return  # an earlier publisher has put it
        self.require_in_step(record)
        after = newest if newest.seq == record.seq else metadata.state(record.seq)
        definition, secondary = after.definition, self._secondary(after.definition)
        columns = {name: column for name, (_, column) in secondary.items()}
        indexed = self._indexed(definition)
        entries = RecordEntries(metadata, record, after, definition, columns, indexed)
        named = partitions_in(self.properties.stored)
        slices = self.slices(named & {FILES, *_SCHEMAS, *secondary})
        kept = self.kept(definition, _instants(after), slices, entries)
        lost = named - kept
        if lost and record.header["operation"] != WITHOUT_FILES:  # which comes before a removal
            raise Unsupported(f"commits of mdt cannot keep {', '.join(sorted(lost))}")
        changes = (
            self._changes(entries, name, slices[name], secondary.get(name, (None,))[0])
            for name in sorted(kept)
        )
        token = record.token or 0  # no writer of Hudi has it
        put_deltacommit(self.storage, self.layout, record, token, chain.from_iterable(changes))

    def _changes(
        self,
        entries: RecordEntries,
        partition: str,
        numbered: Slices,
        index: SecondaryIndex | None,
    ) -> Iterator[tuple[Slice, pa.RecordBatch]]:
        """Yield the slices that a record changes, and their entries, sorted by key.

        Args:
            numbered: Slices of the partition.
            index: The secondary index, if it is one.
        """
        if partition == RECORD_INDEX and index_partitions(numbered):
            yield from self._changes_by_partition(entries, numbered)
            return
        slices, *others = numbered.values() or [[]]
        if others or not slices or (partition == FILES and len(slices) > 1):
            raise Corrupt("it has unknown file groups, or none", path=f"{FOLDER}/{partition}")
        if partition == FILES:
            yield self._listing(slices[0], entries)
        else:
            yield from _distributed(partition, slices, entries.in_partition(partition), index)

    def _changes_by_partition(
        self, entries: RecordEntries, numbered: Slices
    ) -> Iterator[tuple[Slice, pa.RecordBatch]]:
        """Yield the changes of a record index of each partition. Hudi's writers look for a file
        group in all partitions of the table, so new ones get one, also if they have no keys.
        """
        prefixes = index_partitions(numbered)
        for path, changed in entries.keys_by_partition.items():
            if path in prefixes:
                yield from _distributed(RECORD_INDEX, numbered[prefixes[path]], changed)
            else:
                group = table_files.index_group(path)
                yield Slice(group, entries.record.instant, "", ()), changed

    def _listing(
        self, file_slice: FileSlice, entries: RecordEntries
    ) -> tuple[Slice, pa.RecordBatch]:
        """Return the slice of ``files``, and its entries, in the schema of its base file:
        hudi-rs 0.5 reads all files of a slice with that.
        """
        if len(file_slice.logs) >= _LOGS_MAX:
            raise Unsupported(f"no writer of Hudi has compacted it for {_LOGS_MAX} commits")
        schema = SCHEMA
        if file_slice.base is not None:
            path = f"{FOLDER}/{file_slice.path(file_slice.base)}"
            schema = schema_of(hfile.open_object(self.storage, path, file_slice.base.size))
        group = Group(FILES, file_slice.file_id, schema)
        return _slice_of(group, file_slice), entries.in_partition(FILES, schema)


def _slice_of(group: Group, file_slice: FileSlice) -> Slice:
    base_name = "" if file_slice.base is None else file_slice.base.name
    return Slice(group, file_slice.instant, base_name, tuple(log.name for log in file_slice.logs))


def _distributed(
    partition: str,
    slices: list[FileSlice],
    entries: pa.RecordBatch,
    index: SecondaryIndex | None = None,
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """Yield the slices with the keys of entries, and their entries.

    Args:
        slices: Of all file groups, in the order of their numbers.
        index: The secondary index, if it is one.
    """
    keys = [key.decode() for key in entries["key"].to_pylist()]
    numbers = group_numbers(keys if index is None else index.hashed(keys), len(slices))
    schema = _SCHEMAS.get(partition, SECONDARY_SCHEMA)
    for number in np.unique(numbers).tolist():
        chosen = pa.array(np.flatnonzero(numbers == number))
        group = Group(partition, slices[number].file_id, schema)
        yield _slice_of(group, slices[number]), entries.take(chosen)
