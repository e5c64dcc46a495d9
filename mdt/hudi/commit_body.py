"""Avro body of a completed write in versions 8 and 9: HoodieCommitMetadata, or with replaced file
groups HoodieReplaceCommitMetadata.

The encoding is deterministic, byte for byte. Field lists: Apache Hudi,
``HoodieCommitMetadata.avsc``, ``HoodieReplaceCommitMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mdt.hudi.avro import (
    STRINGS,
    VERSION,
    array,
    mapping,
    one_record,
    optional,
    parse_record,
    record,
)
from mdt.hudi.read import commit_metadata

_SYNC = b"mdt.committing/1"


def encode(fields: Mapping[str, Any]) -> bytes:
    """Return the content of a completed instant.

    Args:
        fields: See :func:`mdt.hudi.commit_metadata.commit_fields`.
    """
    is_replacing = "partitionToReplaceFileIds" in fields
    return one_record(_REPLACE if is_replacing else _COMMIT, {"version": 1, **fields}, _SYNC)


def decode_extra(data: bytes) -> Mapping[str, str]:
    """Return the private entries of any writer's completed instant. Raises Corrupt for damaged
    bytes.
    """
    return commit_metadata.decode(data, "").extra


_RUNTIME = record(
    "HoodieRuntimeStats",
    *(optional(name, "long") for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime")),
)
_STAT = record(
    "HoodieWriteStat",
    *(optional(name, "string") for name in ("fileId", "path", "prevCommit")),
    *(
        optional(name, "long")
        for name in (
            "numWrites",
            "numDeletes",
            "numUpdateWrites",
            "totalWriteBytes",
            "totalWriteErrors",
        )
    ),
    optional("partitionPath", "string"),
    *(
        optional(name, "long")
        for name in (
            "totalLogRecords",
            "totalLogFiles",
            "totalUpdatedRecordsCompacted",
            "numInserts",
            "totalLogBlocks",
            "totalCorruptLogBlock",
            "totalRollbackBlocks",
            "fileSizeInBytes",
        )
    ),
    optional("logVersion", "int"),
    optional("logOffset", "long"),
    optional("baseFile", "string"),
    optional("logFiles", STRINGS),
    optional("cdcStats", mapping("long")),
    optional("prevBaseFile", "string"),
    optional("minEventTime", "long"),
    optional("maxEventTime", "long"),
    optional("runtimeStats", _RUNTIME),
    *(
        optional(name, "long")
        for name in ("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted")
    ),
    optional("tempPath", "string"),
    optional("numUpdates", "long"),
)
_FIELDS = (
    optional("partitionToWriteStats", mapping(array(_STAT))),
    optional("compacted", "boolean"),
    optional("extraMetadata", mapping("string")),
    VERSION,
    optional("operationType", "string"),
)
_COMMIT = parse_record("HoodieCommitMetadata", *_FIELDS)
_REPLACE = parse_record(
    "HoodieReplaceCommitMetadata",
    *_FIELDS,
    optional("partitionToReplaceFileIds", mapping(STRINGS)),
)
