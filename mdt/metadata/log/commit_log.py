"""The commit log: one object per transaction, written by put-if-absent and never changed.

Putting ``.hoodie/.mdt/log/<seq>`` is the only commit point of a table.  A record is a frame (magic,
length, CRC) around a JSON header and Arrow IPC sections; FORMAT.md lists every field.  This module
encodes and decodes records and does not interpret them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from indexes.column_stats import STATS_SCHEMA
from mdt.config import FORMATS_OPTION
from mdt.errors import Corrupt, Internal, Missing, Unavailable, Unsupported
from mdt.limits import COMMIT_RECORD_BYTES_MAX, UNFOLDED_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FILES, FRESH
from mdt.metadata.log import codec
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log import trusted_records as records
from mdt.metadata.log.trusted_sections import check_tables
from mdt.stores.storage import Storage

KIND = b"CMIT"
VERSION = 5
"""Version of records with the action ``import``, whose files other writers wrote.  Records that add
or remove a format have version 4, those with key maps of older files version 2, others version 1.
"""

_OBJECT_RANGE = [
    ("path", pa.string()),
    ("offset", pa.int64()),
    ("length", pa.int64()),
    ("crc", pa.int64()),
]

REMOVED = pa.schema([("segment", pa.int64())])
VECTORS = pa.schema([("segment", pa.int64()), ("positions", pa.binary())])
"""Deletion vectors, as serialized 32-bit roaring bitmaps.  A commit record has only the added
positions.
"""
DEAD = pa.schema([("segment", pa.int64()), ("positions", pa.binary())])
"""Rows of imported files that log files of other writers delete or replace.  ``segment`` has
ordinals.
"""
STATS = pa.schema(
    [("column", pa.string()), ("segment", pa.int64()), ("row_group", pa.int32()), *STATS_SCHEMA]
)
"""Column statistics.  ``row_group`` is the number of a row group, or -1 for the whole segment."""
SUMMARIES = pa.schema(
    [("index", pa.string()), ("shard", pa.int64()), ("payload", pa.binary()), *_OBJECT_RANGE]
)
"""Summaries of skipping indexes, one per shard: inline in ``payload``, or an object range."""
KEY_PARTS = pa.schema(
    [
        ("index", pa.string()),
        ("groups", pa.list_(pa.string())),
        ("payload", pa.large_binary()),
        *_OBJECT_RANGE,
    ]
)
"""Parts of the key index: inline in ``payload``, or an object range."""

SLICES = pa.schema(
    [
        ("previous_instant", pa.string()),
        ("base_name", pa.string()),
        ("log_names", pa.list_(pa.string())),
    ]
)
"""The file slice of each added file, for Hudi's write statistics.  Parallel to ``files``."""
SAVED = pa.schema([("path", pa.string())])
"""Data files of the snapshot that a savepoint keeps."""

CLEANED = pa.schema([("path", pa.string())])
"""Data files that no readable snapshot refers to after a cleaning."""

TOMBSTONES = pa.schema([("hi", pa.uint64()), ("lo", pa.uint64()), ("ordering", pa.uint64())])
"""Deleted keys and the ordering values of their deletes, null to withdraw a tombstone.  See
:mod:`mdt.metadata.snapshot.tombstones`.
"""

MAPS = pa.schema(
    [
        ("segment", pa.int64()),
        *(field for field in FILES if field.name.startswith(("key_map", "page_map"))),
    ]
)
"""New key maps and page maps of older segments, in the record that changes the table's key hash."""

SECTIONS: Mapping[str, pa.Schema] = {
    "files": FILES,
    "slices": SLICES,
    "removed": REMOVED,
    "stats": STATS,
    "vectors": VECTORS,
    "dead": DEAD,
    "fresh": FRESH,
    "summaries": SUMMARIES,
    "covers": SUMMARIES,
    "key_parts": KEY_PARTS,
    "cleaned": CLEANED,
    "saved": SAVED,
    "tombstones": TOMBSTONES,
    "maps": MAPS,
}

_TXN_WITHIN = 128
"""The transaction id is within these first bytes.  No record is shorter."""
_HEADER_BYTES = 4_096
"""Approximate memory of a record's header."""
_COLUMN_BYTES = 1_024
"""Approximate memory of a column's Arrow objects, without its values.  A record of one file has 45
columns.
"""
_DAMAGED_HINT = "mdt.repair(path) mends what it can, and says what is lost"
_EMPTY = {name: pa.Table.from_batches([], schema) for name, schema in SECTIONS.items()}
"""Empty sections.  ``schema.empty_table()`` would import pandas if it is installed."""
NO_MAPS, NO_TOMBSTONES = _EMPTY["maps"], _EMPTY["tombstones"]


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A transaction in the log.

    ``header`` has the JSON fields txn, instant, action, operation, begun_at and counts.  Where they
    apply, it also has definition, rolled_back, replaced, compaction_plan, clustering_plan, schema
    (a new version) and indexes (lists of specifications to ``add``, ``drop`` or ``forget``;
    forgetting drops the summaries of older files).

    The column ``segment`` has ordinals of this record's files in the tables ``files``, ``stats``,
    ``dead``, ``fresh`` and ``summaries``.  In ``removed``, ``vectors`` and ``covers`` it has
    numbers of older segments.
    """

    seq: int
    header: Mapping[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def txn(self) -> str:
        """Transaction id: 32 hexadecimal digits."""
        return str(self.header["txn"])

    @property
    def instant(self) -> str:
        """Hudi instant of the transaction: 17 digits."""
        return str(self.header["instant"])

    @property
    def completion(self) -> str:
        """Time of the completion on Hudi's timeline, "" in tables of version 6."""
        return str(self.header.get("completion", ""))

    @property
    def action(self) -> str:
        """The action, such as ``deltacommit`` or ``clean``: one of ``trusted_names.ACTIONS``."""
        return str(self.header["action"])

    @property
    def alters(self) -> bool:
        """True if this record begins a new version of the table's schema."""
        return "schema" in self.header

    @property
    def redefines(self) -> bool:
        """True if this record changes the table's schema or options."""
        return self.alters or "options" in self.header

    @property
    def ended_versions(self) -> frozenset[int]:
        """Seqs of the schema versions that this record removes from the table."""
        return frozenset(self.header.get("ended_versions", ()))

    @property
    def changes_formats(self) -> bool:
        """True if this record may change the formats of the table."""
        return FORMATS_OPTION in self.header.get("options", {})

    @property
    def rekeys(self) -> bool:
        """True if this record changes the table's key hash."""
        return "key_hash" in self.header

    @property
    def rolled_back(self) -> tuple[str, ...]:
        """Ids of the transactions that this record declares dead."""
        return tuple(self.header.get("rolled_back", ()))

    @property
    def token(self) -> int | None:
        """The middle number of the write tokens in its file names, or None in the record that
        creates the table.
        """
        token: int | None = self.header.get("token")
        return token

    @property
    def dead_instants(self) -> tuple[str, ...]:
        """Instants of the transactions that this record declares dead."""
        return tuple(self.header.get("dead", {}).get("instants", ()))

    @property
    def dead_tokens(self) -> tuple[int, ...]:
        """Tokens of the transactions that this record declares dead, from their claims or file
        names.
        """
        return tuple(self.header.get("dead", {}).get("tokens", ()))

    @property
    def replaced(self) -> Mapping[str, list[str]]:
        """Ids of the file groups that this record removes, by partition path."""
        groups: Mapping[str, list[str]] = self.header.get("replaced", {})
        return groups

    @property
    def changed_groups(self) -> frozenset[str]:
        """Ids of the file groups with a file added, rewritten or removed by this record."""
        ended = (name for names in self.replaced.values() for name in names)
        return frozenset(self.table("files")["file_id"].to_pylist()).union(ended)

    def table(self, name: str) -> pa.Table:
        """Return section ``name``, empty if the record does not have it."""
        section = self.tables.get(name)
        return _EMPTY[name] if section is None else section

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        columns = sum(table.num_columns for table in self.tables.values())
        return (
            _HEADER_BYTES
            + _COLUMN_BYTES * columns
            + sum(t.get_total_buffer_size() for t in self.tables.values())
        )

    def at(self, seq: int) -> CommitRecord:
        """Return the same transaction as record number ``seq``."""
        return replace(self, seq=seq)


def encode(record: CommitRecord) -> bytes:
    """Return the bytes of ``record``.

    Raises Unsupported if they exceed COMMIT_RECORD_BYTES_MAX.
    """
    header = {**record.header, "seq": record.seq}
    sections = {
        name: codec.encode_ipc(table) for name, table in record.tables.items() if len(table)
    }
    version = 1
    if record.rekeys or "maps" in sections:
        version = 2
    if record.changes_formats:
        version = 4
    if record.action == names.IMPORT:
        version = VERSION
    data = codec.frame(KIND, version, codec.pack(header, sections))
    if len(data) > COMMIT_RECORD_BYTES_MAX:
        raise Unsupported(
            f"the commit record has {len(data)} bytes, at most {COMMIT_RECORD_BYTES_MAX} are"
            " allowed",
            hint="write the data in several operations",
        )
    return data


def as_read(record: CommitRecord) -> CommitRecord:
    """Return ``record`` as :func:`read` would return it.

    Raises Internal if readers would reject it, so that it is never written.
    """
    path = paths.commit(record.seq)
    header = json.loads(json.dumps({**record.header, "seq": record.seq}))
    tables = {name: table for name, table in record.tables.items() if len(table)}
    for name, table in tables.items():
        assert table.schema.equals(SECTIONS[name]), f"the section {name} has a wrong schema"
    try:
        records.check_header(header, record.seq, path)
        check_tables(header, record.seq, tables, path)
    except Corrupt as error:
        raise Internal(f"a commit record would not be readable: {error}") from error
    return CommitRecord(record.seq, header, tables)


def decode(data: bytes, *, seq: int, path: str) -> CommitRecord:
    """Return the record in ``data``.

    Raises Corrupt if any byte is damaged, or if its number is not ``seq``.
    """
    header, sections = codec.unpack(
        codec.unframe(data, KIND, path=path, version_max=VERSION), path=path
    )
    records.check_header(header, seq, path)
    payloads = {name: section for name, section in sections.items() if name in SECTIONS}
    unfolded = sum(map(codec.unfolded_bytes, payloads.values()))
    if unfolded > UNFOLDED_BYTES_MAX:
        raise Corrupt(
            "a commit record decompresses to too many bytes",
            path=path,
            expected=f"{UNFOLDED_BYTES_MAX}",
            got=f"{unfolded}",
        )
    tables = {
        name: codec.decode_ipc(section, SECTIONS[name], path=path)
        for name, section in payloads.items()
    }
    check_tables(header, seq, tables, path)
    return CommitRecord(seq, header, tables)


def read(storage: Storage, seq: int) -> CommitRecord | None:
    """Return record ``seq``, or None if it does not exist. Raises Corrupt if it is damaged."""
    path = paths.commit(seq)
    try:
        data = storage.read_if_exists(path, COMMIT_RECORD_BYTES_MAX)
        return None if data is None else decode(data, seq=seq, path=path)
    except Corrupt as error:
        error.hint = error.hint or _DAMAGED_HINT
        raise


def begins_with(storage: Storage, seq: int, txn: str) -> bool:
    """Return True if record ``seq`` exists and belongs to the transaction ``txn``.  Reads 128
    bytes.
    """
    try:
        return txn.encode() in storage.read(paths.commit(seq), 0, _TXN_WITHIN)
    except (Corrupt, Missing):  # Corrupt: it was cut
        return False


def append(storage: Storage, record: CommitRecord) -> bool:
    """Put ``record`` under its seq.  Return False if another transaction already has that seq.

    A lost reply is resolved by reading the record back.  Raises Unavailable if that fails too; the
    outcome is then unknown until the table is opened again.
    """
    data = encode(record)
    path = paths.commit(record.seq)
    try:
        if storage.put_if_absent(path, data):
            return True
    except Unavailable:
        stored = read(storage, record.seq)
        if stored is None and storage.put_if_absent(path, data):
            return True
    stored = read(storage, record.seq)
    return stored is not None and stored.txn == record.txn
