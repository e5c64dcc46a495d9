"""The immutable view of a table at one seq.

``apply`` adds one commit record to a snapshot and is the only place where the meaning of a record is defined.  Everything
is columnar; per-file Python objects are made only for the files that an operation touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from mdt.commit_log import STATS, SUMMARIES, UNITS, CommitRecord
from mdt.definition import TableDefinition, from_json
from mdt.errors import Corrupt
from mdt.file_group import BASE, FILES, Blob
from mdt.limits import SEGMENTS_PER_COMMIT_MAX

HISTORY = pa.schema(
    [
        ("seq", pa.int64()),
        ("instant", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("txn", pa.string()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("late", pa.int64()),
        ("rolled_back", pa.list_(pa.string())),
    ]
)
"""One row per commit record, oldest first."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A key index unit: the index that wrote it, the file groups it numbers, and its bytes or where they stand."""

    index: str
    groups: tuple[str, ...]
    payload: bytes | None
    blob: Blob | None

    @property
    def size(self) -> int:
        """Bytes of the unit."""
        return len(self.payload) if self.payload is not None else (self.blob.length if self.blob else 0)


@dataclass(frozen=True)
class Snapshot:
    """A table at ``seq``.

    ``files``: live files, schema FILES, sorted by segment.  ``stats``, ``summaries``: may hold rows of files that are no
    longer live.  ``vectors``: segment -> positions that are no longer live.  ``uncovered``: ids of file groups of which
    the key index does not know every key.
    """

    seq: int
    definition: TableDefinition
    files: pa.Table
    stats: pa.Table
    summaries: pa.Table
    vectors: Mapping[int, BitMap]
    units: tuple[Unit, ...]
    uncovered: frozenset[str]
    history: pa.Table

    def __len__(self) -> int:
        return len(self.files)

    def __bool__(self) -> bool:
        return True  # a snapshot of an empty table is a snapshot

    @cached_property
    def segments(self) -> npt.NDArray[np.int64]:
        """Numbers of the live segments, rising -> int64[n]."""
        return np.asarray(self.files["segment"].to_numpy())

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """Rows of each segment, dead ones included -> int64[n]."""
        return np.asarray(self.files["rows"].to_numpy())

    @cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """BASE or LOG for each segment -> int8[n]."""
        return np.asarray(self.files["kind"].to_numpy())

    @cached_property
    def dead_rows(self) -> npt.NDArray[np.int64]:
        """Dead rows of each segment -> int64[n]."""
        return np.array([len(self.vectors.get(s, ())) for s in self.segments.tolist()], dtype=np.int64)

    @cached_property
    def groups(self) -> pa.DictionaryArray:
        """File group id of each segment, dictionary encoded: codes number the groups of this snapshot."""
        return self.files["file_id"].combine_chunks().dictionary_encode()

    @cached_property
    def group_of(self) -> npt.NDArray[np.int64]:
        """Number of each segment's file group -> int64[n]."""
        return np.asarray(self.groups.indices.to_numpy()).astype(np.int64)

    @cached_property
    def group_number(self) -> dict[str, int]:
        """File group id -> its number in this snapshot."""
        return {name: number for number, name in enumerate(self.groups.dictionary.to_pylist())}

    @cached_property
    def group_partition(self) -> list[str]:
        """Partition path of each file group."""
        first = np.unique(self.group_of, return_index=True)[1]
        return list(self.files["partition"].take(pa.array(first)).to_pylist())

    @cached_property
    def members(self) -> list[npt.NDArray[np.int64]]:
        """For each file group the row numbers in ``files`` of its segments, oldest first."""
        order = np.argsort(self.group_of, kind="stable")
        bounds = np.flatnonzero(np.diff(self.group_of[order])) + 1
        return list(np.split(order, bounds)) if len(order) else []

    @cached_property
    def groups_in(self) -> dict[str, list[int]]:
        """Partition path -> numbers of its file groups."""
        found: dict[str, list[int]] = {}
        for group, partition in enumerate(self.group_partition):
            found.setdefault(partition, []).append(group)
        return found

    def file(self, i: int) -> dict[str, Any]:
        """Return row ``i`` of ``files`` as a mapping of FILES' columns."""
        return {name: self.files[name][i].as_py() for name in FILES.names}

    def key_map_blob(self, i: int) -> Blob | None:
        """Return where the key map of segment row ``i`` stands, or None if it has none."""
        path = self.files["key_map_path"][i].as_py()
        if path is None:
            return None
        return Blob(
            path,
            self.files["key_map_offset"][i].as_py(),
            self.files["key_map_length"][i].as_py(),
            self.files["key_map_crc"][i].as_py(),
        )

    @cached_property
    def has_key_map(self) -> npt.NDArray[np.bool_]:
        """Which segments have a key map -> bool[n]."""
        return np.asarray(self.files["key_map_path"].is_valid().to_numpy())

    def vector(self, i: int) -> BitMap | None:
        """Return the dead positions of segment row ``i``, or None if there are none."""
        return self.vectors.get(int(self.segments[i]))

    @cached_property
    def _whole_stats(self) -> dict[str, pa.Table]:
        whole = self.stats.filter(pc.equal(self.stats["zone"], -1))
        encoded = whole["column"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        return {
            name: whole.filter(pa.array(codes == code)) for code, name in enumerate(encoded.dictionary.to_pylist())
        }

    def column_stats(self, column: str) -> pa.Table | None:
        """Return the statistics of ``column``, one row per segment (null where not covered), or None if there are none."""
        found = self._whole_stats.get(column)
        if found is None:
            return None
        return self._aligned(found, found["segment"].to_numpy()).select(STATS.names[3:])

    def _aligned(self, table: pa.Table, segments: npt.NDArray[np.int64]) -> pa.Table:
        order = np.argsort(segments, kind="stable")
        at = np.searchsorted(segments, self.segments, sorter=order)
        hit = at < len(order)
        rows = np.zeros(len(self), dtype=np.int64)
        rows[hit] = order[at[hit]]
        hit[hit] = segments[rows[hit]] == self.segments[hit]
        return table.take(pa.array(rows, mask=~hit))

    def zone_stats(self, i: int) -> pa.Table:
        """Return the statistics of the row groups of segment row ``i`` (several columns, zones >= 0)."""
        mine = pc.and_(
            pc.equal(self.stats["segment"], int(self.segments[i])), pc.greater_equal(self.stats["zone"], 0)
        )
        return self.stats.filter(mine)

    def covered(self, index: str) -> npt.NDArray[np.bool_]:
        """Return which segments the index with the specification ``index`` covers -> bool[n]."""
        mine = self._summaries_of(index)
        return np.asarray(mine["segment"].is_valid().to_numpy())

    def index_summaries(self, index: str, rows: npt.NDArray[np.int64]) -> list[bytes | Blob | None]:
        """Return the summaries of the segment rows ``rows`` by the index specification ``index``, None: not covered."""
        found = self._summaries_of(index).take(pa.array(rows)).select(SUMMARIES.names[2:]).to_pylist()
        return [summary_of(row) for row in found]

    def _summaries_of(self, index: str) -> pa.Table:
        mine = self.summaries.filter(pc.equal(self.summaries["index"], index))
        return self._aligned(mine, mine["segment"].to_numpy())

    def index_bytes(self, index: str) -> int:
        """Return the size in bytes of all live summaries of an index."""
        mine = self._summaries_of(index)
        inline = pc.sum(pc.binary_length(mine["payload"])).as_py() or 0
        return int(inline + (pc.sum(mine["length"]).as_py() or 0))

    @property
    def last_instant(self) -> str:
        """The greatest instant in the history."""
        return str(pc.max(self.history["instant"]).as_py())

    @cached_property
    def rolled_back(self) -> frozenset[str]:
        """Ids of all transactions that were declared dead."""
        return frozenset(pc.list_flatten(self.history["rolled_back"]).to_pylist())

    @cached_property
    def transactions(self) -> dict[str, int]:
        """Transaction id -> seq."""
        return dict(zip(self.history["txn"].to_pylist(), self.history["seq"].to_pylist(), strict=True))

    def check(self) -> None:
        """Assert the invariants that need no I/O."""
        assert bool(np.all(np.diff(self.segments) > 0)), "segments must rise"
        assert self.history["seq"].to_pylist() == list(range(self.seq + 1)), "seqs must be contiguous"
        live = set(self.segments.tolist())
        assert set(self.vectors) <= live, "a deletion vector must belong to a live segment"
        for i, segment in enumerate(self.segments.tolist()):
            vector = self.vectors.get(segment)
            assert vector is None or vector.max() < self.rows[i], "a dead position must be a row"
        for rows in self.members:
            assert int(np.sum(self.kind[rows] == BASE)) <= 1, "a file group has at most one live base file"


def summary_of(row: Mapping[str, Any]) -> bytes | Blob | None:
    """Return the summary in a row of SUMMARIES: its bytes, where they stand, or None."""
    if row["path"] is not None:
        return Blob(row["path"], row["offset"], row["length"], row["crc"])
    payload: bytes | None = row["payload"]
    return payload


def summaries_table(rows: Sequence[tuple[str, int, bytes | Blob]]) -> pa.Table:
    """Return (specification, segment, summary) triples as a table with the schema SUMMARIES."""
    blobs = [data if isinstance(data, Blob) else None for _, _, data in rows]
    columns = [
        [spec for spec, _, _ in rows],
        [segment for _, segment, _ in rows],
        [None if isinstance(data, Blob) else data for _, _, data in rows],
        *([getattr(blob, name, None) for blob in blobs] for name in ("path", "offset", "length", "crc")),
    ]
    return pa.table(columns, schema=SUMMARIES)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Specifications that a record adds to the table, removes from it, and whose older summaries it drops."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()

    def applied(self, indexes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the table's indexes after the change; changes of several writers do not get lost."""
        kept = tuple(spec for spec in indexes if spec not in self.dropped)
        return kept + tuple(spec for spec in self.added if spec not in kept)


def index_change(record: CommitRecord) -> IndexChange:
    """Return what ``record`` changes of the table's indexes."""
    found = record.header.get("indexes", {})
    dropped = tuple(found.get("drop", ()))
    return IndexChange(tuple(found.get("add", ())), dropped, dropped + tuple(found.get("forget", ())))


def _history_row(record: CommitRecord) -> pa.Table:
    counts = record.header.get("counts", {})
    row: dict[str, Any] = {
        "seq": record.seq,
        "instant": record.instant,
        "action": record.action,
        "operation": record.header["operation"],
        "txn": record.txn,
        "rolled_back": list(record.rolled_back),
        **{name: int(counts.get(name, 0)) for name in ("inserted", "updated", "deleted", "late")},
    }
    return pa.Table.from_pylist([row], schema=HISTORY)


def first(record: CommitRecord, *, path: str) -> Snapshot:
    """Return the snapshot of record 0, which defines the table."""
    if "definition" not in record.header:
        raise Corrupt("record 0 does not define a table", path=path)
    definition = from_json(record.header["definition"], path=path)
    empty = FILES.empty_table()
    return Snapshot(
        record.seq, definition, empty, STATS.empty_table(), SUMMARIES.empty_table(), {}, (), frozenset(),
        _history_row(record),
    )  # fmt: skip


def _numbered(table: pa.Table, seq: int) -> pa.Table:
    segment = pc.add(table["segment"], seq * SEGMENTS_PER_COMMIT_MAX)
    return table.set_column(table.schema.get_field_index("segment"), "segment", segment)


def units_of(table: pa.Table) -> tuple[Unit, ...]:
    """Return the rows of a table with the schema UNITS as units."""
    return tuple(
        Unit(
            row["index"],
            tuple(row["groups"]),
            row["payload"],
            None if row["path"] is None else Blob(row["path"], row["offset"], row["length"], row["crc"]),
        )
        for row in table.to_pylist()
    )


def units_table(units: tuple[Unit, ...]) -> pa.Table:
    """Return ``units`` as a table with the schema UNITS."""
    rows = [
        {
            "index": unit.index,
            "groups": list(unit.groups),
            "payload": unit.payload,
            **{name: getattr(unit.blob, name) if unit.blob else None for name in ("path", "offset", "length", "crc")},
        }
        for unit in units
    ]
    return pa.Table.from_pylist(rows, schema=UNITS)


def _vectors(snapshot: Snapshot, record: CommitRecord, removed: frozenset[int]) -> dict[int, BitMap]:
    vectors = dict(snapshot.vectors)
    added = record.table("vectors")
    for segment, positions in zip(added["segment"].to_pylist(), added["positions"].to_pylist(), strict=True):
        old = vectors.get(segment)
        new = BitMap.deserialize(positions)
        vectors[segment] = new if old is None else old | new
    for segment in removed:
        vectors.pop(segment, None)
    return vectors


def _uncovered(snapshot: Snapshot, record: CommitRecord, units: tuple[Unit, ...], key_index: str) -> frozenset[str]:
    files = record.table("files")
    grown = set(files.filter(pc.greater(files["inserts"], 0))["file_id"].to_pylist())
    for unit in units:
        if unit.index.split("/")[0] == key_index:
            grown -= set(unit.groups)
    return snapshot.uncovered | grown


def apply(snapshot: Snapshot, record: CommitRecord) -> Snapshot:
    """Return ``snapshot`` after ``record``, which must be the next one.  O(live files) for rewrites, else O(record)."""
    assert record.seq == snapshot.seq + 1, "records must be applied in order"
    removed = frozenset(record.table("removed")["segment"].to_pylist())
    files = snapshot.files
    if removed:
        dead = pc.is_in(files["segment"], pa.array(sorted(removed), pa.int64()))
        files = files.filter(pc.invert(dead))
    units = units_of(record.table("units"))
    change = index_change(record)
    summaries = snapshot.summaries
    if change.forgotten:
        summaries = summaries.filter(pc.invert(pc.is_in(summaries["index"], pa.array(change.forgotten, pa.string()))))
    definition = replace(snapshot.definition, indexes=change.applied(snapshot.definition.indexes))
    return replace(
        snapshot,
        seq=record.seq,
        definition=definition,
        files=pa.concat_tables([files, _numbered(record.table("files"), record.seq)]),
        stats=pa.concat_tables([snapshot.stats, _numbered(record.table("stats"), record.seq)]),
        summaries=pa.concat_tables(
            [summaries, _numbered(record.table("summaries"), record.seq), record.table("covers")]
        ),
        vectors=_vectors(snapshot, record, removed),
        units=snapshot.units + units,
        uncovered=_uncovered(snapshot, record, units, snapshot.definition.key_index),
        history=pa.concat_tables([snapshot.history, _history_row(record)]),
    )
