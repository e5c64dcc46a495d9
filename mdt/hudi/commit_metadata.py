"""What a completed instant says (version 6: JSON of HoodieCommitMetadata), and a compaction's plan (Avro).

Both encodings are pure functions of their arguments, byte for byte, so that an instant can be published again after a
crash.  Field lists: Apache Hudi, ``HoodieCommitMetadata.java``, ``HoodieWriteStat.java``, ``HoodieCompactionPlan.avsc``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro

from mdt.errors import Corrupt

NO_PREVIOUS = "null"
"""``prevCommit`` of a new file group; the word, not the JSON value."""
_SYNC = b"mdt.compaction/1"


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
    """A decoded completed instant.  ``schema_json``: Avro schema without meta columns, or "" if it names none."""

    stats: tuple[WriteStat, ...]
    schema_json: str
    operation: str
    compacted: bool
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] | None = None


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


def encode_commit(
    stats: Sequence[WriteStat],
    *,
    schema_json: str,
    operation: str,
    compacted: bool,
    extra: Mapping[str, str],
    replaced: Mapping[str, list[str]] | None,
) -> bytes:
    """Return the completed instant of a commit, deltacommit or, with ``replaced``, replacecommit.

    ``operation``: Hudi's word, such as ``UPSERT``.  ``extra``: private texts kept beside the schema.  ``replaced``:
    partition -> ids of the file groups that end here.  Stats are grouped by partition, in the order given.
    """
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path, []).append(_stat_json(stat))
    value: dict[str, Any] = {
        "partitionToWriteStats": dict(sorted(by_partition.items())),
        "compacted": compacted,
        "extraMetadata": {"schema": schema_json, **dict(sorted(extra.items()))},
        "operationType": operation,
    }
    if replaced is not None:
        value["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in sorted(replaced.items())}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _stat_json(stat: WriteStat) -> dict[str, Any]:
    value: dict[str, Any] = {name: getattr(stat, attribute) for name, attribute in _COMMON.items()}
    value["prevCommit"] = stat.prev_commit or NO_PREVIOUS
    value |= {"cdcStats": None, "tempPath": None, "minEventTime": None, "maxEventTime": None}
    value["runtimeStats"] = {name: getattr(stat, attribute) for name, attribute in _TIMES.items()}
    if stat.log_version is not None:
        value |= {name: getattr(stat, attribute) for name, attribute in _LOG.items()}
        value["logFiles"] = list(stat.log_files or ())
    return value


def decode_commit(data: bytes) -> CommitMetadata:
    """Return what a completed version 6 instant says.  Raises Corrupt if ``data`` is not such JSON.

    Unknown fields are ignored; a missing count is 0.

    >>> stat = WriteStat("g1", "city=Oslo/g1_0-7-0_20240229120000123.parquet", "city=Oslo", num_writes=3)
    >>> data = encode_commit(
    ...     [stat], schema_json="{}", operation="UPSERT", compacted=False, extra={"mdt.seq": "7"}, replaced=None
    ... )
    >>> decode_commit(data).operation, decode_commit(data).extra
    ('UPSERT', {'mdt.seq': '7'})
    """
    try:
        value = json.loads(data)
        partitions = value.get("partitionToWriteStats") or {}
        extra = {str(k): str(v) for k, v in (value.get("extraMetadata") or {}).items() if v is not None}
        replaced = value.get("partitionToReplaceFileIds")
        return CommitMetadata(
            stats=tuple(_stat(name, stat) for name, stats in partitions.items() for stat in stats),
            schema_json=extra.pop("schema", ""),
            operation=str(value.get("operationType") or "UNKNOWN"),
            compacted=bool(value.get("compacted")),
            extra=extra,
            replaced=None if replaced is None else {str(k): tuple(map(str, v)) for k, v in replaced.items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt(f"a completed instant is no commit metadata: {error!r}") from error


def _stat(partition: str, value: Mapping[str, Any]) -> WriteStat:
    found: dict[str, Any] = {}
    for name, attribute in {**_COMMON, **_LOG}.items():
        if value.get(name) is not None:
            found[attribute] = str(value[name]) if attribute in _TEXTS else value[name]
    for name, attribute in _TIMES.items():
        found[attribute] = (value.get("runtimeStats") or {}).get(name) or 0
    found["log_files"] = tuple(map(str, found["log_files"])) if "log_files" in found else None
    found["partition_path"] = partition
    for attribute in found.keys() - _TEXTS - {"log_files"}:
        found[attribute] = int(found[attribute])
    if found.get("prev_commit") == NO_PREVIOUS:
        found["prev_commit"] = None
    return WriteStat(**found)


def encode_compaction_plan(operations: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the plan of a compaction, ``<t>.compaction.requested``: an Avro file with one HoodieCompactionPlan.

    Each operation has the keys ``baseInstantTime``, ``fileId``, ``partitionPath``, ``dataFilePath`` (the base file's
    name, or None), ``deltaFilePaths`` (log file names, oldest first) and optionally ``metrics`` (name -> float).
    """
    plan = {
        "operations": [{"metrics": {}, "bootstrapFilePath": None, **operation} for operation in operations],
        "extraMetadata": None,
        "version": 1,
        "strategy": None,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    out = BytesIO()
    fastavro.writer(out, _COMPACTION_PLAN, [plan], sync_marker=_SYNC)
    return out.getvalue()


def decode_compaction_plan(data: bytes) -> dict[str, Any]:
    """Return the HoodieCompactionPlan in ``data``.  Raises Corrupt if there is not exactly one."""
    try:
        plans = list(fastavro.reader(BytesIO(data)))
    except (ValueError, TypeError, EOFError, IndexError, KeyError) as error:
        raise Corrupt(f"a compaction plan cannot be read: {error!r}") from error
    if len(plans) != 1 or not isinstance(plans[0], dict):
        raise Corrupt("a compaction plan holds one record", expected="1", got=str(len(plans)))
    return dict(plans[0])


def _optional(name: str, type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type], "default": None}


def _map(values: str) -> dict[str, str]:
    return {"type": "map", "values": values}


_STRINGS = {"type": "array", "items": "string"}
_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
_OPERATION = {
    "type": "record",
    "name": "HoodieCompactionOperation",
    "fields": [
        {"name": "baseInstantTime", "type": ["null", "string"]},
        _optional("deltaFilePaths", _STRINGS),
        _optional("dataFilePath", "string"),
        {"name": "fileId", "type": ["null", "string"]},
        _optional("partitionPath", "string"),
        _optional("metrics", _map("double")),
        _optional("bootstrapFilePath", "string"),
    ],
}
_STRATEGY = {
    "type": "record",
    "name": "HoodieCompactionStrategy",
    "fields": [_optional("compactorClassName", "string"), _optional("strategyParams", _map("string")), _VERSION],
}
_COMPACTION_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCompactionPlan",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            _optional("operations", {"type": "array", "items": _OPERATION}),
            _optional("extraMetadata", _map("string")),
            _VERSION,
            _optional("strategy", _STRATEGY),
            {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
            _optional("missingSchedulePartitions", _STRINGS),
        ],
    }
)
