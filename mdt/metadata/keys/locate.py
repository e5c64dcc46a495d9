"""Finds the live row of each key in a batch: the key index proposes file groups, and key maps
confirm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import distinct_numbers, distinct_texts
from indexes.base import TABLE, Candidates, Int64Array, KeyHashes, UInt64Array
from mdt.errors import Corrupt
from mdt.metadata.files.file_group import BASE
from mdt.metadata.files.key_map import KeyMap
from mdt.metadata.keys.buckets import key_placeholders, settle
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import COPY_ON_WRITE
from mdt.stores.object_range import ObjectRange

_NONE: Int64Array = np.empty(0, np.int64)
_PLACED_KEYS_MIN = 32
"""Fewer keys than this are looked up in all partitions, which is cheaper than partitioning the file
groups.
"""
_LOOKED_UP_MAX = 64
"""Up to this many positions are looked up in a deletion vector individually."""
_FEW = 8
"""With at least this many keys per candidate pair, only the keys in pairs are sorted."""
_MARKED_MAX = 32
"""With more dead rows per position than this, only dead rows at the positions are marked."""


@dataclass(frozen=True, slots=True)
class Further:
    """Live rows beyond the first of each key, in tables with repeated keys, and in those that other
    Hudi writers share: their inserts may repeat keys.

    ``key`` is the index of the key.  All arrays are int64[m].
    """

    key: Int64Array = field(default_factory=lambda: _NONE)
    file: Int64Array = field(default_factory=lambda: _NONE)
    position: Int64Array = field(default_factory=lambda: _NONE)
    group: Int64Array = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, slots=True)
class Located:
    """Locations of n keys: file, row, file group; deleted rows of moved keys included.

    - file: Number of the file in the snapshot, or -1 if absent, int64[n].
    - position: Position in the file, int64[n].
    - group: Number of the file group in the snapshot, or -1, int64[n].
    - ordering: Ordering value of the live row, 0 if absent or without ordering field, uint64[n].
    - dead_in: File group of the key's own partition with a dead row of the key, if the key is not
      live in that partition, or -1, int64[n].  Empty if not requested.
    - home: File group for the key if it is new, or its bucket's placeholder
      (:mod:`mdt.metadata.keys.buckets`), int64[n].  None for any group.
    - further: Further live rows, in tables with repeated keys.  ``ordering`` is then the maximum.
    """

    file: Int64Array
    position: Int64Array
    group: Int64Array
    ordering: UInt64Array
    dead_in: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    further: Further = field(default_factory=Further)
    home: Int64Array | None = None
    _key: Int64Array | None = None

    @classmethod
    def empty(cls) -> Located:
        """Return the locations of no keys."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, np.empty(0, np.uint64))

    @classmethod
    def absent(cls, count: int) -> Located:
        """Return the locations of ``count`` absent keys.  The arrays are read-only and take no
        memory.
        """
        nowhere = np.broadcast_to(np.int64(-1), count)
        return cls(nowhere, nowhere, nowhere, np.broadcast_to(np.uint64(0), count), nowhere)

    def with_further(self) -> Located:
        """Append one entry for each of ``further`` to the entries of the n keys."""
        if not len(self.further.key):
            return self
        further = self.further
        file, position = (
            np.append(self.file, further.file),
            np.append(self.position, further.position),
        )
        ordering = np.append(self.ordering, np.zeros(len(further.key), np.uint64))
        key = np.append(np.arange(len(self.file)), further.key)
        return Located(
            file,
            position,
            np.append(self.group, further.group),
            ordering,
            self.dead_in,
            home=self.home,
            _key=key,
        )

    def keys_of(self, entries: Int64Array) -> Int64Array:
        """Return the key of each entry of :meth:`with_further` -> int64[len(entries)]."""
        return entries if self._key is None else self._key[entries]

    @property
    def is_live(self) -> npt.NDArray[np.bool_]:
        """Mask of the keys with a live row -> bool[n]."""
        return self.file >= 0


def propose(
    metadata: Metadata,
    snapshot: Snapshot,
    keys: pa.Array,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None = None,
) -> Candidates:
    """Return a superset of the keys' file groups.  Pairs may repeat; ``whole`` is ascending.

    ``partition`` has the path of each key, if only rows there matter.  The groups of an unreadable
    key part, or of another index's part, are candidates for every key.  If the key index is not
    installed, every group is.
    """
    if metadata.key_index_problem(snapshot):
        return Candidates(_NONE, _NONE, snapshot.live_groups)
    index = metadata.key_index(snapshot)
    if index.kept != TABLE:
        from mdt.metadata.keys import key_runs

        return key_runs.propose(metadata, snapshot, index, hashes, partition)
    places, key_place = _places(snapshot, partition)
    whole_groups = [snapshot.file_groups.number(sorted(snapshot.uncovered))]
    pairs = [(_NONE, _NONE)]
    for key_part in snapshot.key_parts:
        groups = snapshot.key_part_groups(key_part)
        if key_part.index != index.name:
            whole_groups.append(groups)
            continue
        try:
            part = metadata.key_parts.opened(key_part, index)
            if key_place is None or len(groups) == 1:
                candidates = index.locate(part, keys, hashes)
            else:
                group_place = snapshot.file_groups.places(groups, places)
                candidates = index.locate_within(part, keys, hashes, key_place, group_place)
            located = candidates.key, groups[candidates.group], groups[candidates.whole]
        except (ValueError, IndexError, Corrupt):
            # Damaged, or it numbers more groups than the record lists.
            whole_groups.append(groups)
            continue
        pairs.append(located[:2])
        whole_groups.append(located[2])
    everywhere = np.unique(np.concatenate(whole_groups))
    key, group = (np.concatenate(column) for column in zip(*pairs, strict=True))
    live = group >= 0
    return Candidates(key[live], group[live], everywhere[everywhere >= 0])


def _places(
    snapshot: Snapshot, partition: npt.NDArray[np.object_] | None
) -> tuple[list[str], Int64Array | None]:
    """Return the distinct paths of ``partition``, and the index of each key's path -> int64[n].

    ([], None) if partitioning is not worth its cost.
    """
    if (
        partition is None
        or len(partition) < _PLACED_KEYS_MIN
        or not snapshot.definition.partition_by
    ):
        return [], None
    return distinct_texts(partition)


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of a key and a live row.

    ``key`` is the index of the key, ``file`` and ``position`` locate the row, all int64[h].
    ``ordering`` is uint64[h].  With partition scope, a key may hit a row in each of several
    partitions.
    """

    key: Int64Array
    file: Int64Array
    position: Int64Array
    ordering: UInt64Array


def locate(
    metadata: Metadata,
    snapshot: Snapshot,
    keys: pa.Array,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_],
    proposed: Candidates | None = None,
) -> Located:
    """Return the locations of n record keys, each in its scope.

    ``keys`` is string or binary[n], in the form for the key index.  ``hashes`` are those of the
    record keys.  ``partition`` has the path of each key.  ``proposed`` replaces the candidates of
    :func:`propose`.
    """
    n = len(hashes)
    is_global, groups = snapshot.definition.is_global, snapshot.file_groups
    dead: list[tuple[int, Int64Array]] = []
    matters = None if is_global or not snapshot.definition.partition_by else partition
    if proposed is None:
        proposed = propose(metadata, snapshot, keys, hashes, matters)
    home = key_placeholders(metadata, snapshot, keys, partition)
    if home is not None:
        settle(home, snapshot, proposed, partition)
    if not len(proposed.key) and not len(proposed.whole):
        return replace(Located.absent(n), home=home)
    file, position, group, dead_in = (np.full(n, -1, np.int64) for _ in range(4))
    ordering = np.zeros(n, np.uint64)
    hits, further = _look_up(metadata, snapshot, proposed, hashes, matters, dead), Further()
    if hits and (snapshot.definition.keys_repeat or snapshot.is_shared):
        hits, further = _first_hits(snapshot, hits, partition)
    for hit in hits:
        file[hit.key], position[hit.key] = hit.file, hit.position
        group[hit.key], ordering[hit.key] = groups.of_files(hit.file), hit.ordering
    lives_in_partition = file >= 0
    if dead and is_global:
        lives_in_partition &= snapshot.file_groups.partitions(group) == partition
    for number, dead_keys in dead:
        own_group = dead_keys[
            ~lives_in_partition[dead_keys] & (partition[dead_keys] == groups.partition(number))
        ]
        dead_in[own_group] = number
    return Located(file, position, group, ordering, dead_in, further, home)


def _first_hits(
    snapshot: Snapshot, hits: Sequence[Hits], partition: npt.NDArray[np.object_]
) -> tuple[list[Hits], Further]:
    """Return one hit per key, preferably in its own partition and the newest there, and the others.

    The chosen hit has the largest ordering value of all.
    """
    every_hit = Hits(
        *(
            np.concatenate(column)
            for column in zip(*((h.key, h.file, h.position, h.ordering) for h in hits), strict=True)
        )
    )
    if len(distinct_numbers(every_hit.key)) == len(every_hit.key):
        return list(hits), Further()
    group = snapshot.file_groups.of_files(every_hit.file)
    is_elsewhere = np.asarray(snapshot.file_groups.partitions(group) != partition[every_hit.key])
    order = np.lexsort((group, ~every_hit.ordering, is_elsewhere, every_hit.key))
    is_first = np.diff(every_hit.key[order], prepend=-1) != 0
    first, further = order[is_first], order[~is_first]
    largest = np.maximum.reduceat(every_hit.ordering[order], np.flatnonzero(is_first))
    chosen_hit = Hits(
        every_hit.key[first], every_hit.file[first], every_hit.position[first], largest
    )
    return [chosen_hit], Further(
        every_hit.key[further], every_hit.file[further], every_hit.position[further], group[further]
    )


def find(
    metadata: Metadata,
    snapshot: Snapshot,
    keys: pa.Array,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None = None,
) -> list[Hits]:
    """Return every live row of ``keys``, one item per segment with hits.

    ``partition`` has the path of each key with partition scope, None for the whole table.
    """
    proposed = propose(metadata, snapshot, keys, hashes, partition)
    return _look_up(metadata, snapshot, proposed, hashes, partition)


def _look_up(
    metadata: Metadata,
    snapshot: Snapshot,
    proposed: Candidates,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None,
    dead: list[tuple[int, Int64Array]] | None = None,
) -> list[Hits]:
    """Do the work of :func:`find` in the candidate groups.

    Appends to ``dead`` (file group, int64 keys) pairs of keys with a dead row there.  Such a key
    may also be live in that group.
    """
    if len(hashes) == 1:
        groups = np.append(proposed.group, proposed.whole)
        if partition is not None and len(groups):
            groups = groups[snapshot.file_groups.partitions(groups) == partition[0]]
        first = np.zeros(1, np.int64)
        keys_of_groups = [(n, first) for n in sorted({*groups.tolist()})]
    else:
        keys_of_groups = list(_by_group(snapshot, proposed, hashes, partition))
    if metadata.storage.is_remote:
        metadata.objects.read_key_maps(_key_maps(snapshot, keys_of_groups))
    return [
        hits
        for group, key in keys_of_groups
        for hits in _confirm(metadata, snapshot, group, key, hashes, dead)
    ]


def _key_maps(
    snapshot: Snapshot, keys_of_groups: Sequence[tuple[int, Int64Array]]
) -> Iterator[ObjectRange]:
    """Yield the object ranges of the key maps of file groups."""
    for group, _ in keys_of_groups:
        for i in snapshot.file_groups.members(group).tolist():
            stored = snapshot.segment(i).key_map
            if stored is not None:
                yield stored


def _by_group(
    snapshot: Snapshot,
    proposed: Candidates,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None,
) -> Iterator[tuple[int, Int64Array]]:
    """Yield each candidate group with its keys, by ascending hash.

    Each key map is then searched in its own order, which is kind to the cache.
    """
    if not len(proposed.group) and not len(proposed.whole):
        return  # do not sort the keys of a large load for nothing
    n, key, group = len(hashes), proposed.key, proposed.group
    if len(proposed.whole) or len(key) * _FEW > n:
        by_rank = hashes.kept_order()
    else:  # in a load, the key index proposes a few keys by chance
        proposed_keys = distinct_numbers(key)
        by_rank = proposed_keys[hashes.take(proposed_keys).order()]
    rank = np.empty(n, np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    if partition is not None and len(key):
        same = partition[key] == snapshot.file_groups.partitions(group)
        key, group = key[same], group[same]
    pair = distinct_numbers(group * n + rank[key])
    group, key = pair // n, by_rank[pair % n]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    parts = np.split(key, starts[1:])
    # Without pairs, np.split returns one empty part.
    keys_by_group = dict(zip(group[starts].tolist(), parts, strict=False))
    paths_of = [""] * len(proposed.whole)
    keys_of = {"": by_rank}
    if partition is not None and len(proposed.whole):
        paths_of = snapshot.file_groups.partitions(proposed.whole).tolist()
        keys_of = {
            path: by_rank[partition[by_rank] == path]
            for path in {*paths_of}.intersection(partition.tolist())
        }
    keys_by_group |= {
        number: keys_of[path]
        for number, path in zip(proposed.whole.tolist(), paths_of, strict=True)
        if path in keys_of
    }
    yield from sorted(keys_by_group.items())


def _confirm(
    metadata: Metadata,
    snapshot: Snapshot,
    group: int,
    key: Int64Array,
    hashes: KeyHashes,
    dead: list[tuple[int, Int64Array]] | None,
) -> Iterator[Hits]:
    """Look ``key`` up in the key maps of a file group, and yield the live rows.

    A key is live at most once in a file group, so keys that were found are not looked up in further
    segments.  Most keys are in the base file, and most of the rest in the newest log files.  Base
    files of other Hudi writers may have several rows of a key.  These are found in copy-on-write
    tables only: in log files, Hudi replaces and deletes one of them.
    """
    in_file = snapshot.is_shared and snapshot.definition.table_type == COPY_ON_WRITE
    members = snapshot.file_groups.members(group).tolist()
    key_hashes = hashes.take(key)
    for i in members[:1] + members[:0:-1]:
        segment = snapshot.segment(i)
        if segment.key_map is None:
            continue
        key_map = metadata.objects.key_map(segment.key_map)
        entry = key_map.find(key_hashes)
        hit = np.flatnonzero(entry >= 0)
        if not len(hit):
            continue
        found = entry[hit]
        if in_file:
            hit, found = key_map.with_equal(hit, found)
        position = key_map.position[found].astype(np.int64)
        if int(position.max()) >= segment.rows:
            raise Corrupt(
                "a key map has a position beyond the rows of its file",
                path=segment.key_map.path,
                offset=segment.key_map.offset,
                expected=f"less than {segment.rows}",
                got=str(position.max()),
            )
        live = is_live(snapshot, i, position)
        if dead is not None and not live.all():
            dead.append((group, key[hit[~live]]))
        hit, position, found = hit[live], position[live], found[live]
        if not len(hit):
            continue
        ordering = (
            np.zeros(len(hit), np.uint64) if key_map.ordering is None else key_map.ordering[found]
        )
        yield Hits(key[hit], np.full(len(hit), i, np.int64), position, ordering)
        remaining = np.ones(len(key), np.bool_)
        remaining[hit] = False
        if not remaining.any():
            return
        key, key_hashes = key[remaining], key_hashes.take(remaining)


def is_live(snapshot: Snapshot, number: int, position: Int64Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the live rows at ``position`` of file ``number`` -> bool[len(position)]."""
    dead = snapshot.vector(number)
    if dead is None:
        return np.ones(len(position), dtype=np.bool_)
    if len(position) <= _LOOKED_UP_MAX:
        return np.array([row not in dead for row in position.tolist()], np.bool_)
    if len(dead) > _MARKED_MAX * len(position):
        dead = dead & BitMap(position.astype(np.uint32))
    is_dead = np.zeros(snapshot.segment(number).rows, np.bool_)
    is_dead[np.asarray(dead.to_array())] = True
    return ~is_dead[position]


def base_key_map(metadata: Metadata, snapshot: Snapshot, group: int) -> KeyMap | None:
    """Return the key map of the base file of ``group``, dead rows included, or None if it has
    none.
    """
    for i in snapshot.file_groups.members(group).tolist():
        segment = snapshot.segment(i)
        if segment.kind == BASE and segment.key_map is not None:
            return metadata.objects.key_map(segment.key_map)
    return None


def positions_in_base(base: KeyMap | None, keys: KeyHashes) -> Int64Array | None:
    """Return the position of each key in the base file, live or dead -> int64[n].

    None if any key is absent.
    """
    entry = np.full(1, -1) if base is None else base.find(keys)
    if base is None or bool(np.any(entry < 0)):
        return None
    return base.position[entry].astype(np.int64)
