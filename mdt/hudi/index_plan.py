"""Avro bodies of Hudi's ``indexing`` instants, identical in all table versions: HoodieIndexPlan and
HoodieIndexCommitMetadata.

The encoding is deterministic, byte for byte. Field lists: Apache Hudi, ``HoodieIndexPlan.avsc``,
``HoodieIndexCommitMetadata.avsc``. Each index is listed as a partition of the metadata table, named
by its specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mdt.hudi.avro import VERSION, array, mapping, one_record, optional, parse_record, record

_SYNC = b"mdt.indexing/1.."


def encode_plan(specs: Sequence[str], upto: str) -> bytes:
    """Return the content of a requested ``indexing``: build ``specs`` for all files up to instant
    ``upto``.
    """
    return one_record(_PLAN, {"version": 1, "indexPartitionInfos": _parts(specs, upto)}, _SYNC)


def encode_metadata(specs: Sequence[str], upto: str) -> bytes:
    """Return the content of a completed ``indexing``."""
    metadata = {"version": 1, "operationType": None, "indexPartitionInfos": _parts(specs, upto)}
    return one_record(_METADATA, metadata, _SYNC)


def _parts(specs: Sequence[str], upto: str) -> list[dict[str, Any]]:
    common = {"version": 1, "indexUptoInstant": upto, "extraMetadata": None}
    return [{"metadataPartitionPath": spec, **common} for spec in specs]


_INFO = record(
    "HoodieIndexPartitionInfo",
    VERSION,
    optional("metadataPartitionPath", "string"),
    optional("indexUptoInstant", "string"),
    optional("extraMetadata", mapping("string")),
)
_PLAN = parse_record("HoodieIndexPlan", VERSION, optional("indexPartitionInfos", array(_INFO)))
_METADATA = parse_record(
    "HoodieIndexCommitMetadata",
    VERSION,
    optional("operationType", "string"),
    optional("indexPartitionInfos", array(_INFO)),
)
