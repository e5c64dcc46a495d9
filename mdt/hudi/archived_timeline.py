"""Hudi's archive of instants that have left its active timeline, in the format of table version 6:
log files with Avro blocks.

Each record is a HoodieArchivedMetaEntry with the time, action, state and metadata of a completed
instant. The writer's schema contains the fields that we use; Hudi's reader fills in defaults for
the rest. Field lists: Apache Hudi, ``HoodieArchivedMetaEntry.avsc``, ``HoodieCommitMetadata.avsc``,
``HoodieReplaceCommitMetadata.avsc``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro

from mdt.errors import Corrupt
from mdt.hudi import log_file
from mdt.hudi.avro import NAMESPACE, VERSION, array, mapping, optional, record
from mdt.hudi.file_names import HUDI
from mdt.hudi.read.untrusted_avro import DAMAGE
from mdt.hudi.timeline import COMPLETED, Instant, InstantContent

FOLDER = f"{HUDI}/archived"
_NAME = re.compile(r"\.commits_\.archive\.([0-9]{1,9})_[0-9]+-[0-9]+-[0-9]+")
_COMMITS = frozenset(("commit", "deltacommit"))


def next_path(existing: Iterable[str]) -> str:
    """Return the path for the next archive file.

    Args:
        existing: Existing paths in the archive folder.

    >>> next_path([]), next_path([f"{FOLDER}/.commits_.archive.7_1-0-1"])
    ('.hoodie/archived/.commits_.archive.1_1-0-1', '.hoodie/archived/.commits_.archive.8_1-0-1')
    """
    matches = (_NAME.fullmatch(path.rpartition("/")[2]) for path in existing)
    last = max((int(match[1]) for match in matches if match), default=0)
    return f"{FOLDER}/.commits_.archive.{last + 1}_1-0-1"


def encode(instants: Sequence[InstantContent]) -> bytes:
    """Return an archive file with completed instants and their content, oldest first.

    Raises Corrupt for a commit of another writer that cannot be read.
    """
    records = [_record(entry.instant, entry.body) for entry in instants]
    content = b"".join(
        [
            log_file.CONTENT_VERSION.to_bytes(4, "big"),
            len(records).to_bytes(4, "big"),
            *(len(record).to_bytes(4, "big") + record for record in records),
        ]
    )
    return log_file.avro_block(content, avro_schema=json.dumps(_ENTRY, separators=(",", ":")))


def _record(instant: Instant, body: bytes) -> bytes:
    out = BytesIO()
    try:
        fastavro.schemaless_writer(out, _PARSED, _entry(instant, body))
    except DAMAGE as error:
        raise Corrupt(
            f"Hudi's {instant.action} at {instant.time} has invalid commit metadata:"
            f" {str(error)[:200]}"
        ) from error
    return out.getvalue()


def _entry(instant: Instant, body: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "commitTime": instant.time,
        "actionType": instant.action,
        "actionState": COMPLETED.upper(),
        "hoodieCommitMetadata": None,
        "hoodieReplaceCommitMetadata": None,
    }
    if instant.action in _COMMITS:
        entry["hoodieCommitMetadata"] = _commit_entry(body)
    if instant.action == "replacecommit":
        entry["hoodieReplaceCommitMetadata"] = _commit_entry(body)
    return entry


def _commit_entry(body: bytes) -> Mapping[str, Any]:
    """Convert the JSON of a commit to the fields of Hudi's Avro record. Raises an error of DAMAGE
    for other bytes.
    """
    metadata = json.loads(body)
    stats = {
        partition: [
            {name: stat[name] for name in _STAT_NAMES if stat.get(name) is not None}
            for stat in write_stats
        ]
        for partition, write_stats in metadata["partitionToWriteStats"].items()
    }
    extra = (metadata.get("extraMetadata") or {}).items()
    return {
        **{name: metadata[name] for name in _COMMIT_NAMES if name in metadata},
        "extraMetadata": {name: text for name, text in extra if text is not None},
        "partitionToWriteStats": stats,
    }


_TEXTS = ("fileId", "path", "prevCommit", "partitionPath", "baseFile")
_LONGS = (
    "numWrites",
    "numDeletes",
    "numUpdateWrites",
    "totalWriteBytes",
    "totalWriteErrors",
    "totalLogRecords",
    "totalUpdatedRecordsCompacted",
    "numInserts",
    "totalLogBlocks",
    "totalCorruptLogBlock",
    "totalRollbackBlocks",
    "fileSizeInBytes",
    "logOffset",
)
_STAT_NAMES = (*_TEXTS, *_LONGS, "logVersion", "logFiles")
_COMMIT_NAMES = ("compacted", "operationType", "partitionToReplaceFileIds")

_STAT = record(
    "HoodieWriteStat",
    *(optional(name, "string") for name in _TEXTS),
    *(optional(name, "long") for name in _LONGS),
    optional("logVersion", "int"),
    optional("logFiles", array("string")),
)
_COMMIT_FIELDS = [
    optional("compacted", "boolean"),
    optional("extraMetadata", mapping("string")),
    VERSION,
    optional("operationType", "string"),
]
_COMMIT = record(
    "HoodieCommitMetadata",
    optional("partitionToWriteStats", mapping(array(_STAT))),
    *_COMMIT_FIELDS,
)
_REPLACE = record(
    "HoodieReplaceCommitMetadata",
    optional("partitionToWriteStats", mapping(array("HoodieWriteStat"))),
    *_COMMIT_FIELDS,
    optional("partitionToReplaceFileIds", mapping(array("string"))),
)
_ENTRY = record(
    "HoodieArchivedMetaEntry",
    optional("hoodieCommitMetadata", _COMMIT),
    optional("commitTime", "string"),
    optional("actionType", "string"),
    optional("actionState", "string"),
    optional("hoodieReplaceCommitMetadata", _REPLACE),
    namespace=NAMESPACE,
)
_PARSED = fastavro.parse_schema(json.loads(json.dumps(_ENTRY)))
