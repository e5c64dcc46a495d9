"""Avro body of Hudi's savepoints, identical in all table versions: HoodieSavepointMetadata.

The encoding is deterministic, byte for byte. Field list: Apache Hudi,
``HoodieSavePointMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mdt.hudi.avro import STRINGS, field, mapping, one_record, parse_record, record

_SYNC = b"mdt.savepoint/1."


def encode(by: str, at_ms: int, comment: str, files: Mapping[str, Sequence[str]]) -> bytes:
    """Return the content of a completed savepoint.

    Args:
        by: User.
        at_ms: Creation time in milliseconds since 1970.
        files: Partition path -> names of the snapshot's data files.
    """
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": list(names)}
        for partition, names in sorted(files.items())
    }
    savepoint = {
        "savepointedBy": by,
        "savepointedAt": at_ms,
        "comments": comment,
        "partitionMetadata": partitions,
    }
    return one_record(_SAVEPOINT, savepoint, _SYNC)


_PARTITION = record(
    "HoodieSavepointPartitionMetadata",
    field("partitionPath", "string"),
    field("savepointDataFile", STRINGS),
)
_SAVEPOINT = parse_record(
    "HoodieSavepointMetadata",
    field("savepointedBy", "string"),
    field("savepointedAt", "long"),
    field("comments", "string"),
    field("partitionMetadata", mapping(_PARTITION)),
)
