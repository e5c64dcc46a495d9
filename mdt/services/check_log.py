"""Check the commit log, the compacted metadata, Hudi's timeline and the listing of data files."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mdt.commit import leftovers, publish
from mdt.commit.recovery import pending, sensible
from mdt.errors import Corrupt, Invalid
from mdt.hudi import properties
from mdt.hudi.layout import layout_of
from mdt.hudi.partitions import partition_depth
from mdt.limits import PROPERTIES_BYTES_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.checkpoint_columns import HISTORY, HISTORY_ADDED
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.apply import apply, first
from mdt.metadata.snapshot.checkpoint import checkpoint_of, differing
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.services.problem import Kind, Problem
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import Storage


def check_log(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """Yield what is wrong outside the live files' content."""
    records: list[CommitRecord] = []
    oldest = snapshot.retention.first
    seqs = range(oldest, snapshot.seq + 1)
    read = metadata.storage.each(partial(_read_record, metadata.storage, seq) for seq in seqs)
    for seq, record in zip(seqs, read, strict=True):
        path = paths.commit(seq)
        if isinstance(record, Corrupt):
            yield Problem(path, record.offset, str(record), Kind.RECORD)
            continue
        if record is None:
            yield Problem(path, -1, "the commit record is missing", Kind.RECORD)
        else:
            records.append(record)
    is_whole = len(records) == snapshot.seq + 1 - oldest
    if is_whole:
        yield from _check_replay(metadata, snapshot, records)
    yield from _check_checkpoint(metadata, None)
    yield from _check_archive(metadata, snapshot)
    yield from _check_tagged(metadata, snapshot)
    yield from _check_timeline(metadata, snapshot, records)
    yield from _check_replaced(snapshot, records)
    yield from _check_objects(metadata, snapshot)
    if is_whole:
        yield from _check_leftovers(metadata)
    yield from _check_claims(metadata)


def _read_record(storage: Storage, seq: int) -> CommitRecord | Corrupt | None:
    try:
        return commit_log.read(storage, seq)
    except Corrupt as error:
        return error


def _check_replay(
    metadata: Metadata, snapshot: Snapshot, records: list[CommitRecord]
) -> Iterator[Problem]:
    """The compacted metadata must say what the log says, after the checkpoint before its oldest
    record if it has one.
    """
    if snapshot.retention.first:
        try:
            replayed = metadata.checkpoints.open(snapshot.retention.first - 1).snapshot
        except Corrupt as error:
            yield Problem(error.path, error.offset, str(error), Kind.CHECKPOINT)
            return
        after = records
    else:
        replayed, after = first(records[0], path=paths.commit(0)), records[1:]
    for record in after:
        replayed = apply(replayed, record)
    told, expected = checkpoint_of(snapshot), checkpoint_of(replayed)
    names = [name for name in expected.everything() if name not in ("key_parts", "history")]
    wrong = differing(expected, told, names)
    if not _is_history(told.table("history"), expected.table("history")):
        wrong.append("history")
    for name in wrong:
        text = f"compacted metadata and log disagree about {name}"
        yield Problem(
            paths.checkpoint_manifest(max(snapshot.checkpoint.seq, 0)), -1, text, Kind.CHECKPOINT
        )


def _is_history(told: pa.Table, expected: pa.Table) -> bool:
    """Return whether ``told`` is the history ``expected``; rows that an older writer has
    checkpointed lack the columns that were added later.
    """
    if len(told) != len(expected):
        return False
    older, is_new = HISTORY.names[:-HISTORY_ADDED], pc.is_valid(told["files"])
    same = told.select(older).equals(expected.select(older))
    return bool(same and told.filter(is_new).equals(expected.filter(is_new)))


def _check_checkpoint(metadata: Metadata, seq: int | None) -> Iterator[Problem]:
    """A checkpoint (None: the newest) must be readable as a whole; without it every open reads more
    of the log.
    """
    try:
        metadata.check_checkpoint(seq)
    except Corrupt as error:
        yield Problem(error.path, error.offset, str(error), Kind.CHECKPOINT)


def _check_archive(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """The checkpoint before the oldest record must be whole, and history must have every record
    from 0 on.
    """
    oldest = snapshot.retention.first
    if not oldest:
        return
    yield from _check_checkpoint(metadata, oldest - 1)
    try:
        seqs = metadata.history(of=snapshot)["seq"].to_pylist()
    except Corrupt as error:
        yield Problem(error.path, error.offset, str(error), Kind.ARCHIVE)
        return
    if seqs != list(range(snapshot.seq + 1)):
        yield Problem(
            paths.archive_dir(), -1, "history does not have every record once", Kind.ARCHIVE
        )


def _check_tagged(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """A tagged state before the horizon must have a whole checkpoint of its own, and its files."""
    tagged = snapshot.tags.before(snapshot.retention.horizon)
    listed = {info.path for info in metadata.storage.list("")} if tagged else set()
    checkpoints = metadata.checkpoints.listed() if tagged else []
    for seq in tagged:
        try:
            metadata.check_checkpoint(seq)
            files = references.file_paths(metadata.state(seq, checkpoints).listing())
        except Corrupt as error:
            yield Problem(error.path, error.offset, str(error), Kind.CHECKPOINT)
            continue
        for path in set(files.to_pylist()) - listed:
            text = f"is missing; the state after commit {seq}, which has a tag, needs it"
            yield Problem(path, -1, text, Kind.ROWS)


def _check_timeline(
    metadata: Metadata, snapshot: Snapshot, records: list[CommitRecord]
) -> Iterator[Problem]:
    wrong = properties_problem(metadata, snapshot.definition)
    if wrong:
        yield Problem(paths.properties(), -1, wrong, Kind.TIMELINE)
    yield from _check_partitions(metadata, snapshot)
    yield from _check_indexing(metadata, snapshot, records)
    published = [record for record in records if record.action not in publish.NO_INSTANTS]
    read = metadata.storage.each(
        partial(_instants_of, metadata.storage, snapshot.definition, record) for record in published
    )
    for record, instants in zip(published, read, strict=True):
        for path, content, found in instants:
            if found is None:
                yield from _check_unpublished(metadata, snapshot, record, path)
            elif found != content:
                yield Problem(path, -1, f"differs from commit record {record.seq}", Kind.TIMELINE)


def _instants_of(
    storage: Storage, definition: TableDefinition, record: CommitRecord
) -> list[tuple[str, bytes, bytes | None]]:
    """Return path and bytes of what Hudi is told of a record, and the bytes that stand there, None
    where nothing does.
    """
    told = [publish.completed(record, definition)[0], *publish.of_restore(record, definition)]
    return [(path, content, storage.read_if_exists(path)) for path, content in told]


def properties_problem(metadata: Metadata, definition: TableDefinition) -> str:
    """Return what is wrong with ``hoodie.properties``, "" if nothing is: where they decide what
    files mean, they are as at creation.

    Raises Unsupported if they are those of a version that is not known.
    """
    data = metadata.storage.read_if_exists(paths.properties())
    if data is None:
        return "is missing; the next writer makes it"
    try:
        found = properties.decode(data)
        properties.verify(found)
    except (Corrupt, Invalid) as error:
        return str(error)
    seqs = {0, *(version.since for version in definition.versions)}
    expected = [layout_of(definition).properties(definition.at(seq)) for seq in sorted(seqs)]
    for name in properties.DECISIVE:
        if found.get(name) not in {told.get(name) for told in expected}:
            return f"{name} is not what the table was made with"
    return ""


def _check_partitions(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """Each partition with live files needs Hudi's marker: readers who list directories leave out
    one that has none.
    """
    live = (
        snapshot.files.take(["partition"], snapshot.live_numbers)["partition"].unique().to_pylist()
    )
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        for partition, wrong in zip(
            live, pool.map(partial(_marker_problem, metadata.storage), live), strict=True
        ):
            if wrong:
                yield Problem(paths.partition_metadata(partition), -1, wrong, Kind.TIMELINE)


def _marker_problem(storage: Storage, partition: str) -> str:
    """Return what is wrong with the marker of a partition, "" if nothing is."""
    try:
        depth = properties.decode(
            storage.read_whole(paths.partition_metadata(partition), PROPERTIES_BYTES_MAX)
        ).get("partitionDepth", "")
    except Corrupt as error:
        return str(error)
    return "" if depth == str(partition_depth(partition)) else f"says depth {depth!r}"


def _check_indexing(
    metadata: Metadata, snapshot: Snapshot, records: list[CommitRecord]
) -> Iterator[Problem]:
    """Of builds of indexes Hudi is told what the records say, but for what later ones have taken
    back.
    """
    made: dict[str, tuple[CommitRecord, bytes]] = {}
    for record in records:
        found, gone = publish.of_indexing(record, snapshot.definition)
        made |= {path: (record, content) for path, content in found}
        for path in gone:
            made.pop(path, None)
    read = metadata.storage.each(partial(metadata.storage.read_if_exists, path) for path in made)
    planned, layout = {record.instant for record in records}, layout_of(snapshot.definition)
    for (path, (record, content)), data in zip(made.items(), read, strict=True):
        if data is None:
            instant = layout.instant_at(path)
            if instant is not None and instant.time in planned:
                # Other instants were archived with the record that planned the build.
                yield from _check_unpublished(metadata, snapshot, record, path)
        elif data != content:
            yield Problem(path, -1, f"differs from commit record {record.seq}", Kind.TIMELINE)


def _check_replaced(snapshot: Snapshot, records: list[CommitRecord]) -> Iterator[Problem]:
    """What Hudi was told to have been replaced is never read by its readers again, so nothing may
    live there.
    """
    for record in records:
        names = [name for of_partition in record.replaced.values() for name in of_partition]
        numbers = snapshot.file_groups.number(names)
        for name, number in zip(names, numbers.tolist(), strict=True):
            if number >= 0 and len(snapshot.file_groups.members(number)):
                yield Problem(
                    paths.commit(record.seq),
                    -1,
                    f"file group {name} was replaced, and has live files: Hudi hides them",
                )


def _check_unpublished(
    metadata: Metadata, snapshot: Snapshot, record: CommitRecord, path: str
) -> Iterator[Problem]:
    """A commit without an instant is a problem unless its writer is about to publish it: it has a
    claim that is young.
    """
    started = {claim.instant: claim.started_us for claim in pending(metadata)}.get(record.instant)
    if metadata.storage.size(path) is not None:
        return
    after_us = (metadata.options(snapshot.definition).rollback_after_seconds or 1) * 1_000_000
    if started is None or metadata.storage.now_us() - started > after_us:
        later = "" if started is None else "; the next writer publishes it"
        yield Problem(
            path, -1, f"commit {record.seq} is not on Hudi's timeline{later}", Kind.TIMELINE
        )


def _check_objects(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    key_parts = [key_part.stored for key_part in snapshot.key_parts if key_part.stored is not None]
    maps = [segment.key_map for segment in snapshot.files.segments(snapshot.live_numbers)]
    wanted = [stored for stored in [*key_parts, *maps] if stored is not None]
    for problem in metadata.storage.each(
        partial(_stored_problem, metadata.storage, stored) for stored in wanted
    ):
        if problem is not None:
            yield problem


def _stored_problem(storage: Storage, stored: ObjectRange) -> Problem | None:
    try:
        data = storage.read(stored.path, stored.offset, stored.length)
    except Corrupt as error:
        return Problem(stored.path, stored.offset, str(error), Kind.ATTACHMENT)
    if zlib.crc32(data) == stored.crc:
        return None
    return Problem(
        stored.path,
        stored.offset,
        f"a summary of {stored.length} bytes is damaged",
        Kind.ATTACHMENT,
    )


def _check_leftovers(metadata: Metadata) -> Iterator[Problem]:
    """Every data file and object of summaries must belong to a commit or to a claim that still
    stands.
    """
    try:
        left = leftovers.find(metadata)
    except Corrupt:
        return  # a record that is gone or damaged was named before
    for path in left.files:
        if path in left.waiting:
            continue
        token = leftovers.token_of(path)
        known = token not in left.unknown or not left.foreign
        remedy = (
            "t.abort() removes it" if known else "it may be another writer's, so nothing removes it"
        )
        yield Problem(path, -1, f"belongs to no commit; {remedy}", Kind.LEFT_OVER)
    for path in left.instants:
        text = "belongs to a transaction that was rolled back; t.abort() removes it"
        yield Problem(path, -1, text, Kind.LEFT_OVER)


def _check_claims(metadata: Metadata) -> Iterator[Problem]:
    """A claim must make sense; one that does not is in nobody's way."""
    named = {error.path: error for error in sensible(metadata)[1]}
    # A running writer takes a claim back at once if its instant turns out to be used.
    for error in sensible(metadata)[1] if named else ():
        if error.path in named:
            yield Problem(error.path, error.offset, str(error), Kind.CLAIM)
