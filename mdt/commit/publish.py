"""Hudi's view of our commits: instant files made from commit records, in commit order, idempotently.

Nothing here decides anything.  Every function may be repeated after a crash and ends in the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mdt.hudi import commit_metadata, layout_v6, properties, schema, timeline
from mdt.hudi.commit_metadata import WriteStat
from mdt.metadata import paths
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.file_group import BASE
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

NO_INSTANTS = ("rollback", "index")
"""Actions of ours that leave no instant on Hudi's timeline."""


def hudi_action(action: str) -> tuple[str, str]:
    """Return Hudi's word while an action is pending and when it is completed."""
    return ("compaction", "commit") if action == "compaction" else (action, action)


def announce(storage: Storage, instant: str, action: str) -> None:
    """Create the requested and inflight instants of a starting transaction.

    Not for compaction: version 6 readers hide the log files of a file group while its compaction is pending.
    """
    if action != "compaction":
        pending, _ = hudi_action(action)
        storage.put_if_absent(paths.timeline(timeline.requested_name(instant, pending)), b"")
        storage.put_if_absent(paths.timeline(timeline.inflight_name(instant, pending)), b"")


def retract(storage: Storage, instant: str, action: str) -> None:
    """Remove the pending instants of a transaction that will not commit."""
    pending, _ = hudi_action(action)
    storage.delete(paths.timeline(timeline.inflight_name(instant, pending)))
    storage.delete(paths.timeline(timeline.requested_name(instant, pending)))


def is_published(storage: Storage, record: CommitRecord, definition: TableDefinition) -> bool:
    """Return whether the completed instant of ``record`` exists (True for those that have none)."""
    if record.action in NO_INSTANTS:
        return True
    return storage.size(completed_path(record, definition)) is not None


def completed_path(record: CommitRecord, definition: TableDefinition) -> str:
    """Return where the completed instant of ``record`` belongs."""
    action = definition.commit_action if record.action == "create" else record.action
    return paths.timeline(timeline.completed_name(record.instant, hudi_action(action)[1]))


def oldest_unpublished(
    storage: Storage, load: Callable[[int], CommitRecord | None], seq: int, definition: TableDefinition
) -> int:
    """Return where publishing must start so that commit ``seq`` is not seen without those before it.

    Commits are published in order, so the search goes back to the newest one that is published.  ``load`` reads a commit
    record.  A commit may be unpublished although its writer lives: it is on its way, and we came after it.
    """
    oldest = seq
    for earlier in range(seq - 1, -1, -1):
        record = load(earlier)
        if record is None or (record.action not in NO_INSTANTS and is_published(storage, record, definition)):
            break
        oldest = earlier
    return oldest


def publish(storage: Storage, record: CommitRecord, definition: TableDefinition) -> None:
    """Make the completed instant of ``record``; for record 0 also ``hoodie.properties``.

    Files that the transaction wrote but left out go first: their names carry its instant, so Hudi would take them for
    committed.  The properties come last: who finds them finds a whole table.
    """
    if record.action in NO_INSTANTS:
        return
    storage.delete_many(record.header.get("left_out", ()))
    storage.put_if_absent(completed_path(record, definition), completed_content(record, definition))
    if record.action == "create":
        storage.put_if_absent(paths.properties(), properties.encode(table_properties(definition)))
    if record.action == "compaction":
        _publish_plan(storage, record)


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """Return the content of ``hoodie.properties`` for a table."""
    return layout_v6.table_properties(
        name=definition.name,
        table_type=definition.table_type,
        key_fields=definition.key,
        partition_fields=definition.partition_by,
        ordering=definition.ordering,
        schema_json=avro_schema(definition),
        hive_style=definition.hive_style,
        extra={},
    )


def avro_schema(definition: TableDefinition, *, meta_fields: bool = False) -> str:
    """Return the table's Avro schema as JSON text."""
    return schema.to_avro(definition.schema, definition.name, meta_fields=meta_fields)


def completed_content(record: CommitRecord, definition: TableDefinition) -> bytes:
    """Return the bytes of the completed instant: a pure function of the record."""
    files, slices = record.table("files").to_pylist(), record.table("slices").to_pylist()
    return commit_metadata.encode_commit(
        [_write_stat({**file, **place}) for file, place in zip(files, slices, strict=True)],
        schema_json=avro_schema(definition),
        operation={"create": "INSERT", "compaction": "COMPACT"}.get(
            record.action, str(record.header["operation"]).upper()
        ),
        compacted=record.action == "compaction",
        extra={"mdt.seq": str(record.seq), "mdt.txn": record.txn},
        replaced=None,
    )


def _write_stat(file: Mapping[str, Any]) -> WriteStat:
    partition, name = file["partition"], file["name"]
    is_base = file["kind"] == BASE
    return WriteStat(
        file_id=file["file_id"],
        path=paths.partition_file(partition, name),
        prev_commit=file["previous_instant"],
        num_writes=file["rows"],
        num_deletes=file["deletes"],
        num_update_writes=file["updates"],
        num_inserts=file["inserts"],
        total_write_bytes=file["size"],
        file_size_in_bytes=file["size"],
        partition_path=partition,
        log_version=None if is_base else file["log_version"],
        base_file=None if is_base else file["base_name"],
        log_files=None if is_base else tuple(file["log_names"]),
    )


def _publish_plan(storage: Storage, record: CommitRecord) -> None:
    """Leave the pending files of a compaction for Java readers, after the fact: see :func:`announce`."""
    plan = commit_metadata.encode_compaction_plan(record.header.get("compaction_plan", ()))
    storage.put_if_absent(paths.timeline(timeline.requested_name(record.instant, "compaction")), plan)
    storage.put_if_absent(paths.timeline(timeline.inflight_name(record.instant, "compaction")), b"")
