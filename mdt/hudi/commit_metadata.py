"""Metadata of completed instants (HoodieCommitMetadata), its JSON in table version 6, and metadata
of cleanings.

The encoding is deterministic, byte for byte, so that an instant can be published again after a
crash. Field lists: Apache Hudi, ``HoodieCommitMetadata.java``, ``HoodieWriteStat.java``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mdt.errors import Corrupt

NO_PREVIOUS = "null"
"""``prevCommit`` of a new file group: the string "null", not JSON's null."""

CLUSTER = "CLUSTER"
"""Hudi's operation type of a clustering."""

OPERATIONS = frozenset(
    (
        "INSERT",
        "UPSERT",
        "BULK_INSERT",
        "DELETE",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
        "DELETE_PARTITION",
        CLUSTER,
        "COMPACT",
        "LOG_COMPACT",
        "INDEX",
        "ALTER_SCHEMA",
        "BOOTSTRAP",
    )
)
"""Hudi's operation types. In Java they are an enumeration, which accepts no other values."""

_TYPES = {
    "delete_where": "DELETE",
    "insert_unchecked": "INSERT",
    "merge": "UPSERT",
    "truncate": "INSERT_OVERWRITE_TABLE",
    "update_where": "UPSERT",
}
"""Operation types of operations with other names. Those of Hudi's SQL statements are the same."""

PROFILE_START = b'{"extraMetadata":{"mdt.txn":"'
"""First bytes of an inflight instant of ours, unless it is empty. Hudi's have others."""

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
"""Columns that describe each new file to Hudi.

log_version: 0 for a base file. previous_instant: Instant of the previous slice, or NO_PREVIOUS.
base_name, log_names: The slice of a log file, with all log files so far; names are relative to the
partition.
"""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The metadata of a completed instant.

    Attributes:
        files: A table with the columns WRITTEN, and optionally more.
        schema_json: Avro schema without meta columns.
        operation: Hudi's operation type, e.g. ``UPSERT``.
        extra: Private entries stored next to the schema.
        replaced: Partition -> ids of the file groups that the commit replaces.
    """

    files: pa.Table
    schema_json: str
    operation: str
    compacted: bool
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A cleaning.

    Attributes:
        time: Its instant.
        policy: Hudi's name of the policy.
        earliest, action: Instant and action of the oldest retained snapshot, or "".
        files: Partition path -> names of the deleted data files.
        completion: Time of its completion, "" in version 6.
    """

    time: str
    policy: str
    earliest: str
    action: str
    files: Mapping[str, Sequence[str]]
    completion: str = ""


def operation_type(name: str) -> str:
    """Return Hudi's operation type for an operation, or ``UNKNOWN``.

    Its change queries leave out commits of an unknown type.

    >>> operation_type("upsert"), operation_type("delete_where"), operation_type("touch")
    ('UPSERT', 'DELETE', 'UNKNOWN')
    """
    word = _TYPES.get(name, name.upper())
    if word not in OPERATIONS:
        return "UNKNOWN"
    return word


def encode_commit(metadata: CommitMetadata) -> bytes:
    """Return the JSON of the completed instant of a commit or deltacommit, or with ``replaced`` of
    a replacecommit.
    """
    return json.dumps(commit_fields(metadata), ensure_ascii=False, separators=(",", ":")).encode()


def encode_profile(txn: str, operation: str, groups: Sequence[tuple[str, str, str]]) -> bytes:
    """Return the JSON of an inflight instant of a write of ours: the file groups that may get log
    files.

    Hudi's writers keep the same in it. Their rollback by listing cancels the blocks of these file
    groups. It has no other way to find them in version 6, where the name of a log file does not
    have the instant of its commit. It begins with :data:`PROFILE_START`.

    Args:
        operation: Hudi's operation type.
        groups: (partition path, file id, instant of the base file).
    """
    stats: dict[str, list[dict[str, str]]] = {}
    for partition, file_id, base_instant in sorted(groups):
        stats.setdefault(partition, []).append({"fileId": file_id, "prevCommit": base_instant})
    value = {
        "extraMetadata": {"mdt.txn": txn},
        "partitionToWriteStats": stats,
        "compacted": False,
        "operationType": operation,
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def commit_fields(metadata: CommitMetadata) -> dict[str, Any]:
    """Return the fields of a completed instant, which have the same names in JSON and Avro.

    Files are grouped by partition, in the given order.
    """
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for file in metadata.files.select(WRITTEN.names).to_pylist():
        by_partition.setdefault(file["partition"], []).append(_write_stat(file))
    value: dict[str, Any] = {
        "partitionToWriteStats": dict(sorted(by_partition.items())),
        "compacted": metadata.compacted,
        "extraMetadata": {"schema": metadata.schema_json, **dict(sorted(metadata.extra.items()))},
        "operationType": metadata.operation,
    }
    if metadata.replaced is not None:
        value["partitionToReplaceFileIds"] = {
            name: list(ids) for name, ids in sorted(metadata.replaced.items())
        }
    return value


def _write_stat(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the HoodieWriteStat of one file, a row of WRITTEN. Measures that we do not take are
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
    """Return the private entries of any writer's completed instant. Other fields may have any form.

    Raises Corrupt if ``data`` is not JSON.

    >>> decode_extra(b'{"extraMetadata": {"schema": "{}"}}'), decode_extra(b"[]")
    ({'schema': '{}'}, {})
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"this is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict) or not isinstance(extra := value.get("extraMetadata"), dict):
        return {}
    return {name: text for name, text in extra.items() if isinstance(text, str)}
