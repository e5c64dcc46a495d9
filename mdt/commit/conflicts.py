"""The conflict rules, a pure function of two transactions' read and write sets.

Two transactions conflict in these cases:

- Both change the same file group, or the first changes a file group that the second has read.
- The first inserts a key that the second found absent in the same scope.
- The first declares the second dead.
- The first alters the schema. Files of the second, which began before, would get the wrong schema
  version.
- The first changes the formats of the table, which decide what the second writes.
- The second alters the schema and writes files. The names of their statistics contain the seq.

All other transactions commit concurrently. Upserts, deletes and merges by key that only add log
files to the same file group conflict only if either ends a row that the other has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap

from indexes.base import KeyHashes
from indexes.key_hash import KeyHash
from mdt.limits import SEGMENT_ROWS_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.files.file_group import LOG
from mdt.metadata.files.key_map import KeyMap
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.snapshot.live_partitions import ANY, matching_any
from mdt.metadata.snapshot.segments import stored_range
from mdt.metadata.snapshot.tombstones import from_table, marks_of
from mdt.stores.object_range import ObjectRange

UPDATE_WHERE, MERGE = "update_where", "merge"
SELECTING = frozenset((UPDATE_WHERE, MERGE))
"""Operations that derive new rows from the values of other rows. An operation that selects rows by
value must not miss their results.
"""
TABLE = ANY
"""Represents all partitions in :attr:`Footprint.absent` under table scope."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The read set and write set of a transaction.

    Attributes:
        txn: Id of the transaction.
        groups: Ids of the file groups that it reads or changes.
        absent: Partition path (TABLE under table scope) -> sorted hashes of the keys that it found
            absent.
        rolls_back: Ids of the transactions that it declares dead.
        dead_tokens: Tokens of these transactions.
        token: Its own token, or None before the claim.
        needs: Seq of the oldest snapshot that its commit refers to, or None.
        alters: True if it alters options or the schema, which index specifications depend on.
        tags: Tags that it adds or drops.
        horizon: Seq of the oldest snapshot that remains readable after it.
        everything: True if it decides about every row of the table.
        conditional: True if it selects rows by their values.
        overwrites: Paths of the partitions whose content it replaces. ``*`` matches any text, so
            TABLE matches all partitions.
        opens: (partition path, number) of the buckets whose file group it creates.
        rows: Segment id -> positions of all rows that it has read or ends. None if they are not
            known individually, or if it writes anything but log files to existing file groups.
        may_choose: Returns True if it might have selected a row that a given record added. None if
            it selects rows by key.
        stream: Name of the stream whose batch it writes, or "".
    """

    txn: str
    groups: frozenset[str] = frozenset()
    absent: Mapping[str, KeyHashes] = field(default_factory=dict)
    rolls_back: frozenset[str] = frozenset()
    dead_tokens: frozenset[int] = frozenset()
    token: int | None = None
    needs: int | None = None
    alters: bool = False
    tags: frozenset[str] = frozenset()
    horizon: int = 0
    everything: bool = False
    conditional: bool = False
    overwrites: frozenset[str] = frozenset()
    opens: frozenset[tuple[str, int]] = frozenset()
    rows: Mapping[int, BitMap] | None = None
    may_choose: Callable[[CommitRecord], bool] | None = None
    stream: str = ""


def check(
    ours: Footprint, theirs: CommitRecord, load: Callable[[ObjectRange], KeyMap], key_hash: KeyHash
) -> str | None:
    """Return the reason why ``ours`` cannot commit after ``theirs``, or None if it can.

    Args:
        load: Returns the key map of a file that ``theirs`` added. It holds the inserted, updated
            and carried-over keys. Carried-over and updated keys existed before, so ``ours`` cannot
            have found them absent.
        key_hash: Key hash of the table.

    >>> from indexes.key_hash import MurmurHash
    >>> from mdt.metadata.files.file_group import FILES
    >>> written = pa.Table.from_pylist([{"file_id": "g1", "name": "new_file"}], schema=FILES)
    >>> theirs = CommitRecord(7, {"txn": "b" * 32}, {"files": written})
    >>> check(Footprint("a" * 32, frozenset({"g1"})), theirs, load=None, key_hash=MurmurHash(0))
    'commit 7 changed file group g1'
    >>> print(
    ...     check(Footprint("a" * 32, frozenset({"g2"})), theirs, load=None, key_hash=MurmurHash(0))
    ... )
    None
    """
    if ours.txn in theirs.rolled_back or ours.token in theirs.dead_tokens:
        return f"commit {theirs.seq} rolled this transaction back"
    if theirs.txn in ours.rolls_back or theirs.token in ours.dead_tokens:
        return f"the transaction to roll back has committed as {theirs.seq}"
    if theirs.header.get("action") == IMPORT:
        return f"commit {theirs.seq} imported the commits of another Hudi writer"
    if theirs.alters:
        return f"commit {theirs.seq} altered the schema"
    if theirs.changes_formats:
        return f"commit {theirs.seq} changed the table's formats"
    if "hudi_version" in theirs.header:
        return f"commit {theirs.seq} upgraded the table"
    if theirs.rekeys:
        return f"commit {theirs.seq} gave the table another key hash"
    if ours.alters and ours.everything:
        return f"commit {theirs.seq} came before an alteration that depends on the whole table"
    if ours.alters and "indexes" in theirs.header:
        return f"commit {theirs.seq} changed the table's indexes"
    if ours.alters and theirs.ended_versions:
        return f"commit {theirs.seq} dropped versions of the schema"
    if ours.alters and "options" in theirs.header:
        return f"commit {theirs.seq} changed the table's options"
    if ours.stream and theirs.header.get("stream", {}).get("name") == ours.stream:
        return f"commit {theirs.seq} wrote a batch of the same stream"
    horizon = theirs.header.get("retention", {}).get("horizon", 0)
    if ours.needs is not None and ours.needs < horizon:
        return f"commit {theirs.seq} cleaned the snapshot of commit {ours.needs}"
    tags = theirs.header.get("tags", {})
    shared = ours.tags.intersection((*tags.get("add", ()), *tags.get("drop", ())))
    if shared:
        return f"commit {theirs.seq} changed the tag {min(shared)!r}"
    if min(tags.get("add", {}).values(), default=ours.horizon) < ours.horizon:
        return f"commit {theirs.seq} tagged a snapshot before commit {ours.horizon}"
    if ours.conditional and theirs.header.get("operation") in SELECTING:
        return f"commit {theirs.seq} wrote rows that may match the condition"
    files = theirs.table("files")
    tombstones = theirs.table("tombstones")
    if ours.everything and (len(files) or len(theirs.table("vectors")) or len(tombstones)):
        return f"commit {theirs.seq} changed files"
    changed = ours.groups & theirs.changed_groups
    if changed and not _are_compatible(ours, theirs):
        return f"commit {theirs.seq} changed file group {min(changed)}"
    if ours.overwrites and (into := _partitions_with_new_files(ours.overwrites, files)):
        return f"commit {theirs.seq} wrote into partition {min(into)!r}"
    if ours.opens and (buckets := ours.opens & _buckets(files)):
        return (
            f"commit {theirs.seq} created a file group for bucket {min(buckets)[1]} of partition"
            f" {min(buckets)[0]!r}"
        )
    if _inserts_absent_keys(ours.absent, files, load):
        return f"commit {theirs.seq} inserted a key that this transaction found absent"
    if len(tombstones) and _deletes_absent_keys(ours.absent, tombstones, key_hash):
        return f"commit {theirs.seq} deleted a key that this transaction found absent"
    return None


def _inserts_absent_keys(
    absent: Mapping[str, KeyHashes], files: pa.Table, load: Callable[[ObjectRange], KeyMap]
) -> bool:
    """Return True if ``files`` contain keys of ``absent``."""
    columns = ["partition", "key_map_path", "key_map_offset", "key_map_length", "key_map_crc"]
    for file in files.select(columns).to_pylist():
        keys = absent.get(TABLE, absent.get(file["partition"]))
        key_map = stored_range(file, "key_map")
        if keys is None or key_map is None or len(keys) == 0:
            continue
        if bool((load(key_map).find(keys) >= 0).any()):
            return True
    return False


def _are_compatible(ours: Footprint, theirs: CommitRecord) -> bool:
    """Return True if both transactions can write to their common file groups.

    Both must only add log files there. ``theirs`` must not end a row that ``ours`` has read or
    ends, and must not add a row that ``ours`` might have selected. Keys that both have found were
    at the same position for both. Keys that ``ours`` has not found are in ``absent``.
    """
    if ours.rows is None or len(theirs.table("removed")) or theirs.replaced:
        return False
    if ours.may_choose is not None and ours.may_choose(theirs):
        return False
    files = theirs.table("files")
    kinds = zip(files["file_id"].to_pylist(), files["kind"].to_pylist(), strict=True)
    if any(kind != LOG and name in ours.groups for name, kind in kinds):
        return False
    ended, path = theirs.table("vectors"), paths.commit(theirs.seq)
    for segment, data in zip(
        ended["segment"].to_pylist(), ended["positions"].to_pylist(), strict=True
    ):
        read = ours.rows.get(segment)
        if read is not None and read.intersect(positions(data, SEGMENT_ROWS_MAX, path=path)):
            return False
    return True


def _buckets(files: pa.Table) -> set[tuple[str, int]]:
    """Return (partition path, bucket) of the file groups of ``files``. Their ids begin with the
    bucket number.
    """
    names = zip(files["partition"].to_pylist(), files["file_id"].to_pylist(), strict=True)
    return {(partition, int(name[:8])) for partition, name in names if name[:8].isdecimal()}


def _deletes_absent_keys(
    absent: Mapping[str, KeyHashes], tombstones: pa.Table, key_hash: KeyHash
) -> bool:
    """Return True if keys of ``absent`` have got tombstones."""
    deleted = from_table(tombstones, 0)
    for path in absent:
        keys = absent.get(path)  # None for log files with deletes only
        if keys is not None:
            marks = marks_of(keys, None if path == TABLE else path, key_hash)
            if bool((deleted.find(marks) >= 0).any()):
                return True
    return False


def _partitions_with_new_files(partitions: frozenset[str], files: pa.Table) -> set[str]:
    """Return the partitions that got files and match any of the patterns ``partitions``."""
    return matching_any(files["partition"].unique().to_pylist(), partitions)
