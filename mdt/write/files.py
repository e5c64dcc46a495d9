"""Write the files of one assignment and summarize what was written."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import hudi_bloom
from indexes.base import Int64Array, KeyHashes, UInt64Array
from indexes.hashing import hash_keys
from mdt.commit import publish
from mdt.commit.transaction import Claim
from mdt.config import Options
from mdt.hudi import base_file, log_file
from mdt.hudi.arrays import plain
from mdt.hudi.keys import rising, sort_keys
from mdt.hudi.schema import with_meta
from mdt.metadata import key_map, paths
from mdt.metadata.file_group import BASE, NewFile
from mdt.metadata.file_group import LOG as LOG_KIND
from mdt.metadata.locate import Located, base_key_map, positions_in_base
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.parquet import page_map
from mdt.parquet.digests import footer_reference
from mdt.parquet.segment_rows import live_mask, read_rows
from mdt.write.assign import LOG, Assignment
from mdt.write.normalize import Batch
from mdt.write.summarize import Indexed, Summaries, summarize

RECORD_KEY = "_hoodie_record_key"
FILE_NAME = "_hoodie_file_name"


@dataclass(frozen=True, slots=True)
class Written:
    """One finished assignment.

    ``indexed``: what skipping indexes found in ``file``; ``key_map``, ``page_map``: encoded; ``inserted``: sort keys
    of what is new to the group, and their hashes.
    """

    file: NewFile
    indexed: Indexed
    key_map: bytes | None
    page_map: bytes | None
    inserted: pa.Array
    inserted_hashes: KeyHashes
    removed: tuple[int, ...]
    vectors: dict[int, BitMap]


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What all assignments of one transaction share; safe to use from many threads."""

    metadata: Metadata
    snapshot: Snapshot
    options: Options
    claim: Claim
    batch: Batch
    located: Located
    avro: str
    avro_meta: str

    def run(self, task: int, work: Assignment) -> Written:
        """Write the files of ``work``, the ``task``-th assignment.

        In a table with an ordering field, a key that returns ends the slice that it was deleted from.

        Hudi readers fail on its log record or lose it: Hudi 1.0 compares its ordering value with the int 0 of the delete
        (a ClassCastException for other types), others with the value of the dead base row.
        """
        is_end = len(work.returns) > 0 and self.batch.ordering is not None
        return self._log(task, work) if work.mode == LOG and not is_end else self._base(task, work)

    def _file_id(self, work: Assignment) -> str:
        if work.group < 0:
            return base_file.new_file_id(self.metadata.storage.random_hex(16))
        return str(self.snapshot.groups.dictionary[work.group].as_py())

    def _replaced(self, work: Assignment) -> dict[int, BitMap]:
        """Return segment row -> positions that this assignment ends."""
        rows = np.concatenate([work.updates, work.deletes])
        segment, position = self.located.segment[rows], self.located.position[rows]
        return {int(s): BitMap(position[segment == s].astype(np.uint32)) for s in np.unique(segment)}

    def _fresh(self, task: int, rows: Int64Array, partition: str, file_name: str, first_row: int) -> pa.Table:
        """Return rows of the batch with new meta columns."""
        table, keys = self.batch.table, self.batch.keys
        if not (len(rows) == len(keys) and bool(np.all(np.diff(rows) == 1))):
            table, keys = table.take(pa.array(rows)), keys.take(pa.array(rows))
        meta = base_file.meta_columns(
            len(rows), instant=self.claim.instant, task=task, keys=keys, partition=partition, file_name=file_name,
            first_row=first_row,
        )  # fmt: skip
        return base_file.with_meta_columns(table, meta)

    def _encode(
        self, table: pa.Table, *, minmax: tuple[str, str] | None = None, bloom: bytes | None = None
    ) -> tuple[Any, tuple[int, ...]]:
        data, zones = base_file.encode(
            table,
            row_group_rows=self.options.row_group_rows,
            avro_schema=self.avro_meta,
            min_key=None if minmax is None else minmax[0],
            max_key=None if minmax is None else minmax[1],
            bloom=bloom,
            compression=self.options.compression,
            page_bytes=self.options.page_bytes,
        )
        return data, tuple(zones)

    def _base(self, task: int, work: Assignment) -> Written:
        """Write a new base file: the live rows of the slice, if there is one, and the new rows."""
        file_id, token = self._file_id(work), self.claim.write_token(task)
        name = base_file.name(file_id, token, self.claim.instant)
        carried, carried_ordering, settled = self._carried(work, name)
        rows = np.concatenate([work.updates, work.added])
        table = carried
        if table is None or len(rows):
            fresh = self._fresh(task, rows, work.partition, name, 0)
            table = fresh if carried is None else base_file.stack([carried, fresh])
        keys = plain(table[RECORD_KEY])
        hashes, ordering = self._hashes(rows, keys), self._ordering(rows, carried_ordering)
        order = self._order(table, settled)
        if order is not None:
            at = pa.array(order)
            columns = [column.take(at) for column in table.columns]  # a quarter of the time of Table.take
            table, hashes = pa.table(columns, schema=table.schema), hashes.take(order)
            ordering = None if ordering is None else ordering[order]
        bounds = pc.min_max(keys).as_py() if len(keys) else None
        bloom = None
        if self.options.write_footer_bloom:
            bloom = hudi_bloom.simple(keys, max(1, len(keys)), self.options.bloom_fpp).encode("ascii")
        minmax = None if bounds is None else (bounds["min"], bounds["max"])
        data, zones = self._encode(table, minmax=minmax, bloom=bloom)
        self.metadata.storage.create(paths.partition_file(work.partition, name), data)
        found = summarize(self.snapshot.definition, self.options, table, zones)
        members = () if work.group < 0 else self.snapshot.members[work.group].tolist()
        previous = self.snapshot.segment(members[0]).base_instant if members else "null"
        file = self._new_file(
            work, file_id, name, BASE, found, content=[data], parquet=data, rows=len(table), block_offset=0, zones=zones,
            base_instant=self.claim.instant, previous=previous,
        )  # fmt: skip
        encoded = key_map.encode(key_map.build(hashes, ordering)) if len(table) else None
        removed = tuple(int(self.snapshot.segments[i]) for i in members)
        return self._written(work, file, found, encoded, data, removed, {})

    def _hashes(self, rows: Int64Array, keys: pa.Array) -> KeyHashes:
        fresh = self.batch.hashes.take(rows)
        carried = len(keys) - len(rows)
        if carried == 0:
            return fresh
        old = hash_keys(keys.slice(0, carried), self.snapshot.definition.hash_seed)
        return KeyHashes(np.concatenate([old.hi, fresh.hi]), np.concatenate([old.lo, fresh.lo]))

    def _ordering(self, rows: Int64Array, carried: UInt64Array | None) -> UInt64Array | None:
        if self.snapshot.definition.ordering is None:
            return None
        fresh = np.empty(0, np.uint64) if self.batch.ordering is None else self.batch.ordering[rows]
        return fresh if carried is None else np.concatenate([carried, fresh])

    def _order(self, table: pa.Table, settled: int) -> Int64Array | None:
        """Return how to sort ``table`` by key, None if it is not to be: its first ``settled`` rows stand otherwise.

        So a file in the order of keys stays so, and its row groups hold narrow ranges of keys; another order was
        somebody's choice.
        """
        if not settled or len(table) == settled:
            return None
        keys = sort_keys(table, self.snapshot.definition.key)
        return rising(keys) if rising(keys.slice(0, settled)) is None else None

    def _carried(self, work: Assignment, name: str) -> tuple[pa.Table | None, UInt64Array | None, int]:
        """Return the rows that stay, under the new file name, and their ordering values; oldest segment first.

        Also how many of them are of that segment.
        """
        if work.group < 0:
            return None, None, 0
        replaced = self._replaced(work)
        parts = [
            live_rows(self.metadata, self.snapshot, i, replaced.get(i))
            for i in self.snapshot.members[work.group].tolist()
            if self.snapshot.rows[i]
        ]
        if not parts:
            return None, None, 0
        table = rename_file(base_file.stack(parts), name)
        field = self.snapshot.definition.ordering
        return table, None if field is None else key_map.ordering_words(table[field]), len(parts[0])

    def _log(self, task: int, work: Assignment) -> Written:
        """Write a log file: a data block for new rows, a delete block for deletes.

        Record positions only where the table asks for them: they need header 8, on which Hudi 0.14 and 0.15 fail.
        """
        snapshot, claim = self.snapshot, self.claim
        members = snapshot.files.segments(snapshot.members[work.group])
        base_instant = members[0].base_instant
        version = 1 + max(m.log_version for m in members)
        file_id = self._file_id(work)
        name = log_file.name(file_id, base_instant, version, claim.write_token(task))
        rows, positions = self._by_position(work.group, np.concatenate([work.updates, work.added]))
        block, offset = b"", 0
        zones: tuple[int, ...] = ()
        found = Summaries()
        data = None
        if len(rows):
            table = self._fresh(task, rows, work.partition, file_id, 0)
            data, zones = self._encode(table)
            block, offset = log_file.data_block(
                data,
                instant=claim.instant,
                avro_schema=self.avro_meta,
                positions=positions,
                base_instant=base_instant,
            )
            found = summarize(snapshot.definition, self.options, table, zones)
        deletes = self._delete_block(work, base_instant)
        self.metadata.storage.create(paths.partition_file(work.partition, name), [block, deletes])
        base_name = next((m.name for m in members if m.kind == BASE), "")
        log_names = tuple(m.name for m in members if m.kind != BASE)
        file = self._new_file(
            work, file_id, name, LOG_KIND, found, content=[block, deletes], parquet=data, rows=len(rows),
            block_offset=offset, zones=zones, base_instant=base_instant, previous=base_instant, version=version,
            base_name=base_name, log_names=(*log_names, name),
        )  # fmt: skip
        ordering = self._ordering(rows, None)
        encoded = key_map.encode(key_map.build(self.batch.hashes.take(rows), ordering)) if len(rows) else None
        vectors = {int(snapshot.segments[i]): positions for i, positions in self._replaced(work).items()}
        return self._written(work, file, found, encoded, data, (), vectors)

    def _by_position(self, group: int, rows: Int64Array) -> tuple[Int64Array, BitMap | None]:
        """Return ``rows`` sorted by their positions in the base file, and those, if wanted and every row has one."""
        if not self.options.write_record_positions or not len(rows):
            return rows, None
        base = base_key_map(self.metadata, self.snapshot, group)
        position = positions_in_base(base, self.batch.hashes.take(rows))
        if position is None:
            return rows, None
        return rows[np.argsort(position, kind="stable")], BitMap(position.astype(np.uint32))

    def _delete_block(self, work: Assignment, base_instant: str) -> bytes:
        rows, positions = self._by_position(work.group, work.deletes)
        if not len(rows):
            return b""
        return log_file.delete_block(
            self.batch.keys.take(pa.array(rows)), work.partition, instant=self.claim.instant,
            avro_schema=self.avro_meta, positions=positions, base_instant=base_instant,
        )  # fmt: skip

    def _new_file(
        self, work: Assignment, file_id: str, name: str, kind: int, found: Summaries, *,
        content: Sequence[bytes | pa.Buffer], parquet: pa.Buffer | None, rows: int, block_offset: int, zones: tuple[int, ...], base_instant: str, previous: str, version: int = 0,
        base_name: str = "", log_names: tuple[str, ...] = (),
    ) -> NewFile:  # fmt: skip
        crc = 0
        for part in content:
            crc = zlib.crc32(part, crc)
        footer_length, footer_crc = (0, 0) if parquet is None else footer_reference(parquet)
        return NewFile(
            partition=work.partition, file_id=file_id, name=name, kind=kind, base_instant=base_instant,
            log_version=version, size=sum(map(len, content)), crc=crc, rows=rows, block_offset=block_offset,
            block_length=0 if parquet is None else len(parquet), footer_length=footer_length, footer_crc=footer_crc, zone_rows=zones, inserts=len(work.added), updates=len(work.updates), deletes=len(work.deletes),
            key_map=None, stats=found.stats, previous_instant=previous,
            base_name=base_name, log_names=log_names,
        )  # fmt: skip

    def _written(
        self, work: Assignment, file: NewFile, found: Summaries, encoded: bytes | None, parquet: pa.Buffer | None,
        removed: tuple[int, ...], vectors: dict[int, BitMap],
    ) -> Written:  # fmt: skip
        inserted = self.batch.sort_keys.take(pa.array(work.added))
        pages = page_map.encoded(parquet) if file.rows else None
        hashes = self.batch.hashes.take(work.added)
        return Written(file, found.indexes, encoded, pages, inserted, hashes, removed, vectors)


def job(
    metadata: Metadata, snapshot: Snapshot, options: Options, claim: Claim, batch: Batch, located: Located
) -> WriteJob:
    """Return the shared part of a transaction's assignments."""
    definition = snapshot.definition
    return WriteJob(
        metadata, snapshot, options, claim, batch, located,
        publish.avro_schema(definition), publish.avro_schema(definition, meta_fields=True),
    )  # fmt: skip


def live_rows(metadata: Metadata, snapshot: Snapshot, i: int, ended: BitMap | None = None) -> pa.Table:
    """Return the live rows of segment row ``i`` with meta columns, without the positions in ``ended``."""
    table = read_rows(metadata.storage, snapshot.segment(i), with_meta(snapshot.definition.schema))
    dead = snapshot.vector(i)
    gone = ended if dead is None else dead if ended is None else dead | ended
    mask = live_mask(len(table), gone)
    return table if mask is None else table.filter(pa.array(mask))


def rename_file(table: pa.Table, name: str) -> pa.Table:
    """Return carried-over rows under the name of their new file; commit times stay."""
    at = table.schema.get_field_index(FILE_NAME)
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(table), np.int32)), pa.array([name]))
    return table.set_column(at, pa.field(FILE_NAME, names.type), names)
