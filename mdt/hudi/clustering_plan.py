"""A clustering's plan, the same in all table versions: an Avro file with one HoodieRequestedReplaceMetadata.

The encoding is a pure function of its argument, byte for byte.  Field lists: Apache Hudi, ``HoodieRequestedReplaceMetadata.avsc``,
``HoodieClusteringPlan.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro

_SYNC = b"mdt.clustering/1"


def encode(units: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the plan of a clustering.

    Each unit has ``slices``, file slices with the keys ``dataFilePath`` (path of the base file in the table, or None),
    ``deltaFilePaths`` (of log files), ``fileId`` and ``partitionPath``; and ``outputs``, the ids of the new file groups.
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
    out = BytesIO()
    told = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": None, "version": 1}
    fastavro.writer(out, _REQUESTED_REPLACE, [told], sync_marker=_SYNC)
    return out.getvalue()


def _optional(name: str, type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type], "default": None}


def _map(values: str) -> dict[str, str]:
    return {"type": "map", "values": values}


_STRINGS = {"type": "array", "items": "string"}
_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
_SLICE = {
    "type": "record",
    "name": "HoodieSliceInfo",
    "fields": [
        _optional("dataFilePath", "string"),
        _optional("deltaFilePaths", _STRINGS),
        {"name": "fileId", "type": ["null", "string"]},
        _optional("partitionPath", "string"),
        _optional("bootstrapFilePath", "string"),
        _VERSION,
    ],
}
_GROUP = {
    "type": "record",
    "name": "HoodieClusteringGroup",
    "fields": [
        _optional("slices", {"type": "array", "items": _SLICE}),
        _optional("metrics", _map("double")),
        {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
        _optional("extraMetadata", _map("string")),
        _VERSION,
    ],
}
_STRATEGY = {
    "type": "record",
    "name": "HoodieClusteringStrategy",
    "fields": [_optional("strategyClassName", "string"), _optional("strategyParams", _map("string")), _VERSION],
}
_PLAN = {
    "type": "record",
    "name": "HoodieClusteringPlan",
    "fields": [
        _optional("inputGroups", {"type": "array", "items": _GROUP}),
        _optional("strategy", _STRATEGY),
        _optional("extraMetadata", _map("string")),
        _VERSION,
        _optional("preserveHoodieMetadata", "boolean"),
        _optional("missingSchedulePartitions", _STRINGS),
    ],
}
_REQUESTED_REPLACE = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRequestedReplaceMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            _optional("operationType", "string"),
            _optional("clusteringPlan", _PLAN),
            _optional("extraMetadata", _map("string")),
            _VERSION,
        ],
    }
)
