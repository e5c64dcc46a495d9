"""What a ``replacecommit`` plans, the same in all table versions: an Avro file with one
HoodieRequestedReplaceMetadata.

Of a clustering it has the plan; of everything else that replaces file groups, such as an overwrite,
the operation alone.  The encoding is a pure function of its arguments, byte for byte.  Field lists:
Apache Hudi, ``HoodieRequestedReplaceMetadata.avsc``, ``HoodieClusteringPlan.avsc``.
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
    parsed,
    record,
)

_SYNC = b"mdt.clustering/1"


CLUSTER = "CLUSTER"
"""Hudi's word for a clustering."""


def encode(units: Sequence[Mapping[str, Any]], operation: str = CLUSTER) -> bytes:
    """Return what the ``operation``, Hudi's word, plans: of a clustering its ``units``.

    Each unit has ``slices``, file slices with the keys ``dataFilePath`` (path of the base file in
    the table, or None), ``deltaFilePaths`` (of log files), ``fileId`` and ``partitionPath``; and
    ``outputs``, the ids of the new file groups.
    """
    groups: list[dict[str, Any]] = [
        {
            "slices": [{"bootstrapFilePath": "", "version": 1, **one} for one in unit["slices"]],
            "metrics": {},
            "numOutputFileGroups": len(unit["outputs"]),
            "extraMetadata": None,
            "version": 1,
        }
        for unit in units
    ]
    plan = {
        "inputGroups": groups,
        "strategy": None,
        "extraMetadata": None,
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    known = plan if operation == CLUSTER else None
    told = {
        "operationType": operation,
        "clusteringPlan": known,
        "extraMetadata": None,
        "version": 1,
    }
    return one_record(_REQUESTED_REPLACE, told, _SYNC)


_SLICE = record(
    "HoodieSliceInfo",
    optional("dataFilePath", "string"),
    optional("deltaFilePaths", STRINGS),
    field("fileId", ["null", "string"]),
    optional("partitionPath", "string"),
    optional("bootstrapFilePath", "string"),
    VERSION,
)
_GROUP = record(
    "HoodieClusteringGroup",
    optional("slices", array(_SLICE)),
    optional("metrics", mapping("double")),
    {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
    optional("extraMetadata", mapping("string")),
    VERSION,
)
_STRATEGY = record(
    "HoodieClusteringStrategy",
    optional("strategyClassName", "string"),
    optional("strategyParams", mapping("string")),
    VERSION,
)
_PLAN = record(
    "HoodieClusteringPlan",
    optional("inputGroups", array(_GROUP)),
    optional("strategy", _STRATEGY),
    optional("extraMetadata", mapping("string")),
    VERSION,
    optional("preserveHoodieMetadata", "boolean"),
    optional("missingSchedulePartitions", STRINGS),
)
_REQUESTED_REPLACE = parsed(
    "HoodieRequestedReplaceMetadata",
    optional("operationType", "string"),
    optional("clusteringPlan", _PLAN),
    optional("extraMetadata", mapping("string")),
    VERSION,
)
