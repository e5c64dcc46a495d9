"""A compaction's plan, the same in all table versions: an Avro file with one HoodieCompactionPlan.

The encoding is a pure function of its argument, byte for byte.  Field list: Apache Hudi,
``HoodieCompactionPlan.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro

from mdt.errors import Corrupt
from mdt.hudi.avro import NAMESPACE, STRINGS, VERSION, array, mapping, one_record, optional

_SYNC = b"mdt.compaction/1"


def encode(operations: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the plan of a compaction.

    Each operation has the keys ``baseInstantTime``, ``fileId``, ``partitionPath``, ``dataFilePath``
    (the base file's name, or None), ``deltaFilePaths`` (log file names, oldest first) and
    optionally ``metrics`` (name -> float).
    """
    plan = {
        "operations": [
            {"metrics": {}, "bootstrapFilePath": None, **operation} for operation in operations
        ],
        "extraMetadata": None,
        "version": 1,
        "strategy": None,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    return one_record(_COMPACTION_PLAN, plan, _SYNC)


def decode(data: bytes) -> dict[str, Any]:
    """Return the HoodieCompactionPlan in ``data``.  Raises Corrupt if there is not exactly one."""
    try:
        plans = list(fastavro.reader(BytesIO(data)))
    except (ValueError, TypeError, EOFError, IndexError, KeyError) as error:
        raise Corrupt(f"a compaction plan cannot be read: {error!r}") from error
    if len(plans) != 1 or not isinstance(plans[0], dict):
        raise Corrupt("a compaction plan holds one record", expected="1", got=str(len(plans)))
    return dict(plans[0])


_OPERATION = {
    "type": "record",
    "name": "HoodieCompactionOperation",
    "fields": [
        {"name": "baseInstantTime", "type": ["null", "string"]},
        optional("deltaFilePaths", STRINGS),
        optional("dataFilePath", "string"),
        {"name": "fileId", "type": ["null", "string"]},
        optional("partitionPath", "string"),
        optional("metrics", mapping("double")),
        optional("bootstrapFilePath", "string"),
    ],
}
_STRATEGY = {
    "type": "record",
    "name": "HoodieCompactionStrategy",
    "fields": [
        optional("compactorClassName", "string"),
        optional("strategyParams", mapping("string")),
        VERSION,
    ],
}
_COMPACTION_PLAN = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCompactionPlan",
        "namespace": NAMESPACE,
        "fields": [
            optional("operations", array(_OPERATION)),
            optional("extraMetadata", mapping("string")),
            VERSION,
            optional("strategy", _STRATEGY),
            {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
            optional("missingSchedulePartitions", STRINGS),
        ],
    }
)
