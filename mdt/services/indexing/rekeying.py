"""Rekey: change the key hash of a table to a new secret.

One commit replaces the key maps and key parts of every live file. Data files do not change, and
older states keep their key maps. Writers that began before the commit start again. Commits of other
writers during the rekey are added before it commits (:meth:`Rekey.narrow`), so a table in use needs
no second run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from indexes.base import TABLE, Int64Array, KeyHashes, KeyIndex
from indexes.key_hash import SECRET_BYTES, KeyHash, MultilinearHash
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Invalid
from mdt.hudi.avro_schema import RECORD_KEY, with_meta
from mdt.hudi.record_keys import sort_keys
from mdt.limits import INLINE_SUMMARY_BYTES_MAX
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.files.file_group import range_columns
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.log.commit_log import MAPS, CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import in_force
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import read_columns
from mdt.progress import Progress
from mdt.schema.definition import key_hash_json
from mdt.schema.header_fields import present

_GROUPS_MAX = 1024
"""Maximum number of file groups in a key part."""


RowCheck = Callable[[Segment, pa.Table], None]
"""Raises an error if rows of a file are not as expected."""


@dataclass(slots=True)
class _Progress:
    """Progress of a rekey.

    Attributes:
        segments: Segment numbers of the files done.
        seq: Seq of the newest commit that was included.
        objects: Number of objects written for ``claim``.
    """

    claim: Claim | None = None
    segments: set[int] = field(default_factory=set)
    seq: int = -1
    objects: int = 0


@dataclass(frozen=True, slots=True)
class RekeyPlan(WritePlan):
    """A plan with the new ``key_hash`` and the number of ``rows`` in all live files."""

    key_hash: MultilinearHash | None = None
    rows: int = 0
    done: _Progress = field(default_factory=_Progress)

    def mapped(self) -> int:
        """Return the number of rows."""
        return self.rows


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """New key data of a file group.

    ``maps`` has (segment number, key map, page map) of each file. ``key_part`` is None if the table
    stores none.
    """

    name: str
    maps: Sequence[tuple[int, bytes, pa.Buffer | None]]
    key_part: bytes | None


@dataclass(frozen=True, slots=True)
class Rekey(Operation[RekeyPlan]):
    """The rekey operation. ``forgets_deletes`` lets it drop tombstones, which use old hashes."""

    metadata: Metadata
    options: Options
    forgets_deletes: bool = False
    progress: Progress | None = None
    name: str = "rekey"
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> RekeyPlan:
        """Choose a secret. Raises Invalid if the table has tombstones that must be kept."""
        tombstones = len(in_force(snapshot))
        if tombstones and not self.forgets_deletes:
            raise Invalid(
                f"the table keeps {tombstones} deletes by the hashes of their keys, which cannot be"
                " computed again",
                hint=(
                    "rekey after mdt.delete.keeps.ordering.hours"
                    f" ({snapshot.definition.tombstone_hours}), or forget them:"
                    " rekey(forget_deletes=True) (--forget-deletes); rows older than these deletes"
                    " may then come back"
                ),
            )
        secret = bytes.fromhex(self.metadata.storage.random_hex(SECRET_BYTES))
        rows = int(snapshot.rows[snapshot.live_numbers].sum())
        return RekeyPlan(
            Footprint(txn, everything=True), key_hash=MultilinearHash(secret), rows=rows
        )

    def write(self, snapshot: Snapshot, plan: RekeyPlan, claim: Claim) -> Changes:
        """Write the maps and key parts of all live files."""
        assert plan.key_hash is not None, "it was planned"
        plan.done.claim = claim
        changes = self._write_maps(snapshot, plan)
        extra = present(key_hash=key_hash_json(plan.key_hash), forgets_deletes=self.forgets_deletes)
        return replace(changes, extra=extra)

    def narrow(
        self, snapshot: Snapshot, plan: RekeyPlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[RekeyPlan, Changes] | None:
        """Add the files of ``theirs`` and later commits. Returns None to start again."""
        if plan.footprint.txn in theirs.rolled_back or (
            len(theirs.table("tombstones")) and not self.forgets_deletes
        ):
            return None
        if theirs.seq > plan.done.seq:
            added = self._write_maps(self.metadata.newest(), plan)
            maps = pa.concat_tables([changes.maps, added.maps])
            changes = replace(changes, maps=maps, key_parts=[*changes.key_parts, *added.key_parts])
        return plan, changes

    def _write_maps(self, snapshot: Snapshot, plan: RekeyPlan) -> Changes:
        """Write the missing maps of live files, and key parts of their file groups."""
        state, groups = plan.done, snapshot.file_groups
        assert state.claim is not None and plan.key_hash is not None, "it is being written"
        live = snapshot.live_numbers[snapshot.has_key_map[snapshot.live_numbers]]
        live = live[
            ~np.isin(snapshot.segment_ids[live], np.array(sorted(state.segments), np.int64))
        ]
        numbers = np.unique(groups.of_files(live)).tolist()
        storage = self.metadata.storage
        path = paths.attachment(state.claim.instant, f"{state.claim.token}-{state.objects}")
        objects = AttachmentWriter(path, lambda path, parts: storage.create(path, parts))
        rows, parts = list[dict[str, object]](), list[KeyPart]()
        with ThreadPoolExecutor(self.options.threads("writer")) as pool:
            for first in range(0, len(numbers), _GROUPS_MAX):
                batch = numbers[first : first + _GROUPS_MAX]
                finished = []
                for group in pool.map(
                    partial(
                        keys_of_group,
                        self.metadata,
                        snapshot,
                        plan.key_hash,
                        frozenset(live.tolist()),
                    ),
                    batch,
                ):
                    rows += [maps_row(objects, *stored) for stored in group.maps]
                    finished.append(replace(group, maps=()))
                    objects.settle()
                    if self.progress is not None:
                        self.progress(len(rows), len(live))
                parts += merge_key_parts(self.metadata.key_index(snapshot), objects, finished)
        objects.write(storage)
        state.segments.update(snapshot.segment_ids[live].tolist())
        state.seq, state.objects = snapshot.seq, state.objects + 1
        return Changes(maps=pa.Table.from_pylist(rows, schema=MAPS), key_parts=parts)


def merge_key_parts(
    index: KeyIndex, objects: AttachmentWriter, groups: Sequence[GroupKeys]
) -> list[KeyPart]:
    """Return one key part for ``groups``, or nothing if the table stores none."""
    parts = [group.key_part for group in groups if group.key_part is not None]
    if not parts:
        return []
    names = tuple(group.name for group in groups)
    data = index.merge(parts, [np.array([n], np.int64) for n in range(len(parts))], len(parts))
    if len(data) <= INLINE_SUMMARY_BYTES_MAX:
        return [KeyPart(index.name, names, data, None)]
    return [KeyPart(index.name, names, None, objects.add(data))]


def keys_of_group(
    metadata: Metadata,
    snapshot: Snapshot,
    key_hash: KeyHash,
    files: frozenset[int],
    group: int,
    check: RowCheck | None = None,
) -> GroupKeys:
    """Return the key data of a file group: maps of ``files``, and the key part of all files.

    The key part includes deleted rows.

    Args:
        check: Called for each file with its record keys, key columns and partition columns.
    """
    definition, index = snapshot.definition, metadata.key_index(snapshot)
    schema = with_meta(definition.schema)
    checked = definition.partition_by if check else ()
    names = dict.fromkeys((RECORD_KEY, *definition.key, *definition.ordering, *checked))
    columns = pa.schema([schema.field(name) for name in names])
    maps, tables = [], [columns.empty_table()]
    hashes = [key_hash.hash(tables[0][RECORD_KEY].combine_chunks())]
    for number in snapshot.file_groups.members(group).tolist():
        segment = snapshot.segment(number)
        if not segment.rows:
            continue
        tables.append(read_columns(metadata.storage, definition, segment, columns))
        if check is not None:
            check(segment, tables[-1])
        hashes.append(key_hash.hash(tables[-1][RECORD_KEY].combine_chunks()))
        if number in files:
            words = key_map.words_of(tables[-1], definition.ordering)
            pages = (
                None
                if segment.page_map is None
                else metadata.objects.read(segment.page_map, verify=True)
            )
            maps.append((segment.id, key_map.encode(key_map.build(hashes[-1], words)), pages))
    name = snapshot.file_groups.names([group])[0]
    if index.kept != TABLE:
        return GroupKeys(name, maps, None)
    table = pa.concat_tables(tables)
    texts = table[RECORD_KEY].combine_chunks()
    keys = keys_for(definition.key_index, texts, sort_keys(table, definition.key))
    group_numbers: Int64Array = np.zeros(len(table), np.int64)
    return GroupKeys(name, maps, index.build(keys, KeyHashes.concat(hashes), group_numbers, 1))


def maps_row(
    objects: AttachmentWriter, segment: int, keys: bytes, pages: pa.Buffer | None
) -> dict[str, object]:
    """Add the maps of a segment to ``objects``, and return its row of the section ``maps``."""
    row: dict[str, object] = {"segment": segment}
    row |= {f"key_map_{name}": value for name, value in range_columns(objects.add(keys)).items()}
    if pages is not None:
        page_map = range_columns(objects.add(pages))
        row |= {f"page_map_{name}": value for name, value in page_map.items()}
    return row
