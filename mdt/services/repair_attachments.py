"""Attachments that are damaged or gone: key maps and page maps are put back, summaries and key
parts are made anew.

An object of attachments never changes, and what stands in it is a function of data files.  A key
map or page map that is made again, and has the crc that the record tells of it, is the one that was
written: it is put back under the same name, so that older states and readers who hold them have it,
too, and nothing has to be committed.  Bytes that come out differently are not put back: their file
group is written anew.

The bytes of a summary depend on segments that may be gone, those of a key part on which rows were
new.  These are made of what is live, and committed: the newest summary of a shard counts, and a key
part of an ``index`` record knows all keys of its groups.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import TABLE, Int64Array
from indexes.buffers import flags
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Corrupt, Invalid, Missing
from mdt.hudi.keys import sort_keys
from mdt.hudi.schema import RECORD_KEY, with_meta
from mdt.limits import INLINE_SUMMARY_BYTES_MAX
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.files.file_group import SummaryRef
from mdt.metadata.files.segment_columns import read_columns
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.key_part_merge import can_be_read
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet import page_map
from mdt.parquet.segment import Segment
from mdt.stores.object_range import ObjectRange


@dataclass(frozen=True, slots=True)
class PutBack:
    """What became of one object.  ``ranges``: key maps and page maps that were put back.
    ``other``: file groups with maps that would have other bytes.
    """

    path: str
    ranges: int
    other: frozenset[str]


def put_back(metadata: Metadata, view: Snapshot, path: str) -> PutBack:
    """Put the damaged key maps and page maps of an object back, as far as their data files can be
    read.

    ``view``: a snapshot with the files of all states that can be read, whether or not they are
    live.
    """
    storage = metadata.storage
    try:
        data = bytearray(storage.read(path))
    except Missing:
        data = bytearray()
    mine = np.flatnonzero(flags(pc.equal(view.files.column("key_map_path"), path).fill_null(False)))
    ranges, other = 0, set[str]()
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        segments = list(view.files.segments(mine))
        for segment, made in zip(
            segments,
            pool.map(lambda one: list(_made(metadata, view, one, data)), segments),
            strict=True,
        ):
            for stored, found in made:
                if len(found) != stored.length or zlib.crc32(found) != stored.crc:
                    other.add(segment.file_id)
                    continue
                data.extend(bytes(max(0, stored.offset + stored.length - len(data))))
                data[stored.offset : stored.offset + stored.length] = found
                ranges += 1
    if ranges:
        storage.replace(path, bytes(data))
    return PutBack(path, ranges, frozenset(other))


def _made(
    metadata: Metadata, view: Snapshot, segment: Segment, data: bytearray
) -> Iterator[tuple[ObjectRange, bytes]]:
    """Yield those maps of a segment that are damaged in ``data``, with the bytes that its file
    gives; none if that cannot be read.
    """
    try:
        if segment.key_map is not None and not _is_whole(data, segment.key_map):
            yield segment.key_map, key_map_of(metadata, view, segment)
        if segment.page_map is not None and not _is_whole(data, segment.page_map):
            whole = metadata.storage.read_whole(segment.path, segment.size)
            block = pa.py_buffer(whole).slice(segment.block_offset, segment.block_length)
            if zlib.crc32(whole) == segment.crc:
                # older ones lack nested columns
                made = [page_map.encoded(block, nested=nested) or b"" for nested in (True, False)]
                yield (
                    segment.page_map,
                    next((one for one in made if zlib.crc32(one) == segment.page_map.crc), made[0]),
                )
    except (Corrupt, Invalid):
        return


def _is_whole(data: bytearray, stored: ObjectRange) -> bool:
    found = memoryview(data)[stored.offset : stored.offset + stored.length]
    return len(found) == stored.length and zlib.crc32(found) == stored.crc


def key_map_of(metadata: Metadata, view: Snapshot, segment: Segment) -> bytes:
    """Return the key map that the rows of a segment give.  Raises Corrupt if they cannot be
    read.
    """
    definition = view.definition
    schema = with_meta(definition.schema)
    names = [RECORD_KEY] if definition.ordering is None else [RECORD_KEY, definition.ordering]
    table = read_columns(
        metadata.storage, definition, segment, pa.schema([schema.field(name) for name in names])
    )
    hashes = definition.key_hash.hash(table[RECORD_KEY].combine_chunks())
    ordering = (
        None if definition.ordering is None else key_map.ordering_words(table[definition.ordering])
    )
    return key_map.encode(key_map.build(hashes, ordering))


def distrusted(
    metadata: Metadata, snapshot: Snapshot, differing: Collection[int]
) -> Mapping[tuple[str, int], SummaryRef]:
    """Return the summaries that are not to be believed: (specification, number of a shard) -> where
    they stand.

    Those whose bytes are damaged, and all of the shards of the files ``differing``.
    """
    shards = np.unique(snapshot.shards.of_file[np.array(sorted(differing), np.int64)])
    found: dict[tuple[str, int], SummaryRef] = {}
    live = snapshot.live_shards
    for spec in snapshot.definition.indexes:
        for shard, summary in zip(live.tolist(), snapshot.index_summaries(spec, live), strict=True):
            if summary is None:
                continue
            if shard in shards or (
                isinstance(summary, ObjectRange) and not can_be_loaded(metadata, summary)
            ):
                found[spec, int(snapshot.shards.number[shard])] = summary
    return found


def can_be_loaded(metadata: Metadata, stored: ObjectRange) -> bool:
    """Return whether the bytes of a range are there, and those that were written."""
    try:
        metadata.objects.read(stored, verify=True)
    except Corrupt:
        return False
    return True


def unknown_groups(metadata: Metadata, snapshot: Snapshot) -> list[str]:
    """Return the file groups, by name, of which the key index does not know every key, or whose key
    parts are damaged.
    """
    index = metadata.key_index(snapshot)
    if index.kept != TABLE:
        return []  # it makes itself again
    lost = set(snapshot.uncovered)
    for part in snapshot.key_parts:
        is_stored = part.stored is None or can_be_loaded(metadata, part.stored)
        if (
            part.index != index.name
            or not is_stored
            or not can_be_read(part, index, metadata.key_parts.payload)
        ):
            numbers = snapshot.key_part_groups(part)
            lost.update(snapshot.file_groups.names(numbers[numbers >= 0].tolist()))
    return with_files(snapshot, lost)


def with_files(snapshot: Snapshot, names: Collection[str]) -> list[str]:
    """Return which of these file groups have live files, sorted by name."""
    known = sorted(names)
    numbers = snapshot.file_groups.number(known)
    return [
        name
        for name, number in zip(known, numbers.tolist(), strict=True)
        if number >= 0 and len(snapshot.file_groups.members(number))
    ]


@dataclass(frozen=True, slots=True)
class KeyBuild(Operation[WritePlan]):
    """The operation that tells the key index every key of some file groups again, dead rows'
    included; ``groups``: their names.
    """

    metadata: Metadata
    options: Options
    groups: Sequence[str]
    name: str = "repair"
    action: str = "index"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return which of the groups are still there."""
        groups = with_files(snapshot, self.groups)
        return WritePlan(Footprint(txn, frozenset(groups)), is_needed=bool(groups))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Write one key part for each group, so that a group that changes meanwhile can be left
        out.
        """
        objects = AttachmentWriter(paths.attachment(claim.instant, str(claim.token)))
        groups = sorted(plan.footprint.groups)
        parts = []
        with ThreadPoolExecutor(self.options.threads("writer")) as pool:
            for group, data in zip(
                groups, pool.map(lambda name: self._key_part(snapshot, name), groups), strict=True
            ):
                is_small = len(data) <= INLINE_SUMMARY_BYTES_MAX
                stored = None if is_small else objects.add(data)
                name = self.metadata.key_index(snapshot).name
                parts.append(KeyPart(name, (group,), data if is_small else None, stored))
        objects.write(self.metadata.storage)
        return Changes(key_parts=parts)

    def _key_part(self, snapshot: Snapshot, group: str) -> bytes:
        definition = snapshot.definition
        members = snapshot.file_groups.members(int(snapshot.file_groups.number([group])[0]))
        schema = with_meta(definition.schema)
        names = [RECORD_KEY, *definition.key]
        columns = pa.schema([schema.field(name) for name in dict.fromkeys(names)])
        tables = [columns.empty_table()]
        for segment in snapshot.files.segments(members):
            if segment.rows:
                tables.append(read_columns(self.metadata.storage, definition, segment, columns))
        table = pa.concat_tables(tables)
        texts = table[RECORD_KEY].combine_chunks()
        hashes, asked = definition.key_hash.hash(texts), sort_keys(table, definition.key)
        asked = keys_for(definition.key_index, texts, asked)
        of_group: Int64Array = np.zeros(len(table), np.int64)
        return self.metadata.key_index(snapshot).build(asked, hashes, of_group, 1)

    def narrow(
        self, snapshot: Snapshot, plan: WritePlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[WritePlan, Changes] | None:
        """Leave out the file groups that ``theirs`` changed; None if nothing would be left or the
        conflict is another.
        """
        lost = plan.footprint.groups & theirs.changed_groups
        kept = [part for part in changes.key_parts if lost.isdisjoint(part.groups)]
        if not lost or not kept or plan.footprint.txn in theirs.rolled_back:
            return None
        footprint = replace(plan.footprint, groups=plan.footprint.groups - lost)
        return replace(plan, footprint=footprint), replace(changes, key_parts=kept)
