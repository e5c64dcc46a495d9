"""Avro bodies of Hudi's clean instants, identical in all table versions: HoodieCleanerPlan and
HoodieCleanMetadata.

The encoding is deterministic, byte for byte. Field lists: Apache Hudi, ``HoodieCleanerPlan.avsc``,
``HoodieCleanMetadata.avsc``.
"""

from __future__ import annotations

from typing import Any

from mdt.hudi.avro import (
    STRINGS,
    VERSION,
    array,
    field,
    mapping,
    one_record,
    optional,
    parse_record,
    record,
)
from mdt.hudi.commit_metadata import Cleaned
from mdt.hudi.timeline import COMPLETED

_SYNC = b"mdt.cleaning/1.."


def encode_plan(cleaning: Cleaned) -> bytes:
    """Return the content of a requested or inflight clean."""
    earliest = {
        "timestamp": cleaning.earliest,
        "action": cleaning.action,
        "state": COMPLETED.upper(),
    }
    paths = {
        partition: [
            {"filePath": f"{partition}/{name}".lstrip("/"), "isBootstrapBaseFile": False}
            for name in names
        ]
        for partition, names in sorted(cleaning.files.items())
    }
    plan: dict[str, Any] = {
        "earliestInstantToRetain": earliest if cleaning.earliest else None,
        "lastCompletedCommitTimestamp": cleaning.earliest,
        "policy": cleaning.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": paths,
        "partitionsToBeDeleted": [],
    }
    return one_record(_PLAN, plan, _SYNC)


def encode_metadata(cleaning: Cleaned) -> bytes:
    """Return the content of a completed clean."""
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": cleaning.policy,
            "deletePathPatterns": list(names),
            "successDeleteFiles": list(names),
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
        for partition, names in sorted(cleaning.files.items())
    }
    metadata = {
        "startCleanTime": cleaning.time,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, cleaning.files.values())),
        "earliestCommitToRetain": cleaning.earliest,
        "lastCompletedCommitTimestamp": cleaning.earliest,
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
    }
    return one_record(_METADATA, metadata, _SYNC)


_INSTANT = record(
    "HoodieActionInstant",
    field("timestamp", "string"),
    field("action", "string"),
    field("state", "string"),
)
_FILE = record(
    "HoodieCleanFileInfo",
    optional("filePath", "string"),
    optional("isBootstrapBaseFile", "boolean"),
)
_PLAN = parse_record(
    "HoodieCleanerPlan",
    optional("earliestInstantToRetain", _INSTANT),
    {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
    field("policy", "string"),
    optional("filesToBeDeletedPerPartition", mapping(STRINGS)),
    VERSION,
    optional("filePathsToBeDeletedPerPartition", mapping(array(_FILE))),
    optional("partitionsToBeDeleted", STRINGS),
)
_OF_PARTITION = record(
    "HoodieCleanPartitionMetadata",
    field("partitionPath", "string"),
    field("policy", "string"),
    field("deletePathPatterns", STRINGS),
    field("successDeleteFiles", STRINGS),
    field("failedDeleteFiles", STRINGS),
    optional("isPartitionDeleted", "boolean"),
)
_METADATA = parse_record(
    "HoodieCleanMetadata",
    field("startCleanTime", "string"),
    field("timeTakenInMillis", "long"),
    field("totalFilesDeleted", "int"),
    field("earliestCommitToRetain", "string"),
    {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
    field("partitionMetadata", mapping(_OF_PARTITION)),
    VERSION,
    optional("bootstrapPartitionMetadata", mapping("HoodieCleanPartitionMetadata")),
)
