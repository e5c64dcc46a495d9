"""Hudi's metadata table of a table in memory, with the partition ``files``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
from foreign_tables import COMMIT_TIME_DELETE, block, delete_content, time
from hfile_writer import GZIP, hfile

import mdt
from mdt.commit import hudi_metadata
from mdt.hudi import log_file, properties

FOLDER = ".hoodie/metadata"
FILE_ID = "files-0000-0"
SCHEMA = {
    "type": "record",
    "name": "HoodieMetadataRecord",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "key", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "type", "type": "int"},
        {
            "name": "filesystemMetadata",
            "type": [
                "null",
                {
                    "type": "map",
                    "values": {
                        "type": "record",
                        "name": "HoodieMetadataFileInfo",
                        "fields": [
                            {"name": "size", "type": "long"},
                            {"name": "isDeleted", "type": "boolean"},
                        ],
                    },
                },
            ],
        },
        {"name": "recordIndexMetadata", "type": ["null", "bytes"]},
    ],
}

Records = Mapping[str, Mapping[str, int | None] | None]
"""Key -> name -> size, or None if it is deleted. None instead of names for an empty value."""


def listing(files: Mapping[str, Mapping[str, int | None]]) -> dict[str, Any]:
    """Return the records of files by partition path, with that of all partitions."""
    names = {path or ".": dict(files[path]) for path in files}
    return {"__all_partitions__": dict.fromkeys(names, 0), **names}


def publish_again(table: mdt.Table) -> int:
    """Delete the files of the newest commit, and let a publisher put them again, with the same
    bytes. Return their number.
    """
    storage, newest = table.storage, table.snapshot()
    content = {info.path: storage.read(info.path) for info in storage.list(FOLDER)}
    lost = [path for path in content if f"_0-{newest.seq}-0" in path or newest.last_instant in path]
    storage.delete_many(lost)
    record = table.metadata.record(newest.seq)
    hudi_metadata.keep(table.metadata, record, table.metadata.newest())
    assert {info.path: storage.read(info.path) for info in storage.list(FOLDER)} == content
    return len(lost)


def value(names: Mapping[str, int | None] | None) -> bytes:
    """Return the value of a record."""
    if names is None:
        return b""
    infos = {}
    for name, size in names.items():
        infos[name] = {"size": size or 0, "isDeleted": size is None}
    out = io.BytesIO()
    record = {"key": "", "type": 2, "filesystemMetadata": infos, "recordIndexMetadata": None}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    return out.getvalue()


def records_file(records: Records, *, schema: Any = SCHEMA, codec: int = GZIP) -> bytes:
    """Return an HFile of records."""
    entries = sorted((key.encode(), value(names)) for key, names in records.items())
    return hfile(entries, info={"schema": json.dumps(schema).encode()}, codec=codec)


def records_block(number: int, records: Records) -> bytes:
    """Return a log block of records."""
    text = json.dumps(SCHEMA)
    return block(number, records_file(records), log_file.HFILE, SCHEMA=text)


def delete_block(number: int, *keys: str) -> bytes:
    """Return a log block that deletes the records of ``keys``."""
    deletes = []
    for key in keys:
        deletes.append(
            {"recordKey": key, "partitionPath": "files", "orderingVal": COMMIT_TIME_DELETE}
        )
    return block(number, delete_content(deletes), log_file.DELETE)


class MetadataTable:
    """The metadata table of the table in ``storage``."""

    def __init__(self, storage: Any, version: int = 9) -> None:
        self.storage = storage
        self.version = version
        self.base_instant = 0
        self.committed: list[int] = []
        stored = {
            properties.NAME: "trips_metadata",
            properties.TYPE: "MERGE_ON_READ",
            properties.VERSION: str(version),
            properties.LAYOUT: "1" if version < 8 else "2",
            "hoodie.table.base.file.format": "HFILE",
            "hoodie.record.merge.mode": "CUSTOM",
        }
        self.create(".hoodie/hoodie.properties", properties.encode(stored))

    def create(self, path: str, data: bytes) -> None:
        """Create an object of the metadata table."""
        self.storage.create(f"{FOLDER}/{path}", data)

    def commit(self, number: int, action: str = "deltacommit") -> None:
        """Complete an instant."""
        self.committed.append(number)
        if self.version < 8:
            self.create(f".hoodie/{time(number)}.{action}", b"{}")
        else:
            self.create(f".hoodie/timeline/{time(number)}_{time(number)}.{action}", b"{}")

    def base(self, number: int, data: bytes, action: str = "deltacommit") -> str:
        """Write and commit a base file, and return its path in the data table."""
        path = f"files/{FILE_ID}_1-2-3_{time(number)}.hfile"
        self.create(path, data)
        self.base_instant = number
        self.commit(number, action)
        return f"{FOLDER}/{path}"

    def log(self, number: int, *blocks: bytes, commit: bool = True) -> str:
        """Write a log file, complete its instant, and return its path in the data table."""
        instant, file_version = number, 1
        if self.version < 8:
            instant, file_version = self.base_instant, number
        path = f"files/.{FILE_ID}_{time(instant)}.log.{file_version}_1-2-3"
        self.create(path, b"".join(blocks))
        if commit:
            self.commit(number)
        return f"{FOLDER}/{path}"
