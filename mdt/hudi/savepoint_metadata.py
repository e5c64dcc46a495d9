"""What a savepoint tells Hudi, the same in all table versions: an Avro file with one HoodieSavepointMetadata.

The encoding is a pure function of its arguments, byte for byte.  Field list: Apache Hudi, ``HoodieSavePointMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

import fastavro

_SYNC = b"mdt.savepoint/1."


def encode(by: str, at_ms: int, comment: str, files: Mapping[str, Sequence[str]]) -> bytes:
    """Return the content of a completed savepoint.

    ``by``: who made it.  ``at_ms``: when, in milliseconds since 1970.  ``files``: partition path -> names of the data files of the state.
    """
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": list(names)}
        for partition, names in sorted(files.items())
    }
    told = {"savepointedBy": by, "savepointedAt": at_ms, "comments": comment, "partitionMetadata": partitions}
    out = BytesIO()
    fastavro.writer(out, _SAVEPOINT, [told], sync_marker=_SYNC)
    return out.getvalue()


_PARTITION = {
    "type": "record",
    "name": "HoodieSavepointPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "savepointDataFile", "type": {"type": "array", "items": "string"}},
    ],
}
_SAVEPOINT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieSavepointMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "savepointedBy", "type": "string"},
            {"name": "savepointedAt", "type": "long"},
            {"name": "comments", "type": "string"},
            {"name": "partitionMetadata", "type": {"type": "map", "values": _PARTITION}},
        ],
    }
)
