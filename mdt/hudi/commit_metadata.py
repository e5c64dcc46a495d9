"""What a completed instant says: HoodieCommitMetadata, and its JSON, which version 6 has; what a
cleaning says.

The encoding is a pure function of its arguments, byte for byte, so that an instant can be published
again after a crash. Field lists: Apache Hudi, ``HoodieCommitMetadata.java``,
``HoodieWriteStat.java``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mdt.errors import Corrupt

NO_PREVIOUS = "null"
"""``prevCommit`` of a new file group; the word, not the JSON value."""

OPERATIONS = frozenset(
    (
        "INSERT",
        "UPSERT",
        "BULK_INSERT",
        "DELETE",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
        "DELETE_PARTITION",
        "CLUSTER",
        "COMPACT",
        "LOG_COMPACT",
        "INDEX",
        "ALTER_SCHEMA",
        "BOOTSTRAP",
    )
)
"""Hudi's words for what a commit did; in Java they are an enumeration, which takes no other."""

WRITTEN = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("log_version", pa.int32()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("inserts", pa.int64()),
        ("updates", pa.int64()),
        ("deletes", pa.int64()),
        ("previous_instant", pa.string()),
        ("base_name", pa.string()),
        ("log_names", pa.list_(pa.string())),
    ]
)
"""What Hudi is told of each new file.  ``log_version``: 0 of a base file.  ``previous_instant``: of
the slice before, NO_PREVIOUS without. ``base_name``, ``log_names``: the slice of a log file, with
every log file so far; names are relative to the partition.
"""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What a completed instant says.

    ``files``: a table with the columns WRITTEN, and perhaps others.  ``schema_json``: Avro schema
    without meta columns. ``operation``: Hudi's word, such as ``UPSERT``.  ``extra``: private texts
    kept beside the schema.  ``replaced``: partition -> ids of the file groups that end here.
    """

    files: pa.Table
    schema_json: str
    operation: str
    compacted: bool
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A cleaning.  ``time``: its instant.  ``policy``: Hudi's word.  ``earliest``: the instant of
    the oldest state that stays, with its ``action``; "" if there is none.  ``files``: partition
    path -> names of the data files that go.
    """

    time: str
    policy: str
    earliest: str
    action: str
    files: Mapping[str, Sequence[str]]


def operation_type(name: str) -> str:
    """Return Hudi's word for an operation, ``UNKNOWN`` if it has none of this name.

    >>> operation_type("upsert"), operation_type("touch")
    ('UPSERT', 'UNKNOWN')
    """
    word = name.upper()
    if word not in OPERATIONS:
        return "UNKNOWN"
    return word


def encode_commit(told: CommitMetadata) -> bytes:
    """Return the completed instant of a commit, deltacommit or, with ``replaced``, replacecommit.

    Files are grouped by partition, in the order given.
    """
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for file in told.files.select(WRITTEN.names).to_pylist():
        by_partition.setdefault(file["partition"], []).append(_write_stat(file))
    value: dict[str, Any] = {
        "partitionToWriteStats": dict(sorted(by_partition.items())),
        "compacted": told.compacted,
        "extraMetadata": {"schema": told.schema_json, **dict(sorted(told.extra.items()))},
        "operationType": told.operation,
    }
    if told.replaced is not None:
        value["partitionToReplaceFileIds"] = {
            name: list(ids) for name, ids in sorted(told.replaced.items())
        }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _write_stat(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HoodieWriteStat of one file, a row of WRITTEN; what Hudi measures and we do not is
    0.
    """
    partition, name = file["partition"], file["name"]
    stat = {
        "fileId": file["file_id"],
        "path": f"{partition}/{name}" if partition else name,
        "prevCommit": file["previous_instant"],
        "numWrites": file["rows"],
        "numDeletes": file["deletes"],
        "numUpdateWrites": file["updates"],
        "numInserts": file["inserts"],
        "totalWriteBytes": file["size"],
        "totalWriteErrors": 0,
        "partitionPath": partition,
        "totalLogRecords": 0,
        "totalLogFilesCompacted": 0,
        "totalLogSizeCompacted": 0,
        "totalUpdatedRecordsCompacted": 0,
        "totalLogBlocks": 0,
        "totalCorruptLogBlock": 0,
        "totalRollbackBlocks": 0,
        "fileSizeInBytes": file["size"],
        "cdcStats": None,
        "tempPath": None,
        "minEventTime": None,
        "maxEventTime": None,
        "runtimeStats": {"totalScanTime": 0, "totalUpsertTime": 0, "totalCreateTime": 0},
    }
    if file["log_version"]:
        stat |= {"logVersion": file["log_version"], "logOffset": 0}
        stat |= {"baseFile": file["base_name"], "logFiles": file["log_names"]}
    return stat


def decode_extra(data: bytes) -> dict[str, str]:
    """Return the private texts of any writer's completed instant; what else it says may have any
    form.

    Raises Corrupt if ``data`` is no JSON.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"this is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict) or not isinstance(extra := value.get("extraMetadata"), dict):
        return {}
    return {name: text for name, text in extra.items() if isinstance(text, str)}
