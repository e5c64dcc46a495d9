"""What a completed instant says: HoodieCommitMetadata, and its JSON, which version 6 has; what a cleaning says.

The encoding is a pure function of its arguments, byte for byte, so that an instant can be published again after a crash.
Field lists: Apache Hudi, ``HoodieCommitMetadata.java``, ``HoodieWriteStat.java``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mdt.errors import Corrupt

NO_PREVIOUS = "null"
"""``prevCommit`` of a new file group; the word, not the JSON value."""


@dataclass(frozen=True, slots=True)
class WriteStat:
    """What one commit wrote to one file.

    ``path`` is relative to the table.  ``log_version``, ``base_file`` and ``log_files`` (every log file of the slice so far)
    are set for log files only.  Counts are rows, sizes bytes, times milliseconds.
    """

    file_id: str
    path: str
    partition_path: str
    prev_commit: str | None = None
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    file_size_in_bytes: int = 0
    total_write_errors: int = 0
    total_log_records: int = 0
    total_log_files_compacted: int = 0
    total_log_size_compacted: int = 0
    total_updated_records_compacted: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    total_scan_time: int = 0
    total_upsert_time: int = 0
    total_create_time: int = 0
    log_version: int | None = None
    log_offset: int = 0
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What a completed instant says.

    ``schema_json``: Avro schema without meta columns, or "" if it names none.  ``operation``: Hudi's word, such as ``UPSERT``.
    ``extra``: private texts kept beside the schema.  ``replaced``: partition -> ids of the file groups that end here.
    """

    stats: tuple[WriteStat, ...]
    schema_json: str
    operation: str
    compacted: bool
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A cleaning.  ``time``: its instant.  ``policy``: Hudi's word.  ``earliest``: the instant of the oldest state that stays, with its
    ``action``; "" if there is none.  ``files``: partition path -> names of the data files that go.
    """

    time: str
    policy: str
    earliest: str
    action: str
    files: Mapping[str, Sequence[str]]


_COMMON = {
    "fileId": "file_id",
    "path": "path",
    "prevCommit": "prev_commit",
    "numWrites": "num_writes",
    "numDeletes": "num_deletes",
    "numUpdateWrites": "num_update_writes",
    "numInserts": "num_inserts",
    "totalWriteBytes": "total_write_bytes",
    "totalWriteErrors": "total_write_errors",
    "partitionPath": "partition_path",
    "totalLogRecords": "total_log_records",
    "totalLogFilesCompacted": "total_log_files_compacted",
    "totalLogSizeCompacted": "total_log_size_compacted",
    "totalUpdatedRecordsCompacted": "total_updated_records_compacted",
    "totalLogBlocks": "total_log_blocks",
    "totalCorruptLogBlock": "total_corrupt_log_block",
    "totalRollbackBlocks": "total_rollback_blocks",
    "fileSizeInBytes": "file_size_in_bytes",
}
_TIMES = {
    "totalScanTime": "total_scan_time",
    "totalUpsertTime": "total_upsert_time",
    "totalCreateTime": "total_create_time",
}
_LOG = {"logVersion": "log_version", "logOffset": "log_offset", "baseFile": "base_file", "logFiles": "log_files"}
_TEXTS = frozenset({"file_id", "path", "prev_commit", "partition_path", "base_file"})


def encode_commit(told: CommitMetadata) -> bytes:
    """Return the completed instant of a commit, deltacommit or, with ``replaced``, replacecommit.

    Stats are grouped by partition, in the order given.
    """
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for stat in told.stats:
        by_partition.setdefault(stat.partition_path, []).append(_stat_json(stat))
    value: dict[str, Any] = {
        "partitionToWriteStats": dict(sorted(by_partition.items())),
        "compacted": told.compacted,
        "extraMetadata": {"schema": told.schema_json, **dict(sorted(told.extra.items()))},
        "operationType": told.operation,
    }
    if told.replaced is not None:
        value["partitionToReplaceFileIds"] = {name: list(ids) for name, ids in sorted(told.replaced.items())}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _stat_json(stat: WriteStat) -> dict[str, Any]:
    value = _named(stat, _COMMON)
    value["prevCommit"] = stat.prev_commit or NO_PREVIOUS
    value |= {"cdcStats": None, "tempPath": None, "minEventTime": None, "maxEventTime": None}
    value["runtimeStats"] = _named(stat, _TIMES)
    if stat.log_version is not None:
        value |= _named(stat, _LOG)
        value["logFiles"] = list(stat.log_files or ())
    return value


def _named(stat: WriteStat, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return attributes of ``stat`` under the names that they have in JSON."""
    return {name: getattr(stat, attribute) for name, attribute in attributes.items()}


def decode_commit(data: bytes) -> CommitMetadata:
    """Return what a completed version 6 instant says.  Raises Corrupt if ``data`` is not such JSON.

    Unknown fields are ignored; a missing count is 0.

    >>> stat = WriteStat("g1", "city=Oslo/g1_0-7-0_20240229120000123.parquet", "city=Oslo", num_writes=3)
    >>> told = CommitMetadata((stat,), schema_json="{}", operation="UPSERT", compacted=False, extra={"mdt.seq": "7"})
    >>> decode_commit(encode_commit(told)) == told
    True
    """
    try:
        value = json.loads(data)
        partitions = value.get("partitionToWriteStats") or {}
        extra = {str(k): str(v) for k, v in (value.get("extraMetadata") or {}).items() if v is not None}
        replaced = value.get("partitionToReplaceFileIds")
        if replaced is not None:
            replaced = {str(k): tuple(map(str, v)) for k, v in replaced.items()}
        return CommitMetadata(
            stats=tuple(_stat(name, stat) for name, stats in partitions.items() for stat in stats),
            schema_json=extra.pop("schema", ""),
            operation=str(value.get("operationType") or "UNKNOWN"),
            compacted=bool(value.get("compacted")),
            extra=extra,
            replaced=replaced,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt(f"a completed instant is no commit metadata: {error!r}") from error


def decode_extra(data: bytes) -> dict[str, str]:
    """Return the private texts of any writer's completed instant; what else it says may have any form.

    Raises Corrupt if ``data`` is no JSON.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"this is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict) or not isinstance(extra := value.get("extraMetadata"), dict):
        return {}
    return {name: text for name, text in extra.items() if isinstance(text, str)}


def _stat(partition: str, value: Mapping[str, Any]) -> WriteStat:
    found: dict[str, Any] = {}
    for name, attribute in {**_COMMON, **_LOG}.items():
        if value.get(name) is not None:
            found[attribute] = value[name]
    for name, attribute in _TIMES.items():
        found[attribute] = (value.get("runtimeStats") or {}).get(name) or 0
    if "log_files" in found:
        found["log_files"] = tuple(map(str, found["log_files"]))
    found["partition_path"] = partition
    for attribute in found.keys() - {"log_files"}:
        kind = str if attribute in _TEXTS else int
        found[attribute] = kind(found[attribute])
    if found.get("prev_commit") == NO_PREVIOUS:
        found["prev_commit"] = None
    return WriteStat(**found)
