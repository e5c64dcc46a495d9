"""Avro body of a compaction plan, identical in all table versions: HoodieCompactionPlan.

The encoding is deterministic, byte for byte. Field list: Apache Hudi,
``HoodieCompactionPlan.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_SYNC = b"mdt.compaction/1"
_METRICS = {"TOTAL_LOG_FILES_SIZE": 0.0}
"""Hudi 1.2 cannot go on with a pending compaction of another writer without this metric. It copies
the number into its statistics (``FileGroupReaderBasedMergeHandle.java``).
"""


def encode(operations: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the plan of a compaction.

    Args:
        operations: Dicts with the keys ``baseInstantTime``, ``fileId``, ``partitionPath``,
            ``dataFilePath`` (the base file's name, or None), ``deltaFilePaths`` (log file names,
            oldest first) and optionally ``metrics`` (name -> float).
    """
    plan = {
        "operations": [
            {"metrics": _METRICS, "bootstrapFilePath": None, **operation}
            for operation in operations
        ],
        "extraMetadata": None,
        "version": 1,
        "strategy": None,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    return one_record(_COMPACTION_PLAN, plan, _SYNC)


_OPERATION = record(
    "HoodieCompactionOperation",
    field("baseInstantTime", ["null", "string"]),
    optional("deltaFilePaths", STRINGS),
    optional("dataFilePath", "string"),
    field("fileId", ["null", "string"]),
    optional("partitionPath", "string"),
    optional("metrics", mapping("double")),
    optional("bootstrapFilePath", "string"),
)
_STRATEGY = record(
    "HoodieCompactionStrategy",
    optional("compactorClassName", "string"),
    optional("strategyParams", mapping("string")),
    VERSION,
)
_COMPACTION_PLAN = parse_record(
    "HoodieCompactionPlan",
    optional("operations", array(_OPERATION)),
    optional("extraMetadata", mapping("string")),
    VERSION,
    optional("strategy", _STRATEGY),
    {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
    optional("missingSchedulePartitions", STRINGS),
)
