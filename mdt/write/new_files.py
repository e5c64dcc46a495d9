"""The write core: files of slices, and the summaries of what was written.

Whoever has slices (:mod:`mdt.write.slices`) needs nothing else: an operation, a service, a task of
an engine.
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

from indexes.arrays import MANY_VALUES, begun_on, is_rising
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.hudi import base_file, log_file
from mdt.hudi.avro_schema import RECORD_KEY, avro_schema
from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.hudi.plain_arrays import plain
from mdt.hudi.record_keys import rising, sort_keys
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
from mdt.stores.contract import Data, awaited
from mdt.write.assign import NEW
from mdt.write.encoded import Encoded
from mdt.write.footer_bloom import footer_bloom
from mdt.write.large_files import Base, is_large, rewritten
from mdt.write.marked_files import MarkedFiles, next_version
from mdt.write.normalize import keyed_rows
from mdt.write.rewrite_rows import (
    Moved,
    moved_rows,
    moved_schema,
    positions,
    taken,
    with_constants,
    without_constants,
)
from mdt.write.slices import KeyedRows, Keys, Slice
from mdt.write.summarize import Indexed, LeafStats, summarize

_BESIDE_ROWS_MIN = 1 << 14
"""A file of so many rows is described on a thread of its own while it is encoded; fewer take no
longer than a thread takes to begin.
"""
_STORED_TOGETHER = 16
"""Small objects that a thread takes at a time: to wake it up for each took a twentieth of the time
in which they are made.
"""
_STORED_TOGETHER_BYTES = 1 << 16
"""A larger object does not wait for others."""
_NONE: Int64Array = np.empty(0, np.int64)

R = TypeVar("R", KeyedRows, Keys)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """One finished slice.

    ``indexed``: what skipping indexes found in ``file``; ``key_map``, ``page_map``: encoded;
    ``gained``: sort keys of what is new to the group, and ``gained_hashes``, of the record keys.
    ``few_stats``: what is still missing of ``file.stats`` if it is a small file.
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
    """Rows of a base file in their order, with meta columns; ``ordering``: None without an ordering
    field.

    ``fresh``: which positions have new rows, None for all of them.
    """

    table: pa.Table
    hashes: KeyHashes
    ordering: UInt64Array | None
    fresh: BitMap | None = None

    def key_map(self) -> bytes | None:
        """Return the encoded key map, None where there is no row."""
        return (
            key_map.encode(key_map.build(self.hashes, self.ordering)) if len(self.table) else None
        )

    def taken(self, order: Int64Array) -> _Content:
        """Return the rows in another order."""
        assert not self.fresh, "rows of which some are new have their order already"
        ordering = None if self.ordering is None else self.ordering[order]
        return _Content(taken(self.table, order), self.hashes.take(order), ordering, self.fresh)


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What all slices of one transaction share; safe to use from many threads."""

    metadata: Metadata
    snapshot: Snapshot
    options: Options
    claim: Claim
    avro_meta: str
    marked: MarkedFiles
    _uploads: deque[Callable[[], object]] = field(default_factory=deque)
    _storing: Executor | None = None
    _gathered: list[Callable[[], None]] = field(default_factory=list)

    @classmethod
    def of(cls, metadata: Metadata, snapshot: Snapshot, options: Options, claim: Claim) -> WriteJob:
        """Return the job of a transaction on ``snapshot``."""
        marked = MarkedFiles(metadata.storage, snapshot, claim)
        return cls(
            metadata,
            snapshot,
            options,
            claim,
            avro_schema(snapshot.definition, meta_fields=True),
            marked,
        )

    def storing_on(self, executor: Executor) -> WriteJob:
        """Return the same job, whose small objects are stored by ``executor`` where the storage has
        no threads of its own.
        """
        return self if self.metadata.storage.is_remote else replace(self, _storing=executor)

    def uploaded(self) -> None:
        """Wait until all files that :meth:`run` has made are stored.  Raises the first error."""
        self._store_gathered()
        waiting = [self._uploads.popleft() for _ in range(len(self._uploads))]
        awaited(waiting)

    def stopped(self) -> None:
        """Wait for what is being stored; what has not begun is left out.  Raises the first
        error.
        """
        self._gathered.clear()
        self.uploaded()

    def _upload(self, path: str, data: Data, size: int) -> None:
        """Store a new object, or begin to: what is small waits for the storage, and not for
        others.
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
        """Store a new object.  Raises Conflict in a task whose transaction has ended."""
        self.marked.wait(path)
        self.metadata.storage.create(path, data)

    def store_attachments(self, path: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """Begin to store an object of attachments; :meth:`uploaded` waits for it."""
        storage = self.metadata.storage
        self._uploads.append(storage.begin_storing(partial(storage.create, path, parts)))

    def _store_gathered(self) -> None:
        if self._storing is not None and self._gathered:
            self._uploads.append(self._storing.submit(awaited, self._gathered.copy()).result)
            self._gathered.clear()

    def run(self, task: int, work: Slice) -> Written:
        """Make the file of ``work``, the ``task``-th slice; it is stored when :meth:`uploaded` has
        been called.
        """
        if work.is_log:
            return self._log(task, work)
        return self._base(task, work)

    def _members(self, work: Slice) -> list[int]:
        """Return the numbers of the files of the file group, oldest first."""
        if work.group <= NEW:
            return []
        return self.snapshot.file_groups.members(work.group).tolist()

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
        """Encode and describe rows with meta columns.  ``keys``: those of a base file, whose footer
        says more of them to Hudi's readers.
        """
        table, options = content.table, self.options
        row_groups = base_file.row_groups_of(len(table), options.row_group_rows)
        with begun_on(1 if len(table) >= _BESIDE_ROWS_MIN else 0) as begun:
            bloom = None
            if keys is not None and options.write_footer_bloom:
                bloom = begun(partial(footer_bloom, keys, options))
            found = begun(partial(summarize, self.snapshot.definition, options, table, row_groups))
            key_map = begun(content.key_map)
            bounds = (None, None) if keys is None else _bounds(keys)
            data, said = base_file.encode(
                table,
                row_group_rows=options.row_group_rows,
                avro_schema=self.avro_meta,
                min_key=bounds[0],
                max_key=bounds[1],
                bloom=bloom,
                bloom_type=options.bloom_filter_type,
                compression=options.compression,
                page_bytes=options.page_bytes,
            )
            pages = page_map.encoded(data, said) if len(table) else None
            return Encoded(
                data, len(table), row_groups, footer_reference(data), found(), key_map(), pages
            )

    def _base(self, task: int, work: Slice) -> Written:
        """Write a new base file: the rows that the slice carries over, and the new ones."""
        file_id, name = self.marked.file(task, work)
        members, previous, inserts, gained = (
            self._members(work),
            NO_PREVIOUS,
            work.inserts,
            self._gained(work),
        )
        if members:
            previous = self.snapshot.segment(members[0]).base_instant
        base = self._large_base(work, members)
        positions: BitMap | None
        if base is not None:
            parquet, positions = self._rewritten(task, work, name, base)
        else:
            content = self._content(task, work, name)
            keys, positions = plain(content.table[RECORD_KEY]), content.fresh
            parquet = self._parquet(content, keys)
            if work.group <= NEW and work.carried is not None:
                # All keys are new to the group, and none is covered without a key part.
                ordered = sort_keys(content.table, self.snapshot.definition.key)
                inserts, gained = len(keys), (self._keys(keys, ordered), content.hashes)
        self._upload(paths.partition_file(work.partition, name), parquet.data, len(parquet.data))
        fresh = None if positions is None else positions.serialize()
        file = self._new_file(
            work,
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
        return self._written(
            work, file, parquet, gained, removed=self.snapshot.segment_ids[members].tolist()
        )

    def _large_base(self, work: Slice, members: Sequence[int]) -> Base | None:
        """Return the base file of the group if it is rewritten row group by row group and any row
        of it stays.
        """
        if (
            work.carried is not None
            or not members
            or self.snapshot.segment(members[0]).kind != BASE
        ):
            return None
        if not is_large(self.snapshot.segment(members[0]), self.options):
            return None
        base = Base(self.metadata, self.snapshot, members[0], work.dead.get(members[0], BitMap()))
        return base if base.rows else None

    def _rewritten(self, task: int, work: Slice, name: str, base: Base) -> tuple[Encoded, BitMap]:
        """Return a base file with the rows of ``base``, those of its log files, and new ones; and
        which positions have new rows.
        """
        definition = self.snapshot.definition
        parts = [
            taken(table, positions([(table, live)]))
            for table, live in self._moved(
                work, [i for i in self._members(work) if i != base.number]
            )
        ]
        old = sum(map(len, parts))
        if work.new is not None:
            parts.append(without_constants(self._fresh(task, work.new, work.partition, name)))
        come = base_file.stack([moved_schema(definition).empty_table(), *parts])
        return rewritten(
            base,
            come,
            old,
            options=self.options,
            avro_schema=self.avro_meta,
            constants=(work.partition, name),
        )

    def _content(self, task: int, work: Slice, name: str) -> _Content:
        """Return the rows of a base file: what is carried over, under the new file name, then what
        is new.

        A file in the order of keys stays so, and its row groups hold narrow ranges of keys; another
        order was somebody's choice, and new rows stand behind it.
        """
        definition, new = self.snapshot.definition, work.new
        parts = list(self._carried(work))
        if not parts:
            if new is None:  # every row of the group has died
                new = keyed_rows(definition.schema.empty_table(), definition)
            return self._new_content(task, new, work.partition, name)
        settled = len(positions(parts[:1] if work.carried is None else parts))
        old = sum(len(table) for table, _ in parts)
        if new is not None:
            parts.append((without_constants(self._fresh(task, new, work.partition, name)), None))
        table, at = base_file.stack([table for table, _ in parts]), positions(parts)
        at = self._ordered(table, at, settled)
        table = with_constants(taken(table, at), definition, (work.partition, name))
        return self._in_place(table, np.flatnonzero(at >= old))

    def _new_content(self, task: int, new: KeyedRows, partition: str, name: str) -> _Content:
        return _Content(self._fresh(task, new, partition, name), new.hashes, new.ordering)

    def _carried(self, work: Slice) -> Sequence[Moved]:
        """Return the rows that move into a base file, by default the live ones of the group; oldest
        segment first.
        """
        if work.carried is not None:
            return [(table, None) for table in work.carried()]
        return self._moved(work, self._members(work))

    def _moved(self, work: Slice, members: Sequence[int]) -> Sequence[Moved]:
        """Return the rows of those ``members`` that have any."""
        with_rows = [i for i in members if self.snapshot.rows[i]]
        return [moved_rows(self.metadata, self.snapshot, i, work.dead.get(i)) for i in with_rows]

    def _in_place(self, table: pa.Table, fresh: Int64Array = _NONE) -> _Content:
        """Return rows of the table, of which those at ``fresh`` are new, with what is kept of their
        keys.
        """
        definition = self.snapshot.definition
        ordering = None
        if definition.ordering is not None:
            ordering = key_map.ordering_words(table[definition.ordering])
        hashes = definition.key_hash.hash(plain(table[RECORD_KEY]))
        return _Content(table, hashes, ordering, BitMap(fresh.astype(np.uint32)))

    def _ordered(self, table: pa.Table, at: Int64Array, settled: int) -> Int64Array:
        """Return the positions ``at`` in ``table`` by rising key, or as they are if the first
        ``settled`` of them are not, or are all.
        """
        if not settled or len(at) == settled:
            return at
        key = self.snapshot.definition.key
        keys = sort_keys(taken(table.select(key), at), key)
        if not is_rising(keys.slice(0, settled)):
            return at
        order = rising(keys)
        return at if order is None else at[order]

    def _log(self, task: int, work: Slice) -> Written:
        """Write a log file: a data block for new rows, a delete block for deletes.

        Record positions only where the table asks for them: they need header 8, on which Hudi 0.14
        and 0.15 fail.
        """
        snapshot, claim = self.snapshot, self.claim
        members = snapshot.files.segments(snapshot.file_groups.members(work.group))
        base_instant = members[0].base_instant
        version = next_version(members)
        file_id, name = self.marked.file(task, work)
        content, positions = self._log_content(task, work, file_id)
        parquet, block, offset, fresh = Encoded(), b"", 0, None
        if content is not None:
            parquet = self._parquet(content)
            block, offset = log_file.data_block(
                parquet.data,
                instant=claim.instant,
                avro_schema=self.avro_meta,
                positions=positions,
                base_instant=base_instant,
            )
            if content.fresh is not None:
                fresh = content.fresh.serialize()
        blocks = [block, self._delete_block(work, base_instant)]
        self._upload(paths.partition_file(work.partition, name), blocks, sum(map(len, blocks)))
        replaced = snapshot.segment_ids[list(work.replaced)].tolist()
        older = tuple(m.name for m in members if m.kind != BASE and m.id not in replaced)
        file = self._new_file(
            work,
            parquet,
            blocks,
            file_id=file_id,
            name=name,
            kind=LOG_KIND,
            base_instant=base_instant,
            log_version=version,
            block_offset=offset,
            inserts=work.inserts,
            fresh=fresh,
            previous_instant=base_instant,
            base_name=next((m.name for m in members if m.kind == BASE), ""),
            log_names=(*older, name),
        )
        return self._written(work, file, parquet, self._gained(work), removed=replaced)

    def _keys(self, texts: pa.Array, ordered: pa.Array) -> pa.Array:
        return key_indexes.keys_for(self.snapshot.definition.key_index, texts, ordered)

    def _gained(self, work: Slice) -> tuple[pa.Array, KeyHashes]:
        """Return the new rows' keys, as the key index gets them, that are new to the group, and
        their hashes.
        """
        if work.new is None:
            return pa.array([], pa.string()), KeyHashes.none()
        hashes, keys = work.new.hashes, self._keys(work.new.keys, work.new.sort_keys)
        if not work.updates:
            return keys, hashes  # with their order, which the key map has found
        return keys.slice(work.updates), hashes.slice(work.updates)

    def _log_content(
        self, task: int, work: Slice, file_id: str
    ) -> tuple[_Content | None, BitMap | None]:
        """Return the rows of a data block, None for none, and their positions in the base file, if
        it is to say them.
        """
        if work.carried is None:
            rows, positions = self._by_position(work.group, work.new)
            return (
                None if rows is None else self._new_content(task, rows, work.partition, file_id)
            ), positions
        rows = base_file.stack(work.carried())
        content = self._in_place(
            with_constants(rows, self.snapshot.definition, (work.partition, file_id))
        )
        position = self._base_positions(work.group, content.hashes)
        if position is None:
            return content, None
        return content.taken(np.argsort(position, kind="stable")), BitMap(
            position.astype(np.uint32)
        )

    def _by_position(self, group: int, rows: R | None) -> tuple[R | None, BitMap | None]:
        """Return ``rows`` sorted by their positions in the base file, and those, if wanted and
        every row has one.
        """
        position = None if rows is None else self._base_positions(group, rows.hashes)
        if rows is None or position is None:
            return rows, None
        return rows.rows(np.argsort(position, kind="stable")), BitMap(position.astype(np.uint32))

    def _base_positions(self, group: int, hashes: KeyHashes) -> Int64Array | None:
        """Return the positions of keys in the base file of a group, None unless they are wanted and
        every key has one.
        """
        if not self.options.write_record_positions:
            return None
        return positions_in_base(base_key_map(self.metadata, self.snapshot, group), hashes)

    def _delete_block(self, work: Slice, base_instant: str) -> bytes:
        deleted, positions = self._by_position(work.group, work.deleted)
        if deleted is None:
            return b""
        return log_file.delete_block(
            deleted.keys,
            work.partition,
            instant=self.claim.instant,
            avro_schema=self.avro_meta,
            positions=positions,
            base_instant=base_instant,
        )

    def _new_file(
        self, work: Slice, parquet: Encoded, content: Sequence[bytes | pa.Buffer], **told: Any
    ) -> NewFile:
        """Return the file with the bytes ``content``; ``told``: what its kind has of its own."""
        crc = 0
        for part in content:
            crc = zlib.crc32(part, crc)
        return NewFile(
            partition=work.partition,
            size=sum(map(len, content)),
            crc=crc,
            rows=parquet.rows,
            block_length=len(parquet.data),
            footer_length=parquet.footer[0],
            footer_crc=parquet.footer[1],
            row_group_rows=parquet.row_groups,
            updates=work.updates,
            deletes=work.deletes,
            stats=parquet.found.stats,
            **told,
        )

    def _written(
        self,
        work: Slice,
        file: NewFile,
        parquet: Encoded,
        gained: tuple[pa.Array, KeyHashes],
        removed: Sequence[int] = (),
    ) -> Written:
        vectors = {int(self.snapshot.segment_ids[i]): dead for i, dead in work.dead.items()}
        return Written(
            file,
            parquet.found.indexes,
            parquet.key_map,
            parquet.page_map,
            *gained,
            removed,
            vectors,
            parquet.found.few,
        )


def _bounds(keys: pa.Array) -> tuple[str | None, str | None]:
    """Return the smallest and the largest key, None for both if there is none."""
    if len(keys) == 1 or (len(keys) >= MANY_VALUES and is_rising(keys)):
        return keys[0].as_py(), keys[-1].as_py()
    found = pc.min_max(keys).as_py()
    return found["min"], found["max"]
