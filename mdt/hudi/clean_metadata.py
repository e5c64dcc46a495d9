"""What cleaning tells Hudi, the same in all table versions: Avro files with one HoodieCleanerPlan and one HoodieCleanMetadata.

The encoding is a pure function of its argument, byte for byte.  Field lists: Apache Hudi, ``HoodieCleanerPlan.avsc``,
``HoodieCleanMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

from mdt.hudi.commit_metadata import Cleaned
from mdt.hudi.timeline import COMPLETED

_SYNC = b"mdt.cleaning/1.."
_NAMESPACE = "org.apache.hudi.avro.model"


def encode_plan(told: Cleaned) -> bytes:
    """Return the content of a requested or inflight clean."""
    earliest = {"timestamp": told.earliest, "action": told.action, "state": COMPLETED.upper()}
    paths = {
        partition: [{"filePath": f"{partition}/{name}".lstrip("/"), "isBootstrapBaseFile": False} for name in names]
        for partition, names in sorted(told.files.items())
    }
    plan: dict[str, Any] = {
        "earliestInstantToRetain": earliest if told.earliest else None,
        "lastCompletedCommitTimestamp": told.earliest,
        "policy": told.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": paths,
        "partitionsToBeDeleted": [],
    }
    return _encoded(_PLAN, plan)


def encode_metadata(told: Cleaned) -> bytes:
    """Return the content of a completed clean."""
    partitions = {
        partition: {
            "partitionPath": partition, "policy": told.policy, "deletePathPatterns": list(names),
            "successDeleteFiles": list(names), "failedDeleteFiles": [], "isPartitionDeleted": False,
        }
        for partition, names in sorted(told.files.items())
    }  # fmt: skip
    metadata = {
        "startCleanTime": told.time,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, told.files.values())),
        "earliestCommitToRetain": told.earliest,
        "lastCompletedCommitTimestamp": told.earliest,
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
    }
    return _encoded(_METADATA, metadata)


def _encoded(schema: Any, record: Mapping[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.writer(out, schema, [record], sync_marker=_SYNC)
    return out.getvalue()


def _optional(name: str, type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type], "default": None}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _field(name: str, type: Any) -> dict[str, Any]:
    return {"name": name, "type": type}


_STRINGS = {"type": "array", "items": "string"}
_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
_INSTANT = {
    "type": "record", "name": "HoodieActionInstant",
    "fields": [_field("timestamp", "string"), _field("action", "string"), _field("state", "string")],
}  # fmt: skip
_FILE = {
    "type": "record", "name": "HoodieCleanFileInfo",
    "fields": [_optional("filePath", "string"), _optional("isBootstrapBaseFile", "boolean")],
}  # fmt: skip
_PLAN = fastavro.parse_schema(
    {
        "type": "record", "name": "HoodieCleanerPlan", "namespace": _NAMESPACE,
        "fields": [
            _optional("earliestInstantToRetain", _INSTANT),
            {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
            _field("policy", "string"),
            _optional("filesToBeDeletedPerPartition", _map(_STRINGS)),
            _VERSION,
            _optional("filePathsToBeDeletedPerPartition", _map({"type": "array", "items": _FILE})),
            _optional("partitionsToBeDeleted", _STRINGS),
        ],
    }
)  # fmt: skip
_OF_PARTITION = {
    "type": "record", "name": "HoodieCleanPartitionMetadata",
    "fields": [
        _field("partitionPath", "string"), _field("policy", "string"), _field("deletePathPatterns", _STRINGS),
        _field("successDeleteFiles", _STRINGS), _field("failedDeleteFiles", _STRINGS),
        _optional("isPartitionDeleted", "boolean"),
    ],
}  # fmt: skip
_METADATA = fastavro.parse_schema(
    {
        "type": "record", "name": "HoodieCleanMetadata", "namespace": _NAMESPACE,
        "fields": [
            _field("startCleanTime", "string"), _field("timeTakenInMillis", "long"), _field("totalFilesDeleted", "int"),
            _field("earliestCommitToRetain", "string"),
            {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
            _field("partitionMetadata", _map(_OF_PARTITION)),
            _VERSION,
            _optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata")),
        ],
    }
)  # fmt: skip
