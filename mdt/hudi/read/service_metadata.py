"""The content of instants of table services, as readers need it: the file groups of a compaction,
and the names of files that a clean deleted or a savepoint keeps.

All of them are Avro in every table version. Field lists: Apache Hudi,
``HoodieCompactionPlan.avsc``, ``HoodieCleanMetadata.avsc``, ``HoodieSavepointMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mdt.hudi.read.fields import Fields
from mdt.hudi.read.untrusted_avro import read_record

GroupId = tuple[str, str]
"""Partition path and file id of a file group."""


def decode_compaction_plan(data: bytes, path: str) -> list[GroupId]:
    """Return the file groups in the content of a requested compaction or log compaction.

    Raises Corrupt, with ``path``.
    """
    operations = Fields(read_record(data, path), path).records("operations")
    return [(operation.text("partitionPath"), operation.text("fileId")) for operation in operations]


def decode_clean(data: bytes, path: str) -> Mapping[str, frozenset[str]]:
    """Return partition path -> names of the files that a completed clean deleted.

    Files whose deletion failed are left out. Raises Corrupt, with ``path``.
    """
    return _names(data, path, "successDeleteFiles")


def decode_savepoint(data: bytes, path: str) -> Mapping[str, frozenset[str]]:
    """Return partition path -> names of the files that a completed savepoint keeps.

    Raises Corrupt, with ``path``.
    """
    return _names(data, path, "savepointDataFile")


def _names(data: bytes, path: str, field: str) -> Mapping[str, frozenset[str]]:
    """Return the names in a field of each partition."""
    partitions = Fields(read_record(data, path), path).map("partitionMetadata")
    return {
        partition: partitions.map(partition).file_names(field) for partition in partitions.names()
    }
