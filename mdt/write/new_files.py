"""The write core: turns slices into files and index summaries.

Operations, services and engine tasks create slices (:mod:`mdt.write.slices`) and pass them to
:meth:`WriteJob.run`.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import MANY_VALUES, is_sorted, task_starter
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.hudi import base_file, log_file
from mdt.hudi.avro_schema import RECORD_KEY, avro_schema
from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.hudi.layout import layout_of
from mdt.hudi.plain_arrays import plain
from mdt.hudi.record_keys import sort_keys, sort_permutation
from mdt.limits import FAR_OBJECT_WHOLE_BYTES_MAX, OPERATIONS_WAITING_MAX
from mdt.metadata import key_indexes
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.file_group import BASE, NewFile
from mdt.metadata.files.file_group import LOG as LOG_KIND
from mdt.metadata.keys.locate import base_key_map, positions_in_base
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet import page_map
from mdt.parquet.digests import footer_reference
from mdt.parquet.segment import slice_instant
from mdt.stores.contract import Data, wait_all
from mdt.write.assign import NEW
from mdt.write.encoded import Encoded
from mdt.write.footer_bloom import footer_bloom
from mdt.write.large_files import Base, is_large, rewrite
from mdt.write.marked_files import MarkedFiles, next_version
from mdt.write.normalize import keyed_rows
from mdt.write.rewrite_rows import (
    Moved,
    moved_rows,
    moved_schema,
    positions,
    take_distinct,
    with_constants,
    without_constants,
)
from mdt.write.slices import KeyedRows, Keys, Slice
from mdt.write.summarize import Indexed, LeafStats, summarize

_BESIDE_ROWS_MIN = 1 << 14
"""Minimum rows of a file to compute its metadata on another thread during the encoding. For smaller
files the thread start costs more than it saves.
"""
_STORED_TOGETHER = 16
"""Number of small objects that a thread stores at a time. Waking it up for each object costs about
5 % of the time to make them.
"""
_STORED_TOGETHER_BYTES = 1 << 16
"""Larger objects are stored without waiting for more."""
_NONE: Int64Array = np.empty(0, np.int64)

R = TypeVar("R", KeyedRows, Keys)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a slice.

    Attributes:
        indexed: Input of skipping indexes from ``file``.
        key_map: Encoded key map.
        page_map: Encoded page map.
        gained: Sort keys that are new to the file group.
        gained_hashes: Hashes of the same record keys.
        few_stats: Column statistics of a small file, not yet in ``file.stats``.
    """

    file: NewFile
    indexed: Indexed
    key_map: bytes | pa.Buffer | None
    page_map: bytes | None
    gained: pa.Array
    gained_hashes: KeyHashes
    removed: Sequence[int] = ()
    vectors: Mapping[int, BitMap] = field(default_factory=dict)
    few_stats: LeafStats | None = None


@dataclass(frozen=True, slots=True)
class _Content:
    """Rows of a file in their final order, with meta columns.

    Attributes:
        ordering: Ordering words, or None without an ordering field.
        fresh: Positions of rows that are new to the table. None if all are.
    """

    table: pa.Table
    hashes: KeyHashes
    ordering: UInt64Array | None
    fresh: BitMap | None = None

    def key_map(self) -> bytes | None:
        """Return the encoded key map, or None without rows."""
        return (
            key_map.encode(key_map.build(self.hashes, self.ordering)) if len(self.table) else None
        )

    def take(self, order: Int64Array) -> _Content:
        """Return the rows in another order."""
        assert not self.fresh, "rows with marked new positions cannot be reordered"
        ordering = None if self.ordering is None else self.ordering[order]
        return _Content(
            take_distinct(self.table, order), self.hashes.take(order), ordering, self.fresh
        )


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The shared state of all slices of a transaction. Thread-safe."""

    metadata: Metadata
    snapshot: Snapshot
    options: Options
    claim: Claim
    form: base_file.FileForm
    marked: MarkedFiles
    _uploads: deque[Callable[[], object]] = field(default_factory=deque)
    _storing: Executor | None = None
    _gathered: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def for_claim(
        cls, metadata: Metadata, snapshot: Snapshot, options: Options, claim: Claim
    ) -> WriteJob:
        """Return the job of a transaction on ``snapshot``."""
        definition = snapshot.definition
        form = base_file.FileForm(
            avro_schema(definition, meta_fields=True),
            options.row_group_rows,
            options.compression,
            options.page_bytes,
            options.bloom_filter_type,
            definition.parquet_field_ids,
            definition.local_times,
        )
        marked = MarkedFiles(metadata.storage, snapshot, claim)
        return cls(metadata, snapshot, options, claim, form, marked)

    def storing_on(self, executor: Executor) -> WriteJob:
        """Return the job with small objects stored by ``executor``. Remote storage uses its own
        threads.
        """
        return self if self.metadata.storage.is_remote else replace(self, _storing=executor)

    def wait_for_uploads(self) -> None:
        """Wait until all files made by :meth:`run` are stored. Raises the first error."""
        self._store_gathered()
        waiting = [self._uploads.popleft() for _ in range(len(self._uploads))]
        wait_all(waiting)

    def stop(self) -> None:
        """Wait for running uploads and cancel the rest. Raises the first error."""
        self._gathered.clear()
        self.wait_for_uploads()

    def _upload(self, path: str, data: Data, size: int) -> None:
        """Store a new object, or begin to. Large objects block the caller, small objects are stored
        in the background.
        """
        storage = self.metadata.storage
        create = partial(self._create, path, data)
        if size > FAR_OBJECT_WHOLE_BYTES_MAX:
            create()
            return
        if self._storing is None:
            self._uploads.append(storage.begin_storing(create))
        else:
            self._gathered.append(create)
            if len(self._gathered) >= _STORED_TOGETHER or size > _STORED_TOGETHER_BYTES:
                self._store_gathered()
        if len(self._uploads) > OPERATIONS_WAITING_MAX:
            self._uploads.popleft()()

    def _create(self, path: str, data: Data) -> None:
        """Store a new object. Raises Conflict in a task whose transaction has ended."""
        self.marked.wait(path)
        self.metadata.storage.create(path, data)

    def store_attachments(self, path: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """Begin to store an object of attachments. :meth:`wait_for_uploads` waits for it."""
        storage = self.metadata.storage
        self._uploads.append(storage.begin_storing(partial(storage.create, path, parts)))

    def _store_gathered(self) -> None:
        if self._storing is not None and self._gathered:
            self._uploads.append(self._storing.submit(wait_all, self._gathered.copy()).result)
            self._gathered.clear()

    def run(self, task: int, file_slice: Slice) -> Written:
        """Make the file of ``file_slice``, slice number ``task``. It is stored after
        :meth:`wait_for_uploads`.
        """
        if file_slice.is_log:
            return self._log(task, file_slice)
        return self._base(task, file_slice)

    def _members(self, file_slice: Slice) -> list[int]:
        """Return the file numbers of the file group, oldest first."""
        if file_slice.group <= NEW:
            return []
        return self.snapshot.file_groups.members(file_slice.group).tolist()

    def _fresh(self, task: int, rows: KeyedRows, partition: str, file_name: str) -> pa.Table:
        """Return new rows with their meta columns."""
        meta = base_file.meta_columns(
            len(rows),
            instant=self.claim.instant,
            task=task,
            keys=rows.keys,
            partition=partition,
            file_name=file_name,
        )
        return base_file.with_meta_columns(rows.table, meta)

    def _parquet(self, content: _Content, keys: pa.Array | None = None) -> Encoded:
        """Encode rows with meta columns, and compute their metadata.

        Args:
            keys: Record keys of a base file, for the min/max and the Bloom filter in its footer.
        """
        table, options = content.table, self.options
        row_groups = base_file.row_groups_of(len(table), options.row_group_rows)
        with task_starter(1 if len(table) >= _BESIDE_ROWS_MIN else 0) as begun:
            bloom = None
            if keys is not None and options.write_footer_bloom:
                bloom = begun(partial(footer_bloom, keys, options))
            summaries = begun(
                partial(summarize, self.snapshot.definition, options, table, row_groups)
            )
            key_map = begun(content.key_map)
            data, digests = base_file.encode(
                table, self.form, key_metadata=partial(_key_metadata, keys, bloom)
            )
            pages = page_map.encode_file(data, digests) if len(table) else None
            return Encoded(
                data, len(table), row_groups, footer_reference(data), summaries(), key_map(), pages
            )

    def _base(self, task: int, file_slice: Slice) -> Written:
        """Write a new base file with the carried-over and the new rows."""
        file_id, name = self.marked.file(task, file_slice)
        members, previous, inserts, gained = (
            self._members(file_slice),
            NO_PREVIOUS,
            file_slice.inserts,
            self._new_keys(file_slice),
        )
        if members:
            previous = slice_instant(self.snapshot.files.segments(np.array(members)))
        base = self._large_base(file_slice, members)
        positions: BitMap | None
        if base is not None:
            parquet, positions = self._rewritten(task, file_slice, name, base)
        else:
            content = self._content(task, file_slice, name)
            keys, positions = plain(content.table[RECORD_KEY]), content.fresh
            parquet = self._parquet(content, keys)
            if file_slice.group <= NEW and file_slice.carried is not None:
                # All keys are new to the group, so all belong in its key part.
                ordered = sort_keys(content.table, self.snapshot.definition.key)
                inserts, gained = len(keys), (self._keys(keys, ordered), content.hashes)
        self._upload(
            paths.partition_file(file_slice.partition, name), parquet.data, len(parquet.data)
        )
        fresh = None if positions is None else positions.serialize()
        file = self._new_file(
            file_slice,
            parquet,
            [parquet.data],
            file_id=file_id,
            name=name,
            kind=BASE,
            base_instant=self.claim.instant,
            log_version=0,
            block_offset=0,
            inserts=inserts,
            fresh=fresh,
            previous_instant=previous,
        )
        return self._result(
            file_slice, file, parquet, gained, removed=self.snapshot.segment_ids[members].tolist()
        )

    def _large_base(self, file_slice: Slice, members: Sequence[int]) -> Base | None:
        """Return the base file of the group if it is large and some of its rows are live, else
        None.
        """
        if (
            file_slice.carried is not None
            or not members
            or self.snapshot.segment(members[0]).kind != BASE
        ):
            return None
        if not is_large(self.snapshot.segment(members[0]), self.options):
            return None
        base = Base(
            self.metadata, self.snapshot, members[0], file_slice.dead.get(members[0], BitMap())
        )
        return base if base.rows else None

    def _rewritten(
        self, task: int, file_slice: Slice, name: str, base: Base
    ) -> tuple[Encoded, BitMap]:
        """Return the new base file and the positions of its new rows.

        It contains the rows of ``base``, of its log files, and new rows.
        """
        definition = self.snapshot.definition
        parts = [
            take_distinct(table, positions([(table, live)]))
            for table, live in self._member_rows(
                file_slice, [i for i in self._members(file_slice) if i != base.number]
            )
        ]
        old = sum(map(len, parts))
        if file_slice.new is not None:
            parts.append(
                without_constants(self._fresh(task, file_slice.new, file_slice.partition, name))
            )
        additions = base_file.stack([moved_schema(definition).empty_table(), *parts])
        return rewrite(
            base,
            additions,
            old,
            options=self.options,
            form=self.form,
            constants=(file_slice.partition, name),
        )

    def _content(self, task: int, file_slice: Slice, name: str) -> _Content:
        """Return the rows of a base file: first the carried-over rows, then new rows.

        If the carried-over rows are sorted by key, the file is sorted by key, so its row groups
        have narrow key ranges. Any other order was chosen by a service and is kept, with new rows
        at the end.
        """
        definition, new = self.snapshot.definition, file_slice.new
        parts = list(self._rows_to_carry(file_slice))
        if not parts:
            if new is None:  # all rows of the group are deleted
                new = keyed_rows(definition.schema.empty_table(), definition)
            return self._new_content(task, new, file_slice.partition, name)
        settled = len(positions(parts[:1] if file_slice.carried is None else parts))
        old = sum(len(table) for table, _ in parts)
        if new is not None:
            parts.append(
                (without_constants(self._fresh(task, new, file_slice.partition, name)), None)
            )
        table, at = base_file.stack([table for table, _ in parts]), positions(parts)
        at = self._sort_by_key(table, at, settled)
        table = with_constants(take_distinct(table, at), definition, (file_slice.partition, name))
        return self._in_place(table, np.flatnonzero(at >= old))

    def _new_content(self, task: int, new: KeyedRows, partition: str, name: str) -> _Content:
        return _Content(self._fresh(task, new, partition, name), new.hashes, new.ordering)

    def _rows_to_carry(self, file_slice: Slice) -> Sequence[Moved]:
        """Return the rows to carry over, by default the live rows of the group. Oldest segment
        first.
        """
        if file_slice.carried is not None:
            return [(table, None) for table in file_slice.carried()]
        return self._member_rows(file_slice, self._members(file_slice))

    def _member_rows(self, file_slice: Slice, members: Sequence[int]) -> Sequence[Moved]:
        """Return the rows of the non-empty ``members``."""
        with_rows = [i for i in members if self.snapshot.rows[i]]
        return [
            moved_rows(self.metadata, self.snapshot, i, file_slice.dead.get(i)) for i in with_rows
        ]

    def _in_place(self, table: pa.Table, fresh: Int64Array = _NONE) -> _Content:
        """Return table rows with their key hashes and ordering words.

        Args:
            fresh: Positions of rows that are new to the table.
        """
        definition = self.snapshot.definition
        ordering = key_map.words_of(table, definition.ordering)
        hashes = definition.key_hash.hash(plain(table[RECORD_KEY]))
        return _Content(table, hashes, ordering, BitMap(fresh.astype(np.uint32)))

    def _sort_by_key(self, table: pa.Table, at: Int64Array, settled: int) -> Int64Array:
        """Return the positions ``at`` sorted by key, if the first ``settled`` of them are sorted by
        key. Otherwise return them unchanged.
        """
        if not settled or len(at) == settled:
            return at
        key = self.snapshot.definition.key
        keys = sort_keys(take_distinct(table.select(key), at), key)
        if not is_sorted(keys.slice(0, settled)):
            return at
        order = sort_permutation(keys)
        return at if order is None else at[order]

    def _log(self, task: int, file_slice: Slice) -> Written:
        """Write a log file: a data block for new rows and a delete block for deletes.

        Record positions are only written if the table option asks for them. They need header 8, and
        Hudi 0.14 and 0.15 fail on it.
        """
        snapshot, claim = self.snapshot, self.claim
        members = snapshot.files.segments(snapshot.file_groups.members(file_slice.group))
        base_instant = slice_instant(members)
        version = next_version(layout_of(snapshot.definition), members)
        file_id, name = self.marked.file(task, file_slice)
        content, positions = self._log_content(task, file_slice, file_id)
        parquet, block, offset, fresh = Encoded(), b"", 0, None
        if content is not None:
            parquet = self._parquet(content)
            block, offset = log_file.data_block(
                parquet.data,
                instant=claim.instant,
                avro_schema=self.form.avro_schema,
                positions=positions,
                base_instant=base_instant,
            )
            if content.fresh is not None:
                fresh = content.fresh.serialize()
        blocks = [block, self._delete_block(file_slice, base_instant)]
        self._upload(
            paths.partition_file(file_slice.partition, name), blocks, sum(map(len, blocks))
        )
        replaced = snapshot.segment_ids[list(file_slice.replaced)].tolist()
        older = tuple(m.name for m in members if m.kind != BASE and m.id not in replaced)
        file = self._new_file(
            file_slice,
            parquet,
            blocks,
            file_id=file_id,
            name=name,
            kind=LOG_KIND,
            base_instant=base_instant,
            log_version=version,
            block_offset=offset,
            inserts=file_slice.inserts,
            fresh=fresh,
            previous_instant=base_instant,
            base_name=next((m.name for m in members if m.kind == BASE), ""),
            log_names=(*older, name),
        )
        return self._result(file_slice, file, parquet, self._new_keys(file_slice), removed=replaced)

    def _keys(self, texts: pa.Array, ordered: pa.Array) -> pa.Array:
        return key_indexes.keys_for(self.snapshot.definition.key_index, texts, ordered)

    def _new_keys(self, file_slice: Slice) -> tuple[pa.Array, KeyHashes]:
        """Return (key index keys, hashes) of the new rows whose keys are new to the group."""
        if file_slice.new is None:
            return pa.array([], pa.string()), KeyHashes.none()
        hashes, keys = (
            file_slice.new.hashes,
            self._keys(file_slice.new.keys, file_slice.new.sort_keys),
        )
        if not file_slice.updates:
            return keys, hashes  # unsliced, to keep the sort order cached by the key map
        return keys.slice(file_slice.updates), hashes.slice(file_slice.updates)

    def _log_content(
        self, task: int, file_slice: Slice, file_id: str
    ) -> tuple[_Content | None, BitMap | None]:
        """Return (rows of the data block or None, their positions in the base file or None)."""
        if file_slice.carried is None:
            rows, positions = self._by_position(file_slice.group, file_slice.new)
            return (
                None
                if rows is None
                else self._new_content(task, rows, file_slice.partition, file_id)
            ), positions
        rows = base_file.stack(file_slice.carried())
        content = self._in_place(
            with_constants(rows, self.snapshot.definition, (file_slice.partition, file_id))
        )
        position = self._base_positions(file_slice.group, content.hashes)
        if position is None:
            return content, None
        return content.take(np.argsort(position, kind="stable")), BitMap(position.astype(np.uint32))

    def _by_position(self, group: int, rows: R | None) -> tuple[R | None, BitMap | None]:
        """Return ``rows`` sorted by their positions in the base file, and these positions. None as
        for :meth:`_base_positions`.
        """
        position = None if rows is None else self._base_positions(group, rows.hashes)
        if rows is None or position is None:
            return rows, None
        return rows.rows(np.argsort(position, kind="stable")), BitMap(position.astype(np.uint32))

    def _base_positions(self, group: int, hashes: KeyHashes) -> Int64Array | None:
        """Return the positions of keys in the base file of a group.

        Returns None if the option is off, or if any key has no position.
        """
        if not self.options.write_record_positions:
            return None
        return positions_in_base(base_key_map(self.metadata, self.snapshot, group), hashes)

    def _delete_block(self, file_slice: Slice, base_instant: str) -> bytes:
        deleted, positions = self._by_position(file_slice.group, file_slice.deleted)
        if deleted is None:
            return b""
        return log_file.delete_block(
            deleted.keys,
            file_slice.partition,
            instant=self.claim.instant,
            avro_schema=self.form.avro_schema,
            positions=positions,
            base_instant=base_instant,
        )

    def _new_file(
        self,
        file_slice: Slice,
        parquet: Encoded,
        content: Sequence[bytes | pa.Buffer],
        **kind_fields: Any,
    ) -> NewFile:
        """Return the metadata of a file with the bytes ``content``.

        Args:
            kind_fields: Fields that depend on the kind of the file.
        """
        crc = 0
        for part in content:
            crc = zlib.crc32(part, crc)
        return NewFile(
            partition=file_slice.partition,
            size=sum(map(len, content)),
            crc=crc,
            rows=parquet.rows,
            block_length=len(parquet.data),
            footer_length=parquet.footer[0],
            footer_crc=parquet.footer[1],
            row_group_rows=parquet.row_groups,
            updates=file_slice.updates,
            deletes=file_slice.deletes,
            stats=parquet.summaries.stats,
            **kind_fields,
        )

    def _result(
        self,
        file_slice: Slice,
        file: NewFile,
        parquet: Encoded,
        gained: tuple[pa.Array, KeyHashes],
        removed: Sequence[int] = (),
    ) -> Written:
        vectors = {int(self.snapshot.segment_ids[i]): dead for i, dead in file_slice.dead.items()}
        return Written(
            file,
            parquet.summaries.indexes,
            parquet.key_map,
            parquet.page_map,
            *gained,
            removed,
            vectors,
            parquet.summaries.few,
        )


def _key_metadata(
    keys: pa.Array | None, bloom: Callable[[], bytes] | None
) -> base_file.KeyMetadata:
    """Return the key metadata of a footer. ``bloom`` makes the Bloom filter of the keys."""
    text = None if bloom is None else bloom()
    if keys is None:
        return None, None, None
    if len(keys) == 1 or (len(keys) >= MANY_VALUES and is_sorted(keys)):
        return keys[0].as_py(), keys[-1].as_py(), text
    bounds = pc.min_max(keys).as_py()
    return bounds["min"], bounds["max"], text
