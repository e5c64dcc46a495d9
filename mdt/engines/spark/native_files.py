"""The files of a snapshot for the Java half, and the mapping for files of older schema versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from mdt.engines.spark.listing import Changes, DeadRows, Files, NativeFiles
from mdt.engines.spark.private import spark_schema
from mdt.errors import Unsupported
from mdt.limits import INLINE_VECTOR_BYTES_MAX, INLINE_VECTORS_PAGE_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import SegmentScan, rows_in
from mdt.schema.declared import with_local_timestamps
from mdt.schema.definition import TableDefinition
from mdt.schema.names import in_files
from mdt.schema.versions import SchemaVersion, numbers_of
from mdt.stores.storage import Storage

CANDIDATE_RATIO_MIN = 4
"""Minimum rows of a file per candidate row. With more candidates Spark reads row groups faster than
runs of rows.
"""
CANDIDATE_BYTES_MAX = 64 << 20
"""Limit of the candidate bitmaps that one query ships to its tasks. Further files are read
completely, with the same result.
"""

_COLUMNS = (
    "partition",
    "name",
    "size",
    "block_offset",
    "block_length",
    "footer_length",
    "footer_crc",
)


class SnapshotFiles:
    """The files of ``snapshot`` that have rows. ``numbers``: their file numbers, sorted.

    ``compares``: True if executors verify footers. Remote stores verify their own responses, so
    there only cached footers are verified. ``refers``: True if executors may read deletion vectors
    from the checkpoint, which is then certain to exist.
    """

    def __init__(
        self, snapshot: Snapshot, storage: Storage, *, compares: bool, refers: bool
    ) -> None:
        self.snapshot = snapshot
        self._storage = storage
        self._compares = compares
        self._refers = refers
        self.numbers: npt.NDArray[np.int64] = np.flatnonzero(snapshot.has_rows)

    @property
    def version(self) -> tuple[object, ...]:
        """The identity of these files: that of the snapshot, and True if executors read from the
        checkpoint.
        """
        return *self.snapshot.cache_key, self._refers

    def __len__(self) -> int:
        return len(self.numbers)

    def native(self) -> NativeFiles:
        """Return the description of all files. Deleted positions are looked up only for files that
        a query reads. O(files).
        """
        return self._native(self.numbers)

    def since(self, before: Files) -> Changes | None:
        """Return the difference from the files of an older snapshot on the same checkpoint, which
        has the same file numbers. None for other snapshots.

        New files have higher numbers than existing files, unless an existing file has rows again.
        O(files + changes), without work per unchanged file.
        """
        if not isinstance(before, SnapshotFiles) or not self._extends(before):
            return None
        stays = np.isin(before.numbers, self.numbers, assume_unique=True)
        added = self.numbers[~np.isin(self.numbers, before.numbers, assume_unique=True)]
        remaining = before.numbers[stays]
        if len(remaining) and len(added) and added[0] < remaining[-1]:
            return None
        older, now = (view.snapshot.vectors_since.flat() for view in (before, self))
        differing = [
            n
            for n in older.keys() | now.keys()
            if older.get(n) is not now.get(n) and older.get(n) != now.get(n)
        ]
        changed = remaining[np.isin(remaining, np.array(differing, np.int64))]
        return Changes(
            np.flatnonzero(~stays).astype(np.int32),
            np.searchsorted(before.numbers, changed).astype(np.int32),
            self.snapshot.dead_rows[changed] > 0,
            self._native(added),
        )

    def _extends(self, before: SnapshotFiles) -> bool:
        """Return True if both have the same checkpoint and describe files alike, so that common
        files differ only in deleted rows.
        """
        now, then = self.snapshot, before.snapshot
        return (
            now.checkpoint is then.checkpoint
            and then.seq <= now.seq
            and type(now) is type(then)
            and now.definition.versions == then.definition.versions
            and (self._storage, self._compares, self._refers)
            == (before._storage, before._compares, before._refers)
        )

    def _native(self, numbers: npt.NDArray[np.int64]) -> NativeFiles:
        snapshot = self.snapshot
        table = snapshot.files.take(_COLUMNS, numbers)
        size, offset, length, footer, crc = (table[name].to_numpy() for name in _COLUMNS[2:])
        is_base = snapshot.kind[numbers] != LOG
        return NativeFiles(
            uris=self._uris(table),
            sizes=np.where(is_base, size, length),
            offsets=np.where(is_base, -1, offset),
            file_sizes=size,
            footer_sizes=(footer * self._compares).astype(np.int32),
            footer_crcs=crc.astype(np.uint32),
            versions=_versions(snapshot)[numbers],
            has_dead=snapshot.dead_rows[numbers] > 0,
        )

    def _uris(self, table: pa.Table) -> list[str]:
        """Return percent-encoded URIs. Partition paths can contain percent signs themselves."""
        if self._storage.is_imported:  # merged files are elsewhere
            rows = zip(table["partition"].to_pylist(), table["name"].to_pylist(), strict=True)
            files = (paths.data_file(partition, name) for partition, name in rows)
            return [_percent_encode(self._storage.uri(path)) for path in files]
        partitions = table["partition"].combine_chunks().dictionary_encode()
        folders = [self._folder(partition) for partition in partitions.dictionary.to_pylist()]
        of_file = partitions.indices.to_pylist()
        return [
            folders[i] + quote(name)
            for i, name in zip(of_file, table["name"].to_pylist(), strict=True)
        ]

    def _folder(self, partition: str) -> str:
        return _percent_encode(self._storage.uri(paths.partition_file(partition, "x")))[:-1]

    def dead(self, at: Sequence[int]) -> DeadRows:
        """Return the deleted rows of files that have any. ``at``: sorted positions in ``numbers``.
        Small bitmaps are included, tasks read large bitmaps.
        """
        snapshot, numbers = self.snapshot, self.numbers[list(at)]
        columns = snapshot.checkpoint
        old = np.flatnonzero(numbers < columns.rows)
        old = old[columns.numpy("dead")[numbers[old]] > 0] if len(old) else old
        stored = columns.vectors(numbers[old]) if self._refers else None
        if stored is None:
            return DeadRows.inline(
                [_serialize(snapshot.vector(number)) for number in numbers.tolist()]
            )
        is_small = (stored.length <= INLINE_VECTOR_BYTES_MAX) & (
            stored.page_bytes <= INLINE_VECTORS_PAGE_BYTES_MAX
        )
        rows = DeadRows.inline(
            [_serialize(snapshot.vectors_since.get(number)) for number in numbers.tolist()]
        )
        far, near = old[~is_small], old[is_small]
        rows.rows[far] = columns.numpy("dead")[numbers[far]]
        for name in ("object", "offset", "length", "crc"):
            getattr(rows, name)[far] = getattr(stored, name)[~is_small]
        bitmaps = list(rows.bitmaps)
        for i, data in zip(near.tolist(), columns.vector_bytes(numbers[near]), strict=True):
            bitmaps[i] = (
                data if bitmaps[i] is None else _serialize(snapshot.vector(int(numbers[i])))
            )
        objects = [
            (_percent_encode(self._storage.uri(path)), size) for path, size in stored.objects
        ]
        return replace(rows, bitmaps=bitmaps, objects=objects)

    def keep(
        self, scans: Sequence[SegmentScan]
    ) -> tuple[npt.NDArray[np.int32], list[bytes | None] | None]:
        """Return the files that a plan reads, and for each the bitmap of candidate positions, or
        None for all positions.
        """
        files = np.array([scan.file for scan in scans], np.int64)
        at = np.searchsorted(self.numbers, files)
        is_listed = at < len(self.numbers)
        is_listed[is_listed] = self.numbers[at[is_listed]] == files[is_listed]
        listed = [
            scan for scan, is_known in zip(scans, is_listed.tolist(), strict=True) if is_known
        ]
        bitmaps: list[bytes | None] = []
        bytes_left = CANDIDATE_BYTES_MAX
        for scan in listed:
            rows = self._candidates(scan) if bytes_left > 0 else None
            bytes_left -= 0 if rows is None else len(rows)
            bitmaps.append(rows)
        return at[is_listed].astype(np.int32), None if all(
            rows is None for rows in bitmaps
        ) else bitmaps

    def _candidates(self, scan: SegmentScan) -> bytes | None:
        """Return the bitmap of the candidate positions, or None if reading the whole file is
        faster.
        """
        positions = scan.positions
        if (
            positions is None
            or CANDIDATE_RATIO_MIN * len(positions) > self.snapshot.rows[scan.file]
        ):
            row_groups = scan.row_groups
            if row_groups is None:
                return None
            rows = self.snapshot.files.value("row_group_rows", scan.file).as_py()
            if len(row_groups) == len(rows):
                return None
            positions = rows_in(rows, row_groups)
        bitmap = BitMap(positions)
        bitmap.run_optimize()
        return bitmap.serialize()


def _percent_encode(uri: str) -> str:
    """Percent-encode a URI of the storage."""
    scheme, _, path = uri.partition("://")
    return f"{scheme}://{quote(path, safe='/=')}"


def _serialize(vector: BitMap | None) -> bytes | None:
    if vector is None:
        return None
    return vector.serialize()


def _versions(snapshot: Snapshot) -> npt.NDArray[np.int32]:
    """Return the schema version of each file, -1 for the newest -> int32[numbered]."""
    definition = snapshot.definition
    if not definition.versions and not definition.has_other_names:
        return np.full(snapshot.numbered, -1, np.int32)
    versions = definition.versions or (definition.version,)
    numbers = numbers_of(versions, snapshot.segment_ids)
    is_newest = numbers == (len(versions) if definition.has_other_names else len(versions) - 1)
    return np.where(is_newest, -1, numbers).astype(np.int32)


def forms_text(definition: TableDefinition) -> str:
    """Return the schema versions for the JVM (``java/scan/Forms.java``), or "" if all files have
    the newest.

    If files have other column names than the table, no file counts as having the newest version.
    """
    if not definition.versions and not definition.has_other_names:
        return ""
    versions, newest = definition.versions or (definition.version,), definition.version
    older = versions if definition.has_other_names else versions[:-1]
    forms = {
        "newest": _version(newest, with_local_timestamps(newest.declared, newest.schema)),
        "older": [
            _version(version, in_files(with_local_timestamps(version.declared, version.schema)))
            for version in older
        ],
        "defaults": {str(id): _text(value) for id, value in newest.defaults.items()},
    }
    return json.dumps(forms)


def _version(version: SchemaVersion, columns: pa.Schema) -> dict[str, Any]:
    schema = spark_schema(columns)
    return {"schema": schema.json(), "ids": list(version.ids)}


def _text(value: pa.Scalar) -> str:
    """Return a default value as text: dates as days, timestamps as microseconds, bytes in
    hexadecimal.
    """
    kinds = pa.types
    if kinds.is_nested(value.type):
        raise Unsupported(f"Spark cannot fill missing columns with defaults of type {value.type}")
    if kinds.is_date(value.type):
        return str(value.cast(pa.int32()).as_py())
    if kinds.is_timestamp(value.type):
        return str(value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64()).as_py())
    if kinds.is_binary(value.type) or kinds.is_fixed_size_binary(value.type):
        return str(value.as_py().hex())
    text = str(value.as_py())
    if kinds.is_floating(value.type):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)
    return text
