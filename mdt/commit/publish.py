"""Hudi's view of our commits: instant files made from commit records, in commit order.

This module makes no decisions. All functions are idempotent and can be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from mdt.commit import markers
from mdt.hudi import bucket_config, properties, timeline
from mdt.hudi.avro_schema import avro_schema
from mdt.hudi.commit_metadata import Cleaned, CommitMetadata, encode_profile, operation_type
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.read.schema_history import LATEST_SCHEMA
from mdt.metadata.files import paths
from mdt.metadata.key_indexes import bucket_rules
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import ADOPT, IMPORT, NO_INSTANTS
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import slice_instant
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

_OF_ACTIONS = {"create": "insert", "compaction": "compact"}
"""Operation of an action, whatever the record calls it."""


def with_completion(
    record: CommitRecord, definition: TableDefinition, last: str, now_us: int
) -> CommitRecord:
    """Return ``record`` with the time at which it completes on Hudi's timeline.

    It is later than that of the record before, so that completions have the order of the log. Its
    place in the record makes it the same for whoever publishes the record. Version 6 has none.

    Args:
        last: The newest completion of the records before, or "".
        now_us: The current time in microseconds since 1970.
    """
    if not layout_of(definition).has_completions:
        return record
    at = max(now_us, timeline.instant_us(max(record.instant, last)) + 1000)
    header = {**record.header, "completion": timeline.instant_text(at)}
    return replace(record, header=header)


def profile_of(
    snapshot: Snapshot, action: str, operation: str, txn: str, groups: Collection[str]
) -> bytes:
    """Return the content of the inflight instant of a transaction, b"" if it needs none.

    Args:
        groups: Ids of the file groups that it may write to.
    """
    layout, file_groups = layout_of(snapshot.definition), snapshot.file_groups
    if layout.has_completions or action != "deltacommit":
        return b""  # names of log files have the instant, or there are no log files
    members = [file_groups.members(group) for group in file_groups.with_files(sorted(groups))]
    if not members:
        return b""
    remaining = iter(snapshot.files.segments(np.concatenate(members)))
    files_by_group = (list(islice(remaining, len(of_group))) for of_group in members)
    slices = [
        (files[0].partition, files[0].file_id, slice_instant(files)) for files in files_by_group
    ]
    return encode_profile(txn, operation_type(operation), slices)


def announce(
    storage: Storage,
    instant: str,
    action: str,
    definition: TableDefinition,
    profile: bytes = b"",
) -> list[str]:
    """Put the pending instants of a transaction. Return the paths that were created.

    Args:
        profile: Content of the inflight instant, see :func:`profile_of`. Empty instants need not
            survive a power cut, because the transaction has not committed.
    """
    return _put_passing(storage, _pending_files(instant, action, definition, profile))


def is_announced_by(
    created: Sequence[str], instant: str, action: str, definition: TableDefinition
) -> bool:
    """Return True if :func:`announce` has created all pending instants. Otherwise another writer
    has the same instant, or an earlier try of the call has created them.
    """
    return len(created) == len(_pending_files(instant, action, definition))


def prepare(storage: Storage, instant: str, action: str, definition: TableDefinition) -> list[str]:
    """Put the files that must exist before :func:`announce`. They are the same for all writers of
    the instant. Return the paths that were created.
    """
    if not _pending_files(instant, action, definition):
        return []
    return _put_passing(storage, markers.heartbeat_files(storage, instant))


def _put_passing(storage: Storage, objects: Sequence[tuple[str, bytes]]) -> list[str]:
    """Put objects that do not exist. Return the paths of those that were created."""
    created = storage.together(
        *(partial(storage.put_passing, path, content) for path, content in objects)
    )
    return [path for (path, _), is_new in zip(objects, created, strict=True) if is_new]


def _pending_files(
    instant: str, action: str, definition: TableDefinition, profile: bytes = b""
) -> Sequence[tuple[str, bytes]]:
    if action in NO_INSTANTS:
        return ()
    return layout_of(definition).announced(instant, action, profile)


def retract(storage: Storage, instant: str, action: str, definition: TableDefinition) -> None:
    """Remove the pending instants of a transaction that will not commit."""
    for path in layout_of(definition).retracted(instant, action):
        storage.delete(path)


def is_published(storage: Storage, record: CommitRecord, definition: TableDefinition) -> bool:
    """Return True if the completed instant of ``record`` exists, or if it has none."""
    if not has_instant(record):
        return True
    return storage.size(completed_path(record, definition)) is not None


def has_instant(record: CommitRecord) -> bool:
    """Return True if a record is a commit on Hudi's timeline."""
    return _is_commit(record.action, record.header["operation"])


def _is_commit(action: str, operation: str) -> bool:
    return action not in NO_INSTANTS and operation != ADOPT


def newest_instant(snapshot: Snapshot) -> str:
    """Return the largest instant of the commits on Hudi's timeline that are in the log, "" for
    none.
    """
    rows = snapshot.history.select(["action", "operation", "instant"]).to_pylist()
    times = [row["instant"] for row in rows if _is_commit(row["action"], row["operation"])]
    return max(times, default="")


def completed_path(record: CommitRecord, definition: TableDefinition) -> str:
    """Return the path of the completed instant of ``record``."""
    action = _hudi_action(record, definition)
    return layout_of(definition).completed_path(record.instant, record.completion, action)


def published_snapshot(metadata: Metadata, newest: Snapshot) -> Snapshot:
    """Return the newest snapshot that readers see.

    In a table that Hudi's writers share, that is the newest one on Hudi's timeline: a commit whose
    writer died before its completed instant may still be rolled back by them. The next writer
    decides. It returns ``newest`` if the snapshot before was cleaned.
    """
    if not newest.is_shared or metadata.storage.is_imported:
        return newest
    first_unpublished = None
    for seq in range(newest.seq, newest.retention.first - 1, -1):
        record = metadata.record(seq)
        if record is None or record.action == IMPORT:  # an import settles all commits before it
            break
        if not has_instant(record):
            continue
        path = completed_path(record, newest.definition)
        if metadata.watch.has_seen(path) or metadata.storage.size(path) is not None:
            break
        first_unpublished = seq
    if first_unpublished is None or not newest.is_kept(first_unpublished - 1):
        return newest
    return metadata.at(first_unpublished - 1, newest=newest)


def _hudi_action(record: CommitRecord, definition: TableDefinition) -> str:
    if record.action == "create":
        return definition.commit_action
    return record.action


def oldest_unpublished(
    is_done: Callable[[CommitRecord], bool], load: Callable[[int], CommitRecord | None], seq: int
) -> int:
    """Return the first seq to publish, so that no commit before ``seq`` is missing on the timeline.

    Commits are published in order, so the search goes back to the newest published commit. An
    unpublished commit does not mean that its writer is dead. It may be about to publish.

    Args:
        is_done: Returns True if a record is published.
        load: Reads a commit record.
    """
    oldest = seq
    for earlier in range(seq - 1, -1, -1):
        record = load(earlier)
        if record is None or is_done(record):
            break
        oldest = earlier
    return oldest


def publish(storage: Storage, record: CommitRecord, definition: TableDefinition) -> None:
    """Put the completed instant of ``record``. For record 0 also ``hoodie.properties``.

    Files that the transaction wrote but did not commit are deleted first. Their names contain its
    instant, so Hudi would take them for committed files. The properties are written last, so that a
    table that has them is complete.
    """
    _publish_savepoint(storage, record, definition)
    new_instants, dropped = index_instants(record, definition)
    for path, content in new_instants:
        storage.put_if_absent(path, content)
    storage.delete_many(dropped)
    for path, content in restore_instants(record, definition):
        storage.put_if_absent(path, content)
    if not has_instant(record):
        return
    storage.delete_many(record.header.get("left_out", ()))
    (path, content), *after = completed_files(record, definition)
    storage.put_if_absent(path, content)
    if after:
        operation = operation_type(_hudi_operation(record))
        layout = layout_of(definition)
        action = _hudi_action(record, definition)
        storage.delete_many(layout.superseded(record.instant, action, operation))
    for path, content in after:  # the plan replaces the pending instant
        storage.replace(path, content)
    if record.action == "create":
        rules = bucket_rules(definition.key_index)
        if rules is not None:
            storage.put_if_absent(bucket_config.PATH, bucket_config.encode(*rules))
        content = properties.encode(layout_of(definition).properties(definition))
        storage.put_if_absent(paths.PROPERTIES, content)


def _publish_savepoint(storage: Storage, record: CommitRecord, definition: TableDefinition) -> None:
    """Put the instants of a new savepoint, or remove the instants of a dropped savepoint. They are
    separate from the instants of commits.
    """
    layout = layout_of(definition)
    savepoint, unsaved = record.header.get("savepoint"), record.header.get("unsaved")
    if savepoint is not None:
        files = _names_by_partition(record, "saved")
        at_ms = timeline.instant_us(record.instant) // 1000
        for path, content in layout.savepoint(
            savepoint["time"], record.completion, at_ms, savepoint["comment"], files
        ):
            storage.put_if_absent(path, content)
    if unsaved is not None:
        storage.delete_many(_savepoint_paths(storage, layout, unsaved))


def _savepoint_paths(storage: Storage, layout: Layout, time: str) -> list[str]:
    """Return the paths of a savepoint's instants, the completed one first.

    The name of the completed one may have a time that only its own record knows.
    """
    folder, instants = layout.timeline, []
    for info in storage.list_dir(folder, after=f"{folder}/{time}", before=f"{folder}/{time}~"):
        instant = layout.instant_at(info.path)
        if instant is not None and (instant.time, instant.action) == (time, "savepoint"):
            instants.append((instant.state != timeline.COMPLETED, info.path))
    return [path for _, path in sorted(instants)]


def index_instants(
    record: CommitRecord, definition: TableDefinition
) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the instants for Hudi's index builds: (path, content) to put, and paths to delete.

    Since version 8 there are none to put (:data:`mdt.hudi.timeline.UNARCHIVED`).
    """
    indexing, layout = record.header.get("indexing"), layout_of(definition)
    if indexing is None:
        return [], []
    if layout.has_completions:
        ended = (*indexing.get("done", ()), *indexing.get("dropped", ()))
        return [], [path for instant in ended for path in layout.retracted(instant, "indexing")]
    completion = record.completion
    new_instants: list[tuple[str, bytes]] = []
    if indexing.get("plan"):
        new_instants += layout.indexing(record.instant, completion, indexing["plan"])[:-1]
    for instant, specs in indexing.get("done", {}).items():
        new_instants.append(layout.indexing(instant, completion, specs)[-1])
    dropped: list[str] = []
    for instant in indexing.get("dropped", ()):
        dropped += layout.retracted(instant, "indexing")
    return new_instants, dropped


def restore_instants(
    record: CommitRecord, definition: TableDefinition
) -> Sequence[tuple[str, bytes]]:
    """Return (path, content) of the additional instants of a restore.

    Empty for other records, and since version 8 (:data:`mdt.hudi.timeline.UNARCHIVED`).
    """
    to, layout = record.header.get("restored"), layout_of(definition)
    if to is None or layout.has_completions:
        return ()
    return layout.restored(record.instant, record.completion, to)


def completed_files(
    record: CommitRecord, definition: TableDefinition
) -> Sequence[tuple[str, bytes]]:
    """Return (path, content) of the files that complete ``record``, the completed instant first.

    A pure function of the record. ``definition`` may be that of any later snapshot.
    """
    if record.action == "clean":
        return layout_of(definition).cleaned(_clean_metadata(record))
    files, slices = record.table("files"), record.table("slices")
    is_replace = record.action == "replacecommit"
    written = definition.at(record.seq)
    numbered = {}
    if written.numbered:
        numbered = {LATEST_SCHEMA: written.numbered}
    commit_metadata = CommitMetadata(
        files=pa.table(
            [*files.columns, *slices.columns], [*files.column_names, *slices.column_names]
        ),
        schema_json=avro_schema(written),
        operation=operation_type(_hudi_operation(record)),
        compacted=record.action == "compaction",
        extra={
            **record.header.get("metadata", {}),
            **numbered,
            "mdt.seq": str(record.seq),
            "mdt.txn": record.txn,
        },
        replaced=record.replaced if is_replace else None,
    )
    plan = record.header.get("clustering_plan" if is_replace else "compaction_plan", ())
    return layout_of(definition).completed(
        record.instant,
        record.completion,
        _hudi_action(record, definition),
        commit_metadata,
        plan,
    )


def _hudi_operation(record: CommitRecord) -> str:
    operation = str(record.header["operation"])
    return _OF_ACTIONS.get(record.action, operation)


def _clean_metadata(record: CommitRecord) -> Cleaned:
    """Return the content of Hudi's clean instant."""
    clean = record.header.get("clean", {})
    return Cleaned(
        record.instant,
        clean.get("policy", ""),
        clean.get("earliest", ""),
        clean.get("action", ""),
        _names_by_partition(record, "cleaned"),
        record.completion,
    )


def _names_by_partition(record: CommitRecord, section: str) -> dict[str, list[str]]:
    """Return the names of the files in a section of paths, by partition path."""
    names: dict[str, list[str]] = {}
    for path in record.table(section)["path"].to_pylist():
        partition, _, name = path.rpartition("/")
        names.setdefault(partition, []).append(name)
    return names
