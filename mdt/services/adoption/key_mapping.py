"""Key maps of imported files, so that writers and look-ups find the rows of keys in them.

The record keys that other writers stored are compared with those that mdt computes from the key
columns, and their partitions with those that it computes from the partition columns. A writer that
computed others would insert rows twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.base import KeyIndex
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.errors import Invalid, Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.partitions import unescape
from mdt.hudi.properties import ENCODES_PATHS
from mdt.hudi.record_keys import record_keys
from mdt.limits import INDEX_COMMIT_ROWS
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.log.commit_log import MAPS
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.services.indexing.rekeying import keys_of_group, maps_row, merge_key_parts
from mdt.write.normalize import definition_paths

_READ = "mdt.open(path) reads the table"


@dataclass(frozen=True, slots=True)
class KeyMappingPlan(WritePlan):
    """The file groups whose files get key maps.

    Attributes:
        groups: Numbers of the file groups.
        is_last: False if other file groups remain.
    """

    groups: Sequence[int] = field(default=(), kw_only=True)
    is_last: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class KeyMapping(Operation[KeyMappingPlan]):
    """The operation that adds key maps to imported files, and their keys to the key index."""

    metadata: Metadata
    options: Options
    progress: Progress | None = None
    name: str = "map_keys"
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> KeyMappingPlan:
        """Choose file groups with at most INDEX_COMMIT_ROWS rows, at least one."""
        numbers = snapshot.without_key_map
        group_of_file = snapshot.file_groups.of_files(numbers)
        groups, first = np.unique(group_of_file, return_index=True)
        rows = np.bincount(group_of_file, snapshot.rows[numbers], minlength=1)[groups]
        count = max(1, int(np.searchsorted(np.cumsum(rows), INDEX_COMMIT_ROWS, side="right")))
        return KeyMappingPlan(
            Footprint(txn, groups=frozenset(snapshot.file_groups.names(groups[:count].tolist()))),
            is_needed=len(groups) > 0,
            groups=groups[:count].tolist(),
            is_last=count >= len(first),
        )

    def write(self, snapshot: Snapshot, plan: KeyMappingPlan, claim: Claim) -> Changes:
        """Read the keys of the file groups, and write key maps and key parts.

        Raises Unsupported for keys or partitions that mdt would compute otherwise.
        """
        storage, definition = self.metadata.storage, snapshot.definition
        path = paths.attachment(claim.instant, str(claim.token))
        objects = AttachmentWriter(path, lambda path, parts: storage.create(path, parts))
        files = frozenset(snapshot.without_key_map.tolist())
        key_index = self.metadata.key_index(snapshot)
        read = partial(
            keys_of_group,
            self.metadata,
            snapshot,
            definition.key_hash,
            files,
            check=partial(_check_rows, definition, key_index),
        )
        rows, finished = list[dict[str, object]](), []
        with ThreadPoolExecutor(self.options.threads("writer")) as pool:
            for number, group in enumerate(pool.map(read, plan.groups), 1):
                rows += [maps_row(objects, *stored) for stored in group.maps]
                finished.append(group)
                objects.settle()
                if self.progress is not None:
                    self.progress(number, len(plan.groups))
        parts = merge_key_parts(key_index, objects, finished)
        objects.write(storage)
        return Changes(maps=pa.Table.from_pylist(rows, schema=MAPS), key_parts=parts)


def map_keys(metadata: Metadata, options: Options, progress: Progress | None = None) -> None:
    """Give key maps to all imported files.

    Raises Unsupported for keys or partitions that mdt would compute otherwise and for nulls in
    ordering fields, Corrupt, Conflict and Unavailable.
    """
    while True:
        result = run(metadata, KeyMapping(metadata, options, progress))
        if result.record is None or result.plan.is_last:
            return


def _check_rows(
    definition: TableDefinition, key_index: KeyIndex, segment: Segment, table: pa.Table
) -> None:
    stored = table[RECORD_KEY].combine_chunks()
    try:
        computed = record_keys(table, definition.key, named=definition.names_key)
    except Invalid as error:
        raise _refused(
            f"a key of {segment.path} cannot be written by mdt: {error.message}"
        ) from error
    differing = ~flags(pc.equal(computed, stored).fill_null(False))
    if differing.any():
        row = int(np.argmax(differing))
        raise _refused(
            f"{segment.path} has the record key {str(stored[row])[:100]!r}, and mdt would write"
            f" {str(computed[row])[:100]!r}"
        )
    for name in definition.ordering:
        if table[name].null_count:
            raise _refused(f"{segment.path} has rows without a value of the ordering field {name}")
    _check_buckets(key_index, segment, stored)
    if not definition.partition_by:
        return
    try:
        codes, names = definition_paths(table, definition)
    except Invalid as error:
        raise _refused(f"mdt cannot write the rows of {segment.path}: {error.message}") from error
    others = {names[code] for code in np.unique(codes)} - {segment.partition}
    if others:
        text = f"{segment.path} has rows that mdt would write into the partition"
        refusal = _refused(f"{text} {min(others)[:100]!r}")
        if {unescape(name) for name in others} == {segment.partition}:
            refusal.hint = (
                f"{_READ}; let Hudi delete the partition {segment.partition[:100]!r}, and insert"
                f" its rows with mdt, which also lets Hudi encode paths ({ENCODES_PATHS}=true)"
            )
        raise refusal


def _check_buckets(key_index: KeyIndex, segment: Segment, keys: pa.Array) -> None:
    """Raise Unsupported for keys that mdt would write into another bucket."""
    partition = np.full(len(keys), segment.partition, object)
    buckets = key_index.buckets(keys, partition)
    if buckets is None:
        return
    prefix = segment.file_id[:8]
    differing = buckets != (int(prefix) if prefix.isdecimal() else -1)
    if differing.any():
        row = int(np.argmax(differing))
        raise _refused(
            f"{segment.path} has the record key {str(keys[row])[:100]!r}, and mdt would write it"
            f" into bucket {buckets[row]}: hoodie.bucket.index.num.buckets or hash.field differ"
        )


def _refused(text: str) -> Unsupported:
    return Unsupported(
        f"{text}; mdt can read the table and not write to it",
        hint=f"{_READ}; mdt.release(path) ends an adoption",
    )
