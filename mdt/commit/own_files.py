"""Files that transactions left: whose they are, and which can be deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

import pyarrow.compute as pc

from mdt.commit import claims
from mdt.commit.claims import PendingClaim
from mdt.errors import Missing
from mdt.hudi.commit_metadata import PROFILE_START
from mdt.hudi.file_names import parse_base, parse_log
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.read.log_blocks import instants_of_file
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage


def remove_overtaken_bases(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Delete base files of transactions that can no longer commit them, because ``record`` has
    added log files to the same file groups. Call it before ``record`` is published.

    Hudi 1.2 lets a log file belong to the newest base file that is older than its completion, even
    if nobody has committed this base file. Its readers would then not see the log file. Version 6
    has no completion times. A transaction that began before ``record`` fails its conflict check, or
    leaves these file groups out.
    """
    if not layout_of(newest.definition).has_completions:
        return
    files = record.table("files").select(["kind", "partition", "file_id"])
    logs = files.filter(pc.equal(files["kind"], LOG))
    if not len(logs):
        return
    groups = set(zip(logs["partition"].to_pylist(), logs["file_id"].to_pylist(), strict=True))
    pending = [
        claim
        for claim in claims.read_all(metadata.storage)[0]
        if claim.begun_at < record.seq and claim.txn not in newest.transactions
    ]
    partitions = {name for claim in pending for name in claim.partitions}
    touched = sorted(partitions & {partition for partition, _ in groups})
    storage, doomed = metadata.storage, []
    folders = storage.each(partial(storage.list_dir, partition) for partition in touched)
    for partition, folder in zip(touched, folders, strict=True):
        for info in folder:
            base = parse_base(info.path.rpartition("/")[2])
            if base is not None and (partition, base.file_id) in groups:
                doomed += [
                    info.path
                    for claim in pending
                    if _is_base_of(info.path, claim, newest)
                    and not is_of_another(storage, claim, newest.definition)
                ]
    if doomed and newest.is_shared:
        used = references.data_file_paths(metadata, newest)
        doomed = sorted(set(doomed).difference(used.to_pylist()))
    storage.delete_many(doomed)


def is_of_another(storage: Storage, claim: PendingClaim, definition: TableDefinition) -> bool:
    """Return True if Hudi's timeline shows that another writer has the instant of a claim whose
    transaction has not committed.

    Such a claim is forged: a transaction of ours has no other files there than its pending
    instants, and these have no content but its own. Writes of Hudi with empty pending instants, as
    bulk inserts, cannot be told apart.
    """
    layout, instant = layout_of(definition), claim.instant
    ours, start = layout.retracted(instant, claim.action), PROFILE_START + claim.txn.encode()
    folder = layout.timeline
    for info in storage.list_dir(
        folder, after=f"{folder}/{instant}", before=f"{folder}/{instant}~"
    ):
        if layout.instant_at(info.path) is None:
            continue
        if info.path not in ours:
            return True
        with suppress(Missing):  # the write has ended
            size = min(info.size, len(start))
            if storage.read(info.path, 0, size) != start[:size]:
                return True
    return False


def _is_base_of(path: str, claim: PendingClaim, newest: Snapshot) -> bool:
    is_own = names.is_written_by(path, claim.instant, claim.token)
    return is_own and not may_be_referred_to(newest, path)


def remove_files(
    metadata: Metadata,
    instant: str,
    token: int,
    partitions: Sequence[str],
    referenced: Collection[str] = (),
) -> int:
    """Delete the data files and summaries of a transaction that can no longer commit. Return their
    number.

    A claim may be forged, so its statements are not trusted. A file is deleted only if its name
    contains the token of this transaction and no record refers to it. Records refer to base files
    and summaries by the instant of the record, and to log files by its token. Files with the
    instant or token of a committed transaction are therefore never deleted. Other writers give
    their log files the token of the log file before, so in a table that they share, the blocks of
    a log file must have this instant, too.

    Args:
        referenced: Paths to keep because archived records, or imports, refer to them.
    """
    storage, snapshot = metadata.storage, metadata.newest(watched=False)
    infos = [*storage.list(paths.attachments_of(instant)), *storage.list(paths.MERGED_DIR)]
    for folder in storage.each(partial(storage.list_dir, partition) for partition in partitions):
        infos += folder
    doomed, layout = [], layout_of(snapshot.definition)
    for info in infos:
        is_own = names.is_written_by(info.path, instant, token)
        if not is_own or may_be_referred_to(snapshot, info.path):
            continue
        if info.path in referenced or (
            snapshot.is_shared and not has_only_instants(storage, info.path, {instant}, layout)
        ):
            continue
        doomed.append(info.path)
    storage.delete_many(doomed)
    return len(doomed)


def has_only_instants(
    storage: Storage, path: str, instants: AbstractSet[str], layout: Layout
) -> bool:
    """Return True if ``path`` is not a log file, or all its blocks have ``instants``.

    Since version 8 the name of a log file has the instant of its writer, and the file may be
    damaged.
    """
    log = parse_log(path.rpartition("/")[2])
    if log is None or (layout.has_completions and log.instant in instants):
        return True
    written = instants_of_file(storage, path)
    return bool(written) and written <= instants


def may_be_referred_to(snapshot: Snapshot, path: str) -> bool:
    """Return True if a record in the log may refer to a data file or summary object. False is a
    proof, except for files of other writers. O(1).

    Of archived records only the newest instant is known. Their base files and objects have no newer
    instant.
    """
    instant, token = names.writer_of(path)
    if instant is None:
        return token in snapshot.log.tokens
    return instant <= snapshot.retention.instant or instant in snapshot.instants
