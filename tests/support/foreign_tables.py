"""Hudi tables of one partition, file by file, with log files that mdt does not write itself."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from mdt.hudi import log_file, properties
from mdt.hudi.avro_columns import arrow_schema
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.delete_records import DELETE_RECORD
from mdt.hudi.read import loading
from mdt.hudi.read.slice_rows import slice_rows
from mdt.hudi.read.table_schema import load_schema
from mdt.hudi.read.table_state import load_state
from mdt.stores.storage import MemoryStorage

MODEL = "org.apache.hudi.avro.model"
FILE_ID = "01234567-89ab-4def-8123-456789abcdef-0"
DELETE_LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [
            {
                "name": "deleteRecordList",
                "type": {"type": "array", "items": json.loads(DELETE_RECORD)},
            }
        ],
    }
)
COMMIT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "namespace": MODEL,
        "fields": [
            {"name": name, "type": ["null", type], "default": None}
            for name, type in (
                ("extraMetadata", {"type": "map", "values": "string"}),
                ("operationType", "string"),
            )
        ],
    }
)


def time(number: int) -> str:
    """Return instant ``number``."""
    return f"20240101{number:09}"


def record(fields: Mapping[str, Any], name: str = "row") -> dict[str, Any]:
    """Return an Avro record of nullable fields, or of required ones if a type is in a tuple."""
    members: list[dict[str, Any]] = []
    for field, type in fields.items():
        if isinstance(type, tuple):
            members.append({"name": field, "type": type[0]})
        else:
            members.append({"name": field, "type": ["null", type], "default": None})
    return {"type": "record", "name": name, "fields": members}


def numbered(since: int, **fields: Any) -> dict[str, Any]:
    """Return a schema of Hudi's schema on read from instant ``since`` on. Each field is a number,
    or a number and a type.
    """
    members = []
    for name, spec in fields.items():
        number, type = spec if isinstance(spec, tuple) else (spec, "string")
        members.append({"id": number, "name": name, "optional": True, "type": type})
    version = int(time(since)) if since else 0
    return {"max_column_id": 9, "version_id": version, "type": "record", "fields": members}


def put_schemas(storage: Any, name: str, *schemas: Mapping[str, Any]) -> None:
    """Store all schemas up to an instant, the newest first.

    Args:
        name: The instant, with its completion since version 8.
    """
    data = json.dumps({"schemas": schemas}).encode()
    storage.create(f".hoodie/.schema/{name}.schemacommit", data)


def with_meta_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Avro record with Hudi's meta columns in front."""
    meta = [{"name": name, "type": ["null", "string"], "default": None} for name in META_FIELDS]
    return {**schema, "fields": [*meta, *schema["fields"]]}


def block(number: int, content: bytes = b"x", kind: int = log_file.AVRO, **header: str) -> bytes:
    """Return a log block of instant ``number``, or without an instant if it is 0. ``header`` has
    header keys by name.
    """
    texts = {log_file.INSTANT_TIME: time(number)} if number else {}
    texts |= {getattr(log_file, name): text for name, text in header.items()}
    parts = [struct.pack(">i", len(texts))]
    for key, text in texts.items():
        parts += [struct.pack(">ii", key, len(text.encode())), text.encode()]
    head = struct.pack(">ii", 1, kind) + b"".join(parts)
    size = len(head) + 8 + len(content) + 12
    return b"".join(
        (
            b"#HUDI#",
            struct.pack(">q", size),
            head,
            struct.pack(">q", len(content)),
            content,
            struct.pack(">iq", 0, size + 6),
        )
    )


def avro_rows(number: int, rows: Sequence[Any], schema: Mapping[str, Any], **header: str) -> bytes:
    """Return a block with rows in Avro."""
    parsed = fastavro.parse_schema(dict(schema))
    parts = [struct.pack(">ii", 3, len(rows))]
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        parts += [struct.pack(">i", len(out.getvalue())), out.getvalue()]
    return block(number, b"".join(parts), log_file.AVRO, SCHEMA=json.dumps(schema), **header)


def parquet_rows(
    number: int, rows: Sequence[Any], schema: Mapping[str, Any], **header: str
) -> bytes:
    """Return a block with rows in Parquet."""
    text = json.dumps(schema)
    return block(number, parquet(rows, schema), log_file.PARQUET, SCHEMA=text, **header)


def parquet(rows: Sequence[Any], schema: Mapping[str, Any]) -> bytes:
    """Return rows as a Parquet file."""
    out = io.BytesIO()
    text = json.dumps(schema)
    columns = arrow_schema(text).with_metadata({"parquet.avro.schema": text})
    pq.write_table(pa.Table.from_pylist(list(rows), columns), out, store_schema=False)
    return out.getvalue()


def wrapped(name: str, value: object) -> tuple[str, dict[str, object]]:
    """Return an ordering value of a delete."""
    return f"{MODEL}.{name}", {"value": value}


def wrapped_list(*items: Any) -> tuple[str, dict[str, object]]:
    """Return several ordering values of a delete, themselves wrapped."""
    return f"{MODEL}.ArrayWrapper", {"wrappedValues": list(items)}


COMMIT_TIME_DELETE = wrapped("IntWrapper", 0)


def delete_content(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the content of a delete block as an Avro library writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, DELETE_LIST, {"deleteRecordList": list(records)})
    return struct.pack(">ii", 3, len(out.getvalue())) + out.getvalue()


def deletes(number: int, keys: Mapping[str | None, Any], **header: str) -> bytes:
    """Return a delete block of keys with their ordering values."""
    records = []
    for key, ordering in keys.items():
        records.append({"recordKey": key, "partitionPath": "", "orderingVal": ordering})
    return block(number, delete_content(records), log_file.DELETE, **header)


def rollback(number: int, target: int, **header: str) -> bytes:
    """Return a block that rolls back instant ``target``."""
    return block(number, b"", log_file.COMMAND, TARGET_INSTANT_TIME=time(target), **header)


class ForeignTable:
    """A table without partitions, which has a single file group.

    Args:
        fields: Columns, as in :func:`record`.
        stored: Further properties.
        storage: Where it is made, in memory by default.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        stored: Mapping[str, str] | None = None,
        *,
        version: int = 9,
        storage: Any = None,
    ) -> None:
        self.version = version
        self.stored = {
            properties.NAME: "trips",
            properties.TYPE: "MERGE_ON_READ",
            properties.VERSION: str(version),
            properties.LAYOUT: "1" if version < 8 else "2",
            "hoodie.table.recordkey.fields": "id",
            **(stored or {}),
        }
        self.schema = record(fields)
        self.has_meta = self.stored.get("hoodie.populate.meta.fields") != "false"
        self.storage = MemoryStorage() if storage is None else storage
        self.storage.create(".hoodie/hoodie.properties", properties.encode(self.stored))
        self.storage.create(".hoodie_partition_metadata", b"partitionDepth=0\n")
        self.base_instant = 0
        self.extra: dict[str, str] = {}

    def file_schema(self, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the Avro schema of files, or of partial updates with some of the fields."""
        schema = self.schema
        if fields is not None:
            members = [member for member in schema["fields"] if member["name"] in fields]
            schema = {**schema, "fields": members}
        return with_meta_fields(schema) if self.has_meta else schema

    def rows(self, number: int, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return rows with meta columns, if the table has them."""
        if not self.has_meta:
            return [dict(row) for row in rows]
        meta = {name: "" for name in META_FIELDS} | {"_hoodie_commit_time": time(number)}
        return [{**meta, "_hoodie_record_key": row["id"], **row} for row in rows]

    def commit(
        self,
        number: int,
        *,
        action: str = "deltacommit",
        schema: Mapping[str, Any] | None = None,
        operation: str = "UPSERT",
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Complete an instant."""
        own = {"schema": json.dumps(schema or self.schema)}
        value = {
            "extraMetadata": {**own, **self.extra, **(extra or {})},
            "operationType": operation,
            "partitionToWriteStats": {},
        }
        if self.version < 8:
            path, data = f".hoodie/{time(number)}.{action}", json.dumps(value).encode()
        else:
            out = io.BytesIO()
            fastavro.writer(out, COMMIT, [value])
            path = f".hoodie/timeline/{time(number)}_{time(number)}.{action}"
            data = out.getvalue()
        self.storage.create(path, data)

    def alter(self, number: int, fields: Mapping[str, Any], *schemas: Mapping[str, Any]) -> None:
        """Change the columns with Hudi's schema on read.

        Args:
            fields: The new columns, as in :func:`record`.
            schemas: All schemas, as :func:`numbered` returns them, the newest first.
        """
        self.schema = record(fields)
        self.extra["latest_schema"] = json.dumps(schemas[0])
        name = time(number) if self.version < 8 else f"{time(number)}_{time(number)}"
        put_schemas(self.storage, name, *schemas)
        self.commit(number)

    def base(self, number: int, rows: Sequence[Mapping[str, Any]] = (), data: bytes = b"") -> None:
        """Write and commit a base file: rows, or bytes of a Parquet file."""
        data = data or parquet(self.rows(number, rows), self.file_schema())
        self.storage.create(f"{FILE_ID}_1-2-3_{time(number)}.parquet", data)
        self.base_instant = number
        self.commit(number)

    def log(self, number: int, *blocks: bytes, commit: bool = True) -> None:
        """Write a log file, and complete its instant."""
        instant, file_version = number, 1
        if self.version < 8:
            instant = self.base_instant or number
            self.base_instant = instant
            file_version = number
        name = f".{FILE_ID}_{time(instant)}.log.{file_version}_1-2-3"
        self.storage.create(name, b"".join(blocks))
        if commit:
            self.commit(number)

    def upsert(
        self,
        number: int,
        rows: Sequence[Mapping[str, Any]],
        *,
        fields: Sequence[str] | None = None,
        form: Any = avro_rows,
    ) -> bytes:
        """Return a block of rows, or of partial updates with some of the fields."""
        header = {"IS_PARTIAL": "true"} if fields is not None else {}
        complete = rows
        if fields is None:
            names = [member["name"] for member in self.schema["fields"]]
            complete = [{**dict.fromkeys(names), **row} for row in rows]
        block: bytes = form(number, self.rows(number, complete), self.file_schema(fields), **header)
        return block

    def read(self, columns: Sequence[str] | None = None, at: int = 0) -> pa.Table:
        """Return the live rows."""
        table = loading.load_properties(self.storage)
        state = load_state(self.storage, table, at=time(at) if at else "")
        schema = load_schema(self.storage, state)
        parts = [
            slice_rows(self.storage, state, file_slice, schema, columns)
            for file_slice in state.slices
        ]
        return pa.concat_tables(parts) if parts else schema.columns.empty_table()

    def live(self, *columns: str, at: int = 0) -> list[tuple[Any, ...]]:
        """Return the values of ``columns`` in all live rows, sorted."""
        rows = self.read(columns, at)
        return sorted(zip(*(rows[name].to_pylist() for name in columns), strict=True), key=repr)
