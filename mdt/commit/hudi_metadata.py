"""Hudi's metadata table of a table of ours: kept by each commit, or removed.

With the option ``mdt.hudi.metadata``, :func:`keep` puts the deltacommit of a commit record before
the completed instant of the record. Readers of Hudi ignore it until then. Names and bytes are
determined by the record and by the deltacommits of earlier records, so two publishers put the same.
A crash in between leaves a deltacommit that the next publisher of the record finds.

If the metadata table is out of step, as after a crash or a writer that did not know it, it is made
anew from the snapshot before the record. Without a metadata table readers list directories, and the
next Hudi writer builds it again.

The partition ``column_stats`` is kept with the option ``mdt.hudi.column.stats``. It is made anew,
too, if a commit alters the schema or if other columns get statistics, and so is
``partition_stats``, with ``mdt.hudi.partition.stats``. ``record_index`` is kept with
``mdt.hudi.record.index``, with it secondary indexes with ``mdt.hudi.secondary.index``, and
``bloom_filters`` with ``mdt.hudi.bloom.filters``. A partition that cannot be kept is taken out of
the properties. Their lack of it tells later commits not to try again each time, as that takes all
files or keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from mdt import logs
from mdt.commit import (
    claims,
    hudi_bloom_filters,
    hudi_column_stats,
    hudi_record_index,
    hudi_secondary_index,
    publish,
)
from mdt.commit.hudi_column_stats import Bounds
from mdt.commit.metadata_partitions import (
    PARTITIONS,
    name_partitions,
    partitions_in,
    remove_from_properties,
    remove_metadata_table,
)
from mdt.commit.record_entries import RecordEntries
from mdt.errors import Corrupt, Invalid, Missing, Unsupported
from mdt.hudi import column_stats_records, properties, record_index_records
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.index_definitions import DEFINITIONS, DEFINITIONS_PROPERTY, with_definitions
from mdt.hudi.metadata_table_files import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    LAYOUTS,
    PARTITION_STATS,
    RECORD_INDEX,
    Group,
    Layout1,
    NewFile,
    Slice,
    group_of,
    index_group,
)
from mdt.hudi.metadata_table_state import (
    TableState,
    end_of,
    has_later,
    is_after,
    is_file,
    next_ms,
    seq_of,
    state_of,
)
from mdt.hudi.read import hfile_entries, metadata_table
from mdt.hudi.read.key_indexes import SECONDARY_INDEX
from mdt.hudi.read.metadata_state import FOLDER
from mdt.hudi.timeline import COMPLETED, Instant
from mdt.limits import HEADER_JSON_BYTES_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import Listing, Storage

DAMAGE = (Corrupt, Missing, Unsupported, Invalid)
"""Errors of a damaged metadata table. Invalid ones are of entries that cannot be written again."""
_COMMITS_PER_TRY = 100
"""A partition that could not be kept is tried again by the commits whose seq is a multiple."""


# -- keeping


def is_kept(snapshot: Snapshot) -> bool:
    """Return True if commits keep Hudi's metadata table: the table has the option, and no other
    Hudi writer writes to it.
    """
    return snapshot.definition.parsed.hudi_metadata and not snapshot.is_shared


def is_in_step(metadata: Metadata) -> bool:
    """Return True if commits keep Hudi's metadata table, if there is one, or remove it.

    That includes a record that turns it off and is not published: the next writer publishes the
    record and removes the metadata table.
    """
    snapshot = metadata.cached_snapshot()
    if snapshot.is_shared or is_kept(snapshot):
        return True
    if not (metadata.watch.properties or {}).get(PARTITIONS):
        return True
    for claim in claims.read_all(metadata.storage)[0]:
        seq = snapshot.transactions.get(claim.txn)
        record = None if seq is None else metadata.record(seq)
        if record is not None and record.redefines:
            return True
    return False


def kept_partitions(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the partitions that commits keep if they keep the metadata table."""
    partitions = [FILES]
    if snapshot.definition.parsed.hudi_column_stats:
        partitions.append(COLUMN_STATS)
        if hudi_column_stats.has_partitions(snapshot.definition):
            partitions.append(PARTITION_STATS)
    if snapshot.definition.parsed.hudi_bloom_filters:
        partitions.append(BLOOM_FILTERS)
    if hudi_record_index.is_kept(snapshot):
        partitions += [RECORD_INDEX, *hudi_secondary_index.columns(snapshot.definition)]
    return tuple(partitions)


def keep(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Add ``record`` to Hudi's metadata table. Call it before the record is published, and after
    all earlier records are.

    Removes the metadata table if the table has the option no more.

    Args:
        newest: A snapshot with the record, or a later one.

    Raises Unavailable, and Corrupt if the properties of the table cannot be read.
    """
    if newest.is_shared:
        return
    if not is_kept(newest):
        # A record that turns it off reads again: a publisher that paused may have set it since.
        if record.redefines or (metadata.watch.properties or {}).get(PARTITIONS):
            remove_metadata_table(metadata)
        return
    if record.seq and publish.has_instant(record):
        _Keeper(metadata, record, newest, LAYOUTS[newest.definition.hudi_version]).keep()


def put_deltacommit(
    storage: Storage,
    layout: Layout1,
    record: CommitRecord,
    token: int,
    changes: Iterable[tuple[Slice | Group, pa.RecordBatch]],
) -> None:
    """Put the files and the instants of a record in the metadata table, the completed instant last.

    Args:
        token: Number in the names of its log files.
        changes: Slices and the entries of their log files, or new file groups and the entries of
            their base files.
    """
    log_files, bases, contents = list[tuple[Slice, NewFile]](), list[tuple[Group, NewFile]](), []
    for target, entries in changes:
        if isinstance(target, Group):
            group, (file, data) = target, _base_file(target, entries, record.instant, record.seq)
            bases.append((group, file))
        else:
            group = target.group
            older, name = table_files.next_log_file(layout, target, token, record.instant)
            data = group.log_file(entries, record.instant)
            file = NewFile(name, len(data), len(entries))
            log_files.append((older, file))
        contents.append((group.path(file.name), data))
    completed = Instant(record.instant, "deltacommit", COMPLETED, record.completion)
    *pending, done = table_files.delta_instants(layout, completed, log_files, bases)
    put = storage.put_if_absent
    # pending instants first: Hudi's next writer rolls back what they announce
    storage.together(*(partial(put, *file) for file in (*pending, *contents)))
    put(*done)


def _base_file(
    group: Group, entries: pa.RecordBatch, instant: str, seq: int
) -> tuple[NewFile, bytes]:
    """Return a base file with sorted entries."""
    data = group.base_file(entries, instant)
    return NewFile(group.base_name(instant, seq), len(data), len(entries)), data


class _Keeper:
    """Adds a record to the metadata table."""

    def __init__(
        self, metadata: Metadata, record: CommitRecord, newest: Snapshot, layout: Layout1
    ) -> None:
        self._metadata, self._storage = metadata, metadata.storage
        self._record, self._newest, self._layout = record, newest, layout
        self._after, self._definition = newest, newest.definition
        if newest.seq != record.seq:
            self._after = metadata.state(record.seq)
            self._definition = replace(self._after.definition, hudi_version=layout.table.version)
        self._partitions = kept_partitions(self._after)
        self._by_partition = hudi_record_index.is_by_partition(self._definition)
        self._secondary = hudi_secondary_index.columns(self._definition)
        self._entries = RecordEntries(
            metadata, record, self._after, self._definition, self._secondary
        )
        self._current = FILES
        """The partition whose entries are made."""

    def keep(self) -> None:
        """Add the record, with as many partitions as possible. If there are none, readers list
        files.
        """
        wanted = self._partitions
        likely = partitions_in(self._metadata.watch.properties or {}).intersection(wanted)
        stored, definitions, listed, _ = self._storage.together(
            partial(read_properties, self._storage),
            self._stored_definitions if self._definitions() else lambda: None,
            partial(self._storage.list, FOLDER),
            partial(self._read_ahead, likely),
        )
        if stored is None or not self._is_of_version(stored):
            return
        named = partitions_in(stored)
        self._partitions = self._usable(name for name in wanted if self._may_keep(name, named))
        has_groups = RECORD_INDEX not in self._partitions or not self._by_partition
        if not named and not has_groups and not self._after.numbered:
            return  # the record index would have no file, as no partition has any
        state = self._state(listed)
        while FILES in self._partitions:
            if self._goes_on(state, named, definitions):
                return
            try:
                return self._append(self._build())
            except DAMAGE as error:
                logs.METADATA.warning(
                    "%s: cannot keep %s in Hudi's metadata table: %s",
                    self._storage.url,
                    self._current,
                    error,
                )
                self._leave_out(self._current)
            state = self._load()
        remove_from_properties(self._metadata)

    def _may_keep(self, partition: str, named: AbstractSet[str]) -> bool:
        """Return True if a partition can be kept or, if it was left out, is to be tried again. That
        takes all files or keys, so few commits do it.

        Args:
            named: Partitions that the metadata table has.
        """
        record, is_made = self._record, partition in named
        may_try = FILES not in named or record.redefines or record.seq % _COMMITS_PER_TRY == 0
        if not is_made and not may_try and not self._follows_index():
            return False
        if partition in (COLUMN_STATS, PARTITION_STATS):
            return self._can_have_column_stats(named)
        return partition != RECORD_INDEX or is_made or hudi_record_index.may_begin(self._after)

    def _follows_index(self) -> bool:
        """Return True if an index of ours was added or built since the last commit on the
        timeline.
        """
        for seq in range(self._record.seq - 1, max(self._newest.retention.first, 1) - 1, -1):
            record = self._metadata.record(seq)
            if record is None or publish.has_instant(record):
                return False
            if "indexes" in record.header or "indexing" in record.header:
                return True
        return False

    def _goes_on(
        self, state: TableState, named: AbstractSet[str], definitions: bytes | None
    ) -> bool:
        """Add the record to the metadata table. Return False if it must be built again.

        Args:
            named: Partitions that the metadata table has.
            definitions: The file of Hudi's definitions, or None.
        """
        if self._is_beyond(state, named):
            return True
        try:
            if named >= {*self._partitions} and self._is_in_step(state, definitions):
                if named != {*self._partitions}:
                    self._set_partitions()
                self._append(self._compacted(state))
                return True
        except DAMAGE as error:
            logs.METADATA.warning(
                "%s: built Hudi's metadata table again: %s", self._storage.url, error
            )
        return False

    def _is_beyond(self, state: TableState, named: AbstractSet[str]) -> bool:
        """Return True if the metadata table has the record, and names its partitions."""
        record = self._record
        return named == {*self._partitions} and state.is_beyond(record.seq, record.instant)

    def _can_have_column_stats(self, named: AbstractSet[str]) -> bool:
        """Return True if ``column_stats`` can have all files, or need not.

        Args:
            named: Partitions that the metadata table has. If ``column_stats`` is one of them, it
                has the files before the record.
        """
        if not hudi_column_stats.needs_all_files(self._definition):
            return True
        if not self._entries.bounds.is_complete:
            return False
        if COLUMN_STATS in named:
            return True
        before = self._metadata.state(self._record.seq - 1)
        return Bounds.from_snapshot(before, self._definition).is_complete

    def _leave_out(self, partition: str) -> None:
        self._partitions = self._usable(name for name in self._partitions if name != partition)

    def _usable(self, partitions: Iterable[str]) -> tuple[str, ...]:
        """Return partitions without those that readers use with another one that is missing."""
        needed = {PARTITION_STATS: COLUMN_STATS, **dict.fromkeys(self._secondary, RECORD_INDEX)}
        names = tuple(partitions)
        return tuple(name for name in names if needed.get(name, name) in names)

    def _read_ahead(self, partitions: Collection[str]) -> None:
        """Read what the entries of the record in ``partitions`` need. Errors are raised again when
        the entries are made.
        """
        with suppress(*DAMAGE):
            self._entries.read(partitions, by_partition=self._by_partition)

    def _load(self) -> TableState:
        """List the metadata table."""
        return self._state(self._storage.list(FOLDER))

    def _state(self, listed: Listing) -> TableState:
        """Return the state of the metadata table.

        Args:
            listed: All its files.
        """
        listings: dict[str, dict[str, int]] = {name: {} for name in self._partitions}
        instants = set[Instant]()
        for info in listed:
            folder, _, name = info.path.rpartition("/")
            partition = folder.removeprefix(f"{FOLDER}/")
            if partition in listings:
                listings[partition][name] = info.size
            elif folder == self._layout.timeline:
                instants.update(filter(None, [self._layout.instant_at(info.path)]))
        last = self._last(instants, chain.from_iterable(listings.values()))
        return state_of(self._layout, instants, listings, last, by_partition=self._by_partition)

    def _last(self, instants: Iterable[Instant], names: Iterable[str]) -> tuple[int, str]:
        """Return the largest seq and the latest time that a commit can have given to what was
        listed before. What is beyond, nobody would ever replace.
        """
        record = self._record
        seq, time = record.seq, next_ms(max(record.instant, record.completion))
        if has_later(instants, names, seq, time):
            newest = self._metadata.newest(watched=False)
            seq, time = newest.seq, next_ms(newest.last_time)
        return seq, time

    def _is_in_step(self, state: TableState, definitions: bytes | None) -> bool:
        """Return True if the metadata table has the commit before and the right definitions, and
        nothing is left half done by anyone but a publisher of this record.
        """
        expected, newest = {self._record.instant}, state.newest_delta()
        if newest is not None:
            expected.add(self._layout.compaction(newest).time)
        if state.has_strays or not state.is_complete() or not state.pending() <= expected:
            return False
        if state.has_lost_files(self._record.seq, self._record.instant):
            return False
        if {COLUMN_STATS, *self._secondary} & {*self._partitions} and self._record.alters:
            return False
        own = self._definitions()
        if own and definitions != with_definitions(definitions, own):
            return False
        first = min(i.time for i in state.instants)
        if self._record.instant < first:
            return False  # readers expect all instants since the first one
        if not {i.time for i in state.instants if self._layout.is_initial(i)} <= {first}:
            return False  # a publisher that paused has made it too, or added to an older one
        if Instant(self._record.instant, "commit", COMPLETED) in state.instants:
            return False  # a compaction has the same time
        for seq in range(self._record.seq - 1, max(self._newest.retention.first, 1) - 1, -1):
            record = self._metadata.record(seq)
            if record is None:
                break
            if publish.has_instant(record):
                return state.has(record.instant)
        return True

    def _stored_definitions(self) -> bytes | None:
        """Return the file of Hudi's definitions, or None if there is none of a usable size."""
        try:
            return self._storage.read_if_exists(DEFINITIONS, HEADER_JSON_BYTES_MAX)
        except Corrupt:
            return None

    def _definitions(self) -> dict[str, dict[str, Any]]:
        """Return Hudi's definitions of the partitions that have one."""
        definitions = {}
        if COLUMN_STATS in self._partitions:
            definitions[COLUMN_STATS] = hudi_column_stats.index_definition(self._definition)
        if RECORD_INDEX in self._partitions:
            definitions[RECORD_INDEX] = record_index_records.index_definition(
                by_partition=self._by_partition
            )
        for name in self._secondary.keys() & {*self._partitions}:
            definitions[name] = hudi_secondary_index.index_definition(name)
        return definitions

    def _build(self) -> TableState:
        """Make the metadata table from the snapshot before the record. Return its state.

        A publisher of a later record may have made it meanwhile. Only what belongs to earlier
        records is deleted, and the instant follows from the record, so what is newer stays newer.
        """
        seq = self._record.seq
        before = self._metadata.state(seq - 1)
        entries = self._initial_entries(before)
        state, stored = self._load(), read_properties(self._storage) or {}
        if self._is_beyond(state, partitions_in(stored)):
            return state  # another publisher went on, and removed what this one missed
        newest = publish.newest_instant(before)
        initial = self._layout.initialization(newest, seq, self._record.completion)
        remove_from_properties(self._metadata)
        self._storage.delete_many(self._leftovers(initial))
        content = properties.encode(self._layout.properties(self._newest.definition.name))
        self._storage.replace(f"{FOLDER}/{paths.PROPERTIES}", content)
        marker = properties.partition_metadata(initial.time, 1)
        for path in map(paths.partition_metadata, self._partitions):
            self._storage.replace(f"{FOLDER}/{path}", marker)
        files = self._storage.each(
            partial(self._initialize, *partition, initial.time) for partition in entries.items()
        )
        for path, body in table_files.initial_instants(self._layout, initial, [*files]):
            self._storage.replace(path, body)
        self._set_partitions()
        return self._load()

    def _initial_entries(self, before: Snapshot) -> dict[Group, pa.RecordBatch]:
        """Return the file groups of all partitions, with the entries of a snapshot."""
        entries = dict[Group, pa.RecordBatch]()
        for partition in self._partitions:
            self._current = partition
            if partition == RECORD_INDEX and self._by_partition:
                by_path = hudi_record_index.snapshot_entries_by_partition(self._metadata, before)
                entries |= {index_group(path): by_path[path] for path in by_path}
            else:
                entries[group_of(partition)] = self._entries_of(before, partition)
        return entries

    def _entries_of(self, before: Snapshot, partition: str) -> pa.RecordBatch:
        """Return the entries of all files of a snapshot."""
        if partition == COLUMN_STATS:
            if not self._can_have_column_stats(frozenset()):
                raise Unsupported("there are files without statistics")
            return hudi_column_stats.snapshot_entries(self._metadata, before, self._definition)
        if partition == PARTITION_STATS:
            return self._partition_stats(before)
        if partition == RECORD_INDEX:
            return hudi_record_index.snapshot_entries(self._metadata, before)
        if partition == BLOOM_FILTERS:
            return hudi_bloom_filters.snapshot_entries(self._metadata, before)
        if partition in self._secondary:
            column = self._secondary[partition]
            return hudi_secondary_index.snapshot_entries(
                self._metadata, before, self._definition, column
            )
        listing = references.hudi_files(self._metadata, before)
        return table_files.records(listing, listing)

    def _partition_stats(self, before: Snapshot) -> pa.RecordBatch:
        """Return the bounds of all partitions of a snapshot."""
        return hudi_column_stats.snapshot_partition_entries(
            self._metadata, before, self._definition
        )

    def _initialize(
        self, group: Group, entries: pa.RecordBatch, instant: str
    ) -> tuple[Group, NewFile]:
        """Put the first base file of a file group."""
        file, data = _base_file(group, entries, instant, self._record.seq)
        self._storage.replace(group.path(file.name), data)
        return group, file

    def _leftovers(self, initial: Instant) -> list[str]:
        """Return the paths of what an initialization replaces."""
        markers = [paths.PROPERTIES, *map(paths.partition_metadata, self._partitions)]
        kept = {f"{FOLDER}/{path}" for path in markers}
        replaced, listed = [], self._storage.list(FOLDER)
        instants = filter(None, (self._layout.instant_at(info.path) for info in listed))
        names = (info.path.rpartition("/")[2] for info in listed)
        last_seq, last_time = self._last(instants, names)
        for info in listed:
            folder, _, name = info.path.rpartition("/")
            instant = self._layout.instant_at(info.path)
            if folder == self._layout.timeline and instant is not None:
                is_later = end_of(instant) >= end_of(initial) and not is_after(instant, last_time)
            else:
                is_ours = folder.rpartition("/")[2] in self._partitions and is_file(name)
                is_later = is_ours and self._record.seq <= seq_of(name) <= last_seq
            if not is_later and info.path not in kept:
                replaced.append(info.path)
        return replaced

    def _set_partitions(self) -> None:
        """Set the property with the partitions. The others are not kept, and no longer valid.

        Later commits do not keep what an option has turned off while this publisher waited.
        """
        newest = self._metadata.newest(watched=False)
        while is_kept(newest):
            wanted = kept_partitions(newest)
            self._partitions = tuple(name for name in self._partitions if name in wanted)
            if not self._replace_partitions():
                return
            newest = self._metadata.newest(watched=False)
            if is_kept(newest) and {*self._partitions} <= {*kept_partitions(newest)}:
                return
        remove_metadata_table(self._metadata)

    def _replace_partitions(self) -> bool:
        """Set the property, and delete the other partitions. Return False if another process has
        upgraded the table.
        """
        stored = read_properties(self._storage) or {}
        if not self._is_of_version(stored):
            return False
        definitions, more = self._definitions(), {}
        older = self._stored_definitions()
        if definitions or older is not None:
            # readers fail if a secondary index has a definition and no partition
            content = with_definitions(older, definitions, SECONDARY_INDEX)
            self._storage.replace(DEFINITIONS, content)
            more[DEFINITIONS_PROPERTY] = DEFINITIONS
        name_partitions(self._metadata, stored, self._partitions, more)
        return True

    def _is_of_version(self, stored: Mapping[str, str]) -> bool:
        """Return True if properties have the table version of the metadata table. While a table is
        upgraded they do not.
        """
        return stored.get(properties.VERSION) == str(self._layout.table.version)

    def _append(self, state: TableState) -> None:
        """Put the log files and the instants of the record."""
        if state.is_beyond(self._record.seq, self._record.instant):
            return
        if not state.is_complete():  # another publisher has removed it, or part of it
            return remove_metadata_table(self._metadata)
        slices = {base.group: base for base in state.slices()}
        changes = (
            (slices.get(group, group), entries)
            for group, entries in self._changes(slices)
            if group not in slices or len(entries) or group.partition == FILES
        )
        put_deltacommit(self._storage, self._layout, self._record, self._record.seq, changes)

    def _changes(self, known: Collection[Group]) -> Iterator[tuple[Group, pa.RecordBatch]]:
        """Yield file groups, and their entries of the record.

        Args:
            known: The file groups that exist.
        """
        for partition in self._partitions:
            self._current = partition
            if partition == RECORD_INDEX and self._by_partition:
                yield from self._changes_by_partition(known)
            else:
                yield group_of(partition), self._entries.in_partition(partition)

    def _changes_by_partition(
        self, known: Collection[Group]
    ) -> Iterator[tuple[Group, pa.RecordBatch]]:
        """Yield the file groups of a record index of each partition, and their entries. Hudi's
        writers look for one in each partition, so new ones without keys get one, too.
        """
        changes = self._entries.keys_by_partition
        groups = {path: index_group(path) for path in changes}
        if any(group not in known for group in groups.values()):
            before = self._metadata.state(self._record.seq - 1)
            for path in references.hudi_files(self._metadata, before):
                if path in groups and groups[path] not in known:
                    raise Corrupt("the record index lacks a partition", path=FOLDER)
        for path, group in groups.items():
            yield group, changes[path]

    def _compacted(self, state: TableState) -> TableState:
        """Merge slices with many log files into new base files. Return the new state.

        Removes what is older than the slices. The record itself is not in the new base files, so
        if it has a log file in a slice, or the same time, the next record merges it.
        """
        newest = state.newest_delta()
        slices = [files.slice for files in state.files.values() if files.slice and files.is_due]
        if newest is None or not slices or self._record.seq in state.seqs():
            return state
        completed = self._layout.compaction(newest)
        if self._record.instant == completed.time:
            return state
        files, contents = [], []
        for base in slices:
            entries = self._merged_entries(base)
            file, data = _base_file(base.group, entries, completed.time, self._record.seq)
            files.append((base, file))
            contents.append((base.group.path(file.name), data))
        *pending, done = table_files.compaction_instants(self._layout, completed, files)
        put = self._storage.put_if_absent
        for path, content in pending:
            put(path, content)
        self._storage.together(*(partial(put, *file) for file in contents))
        put(*done)
        self._storage.delete_many([path for files in state.files.values() for path in files.old])
        self._archive(state, min(base.base_instant for base in state.slices() if base.log_names))
        return self._load()

    def _merged_entries(self, base: Slice) -> pa.RecordBatch:
        base_path = base.group.path(base.base_name)
        log_paths = base.log_paths()
        if base.group.partition == FILES:
            listing = metadata_table.load_slice(self._storage, base_path, log_paths)
            return table_files.records(listing, listing)
        if base.group.partition == PARTITION_STATS:
            return self._partition_stats(self._metadata.state(self._record.seq - 1))
        parts = metadata_table.load_entries(self._storage, base_path, log_paths, base.group.schema)
        if base.group.partition == COLUMN_STATS:
            return column_stats_records.merge(parts)
        return hfile_entries.merge(parts)

    def _archive(self, state: TableState, first: str) -> None:
        """Remove the instants before those completed since ``first``, if there are many. Readers
        take what is older than the timeline for complete, so the oldest ones go first.
        """
        old = state.outdated(first)
        completed = [self._layout.path_of(i) for i in old if i.state == COMPLETED]
        self._storage.delete_many([self._layout.path_of(i) for i in old if i.state != COMPLETED])
        for path in completed:
            self._storage.delete(path)
