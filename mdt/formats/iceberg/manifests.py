"""Manifests and manifest lists of Iceberg tables, as Avro files.

A manifest has the files of a range of keys. The key of a file follows from its partition and its
file group, so all manifests of a table together are the leaves of a B+ tree, and the manifest list
is its root. A commit rewrites the leaves of the files that it changes, and refers to the others.

The Avro files are not compressed, and their headers are written here: other versions of a library
would make other bytes. The name of an object has the CRC-32 of its content.

Source: https://iceberg.apache.org/spec/#manifests.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import fastavro

from mdt.errors import Corrupt, Missing
from mdt.formats.data_files import DataFile
from mdt.formats.iceberg.columns import (
    PartitionField,
    PartitionValue,
    metrics_of,
    partition_bound,
    partition_fields,
    partition_fields_of,
    partition_values,
    schema_json,
)
from mdt.formats.iceberg.vectors import Blob
from mdt.formats.twins import FOLDER as TWINS
from mdt.hudi.avro import array, field, optional, record
from mdt.limits import ICEBERG_NUMBER_MAX
from mdt.schema.definition import TableDefinition
from mdt.session import memo

FOLDER = "metadata"
FORMAT_VERSION = 3
EXISTING, ADDED, DELETED = 0, 1, 2
"""Statuses of the entries of manifests."""
DATA, DELETES = 0, 1
"""Contents of manifests, and of the files in them."""
CONTENTS = ("data", "deletes")
_PATH_ID = 2147483546
"""Id of the field with the path of a data file, which Iceberg reserves."""
_SYNC = b"mdt iceberg 2026"
_MAGIC = b"Obj\x01"
_HEADER = fastavro.parse_schema(
    record(
        "header",
        field("magic", {"type": "fixed", "name": "magic", "size": len(_MAGIC)}),
        field("meta", {"type": "map", "values": "bytes"}),
        field("sync", {"type": "fixed", "name": "sync", "size": len(_SYNC)}),
    )
)


def _field(id: int, name: str, type: Any) -> dict[str, Any]:
    return {**field(name, type), "field-id": id}


def _optional(id: int, name: str, type: Any) -> dict[str, Any]:
    return {**optional(name, type), "field-id": id}


def _map(key: int, value: int, type: str) -> dict[str, Any]:
    """Return the type of a map from field ids, which Avro has as a list of pairs."""
    pair = record(f"k{key}_v{value}", _field(key, "key", "int"), _field(value, "value", type))
    return {**array(pair), "logicalType": "map"}


@dataclass(frozen=True, slots=True)
class Schema:
    """An Avro schema.

    Attributes:
        text: As Avro files have it.
        parsed: As fastavro has it.
    """

    text: bytes
    parsed: Any

    def encode(self, value: Mapping[str, Any]) -> bytes:
        """Return a record as bytes."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self.parsed, value)
        return out.getvalue()


def _schema(value: Mapping[str, Any]) -> Schema:
    return Schema(_json(value), fastavro.parse_schema(dict(value)))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@memo(64)
def _file_schema(fields: tuple[PartitionField, ...]) -> Schema:
    """Return the schema of the files in manifests."""
    partition = record("r102", *(_optional(f.id, f"p{f.id}", f.avro_type) for f in fields))
    return _schema(
        record(
            "r2",
            _field(134, "content", "int"),
            _field(100, "file_path", "string"),
            _field(101, "file_format", "string"),
            _field(102, "partition", partition),
            _field(103, "record_count", "long"),
            _field(104, "file_size_in_bytes", "long"),
            _optional(109, "value_counts", _map(119, 120, "long")),
            _optional(110, "null_value_counts", _map(121, 122, "long")),
            _optional(137, "nan_value_counts", _map(138, 139, "long")),
            _optional(125, "lower_bounds", _map(126, 127, "bytes")),
            _optional(128, "upper_bounds", _map(129, 130, "bytes")),
            _optional(142, "first_row_id", "long"),
            _optional(143, "referenced_data_file", "string"),
            _optional(144, "content_offset", "long"),
            _optional(145, "content_size_in_bytes", "long"),
        )
    )


@memo(64)
def _entry_schema(fields: tuple[PartitionField, ...]) -> Schema:
    return _schema(
        record(
            "manifest_entry",
            _field(0, "status", "int"),
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            _optional(4, "file_sequence_number", "long"),
            _field(2, "data_file", json.loads(_file_schema(fields).text)),
        )
    )


_STATE = fastavro.parse_schema(
    record(
        "state",
        field("status", "int"),
        field("snapshot_id", ["null", "long"]),
        field("sequence_number", ["null", "long"]),
        field("file_sequence_number", ["null", "long"]),
    )
)
"""The fields of a manifest entry before the file."""

_SUMMARY = record(
    "r508",
    _field(509, "contains_null", "boolean"),
    _optional(518, "contains_nan", "boolean"),
    _optional(510, "lower_bound", "bytes"),
    _optional(511, "upper_bound", "bytes"),
)
_MANIFEST = _schema(
    record(
        "manifest_file",
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", {**array(_SUMMARY), "element-id": 508}),
        _optional(520, "first_row_id", "long"),
    )
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a manifest.

    Attributes:
        key: Its place in the tree.
        path: Path of the data file, relative to the table. Deletion vectors have that of their
            data file.
        seq: The commit that added it.
        rows: Number of its rows or positions.
        partition: Its partition values.
        existing: The entry in the manifests of later commits, as Avro.
    """

    key: int
    path: str
    seq: int
    rows: int
    partition: tuple[PartitionValue, ...]
    existing: bytes

    @property
    def file(self) -> bytes:
        """The fields of its file as Avro."""
        return self.existing[len(_existing(self.seq, b"")) :]

    def encoded(self, status: int, seq: int) -> bytes:
        """Return the entry with the status that commit ``seq`` gives to it."""
        return _state(status, seq, self.seq) + self.file


@memo(1 << 14)
def _state(status: int, snapshot: int, seq: int) -> bytes:
    """Return the fields of an entry before its file."""
    out = BytesIO()
    numbers = {"snapshot_id": snapshot, "sequence_number": seq, "file_sequence_number": seq}
    fastavro.schemaless_writer(out, _STATE, {"status": status, **numbers})
    return out.getvalue()


def _existing(seq: int, file: bytes) -> bytes:
    """Return the entry of a file that commit ``seq`` has added, in the manifests of later ones."""
    return _state(EXISTING, seq, seq) + file


def key_of(path: str) -> int:
    """Return the place of a data file in the tree. Files of a partition are neighbours, and so are
    twins, of which most commits add one for each partition.

    >>> key_of("a/f_1.parquet") == key_of("a/f_2.parquet")
    True
    """
    partition, _, name = path.rpartition("/")
    if path.startswith(TWINS):
        return _FIRST_TWIN + int(name.partition(".")[0])
    return zlib.crc32(partition.encode()) << 32 | zlib.crc32(name.partition("_")[0].encode())


_FIRST_TWIN = 1 << 64
"""Key behind those of all base files."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A manifest as the manifest list has it.

    Attributes:
        path: Relative to the table.
        low: Lowest key of its files.
        content: DATA or DELETES.
        live: Number of files that are not deleted.
        row: Its fields as Avro.
    """

    path: str
    low: int
    content: int
    live: int
    row: bytes


@dataclass(frozen=True, slots=True)
class Table:
    """The parts of a table that manifests repeat.

    Attributes:
        location: Absolute location of the table.
        fields: Partition fields.
        schema: Schema of the table as JSON.
    """

    location: str
    fields: tuple[PartitionField, ...]
    schema: Mapping[str, Any]

    @classmethod
    def at(cls, location: str, definition: TableDefinition) -> Table:
        """Return the parts of a table at a location."""
        return cls(location, partition_fields(definition), schema_json(definition))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Table:
        """Return the parts of a table with these metadata."""
        id, schemas = metadata["current-schema-id"], metadata["schemas"]
        [schema] = [each for each in schemas if each["schema-id"] == id]
        [spec] = metadata["partition-specs"]
        return cls(metadata["location"], partition_fields_of(spec["fields"], schema), schema)

    def uri(self, path: str) -> str:
        """Return the absolute location of an object."""
        return f"{self.location}/{path}"

    def relative(self, uri: str) -> str:
        """Return the path of an object. Raises ValueError if it is not in the table."""
        if not uri.startswith(f"{self.location}/"):
            raise ValueError(f"{uri} is outside of {self.location}")
        return uri[len(self.location) + 1 :]

    def data_entry(
        self, file: DataFile, seq: int, first_row_id: int, definition: TableDefinition
    ) -> Entry:
        """Return the entry of a data file that a commit has added."""
        partition = partition_values(file.partition, self.fields, definition.hive_style)
        body = _file_schema(self.fields).encode(
            {
                "content": DATA,
                "file_path": self.uri(file.path),
                "file_format": "parquet",
                "partition": self._partition(partition),
                "record_count": file.rows,
                "file_size_in_bytes": file.size,
                "first_row_id": first_row_id,
                **metrics_of(file, definition),
            }
        )
        existing = _existing(seq, body)
        return Entry(key_of(file.path), file.path, seq, file.rows, partition, existing)

    def vector_entry(
        self, blob: Blob, puffin: tuple[str, int], seq: int, definition: TableDefinition
    ) -> Entry:
        """Return the entry of a deletion vector in a Puffin file with a path and a size.

        The bounds of its data file's path let readers find it without a look at all vectors.
        """
        file, (path, size) = blob.file, puffin
        partition = partition_values(file.partition, self.fields, definition.hive_style)
        referenced = self.uri(file.path)
        bounds = [{"key": _PATH_ID, "value": referenced.encode()}]
        body = _file_schema(self.fields).encode(
            {
                "content": DELETES,
                "file_path": self.uri(path),
                "file_format": "puffin",
                "partition": self._partition(partition),
                "record_count": len(file.dead),
                "file_size_in_bytes": size,
                "lower_bounds": bounds,
                "upper_bounds": bounds,
                "referenced_data_file": referenced,
                "content_offset": blob.offset,
                "content_size_in_bytes": blob.size,
            }
        )
        existing = _existing(seq, body)
        return Entry(key_of(file.path), file.path, seq, len(file.dead), partition, existing)

    def require_values(self, partition: Sequence[PartitionValue]) -> None:
        """Raise ValueError or struct.error if a partition column cannot have one of the values."""
        for partition_field, value in zip(self.fields, partition, strict=True):
            if value is not None:
                partition_bound(value, partition_field.type)

    def _partition(self, values: Sequence[PartitionValue]) -> dict[str, PartitionValue]:
        return {f"p{f.id}": value for f, value in zip(self.fields, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The entries of a new manifest.

    Attributes:
        low: Lowest key of its range.
        live: Files that are in the table.
        deleted: Files that the commit has removed.
    """

    low: int
    live: Sequence[Entry]
    deleted: Sequence[Entry]

    def encode(self, table: Table, content: int, seq: int, first_row_id: int) -> tuple[Leaf, bytes]:
        """Return the manifest that commit ``seq`` makes."""
        added = [entry for entry in self.live if entry.seq == seq]
        existing = [entry for entry in self.live if entry.seq != seq]
        deleted = self.deleted
        if content == DATA:
            deleted = [_without_bounds(entry, table) for entry in deleted]
        encoded = [
            entry.existing if entry.seq != seq else entry.encoded(ADDED, seq) for entry in self.live
        ]
        encoded += [entry.encoded(DELETED, seq) for entry in deleted]
        data = _avro_file(_entry_schema(table.fields), _entry_header(table, content), encoded)
        path = f"{FOLDER}/{seq}-{CONTENTS[content]}-{self.low:x}-{zlib.crc32(data):08x}.avro"
        row = {
            "manifest_path": table.uri(path),
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": seq,
            "min_sequence_number": min((entry.seq for entry in self.live), default=seq),
            "added_snapshot_id": seq,
            "partitions": _summaries(table.fields, [*self.live, *deleted]),
            "first_row_id": first_row_id if content == DATA else None,
        }
        counted = {"existing": existing, "added": added, "deleted": deleted}
        for name, entries in counted.items():
            rows = sum(entry.rows for entry in entries)
            row |= {f"{name}_files_count": len(entries), f"{name}_rows_count": rows}
        return Leaf(path, self.low, content, len(self.live), _MANIFEST.encode(row)), data


def _entry_header(table: Table, content: int) -> dict[str, bytes]:
    return {
        "schema": _json(table.schema),
        "schema-id": str(table.schema["schema-id"]).encode(),
        "partition-spec": _json([f.to_json() for f in table.fields]),
        "partition-spec-id": b"0",
        "format-version": str(FORMAT_VERSION).encode(),
        "content": CONTENTS[content].encode(),
    }


def _summaries(fields: Sequence[PartitionField], entries: Sequence[Entry]) -> list[dict[str, Any]]:
    summaries = []
    for level, partition_field in enumerate(fields):
        values = {entry.partition[level] for entry in entries}
        bounds = sorted(value for value in values if value is not None)
        lower, upper = None, None
        if bounds:
            lower = partition_bound(bounds[0], partition_field.type)
            upper = partition_bound(bounds[-1], partition_field.type)
        summary = {"contains_null": None in values, "lower_bound": lower, "upper_bound": upper}
        summaries.append({**summary, "contains_nan": False})
    return summaries


def encode_list(leaves: Sequence[Leaf], seq: int) -> tuple[str, bytes]:
    """Return path and content of the manifest list of a commit."""
    header = {
        "snapshot-id": str(seq).encode(),
        "sequence-number": str(seq).encode(),
        "format-version": str(FORMAT_VERSION).encode(),
    }
    data = _avro_file(_MANIFEST, header, [leaf.row for leaf in leaves])
    return f"{FOLDER}/snap-{seq}-{zlib.crc32(data):08x}.avro", data


def _avro_file(schema: Schema, header: Mapping[str, bytes], records: Sequence[bytes]) -> bytes:
    """Return an Avro file with these records."""
    meta = {"avro.codec": b"null", "avro.schema": schema.text, **header}
    out = BytesIO()
    fastavro.schemaless_writer(out, _HEADER, {"magic": _MAGIC, "meta": meta, "sync": _SYNC})
    if records:
        body = b"".join(records)
        for number in (len(records), len(body)):
            fastavro.schemaless_writer(out, "long", number)
        out.write(body + _SYNC)
    return out.getvalue()


def _records(
    path: str, data: bytes | None, schema: Schema, parts: Sequence[Any]
) -> Iterator[tuple[list[dict[str, Any]], bytes]]:
    """Yield the values of each record of an Avro file of ours, and the last of them as bytes.

    Each takes a byte or more, so a file decodes to no more values than it has bytes. A file of
    another schema or codec could decode to any number.

    Args:
        parts: Schemas of consecutive parts of a record, as fastavro has them.

    Raises Corrupt and Missing.
    """
    content = verified(path, data)
    stream = BytesIO(content)
    header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
    stated = header["meta"].get("avro.codec"), header["meta"].get("avro.schema")
    if stated != (b"null", schema.text):
        raise ValueError("another schema or codec")
    if len(content) == stream.tell():
        return
    count: Any = fastavro.schemaless_reader(stream, "long", None)
    fastavro.schemaless_reader(stream, "long", None)
    for _ in range(count):
        values, start = list[Any](), stream.tell()
        for part in parts:
            start = stream.tell()
            values.append(fastavro.schemaless_reader(stream, part, None))
        yield values, content[start : stream.tell()]
    if stream.read() != _SYNC:
        raise ValueError("another number of records")


_MALFORMED = (LookupError, TypeError, ValueError, EOFError, AttributeError, ArithmeticError)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors of reading an object into Corrupt. Its checksum may be right."""
    try:
        yield
    except (*_MALFORMED, struct.error) as error:
        raise damaged(path) from error


def verified(path: str, data: bytes | None) -> bytes:
    """Return an object whose name has its checksum. Raises Corrupt and Missing."""
    if data is None:
        raise Missing("metadata of Iceberg are missing", path=path, hint="t.repair() makes them")
    if not path.rpartition(".")[0].endswith(f"-{zlib.crc32(data):08x}"):
        raise damaged(path)
    return data


def natural(value: Any) -> int:
    """Return a number of rows or commits. Raises ValueError for anything else."""
    if not isinstance(value, int) or not 0 <= value <= ICEBERG_NUMBER_MAX:
        raise ValueError(f"{value} is out of range")
    return value


def damaged(path: str) -> Corrupt:
    """Return the error for an object that does not match its checksum, or cannot be read."""
    return Corrupt(
        "metadata of Iceberg do not match their checksum", path=path, hint="t.repair() mends them"
    )


def decode_list(path: str, data: bytes | None, table: Table) -> list[Leaf]:
    """Return the manifests in a list. Raises Corrupt and Missing."""
    leaves = []
    with reading(path):
        for [row], encoded in _records(path, data, _MANIFEST, [_MANIFEST.parsed]):
            leaf_path = table.relative(row["manifest_path"])
            low = int(leaf_path.rsplit("-", 2)[1], 16)
            live = natural(row["added_files_count"]) + natural(row["existing_files_count"])
            leaves.append(Leaf(leaf_path, low, row["content"], live, encoded))
    return leaves


def decode_manifest(path: str, data: bytes | None, table: Table) -> list[Entry]:
    """Return the files in a manifest that are not deleted. Raises Corrupt and Missing."""
    schema, entries = _entry_schema(table.fields), []
    parts = _STATE, _file_schema(table.fields).parsed
    with reading(path):
        for [state, file], body in _records(path, data, schema, parts):
            if state["status"] == DELETED:
                continue
            file_path = table.relative(file["referenced_data_file"] or file["file_path"])
            partition = tuple(file["partition"][f"p{f.id}"] for f in table.fields)
            table.require_values(partition)
            seq, rows = natural(state["sequence_number"]), natural(file["record_count"])
            existing = _existing(seq, body)
            entries.append(Entry(key_of(file_path), file_path, seq, rows, partition, existing))
    return entries


def _without_bounds(entry: Entry, table: Table) -> Entry:
    """Return the entry of a data file without its bounds, which may be values that are purged."""
    [file] = files_in([entry], table)
    body = _file_schema(table.fields).encode({**file, "lower_bounds": None, "upper_bounds": None})
    return replace(entry, existing=_existing(entry.seq, body))


def files_in(entries: Iterable[Entry], table: Table) -> Iterator[dict[str, Any]]:
    """Yield the fields of the files of entries."""
    schema = _file_schema(table.fields)
    for entry in entries:
        value: Any = fastavro.schemaless_reader(BytesIO(entry.file), schema.parsed, None)
        yield value
