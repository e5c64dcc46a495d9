"""Avro bodies of Hudi's restore instants, identical in all table versions: HoodieRestorePlan and
HoodieRestoreMetadata.

Our restore removes no commit from the timeline and deletes no file, so it lists none. Otherwise
Hudi's readers that follow the timeline would forget these files, and show file groups again that
one of these commits has replaced (docs/decisions/24-restore-instants.md).

The encoding is deterministic, byte for byte. Field lists: Apache Hudi, ``HoodieRestorePlan.avsc``,
``HoodieRestoreMetadata.avsc``.
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

_SYNC = b"mdt.restoring/1."


def encode_plan(to: str) -> bytes:
    """Return the content of a requested restore.

    Args:
        to: Instant of the snapshot to restore.
    """
    plan = {"instantsToRollback": [], "version": 2, "savepointToRestoreTimestamp": to}
    return one_record(_PLAN, plan, _SYNC)


def encode_metadata(time: str) -> bytes:
    """Return the content of a completed restore.

    Args:
        time: Time of its instant.
    """
    metadata: dict[str, Any] = {
        "startRestoreTime": time,
        "timeTakenInMillis": 0,
        "instantsToRollback": [],
        "hoodieRestoreMetadata": {},
        "version": 1,
        "restoreInstantInfo": [],
    }
    return one_record(_METADATA, metadata, _SYNC)


_INSTANT = record("HoodieInstantInfo", field("commitTime", "string"), field("action", "string"))
_INSTANTS = {"name": "instantsToRollback", "type": array(_INSTANT), "default": []}
_OF_PARTITION = record(
    "HoodieRollbackPartitionMetadata",
    field("partitionPath", "string"),
    field("successDeleteFiles", STRINGS),
    field("failedDeleteFiles", STRINGS),
    optional("rollbackLogFiles", mapping("long")),
    optional("logFilesFromFailedCommit", mapping("long")),
)
_ROLLBACK = record(
    "HoodieRollbackMetadata",
    field("startRollbackTime", "string"),
    field("timeTakenInMillis", "long"),
    field("totalFilesDeleted", "int"),
    field("commitsRollback", STRINGS),
    field("partitionMetadata", mapping(_OF_PARTITION)),
    VERSION,
    {"name": "instantsRollback", "type": array(_INSTANT), "default": []},
)
_PLAN = parse_record(
    "HoodieRestorePlan",
    _INSTANTS,
    {"name": "version", "type": ["int", "null"], "default": 2},
    field("savepointToRestoreTimestamp", ["string", "null"]),
)
_METADATA = parse_record(
    "HoodieRestoreMetadata",
    field("startRestoreTime", "string"),
    field("timeTakenInMillis", "long"),
    field("instantsToRollback", STRINGS),
    field("hoodieRestoreMetadata", mapping(array(["null", _ROLLBACK]))),
    VERSION,
    {"name": "restoreInstantInfo", "type": array("HoodieInstantInfo"), "default": []},
)
