"""The content of instants of table services, as readers need it: plans, and names of deleted files.

All of them are Avro in every table version. Field lists: Apache Hudi,
``HoodieCompactionPlan.avsc``, ``HoodieRequestedReplaceMetadata.avsc``,
``HoodieCleanMetadata.avsc``, ``HoodieSavepointMetadata.avsc``, ``HoodieRollbackMetadata.avsc``,
``HoodieRestoreMetadata.avsc``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mdt.hudi.read.fields import Fields
from mdt.hudi.read.untrusted_avro import read_record

GroupId = tuple[str, str]
"""Partition path and file id of a file group."""


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """The compaction of one file slice.

    Attributes:
        partition, file_id: The file group.
        base_instant: Instant of the slice.
        base_name: Name of its base file, or "".
        log_names: Names of its log files.
    """

    partition: str
    file_id: str
    base_instant: str
    base_name: str
    log_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """Files that a cleaning, rollback or restore deleted.

    Attributes:
        names: Partition path -> names of deleted files.
        partitions: Partitions that were deleted as a whole.
        instants: Instants that were rolled back.
    """

    names: Mapping[str, frozenset[str]]
    partitions: frozenset[str] = frozenset()
    instants: frozenset[str] = frozenset()


def decode_compaction_plan(data: bytes, path: str) -> tuple[CompactionOperation, ...]:
    """Return the operations in the content of a requested compaction or log compaction.

    Raises Corrupt, with ``path``.
    """
    operations = []
    for operation in Fields(read_record(data, path), path).records("operations"):
        operations.append(
            CompactionOperation(
                partition=operation.text("partitionPath"),
                file_id=operation.text("fileId"),
                base_instant=operation.text("baseInstantTime"),
                base_name=operation.text("dataFilePath").rpartition("/")[2],
                log_names=operation.file_names("deltaFilePaths"),
            )
        )
    return tuple(operations)


def decode_clustering_plan(data: bytes, path: str) -> frozenset[GroupId]:
    """Return the file groups that a requested clustering will replace.

    Returns an empty set for a requested replacecommit without a plan, such as an overwrite.
    Raises Corrupt, with ``path``.
    """
    if not data:
        return frozenset()
    plan = Fields(read_record(data, path), path).record("clusteringPlan")
    groups = set()
    for group in plan.records("inputGroups") if plan is not None else ():
        for piece in group.records("slices"):
            groups.add((piece.text("partitionPath"), piece.text("fileId")))
    return frozenset(groups)


def decode_clean(data: bytes, path: str) -> DeletedFiles:
    """Return the files in the content of a completed clean.

    Files whose deletion failed are left out. Raises Corrupt, with ``path``.
    """
    of_partitions = Fields(read_record(data, path), path).map("partitionMetadata")
    names, dropped = {}, set()
    for partition in of_partitions.names():
        metadata = of_partitions.map(partition)
        names[partition] = metadata.file_names("successDeleteFiles")
        if metadata.flag("isPartitionDeleted"):
            dropped.add(partition)
    return DeletedFiles(names, partitions=frozenset(dropped))


def decode_savepoint(data: bytes, path: str) -> Mapping[str, frozenset[str]]:
    """Return partition path -> names of the files that a completed savepoint keeps.

    Raises Corrupt, with ``path``.
    """
    of_partitions = Fields(read_record(data, path), path).map("partitionMetadata")
    names = {}
    for partition in of_partitions.names():
        names[partition] = of_partitions.map(partition).file_names("savepointDataFile")
    return names


def decode_rollback(data: bytes, path: str) -> DeletedFiles:
    """Return the files and instants in the content of a completed rollback.

    Raises Corrupt, with ``path``.
    """
    return _rollbacks([Fields(read_record(data, path), path)])


def decode_restore(data: bytes, path: str) -> DeletedFiles:
    """Return the files and instants in the content of a completed restore.

    Raises Corrupt, with ``path``.
    """
    of_instants = Fields(read_record(data, path), path).map("hoodieRestoreMetadata")
    rollbacks: list[Fields] = []
    for instant in of_instants.names():
        rollbacks.extend(of_instants.records(instant))
    return _rollbacks(rollbacks)


def _rollbacks(rollbacks: Iterable[Fields]) -> DeletedFiles:
    names: dict[str, frozenset[str]] = {}
    instants: set[str] = set()
    for rollback in rollbacks:
        instants.update(rollback.texts("commitsRollback"))
        of_partitions = rollback.map("partitionMetadata")
        for partition in of_partitions.names():
            deleted = of_partitions.map(partition).file_names("successDeleteFiles")
            names[partition] = names.get(partition, frozenset()) | deleted
    return DeletedFiles(names, instants=frozenset(instants))
