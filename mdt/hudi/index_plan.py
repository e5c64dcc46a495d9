"""What the building of indexes tells Hudi, the same in all table versions: Avro files with one
HoodieIndexPlan and one HoodieIndexCommitMetadata.

The encoding is a pure function of its argument, byte for byte.  Field lists: Apache Hudi,
``HoodieIndexPlan.avsc``, ``HoodieIndexCommitMetadata.avsc``.  Each index stands there as a part of
the metadata table, under the name of its specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mdt.hudi.avro import VERSION, array, mapping, one_record, optional, parsed, record

_SYNC = b"mdt.indexing/1.."


def encode_plan(specs: Sequence[str], upto: str) -> bytes:
    """Return the content of a requested ``indexing``: what ``specs`` do not cover yet of the files
    up to the instant ``upto``.
    """
    return one_record(_PLAN, {"version": 1, "indexPartitionInfos": _parts(specs, upto)}, _SYNC)


def encode_metadata(specs: Sequence[str], upto: str) -> bytes:
    """Return the content of a completed ``indexing``."""
    told = {"version": 1, "operationType": None, "indexPartitionInfos": _parts(specs, upto)}
    return one_record(_METADATA, told, _SYNC)


def _parts(specs: Sequence[str], upto: str) -> list[dict[str, Any]]:
    more = {"version": 1, "indexUptoInstant": upto, "extraMetadata": None}
    return [{"metadataPartitionPath": spec, **more} for spec in specs]


_INFO = record(
    "HoodieIndexPartitionInfo",
    VERSION,
    optional("metadataPartitionPath", "string"),
    optional("indexUptoInstant", "string"),
    optional("extraMetadata", mapping("string")),
)
_PLAN = parsed("HoodieIndexPlan", VERSION, optional("indexPartitionInfos", array(_INFO)))
_METADATA = parsed(
    "HoodieIndexCommitMetadata",
    VERSION,
    optional("operationType", "string"),
    optional("indexPartitionInfos", array(_INFO)),
)
