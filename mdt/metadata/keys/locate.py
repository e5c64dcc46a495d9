"""Find the live row that each key of a batch replaces: the key index proposes file groups, key maps
confirm exactly.
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
from mdt.metadata.keys.buckets import homes, settle
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.object_range import ObjectRange

_NONE: Int64Array = np.empty(0, np.int64)
_PLACED_KEYS_MIN = 32
"""Fewer keys are looked for in all partitions at once: to say which file groups are in theirs would
cost more.
"""
_LOOKED_UP_MAX = 64
"""Up to so many positions are looked up in a deletion vector one by one."""
_FEW = 8
"""Of so many keys for each that the key index proposes, only those that it proposes are put in
order.
"""
_MARKED_MAX = 32
"""Of more dead rows than so many for each position only those at the positions are marked."""


@dataclass(frozen=True, slots=True)
class Further:
    """m live rows of keys that have another one already.  ``key``: int64[m], which of the keys;
    ``file``, ``position``, ``group``: int64[m].
    """

    key: Int64Array = field(default_factory=lambda: _NONE)
    file: Int64Array = field(default_factory=lambda: _NONE)
    position: Int64Array = field(default_factory=lambda: _NONE)
    group: Int64Array = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, slots=True)
class Located:
    """For n keys where their live row is, or where a dead one is left.

    ``file``: int64[n], number of the file in the snapshot, or -1: absent.  ``position``: int64[n]
    in the file. ``group``: int64[n], number of the file group in the snapshot, or -1.
    ``ordering``: uint64[n] of the live row, 0 where absent or without ordering field.  ``dead_in``:
    int64[n], number of the file group of the key's own partition in which a dead row of it still
    stands while it does not live in that partition, or -1; empty if nobody asked. ``home``:
    int64[n], the number of the file group to which the key belongs if it is new, or what stands for
    that of its bucket (:mod:`mdt.metadata.keys.buckets`); None: any.  ``further``: in a table whose
    keys repeat, live rows of keys beside those; ``ordering`` is the largest of all of a key.
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
    def nothing(cls) -> Located:
        """Return the location of no keys."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, np.empty(0, np.uint64))

    @classmethod
    def absent(cls, count: int) -> Located:
        """Return the location of ``count`` keys of which nothing stands anywhere; its arrays take
        no memory, and can only be read.
        """
        nowhere = np.broadcast_to(np.int64(-1), count)
        return cls(nowhere, nowhere, nowhere, np.broadcast_to(np.uint64(0), count), nowhere)

    def with_further(self) -> Located:
        """Return the same with one entry more for each of ``further``, in their order, behind those
        of the n keys.
        """
        if not len(self.further.key):
            return self
        more = self.further
        file, position = np.append(self.file, more.file), np.append(self.position, more.position)
        ordering = np.append(self.ordering, np.zeros(len(more.key), np.uint64))
        key = np.append(np.arange(len(self.file)), more.key)
        return Located(
            file,
            position,
            np.append(self.group, more.group),
            ordering,
            self.dead_in,
            home=self.home,
            _key=key,
        )

    def keys_of(self, entries: Int64Array) -> Int64Array:
        """Return which key each entry of :meth:`with_further` is of -> int64[len(entries)]."""
        return entries if self._key is None else self._key[entries]

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which keys have a live row -> bool[n]."""
        return self.file >= 0


def propose(
    metadata: Metadata,
    snapshot: Snapshot,
    keys: pa.Array,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None = None,
) -> Candidates:
    """Return a superset of where the keys live, by numbers of file groups; a pair may come more
    than once, ``whole`` rises.

    ``partition``: path of each key, if only rows there matter.

    A key part that cannot be read, or that another index wrote, makes its groups candidates for
    every key; where this process does not have the key index, every group is.
    """
    if metadata.key_index_problem(snapshot):
        return Candidates(
            _NONE, _NONE, np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
        )
    index = metadata.key_index(snapshot)
    if index.kept != TABLE:
        from mdt.metadata.keys import key_runs

        return key_runs.proposed(metadata, snapshot, index, hashes, partition)
    places, key_place = _places(snapshot, partition)
    whole = [snapshot.file_groups.number(sorted(snapshot.uncovered))]
    pairs = [(_NONE, _NONE)]
    for key_part in snapshot.key_parts:
        groups = snapshot.key_part_groups(key_part)
        if key_part.index != index.name:
            whole.append(groups)
            continue
        try:
            opened = metadata.key_parts.opened(key_part, index)
            if key_place is None or len(groups) == 1:
                found = index.locate(opened, keys, hashes)
            else:
                group_place = snapshot.file_groups.places(groups, places)
                found = index.locate_within(opened, keys, hashes, key_place, group_place)
            of_key_part = found.key, groups[found.group], groups[found.whole]
        except (ValueError, IndexError, Corrupt):
            # Damaged, or it numbers more groups than its record names.
            whole.append(groups)
            continue
        pairs.append(of_key_part[:2])
        whole.append(of_key_part[2])
    everywhere = np.unique(np.concatenate(whole))
    key, group = (np.concatenate(column) for column in zip(*pairs, strict=True))
    live = group >= 0
    return Candidates(key[live], group[live], everywhere[everywhere >= 0])


def _places(
    snapshot: Snapshot, partition: npt.NDArray[np.object_] | None
) -> tuple[list[str], Int64Array | None]:
    """Return the distinct paths of ``partition`` and which of them each key has -> int64[n]; None
    where it is not worth while to ask.
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
    """Pairs (key, live row): ``key`` int64[h] of the keys asked for, ``file`` (its number) and
    ``position`` int64[h] of the row, ``ordering`` uint64[h].  Under partition scope one key may hit
    a row in each of several partitions.
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
    """Return where n record keys live, each in its scope, and where dead rows of them stand.

    ``keys``: string or binary[n], as the key index gets them; ``hashes``: of the record keys.
    ``partition``: path of each key.  ``proposed``: where they may live or be dead, if somebody else
    knows than :func:`propose`.
    """
    n = len(hashes)
    is_global, groups = snapshot.definition.is_global, snapshot.file_groups
    dead: list[tuple[int, Int64Array]] = []
    matters = None if is_global or not snapshot.definition.partition_by else partition
    if proposed is None:
        proposed = propose(metadata, snapshot, keys, hashes, matters)
    home = homes(metadata, snapshot, keys, partition)
    if home is not None:
        settle(home, snapshot, proposed, partition)
    if not len(proposed.key) and not len(proposed.whole):
        return replace(Located.absent(n), home=home)
    file, position, group, dead_in = (np.full(n, -1, np.int64) for _ in range(4))
    ordering = np.zeros(n, np.uint64)
    hits, further = _found(metadata, snapshot, proposed, hashes, matters, dead), Further()
    if snapshot.definition.keys_repeat and hits:
        hits, further = _parted(snapshot, hits, partition)
    for found in hits:
        file[found.key], position[found.key] = found.file, found.position
        group[found.key], ordering[found.key] = groups.of_files(found.file), found.ordering
    lives_here = file >= 0
    if dead and is_global:
        lives_here &= snapshot.file_groups.partitions(group) == partition
    for number, gone in dead:
        here = gone[~lives_here[gone] & (partition[gone] == groups.partition(number))]
        dead_in[here] = number
    return Located(file, position, group, ordering, dead_in, further, home)


def _parted(
    snapshot: Snapshot, hits: Sequence[Hits], partition: npt.NDArray[np.object_]
) -> tuple[list[Hits], Further]:
    """Return one hit of each key, in its own partition if there is one, with the largest ordering
    value of all; and the others.
    """
    whole = Hits(
        *(
            np.concatenate(column)
            for column in zip(*((h.key, h.file, h.position, h.ordering) for h in hits), strict=True)
        )
    )
    group = snapshot.file_groups.of_files(whole.file)
    is_elsewhere = np.asarray(snapshot.file_groups.partitions(group) != partition[whole.key])
    order = np.lexsort((group, is_elsewhere, whole.key))
    is_first = np.diff(whole.key[order], prepend=-1) != 0
    first, others = order[is_first], order[~is_first]
    largest = np.maximum.reduceat(whole.ordering[order], np.flatnonzero(is_first))
    chosen = Hits(whole.key[first], whole.file[first], whole.position[first], largest)
    return [chosen], Further(
        whole.key[others], whole.file[others], whole.position[others], group[others]
    )


def find(
    metadata: Metadata,
    snapshot: Snapshot,
    keys: pa.Array,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None = None,
    dead: list[tuple[int, Int64Array]] | None = None,
) -> list[Hits]:
    """Return every live row of ``keys``, in one piece for each segment with hits.

    ``partition``: path of each key under partition scope, None for the whole table.  To ``dead``
    are added file groups with those of the keys, int64, that have a dead row there; they may live
    in the same group.
    """
    return _found(
        metadata,
        snapshot,
        propose(metadata, snapshot, keys, hashes, partition),
        hashes,
        partition,
        dead,
    )


def _found(
    metadata: Metadata,
    snapshot: Snapshot,
    proposed: Candidates,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_] | None,
    dead: list[tuple[int, Int64Array]] | None,
) -> list[Hits]:
    """Return what :func:`find` does, of the groups in which keys may live."""
    if len(hashes) == 1:
        here = np.append(proposed.group, proposed.whole)
        if partition is not None and len(here):
            here = here[snapshot.file_groups.partitions(here) == partition[0]]
        only = np.zeros(1, np.int64)
        asked = [(n, only) for n in sorted({*here.tolist()})]
    else:
        asked = list(_by_group(snapshot, proposed, hashes, partition))
    if metadata.storage.is_remote:
        metadata.objects.read_key_maps(_key_maps(snapshot, asked))
    return [
        hits
        for group, key in asked
        for hits in _confirm(metadata, snapshot, group, key, hashes, dead)
    ]


def _key_maps(snapshot: Snapshot, asked: Sequence[tuple[int, Int64Array]]) -> Iterator[ObjectRange]:
    """Yield where the key maps of file groups stand."""
    for group, _ in asked:
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
    """Yield each group with the keys that may live there, by rising hash: each key map is walked in
    its own order, which is kind to the cache.
    """
    if not len(proposed.group) and not len(proposed.whole):
        return  # a load of many rows would sort them for nothing
    n, key, group = len(hashes), proposed.key, proposed.group
    if len(proposed.whole) or len(key) * _FEW > n:
        by_rank = hashes.kept_order()
    else:  # of a load the key index proposes a few keys by chance
        asked = distinct_numbers(key)
        by_rank = asked[hashes.take(asked).order()]
    rank = np.empty(n, np.int64)
    rank[by_rank] = np.arange(len(by_rank))
    if partition is not None and len(key):
        same = partition[key] == snapshot.file_groups.partitions(group)
        key, group = key[same], group[same]
    pair = distinct_numbers(group * n + rank[key])
    group, key = pair // n, by_rank[pair % n]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    parts = np.split(key, starts[1:])
    # Without any pair, np.split returns one empty part.
    some = dict(zip(group[starts].tolist(), parts, strict=False))
    paths_of = [""] * len(proposed.whole)
    keys_of = {"": by_rank}
    if partition is not None and len(proposed.whole):
        paths_of = snapshot.file_groups.partitions(proposed.whole).tolist()
        keys_of = {
            path: by_rank[partition[by_rank] == path]
            for path in {*paths_of}.intersection(partition.tolist())
        }
    some |= {
        number: keys_of[path]
        for number, path in zip(proposed.whole.tolist(), paths_of, strict=True)
        if path in keys_of
    }
    yield from sorted(some.items())


def _confirm(
    metadata: Metadata,
    snapshot: Snapshot,
    group: int,
    key: Int64Array,
    hashes: KeyHashes,
    dead: list[tuple[int, Int64Array]] | None,
) -> Iterator[Hits]:
    """Look ``key`` up in the key maps of one file group; yield what is live.

    A key is live once in a file group, so one that was found is not looked for in other segments.
    Most stand in the base file; those that do not, in one of the newest log files.
    """
    members = snapshot.file_groups.members(group).tolist()
    wanted = hashes.take(key)
    for i in members[:1] + members[:0:-1]:
        segment = snapshot.segment(i)
        if segment.key_map is None:
            continue
        found = metadata.objects.key_map(segment.key_map)
        entry = found.find(wanted)
        hit = np.flatnonzero(entry >= 0)
        if not len(hit):
            continue
        position = found.position[entry[hit]].astype(np.int64)
        if int(position.max()) >= segment.rows:
            raise Corrupt(
                "a key map names a row that its file does not have",
                path=segment.key_map.path,
                offset=segment.key_map.offset,
                expected=f"less than {segment.rows}",
                got=str(position.max()),
            )
        live = is_live(snapshot, i, position)
        if dead is not None and not live.all():
            dead.append((group, key[hit[~live]]))
        hit, position = hit[live], position[live]
        if not len(hit):
            continue
        ordering = (
            np.zeros(len(hit), np.uint64) if found.ordering is None else found.ordering[entry[hit]]
        )
        yield Hits(key[hit], np.full(len(hit), i, np.int64), position, ordering)
        if len(hit) == len(key):
            return
        left = np.ones(len(key), np.bool_)
        left[hit] = False
        key, wanted = key[left], wanted.take(left)


def is_live(snapshot: Snapshot, number: int, position: Int64Array) -> npt.NDArray[np.bool_]:
    """Return which ``position`` of file ``number`` are live -> bool[len(position)]."""
    dead = snapshot.vector(number)
    if dead is None:
        return np.ones(len(position), dtype=np.bool_)
    if len(position) <= _LOOKED_UP_MAX:
        return np.array([one not in dead for one in position.tolist()], np.bool_)
    if len(dead) > _MARKED_MAX * len(position):
        dead = dead & BitMap(position.astype(np.uint32))
    gone = np.zeros(snapshot.segment(number).rows, np.bool_)
    gone[np.asarray(dead.to_array())] = True
    return ~gone[position]


def base_key_map(metadata: Metadata, snapshot: Snapshot, group: int) -> KeyMap | None:
    """Return the key map of the base file of ``group``, dead rows included, or None if it has
    none.
    """
    for i in snapshot.file_groups.members(group).tolist():
        segment = snapshot.segment(i)
        if segment.kind == BASE and segment.key_map is not None:
            return metadata.objects.key_map(segment.key_map)
    return None


def positions_in_base(base: KeyMap | None, wanted: KeyHashes) -> Int64Array | None:
    """Return where each wanted key stands in the base file, live or dead -> int64[n]; None if one
    does not.
    """
    entry = np.full(1, -1) if base is None else base.find(wanted)
    if base is None or bool(np.any(entry < 0)):
        return None
    return base.position[entry].astype(np.int64)
