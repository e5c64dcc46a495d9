"""The metadata table: a checkpoint (the compacted state at one seq) and the commit records after
it.

A reader starts from the newest checkpoint, which a hint names, and applies the records after it,
probing seq + 1 until it is absent.  Hint and checkpoints are derived data and may be missing or
damaged.  The log alone gives the same snapshot.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from indexes.base import KeyIndex
from indexes.paths import leaf_paths
from indexes.predicate import And
from mdt import logs
from mdt.config import Options, canonical, parse_options
from mdt.errors import Corrupt, Invalid, Missing, Unsupported
from mdt.hudi.layout import layout_of
from mdt.limits import (
    DERIVED_CACHE_BYTES_MAX,
    INLINE_SUMMARY_BYTES_MAX,
    METADATA_COMPACT_RECORDS,
    METADATA_COMPACT_RECORDS_MAX,
    OPERATIONS_AT_ONCE_MAX,
    PAST_SNAPSHOTS_CACHED_MAX,
    RECORDS_CACHE_BYTES_MAX,
    REFERRED_CACHE_BYTES_MAX,
    SEGMENTS_CACHED_MAX,
    TWINS_CACHED_MAX,
)
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.history.foreign_writers import TimelineListing, Watch, watched_since
from mdt.metadata.history.late_records import with_late_records
from mdt.metadata.history.other_tables import not_a_table
from mdt.metadata.log import archive, codec, commit_log
from mdt.metadata.log.checkpoint_columns import HISTORY
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.apply import apply, first
from mdt.metadata.snapshot.checkpoint import checkpoint_of, is_due, to_checkpoint, wrong_stripes
from mdt.metadata.snapshot.checkpoints import (
    MANIFEST,
    VERSION,
    Checkpoint,
    Checkpoints,
    hint_to,
    rebuilt_snapshot,
)
from mdt.metadata.snapshot.key_part_merge import can_be_read, merge_key_parts, mergeable
from mdt.metadata.snapshot.key_part_reader import KeyPartReader
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.segments import KnownSegments
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.stored_columns import write_pages
from mdt.metadata.snapshot.transactions import history_row
from mdt.metadata.statistics.column_stats import FileStats
from mdt.metadata.statistics.index_summaries import SummaryCache
from mdt.metadata.statistics.usage import Usage
from mdt.schema.definition import TableDefinition
from mdt.schema.header_fields import present
from mdt.session import Recent, session
from mdt.stores.mappings import Mappings
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import Storage


class Metadata:
    """Reads and compacts the metadata of a table, and caches the newest snapshot."""

    def __init__(self, storage: Storage, overrides: Mapping[str, object] | None = None) -> None:
        """``overrides`` are options that take precedence over those stored with the table.

        Attributes of this process: ``cleaned_at`` is the last time of a cleaning check.
        ``last_archived`` is the newest archived record known.  ``swept_before`` is the first seq of
        the log at the last search for leftovers.  ``warned`` has the warnings that are not to be
        logged again.
        """
        self.storage = storage
        self.overrides = canonical(overrides)
        if "mdt.cache.memory.max" in self.overrides:
            session().memory.limit(parse_options(self.overrides).cache_memory_max)
        self.usage = Usage(storage)
        self.warned: set[str] = set()
        self._options: tuple[TableDefinition, Options] | None = None
        self._key_index: tuple[TableDefinition, KeyIndex] | None = None
        self._begin()

    def _begin(self) -> None:
        """Drop everything that was read: a mapped object was truncated, or another table may be in
        the place of this one.
        """
        storage = self.storage
        self.watch = Watch(storage)
        self.checkpoint_seq = -1
        self.cleaned_at = self.swept_before = 0
        self.last_archived = -1
        self.damage: Corrupt | None = None
        self._records: Recent[int, CommitRecord] = Recent(RECORDS_CACHE_BYTES_MAX, session().memory)
        # used by mdt.formats
        self.twins: Recent[str, Any] = Recent(TWINS_CACHED_MAX, session().memory)
        self.derived: Recent[str, Any] = Recent(DERIVED_CACHE_BYTES_MAX, session().memory)
        self._mappings = Mappings(storage)
        self.objects = ObjectReader(storage, self._mappings)
        self.summaries = SummaryCache(self.objects, is_local=storage.local_path("") is not None)
        self.segments: KnownSegments = Recent(SEGMENTS_CACHED_MAX)
        self.checkpoints = Checkpoints(
            storage,
            self._mappings,
            self.overrides,
            self.segments,
            self._report_damage,
            lambda seq: checkpoint_of(self.rebuild_checkpoint(seq)),
        )
        self.key_parts = KeyPartReader(self.objects)
        self._checkpoint: Checkpoint | None = None
        self._past: Recent[tuple[int, int], Snapshot] = Recent(PAST_SNAPSHOTS_CACHED_MAX)
        # used by mdt.metadata.references
        self.referred: Recent[Hashable, pa.Array] = Recent(
            REFERRED_CACHE_BYTES_MAX, session().memory
        )
        self._looked_at = -1
        self._newest: Snapshot | None = None

    def newest(self, *, watched: bool = True, to_end: bool | None = None) -> Snapshot:
        """Return the newest snapshot.

        O(records since the last call), and one failed probe if there are none.  Raises Unsupported
        if another Hudi writer has changed the table, unless ``watched`` is False, as within a
        transaction.  With ``to_end``, by default if ``watched``, detects that records after the
        cached snapshot were archived.  Transactions skip this, because their commit detects it.
        """
        while True:
            try:
                return self._refresh(watched, watched if to_end is None else to_end)
            except Missing as error:
                self._switch_checkpoint(error)

    def cached_snapshot(self) -> Snapshot:
        """Return the cached snapshot, which includes all commits of this process."""
        if self.storage.is_unread:
            return self.newest(watched=False)
        return self._newest or self.newest(watched=False)

    def cached_definition(self) -> TableDefinition:
        """Return the definition in the cached snapshot, without opening the files of a table."""
        return (self._newest or self.newest(watched=False)).definition

    def after(self, record: CommitRecord) -> Snapshot:
        """Return a snapshot that includes ``record``.

        Reads from storage only earlier records that are not cached.
        """
        self.remember(record)
        snapshot = self._newest
        while (
            snapshot is not None and (following := self._records.get(snapshot.seq + 1)) is not None
        ):
            before, snapshot = snapshot, apply(snapshot, following)
            if snapshot.definition.derives_from_state:
                self._past.put((snapshot.retention.first, before.seq), before)
        if snapshot is None or snapshot.seq < record.seq:
            return self.newest(watched=False)
        self._newest = snapshot
        return snapshot

    def _refresh(self, watched: bool, to_end: bool) -> Snapshot:
        if self._mappings.truncated_path() is not None:
            self._begin()  # reading behind the end of a mapped file would kill the process
        cached = self._newest
        snapshot = self._opened() if cached is None else cached
        listing, following, is_in_log = self._list_and_probe(
            snapshot, watched, None if to_end else cached
        )
        if to_end and following is not None:
            is_in_log = self._is_in_log(cached)
        if not is_in_log:
            return self._opened_again(watched, to_end)
        snapshot = self._replay(snapshot, following)
        is_ahead = listing is not None and self.watch.is_ahead(listing, snapshot)
        if is_ahead:  # the timeline may have been listed after the log was read
            snapshot = self._replay(snapshot, self.record(snapshot.seq + 1))
        if not self._is_end(snapshot, cached, to_end or is_ahead):
            if cached is not None:
                return self._opened_again(watched, to_end)
            snapshot = self._open_listed()
            snapshot = self._replay(snapshot, self.record(snapshot.seq + 1))
        if self._may_rebase(snapshot):
            snapshot = self._rebase(snapshot)
        snapshot = self._newest = with_late_records(self.watch, listing, snapshot, self.record)
        self.watch.accept(listing, snapshot)
        return snapshot

    def _opened_again(self, watched: bool, to_end: bool) -> Snapshot:
        """Return the newest snapshot of the table that is there now."""
        self._begin()
        return self._refresh(watched, to_end)

    def _is_in_log(self, snapshot: Snapshot | None) -> bool:
        """Return True if the log has the newest record of ``snapshot``. Otherwise it was archived,
        or another table is in the place of this one.
        """
        return snapshot is None or commit_log.begins_with(self.storage, snapshot.seq, snapshot.txn)

    def _list_and_probe(
        self, snapshot: Snapshot, watched: bool, cached: Snapshot | None
    ) -> tuple[TimelineListing | None, CommitRecord | None, bool]:
        """Return the listing of ``.hoodie``, if ``watched``, the record after ``snapshot``, and
        whether the record of ``cached`` is in the log.
        """
        following = partial(self.record, snapshot.seq + 1)
        if self.storage.is_imported:
            return None, following(), True
        look = partial(self.watch.look, layout_of(snapshot.definition)) if watched else _no_listing
        listing, record, is_in_log = self.storage.together(
            look, following, partial(self._is_in_log, cached)
        )
        return listing, record, is_in_log

    def _switch_checkpoint(self, error: Missing) -> None:
        """Switch to the newest checkpoint after the current one was cleaned during a read.

        Raises ``error`` unless it is newer.
        """
        current_seq = -1 if self._checkpoint is None else self._checkpoint.snapshot.seq
        newest = self.checkpoints.before(None)
        if newest is None or newest.snapshot.seq <= current_seq:
            raise error
        self._newest = self._use_checkpoint(newest)

    def _may_rebase(self, snapshot: Snapshot) -> bool:
        """Return True if a newer checkpoint may exist, or if that of ``snapshot`` may be gone."""
        if not snapshot.keeps_checkpoint(snapshot.checkpoint.seq):
            return True
        records = min(
            self.options(snapshot.definition).metadata_compact_records, METADATA_COMPACT_RECORDS
        )
        return snapshot.seq - max(self._looked_at, snapshot.checkpoint.seq) > records

    def _is_end(self, snapshot: Snapshot, cached: Snapshot | None, is_asked: bool) -> bool:
        """Return True if the next record does not exist, rather than having been archived.

        Records are removed in order.  If the record of the ``cached`` snapshot is in the log, so
        are all later ones.
        """
        if cached is None:
            self.last_archived = archive.last_archived(self.storage)
            return self.last_archived < snapshot.seq
        return not is_asked or self._is_in_log(cached)

    def _replay(self, snapshot: Snapshot, following: CommitRecord | None) -> Snapshot:
        """Apply ``following`` and all later records to ``snapshot``.

        On remote storage, doubles the number of records per batch of requests.
        """
        records, ahead = [following], 1
        while True:
            for record in records:
                if record is None:
                    return snapshot
                snapshot = apply(snapshot, record)
            if self.storage.is_remote:
                ahead = min(2 * ahead, OPERATIONS_AT_ONCE_MAX)
            seqs = range(snapshot.seq + 1, snapshot.seq + 1 + ahead)
            records = self.storage.together(*(partial(self.record, seq) for seq in seqs))

    def _rebase(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot on a newer checkpoint, if another process has written one.

        The new snapshot then has fewer additions.
        """
        self._looked_at = snapshot.seq
        try:
            seq = self.checkpoints.hinted()
            if seq is None or not snapshot.checkpoint.seq < seq <= snapshot.seq:
                return snapshot
            return self._advance(self._use_checkpoint(self.checkpoints.open(seq)), snapshot.seq)
        except Corrupt:
            return snapshot

    def at(
        self, seq: int, checkpoint_seq: int | None = None, *, newest: Snapshot | None = None
    ) -> Snapshot:
        """Return the snapshot after commit ``seq``.

        ``checkpoint_seq`` is the checkpoint to use, -1 for none.  Processes that exchange numbers
        of files or file groups must name it, because the numbers depend on it.  ``newest`` is the
        newest snapshot, if it was just read.  Raises Invalid if there is no such commit, and
        Expired if it was cleaned.
        """
        newest = newest or self.newest()
        if not 0 <= seq <= newest.seq:
            raise Invalid(f"there is no commit {seq}", hint=f"commits 0 to {newest.seq} exist")
        if seq == newest.seq and checkpoint_seq in (None, newest.checkpoint.seq):
            return newest
        if not newest.is_kept(seq):
            raise newest.expired(f"the state after commit {seq} was cleaned")
        if checkpoint_seq is not None:
            return self._advance(self._checkpoint_snapshot(checkpoint_seq), seq)
        return self.state(seq)

    def state(self, seq: int, listed: Sequence[int] | None = None) -> Snapshot:
        """Return the snapshot after commit ``seq``, whose files may have been cleaned.

        ``listed`` is a listing of the checkpoints.  Raises Missing if records are missing.
        """
        oldest = (self._newest or self.newest()).retention.first

        def read() -> Snapshot:
            if seq < oldest - 1:  # a tagged snapshot: only its checkpoint remains
                return self.checkpoints.open(seq).snapshot
            return self._advance(self._base_of(seq, listed), seq)

        return self._past.made((oldest, seq), read)

    @contextmanager
    def reading(self, snapshot: Snapshot) -> Iterator[None]:
        """Context for reading files of ``snapshot``.

        Raises Expired instead of Missing if a file is missing because the snapshot was cleaned.
        """
        try:
            yield
        except Missing as error:
            newest = self.newest()
            if not newest.is_kept(snapshot.seq):
                text = f"the state after commit {snapshot.seq} was cleaned while it was read"
            elif not newest.keeps_checkpoint(snapshot.checkpoint.seq):
                text = (
                    f"the metadata of commit {snapshot.seq} were cleaned during the read;"
                    " begin again"
                )
            elif newest.is_shared and snapshot.seq < newest.seq:
                text = f"another writer has cleaned files of the state after commit {snapshot.seq}"
            else:
                raise
            raise newest.expired(text) from error

    def _base_of(self, seq: int, listed: Sequence[int] | None) -> Snapshot:
        """Return the snapshot of a checkpoint shortly before ``seq``, or of record 0."""
        current = self._checkpoint
        if current is not None and 0 <= seq - current.snapshot.seq <= METADATA_COMPACT_RECORDS_MAX:
            return current.snapshot
        if current is None and seq <= METADATA_COMPACT_RECORDS and self.record(0) is not None:
            return self._from_log()
        checkpoint = self.checkpoints.before(seq, listed)
        return self._from_log() if checkpoint is None else checkpoint.snapshot

    def _checkpoint_snapshot(self, checkpoint_seq: int) -> Snapshot:
        """Return the snapshot of checkpoint ``checkpoint_seq``, made again if it is damaged."""
        if checkpoint_seq < 0:
            return self._from_log()
        if self._checkpoint is not None and self._checkpoint.snapshot.seq == checkpoint_seq:
            return self._checkpoint.snapshot
        try:
            return self.checkpoints.open(checkpoint_seq).snapshot
        except Corrupt:
            rebuilt = self.rebuild_checkpoint(checkpoint_seq)
            return rebuilt_snapshot(checkpoint_of(rebuilt), rebuilt)

    def rebuild_checkpoint(self, checkpoint_seq: int) -> Snapshot:
        """Return the snapshot of a checkpoint without reading it, from an older one or from the
        log.

        Raises Missing if neither is possible.
        """
        older = self.checkpoints.before(checkpoint_seq - 1)
        return self._advance(self._from_log() if older is None else older.snapshot, checkpoint_seq)

    def history(self, *, since: int = -1, until: Snapshot | None = None) -> pa.Table:
        """Return one row per commit record, oldest first, schema HISTORY.

        Rows up to ``since`` may be left out.  ``until`` is the last snapshot to include, by default
        the newest.  The archive is read only for records that are no longer in the log.  Raises
        Corrupt if it is damaged.
        """
        snapshot = until or self.newest()
        oldest = snapshot.retention.first
        if oldest <= since + 1:
            return snapshot.history
        archived = archive.read(self.storage)
        unarchived = self.history_of(len(archived), oldest - 1)  # the next cleaning archives them
        return pa.concat_tables([archived.slice(0, oldest), unarchived, snapshot.history])

    def history_of(self, first_seq: int, last_seq: int) -> pa.Table:
        """Return one row per record from ``first_seq`` to ``last_seq``, schema HISTORY.

        Raises Missing if a record is not in the log.
        """
        rows = [history_row(record) for record in self.records(first_seq, last_seq)]
        return pa.Table.from_pylist(rows, schema=HISTORY)

    def records(self, first_seq: int, last_seq: int) -> Iterator[CommitRecord]:
        """Yield the records from ``first_seq`` to ``last_seq``, read in batches from remote
        storage.

        Raises Missing at the first record that is not in the log.
        """
        seqs = range(first_seq, last_seq + 1)
        for seq, record in zip(
            seqs, self.storage.each(partial(self.record, seq) for seq in seqs), strict=True
        ):
            if record is None:
                raise Missing("a commit record is missing", path=paths.commit(seq))
            yield record

    def record(self, seq: int) -> CommitRecord | None:
        """Return commit record ``seq`` or None.  Recent records are cached."""
        record = self._records.get(seq)
        if record is None and (record := commit_log.read(self.storage, seq)) is not None:
            self.remember(record)
        return record

    def remember(self, record: CommitRecord) -> None:
        """Cache a record of the log, in the form of :func:`commit_log.read`."""
        self._records.put(record.seq, record, record.nbytes)

    def key_index(self, snapshot: Snapshot) -> KeyIndex:
        """Return the key index of the table.  Raises Unsupported if its class is not installed."""
        definition = snapshot.definition
        if self._key_index is None or self._key_index[0] is not definition:
            options = self.options(definition)
            index = key_indexes.find(definition.key_index, options, packages=definition.packages)
            self._key_index = definition, index
        return self._key_index[1]

    def key_index_problem(self, snapshot: Snapshot) -> Unsupported | None:
        """Return the error if the key index cannot be used in this process, or None."""
        try:
            self.key_index(snapshot)
        except Unsupported as error:
            return error
        return None

    def options(self, definition: TableDefinition) -> Options:
        """Return the options stored with the table, with this object's overrides."""
        if self._options is None or self._options[0] is not definition:
            self._options = definition, parse_options({**definition.options, **self.overrides})
        return self._options[1]

    def compaction_is_due(self, snapshot: Snapshot) -> bool:
        """Return True if the next open would gain from a checkpoint of ``snapshot``, the newest."""
        least = self.options(snapshot.definition).metadata_compact_records
        return is_due(snapshot, snapshot.seq - max(self.checkpoint_seq, 0), least)

    def compact(self, *, whole: bool = False) -> Snapshot:
        """Write the newest snapshot as a checkpoint, update the hint, and return it.

        Idempotent, and not a commit.  With ``whole``, removed file groups are purged from all key
        parts, which merges large ones too.
        """
        since = logs.start_time(logs.METADATA, self.storage)
        snapshot = self.newest(watched=False)
        self.write_checkpoint(snapshot, whole=whole)
        self.storage.replace(paths.HINT, hint_to(snapshot.seq))
        logs.log_end(
            logs.METADATA,
            self.storage,
            snapshot.definition.name,
            "checkpoint",
            {"seq": snapshot.seq},
            since,
        )
        self._newest = None
        return self.newest(watched=False)

    def write_checkpoint(
        self, snapshot: Snapshot, *, whole: bool = False, replacing: bool = False
    ) -> None:
        """Write a newest or past ``snapshot`` as a checkpoint.

        Keeps an existing checkpoint unless ``replacing``.
        """
        token = self.storage.random_hex(4)
        key_parts = snapshot.key_parts
        if self.key_index_problem(snapshot) is None:
            # Otherwise they stay unchanged, for a process that can read them.
            index = self.key_index(snapshot)
            snapshot, key_parts = self._without_damaged_key_parts(snapshot, index)
            key_parts = merge_key_parts(
                snapshot, key_parts, index, self.key_parts.payload, whole=whole
            )
        columns = to_checkpoint(snapshot, self._with_objects(snapshot, key_parts, token))
        objects, entries, starts, pages = write_pages(
            self.storage,
            columns,
            lambda n: paths.checkpoint_part(snapshot.seq, token, f"pages-{n}"),
        )
        header = {
            "seq": snapshot.seq,
            "definition": snapshot.definition.to_json(),
            "last_instant": snapshot.last_instant,
            **present(last_completion=snapshot.last_completion),
            "retention": snapshot.retention.to_json(),
            "watched_since": self.watch.since,
            "tags": snapshot.tags.to_json(),
            **snapshot.streams.to_json(),
            **_imports_json(snapshot),
            "rows": len(snapshot),
            "groups": len(columns["members_start"].table) - 1,
            "shards": len(snapshot.live_shards),
            "objects": objects,
            "columns": entries,
            "vector_starts": starts,
        }
        manifest = codec.frame(
            MANIFEST, VERSION, codec.pack(header, {"pages": codec.encode_ipc(pages)})
        )
        put = self.storage.replace if replacing else self.storage.put_if_absent
        put(paths.checkpoint_manifest(snapshot.seq), manifest)

    def warm(self, columns: Sequence[str] | None = None) -> None:
        """Read the data that plans need: the files, and the statistics of ``columns`` (default:
        all).
        """
        snapshot = self.newest()
        names = columns
        if names is None:
            names = [path for path, _ in leaf_paths(snapshot.definition.schema)]
        stats = FileStats(snapshot, And(()), names)
        stored = None if self._checkpoint is None else self._checkpoint.columns
        if stored is not None and snapshot.checkpoint is stored:
            checkpoint_columns = ["files/segment", "files/rows", "dead", *stats.stored()]
            stored.load([name for name in checkpoint_columns if name in stored])
        _ = snapshot.has_rows
        stats.warm()

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of each cache of this process.

        The caches are ``pages`` in memory, ``statistics`` decoded from them, and ``disk``.
        """
        counts = dict.fromkeys(("pages", "statistics", "disk"), (0, 0))
        if self._checkpoint is not None:
            columns = self._checkpoint.columns
            counts["pages"] = columns.hits, columns.misses
            counts["statistics"] = columns.statistics_hits, columns.statistics_misses
            if columns.cache is not None:
                counts["disk"] = columns.cache.hits, columns.cache.misses
        return counts

    def _without_damaged_key_parts(
        self, snapshot: Snapshot, index: KeyIndex
    ) -> tuple[Snapshot, tuple[KeyPart, ...]]:
        """Return the readable key parts of a snapshot.

        In the returned snapshot, the groups of the other parts are uncovered, so every key is
        looked up there.
        """
        damaged = [
            u
            for u in mergeable(snapshot.key_parts, index)
            if not can_be_read(u, index, self.key_parts.payload)
        ]
        if not damaged:
            return snapshot, snapshot.key_parts
        lost_groups = np.concatenate([snapshot.key_part_groups(key_part) for key_part in damaged])
        changed = replace(
            snapshot,
            uncovered_since=snapshot.uncovered.union(
                snapshot.file_groups.names(lost_groups[lost_groups >= 0].tolist())
            ),
        )
        return changed, tuple(u for u in snapshot.key_parts if all(u is not d for d in damaged))

    def _with_objects(
        self, snapshot: Snapshot, key_parts: Sequence[KeyPart], token: str
    ) -> tuple[KeyPart, ...]:
        stored_parts = []
        for number, key_part in enumerate(key_parts):
            if key_part.payload is not None and len(key_part.payload) > INLINE_SUMMARY_BYTES_MAX:
                path = paths.checkpoint_part(snapshot.seq, token, f"key_part-{number}")
                self.storage.create(path, key_part.payload)
                stored = ObjectRange(path, 0, len(key_part.payload), zlib.crc32(key_part.payload))
                key_part = replace(key_part, payload=None, stored=stored)
            stored_parts.append(key_part)
        return tuple(stored_parts)

    def _opened(self) -> Snapshot:
        """Return the snapshot of the hinted checkpoint, or of record 0 without a hint."""
        try:
            seq = self.checkpoints.hinted()
            if seq is not None:
                return self._use_checkpoint(self.checkpoints.open(seq))
        except Corrupt as error:
            self._report_damage(error)
        return self._from_log() if self.record(0) is not None else self._open_listed()

    def _open_listed(self) -> Snapshot:
        """Return the snapshot of the newest checkpoint on storage, or of record 0."""
        checkpoint = self.checkpoints.before(None)
        return self._from_log() if checkpoint is None else self._use_checkpoint(checkpoint)

    def _use_checkpoint(self, checkpoint: Checkpoint) -> Snapshot:
        """Make ``checkpoint`` the current checkpoint, and return its snapshot."""
        self._checkpoint = checkpoint
        self.watch.since = self.watch.since or watched_since(checkpoint.header)
        self.checkpoint_seq = checkpoint.snapshot.seq
        return checkpoint.snapshot

    def _from_log(self) -> Snapshot:
        record = self.record(0)
        if record is None:
            raise not_a_table(self.storage)
        return replace(first(record, path=paths.commit(0)), known=self.segments)

    def _report_damage(self, error: Corrupt) -> None:
        """Note that the checkpoint is damaged.  The next commit then writes another."""
        text = "%s: a checkpoint is damaged and is rebuilt from the log: %s"
        logs.warn_once(logs.METADATA, self.warned, str(error), text, self.storage.url, error)
        self.damage = error
        self.checkpoint_seq = -1

    def check_checkpoint(self, seq: int | None = None) -> None:
        """Read a whole checkpoint, by default the hinted one.  Raises Corrupt if anything is
        damaged.
        """
        seq = self.checkpoints.hinted() if seq is None else seq
        if seq is not None:
            columns = self.checkpoints.columns(seq, cached=False)[0]
            columns.check()
            for name in wrong_stripes(columns):
                raise Corrupt(
                    f"{name} does not match the file statistics",
                    path=paths.checkpoint_manifest(seq),
                )

    def is_intact(self, storage: Storage) -> bool:
        """Return True if the current checkpoint and the one in ``storage`` are intact, as far as
        known.

        Otherwise a repair writes another.
        """
        if self._checkpoint is None or self.damage is not None:
            return self.damage is None
        header = self._checkpoint.header
        return header == Metadata(storage).checkpoints.columns(header["seq"], cached=False)[1]

    def _advance(self, snapshot: Snapshot, seq: int) -> Snapshot:
        for record in self.records(snapshot.seq + 1, seq):
            snapshot = apply(snapshot, record)
        return snapshot


def _no_listing() -> None:
    """Return no listing of ``.hoodie``."""


def _imports_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the header field of a checkpoint with the imports, if there are any."""
    if not snapshot.imports:
        return {}
    return {"imported": snapshot.imports.to_json()}
