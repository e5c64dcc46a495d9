"""Avro body of a requested ``replacecommit``, identical in all table versions:
HoodieRequestedReplaceMetadata.

For a clustering it contains the plan. For any other operation that replaces file groups, e.g. an
overwrite, it only contains the operation. The encoding is deterministic, byte for byte. Field
lists: Apache Hudi, ``HoodieRequestedReplaceMetadata.avsc``, ``HoodieClusteringPlan.avsc``.
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
from mdt.hudi.commit_metadata import CLUSTER

_SYNC = b"mdt.clustering/1"


def encode(units: Sequence[Mapping[str, Any]], operation: str = CLUSTER) -> bytes:
    """Return the plan of an operation that replaces file groups.

    Args:
        units: Units of a clustering. Each has ``slices`` and ``outputs``, the ids of the new file
            groups. A slice is a file slice with the keys ``dataFilePath`` (path of the base file in
            the table, or None), ``deltaFilePaths`` (paths of log files), ``fileId`` and
            ``partitionPath``.
        operation: Hudi's operation type. Only a clustering contains units.
    """
    groups: list[dict[str, Any]] = [
        {
            "slices": [
                {"bootstrapFilePath": "", "version": 1, **file_slice}
                for file_slice in unit["slices"]
            ],
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
    clustering_plan = plan if operation == CLUSTER else None
    metadata = {
        "operationType": operation,
        "clusteringPlan": clustering_plan,
        "extraMetadata": None,
        "version": 1,
    }
    return one_record(_REQUESTED_REPLACE, metadata, _SYNC)


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
_REQUESTED_REPLACE = parse_record(
    "HoodieRequestedReplaceMetadata",
    optional("operationType", "string"),
    optional("clusteringPlan", _PLAN),
    optional("extraMetadata", mapping("string")),
    VERSION,
)
