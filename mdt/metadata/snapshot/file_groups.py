"""The file groups of a snapshot by number: names, partitions, members, sizes.

Groups of the checkpoint have the numbers of the checkpoint, new ones follow; a number never changes
its group until the metadata are compacted.  A group whose files are all gone keeps its number and
has no members.  What a commit changes is laid over the checkpoint, so that a snapshot's groups cost
what its commits changed, however many files the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.key_hash import hash_keys
from mdt.metadata.files.file_group import BASE
from mdt.metadata.log.checkpoint_columns import Columns
from mdt.metadata.snapshot.persistent_map import Layered

NAME_SEED = 0
"""Of the hashes by which file ids are found; ids are random already."""

SMALL_LOOKED_AT_MAX = 4_096
"""Changed file groups that are looked at for room, newest first: a small insert must not walk
through a large table.
"""

GROUPED = ("file_id", "partition", "size", "rows", "kind")
"""Columns of files that file groups are made of."""

_FEW = 16
"""Up to so many names are read from their pages; more from the whole column."""

_TABLE = "\0"
"""Stands for the whole table among partition paths, which cannot contain it."""

Int64s = npt.NDArray[np.int64]
Recent = tuple[tuple[int, ...], Any] | None


@dataclass(frozen=True, slots=True)
class Group:
    """One file group as it is now.  ``members``: numbers of its files, oldest first; ``bytes``: of
    them; ``logs``: how many are log files.
    """

    name: str
    partition: str
    members: tuple[int, ...]
    bytes: int
    logs: int


@dataclass(frozen=True, slots=True)
class Small:
    """A file group that has room: its number, its bytes and how many of its files are log files."""

    group: int
    bytes: int
    logs: int


@dataclass(frozen=True)
class Groups:
    """See the module.  ``changed``: groups that differ from the checkpoint; ``recent``: partition
    -> the groups that each commit changed, newest first; ``weights``: partition -> (bytes, rows) of
    base files; ``tail``: groups of the files after the checkpoint -> int64[files].
    """

    checkpoint: Columns
    count: int
    changed: Layered[int, Group] = field(default_factory=Layered)
    numbers: Layered[str, int] = field(default_factory=Layered)
    recent: Layered[str, Any] = field(default_factory=Layered)
    weights: Layered[str, tuple[int, int]] = field(default_factory=Layered)
    tail: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, checkpoint: Columns) -> Groups:
        """Return the groups of a checkpoint.  O(1)."""
        return cls(checkpoint, len(checkpoint.table("members_start")) - 1)

    @property
    def checkpoint_count(self) -> int:
        """How many groups the checkpoint has."""
        return len(self.checkpoint.table("members_start")) - 1

    # Look-ups

    def number(self, names: Sequence[str]) -> Int64s:
        """Return the number of each file id, -1 where there is none -> int64[n].  O(n log
        groups).
        """
        found = np.full(len(names), -1, np.int64)
        if not len(names):
            return found
        if self.numbers:
            for i, name in enumerate(names):
                known = self.numbers.get(name)
                if known is not None:
                    found[i] = known
        if self.checkpoint_count:
            todo = np.flatnonzero(found < 0)
            found[todo] = self._checkpoint_number([names[i] for i in todo.tolist()])
        return found

    def _checkpoint_number(self, names: Sequence[str]) -> Int64s:
        if len(names) > _FEW:
            return self._searched(names)
        known: dict[str, int] = self.checkpoint.memo("groups that were asked for", dict)
        new = [name for name in names if name not in known]
        if new:
            known |= zip(new, self._searched(new).tolist(), strict=True)
        return np.array([known[name] for name in names], np.int64)

    def _searched(self, names: Sequence[str]) -> Int64s:
        hashes, by_hash = (
            self.checkpoint.numpy("group_hash"),
            self.checkpoint.numpy("group_by_hash"),
        )
        wanted = pa.array(names, pa.string())
        words = hash_keys(wanted, NAME_SEED).hi
        at = np.minimum(np.searchsorted(hashes, words), len(hashes) - 1)
        result = np.full(len(names), -1, np.int64)
        left = np.flatnonzero(hashes[at] == words)
        # Equal hashes stand side by side; there is hardly ever a second round.
        while len(left):
            number = by_hash[at[left]].astype(np.int64)
            same = flags(pc.equal(self._checkpoint_names(number), wanted.take(pa.array(left))))
            result[left[same]] = number[same]
            left = left[~same]
            at[left] += 1
            left = left[at[left] < len(hashes)]
            left = left[hashes[at[left]] == words[left]]
        return result

    def _checkpoint_names(self, numbers: Int64s) -> pa.Array:
        if len(numbers) <= _FEW:
            return pa.array(
                [self.checkpoint.value("group_name", n).as_py() for n in numbers.tolist()],
                pa.string(),
            )
        return (
            self.checkpoint.table("group_name").column(0).take(pa.array(numbers)).combine_chunks()
        )

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return the file ids of groups."""
        return [self.name(number) for number in numbers]

    def name(self, number: int) -> str:
        """Return the file id of a group.  Raises IndexError if there is no such group."""
        if 0 <= number < self.checkpoint_count:
            return str(self.checkpoint.value("group_name", number).as_py())
        group = self.changed.get(number)
        if group is None:
            raise IndexError(f"there is no file group {number}")
        return group.name

    def all_names(self) -> list[str]:
        """Return the file id of every group, by number.  O(groups)."""
        known = self.checkpoint.table("group_name").column(0).to_pylist()
        return known + [self.name(number) for number in range(len(known), self.count)]

    @property
    def _partition_names(self) -> npt.NDArray[np.object_]:
        def make() -> npt.NDArray[np.object_]:
            return np.array(
                self.checkpoint.table("partition_name").column(0).to_pylist(), dtype=object
            )

        found: npt.NDArray[np.object_] = self.checkpoint.memo("partition names", make)
        return found

    def partition(self, number: int) -> str:
        """Return the partition path of a group."""
        if number < self.checkpoint_count:
            return str(self._partition_names[self.checkpoint.numpy("group_partition")[number]])
        group = self.changed.get(number)
        assert group is not None, f"group {number} of {self.count}"
        return group.partition

    def partitions(self, numbers: Int64s) -> npt.NDArray[np.object_]:
        """Return the partition path of each group -> object[n]; "" for -1.  O(n)."""
        found = np.full(len(numbers), "", dtype=object)
        old = (numbers >= 0) & (numbers < self.checkpoint_count)
        code = self.checkpoint.numpy("group_partition")[numbers[old]]
        found[old] = self._partition_names[code]
        new = np.flatnonzero(numbers >= self.checkpoint_count)
        if len(new):
            number = numbers[new] - self.checkpoint_count
            paths = np.full(int(number.max()) + 1, "", dtype=object)
            for one in np.flatnonzero(np.bincount(number)).tolist():
                paths[one] = self.partition(self.checkpoint_count + one)
            found[new] = paths[number]
        return found

    def places(self, numbers: Int64s, partitions: Sequence[str]) -> Int64s:
        """Return which of ``partitions`` each group is in, -1 for none of them -> int64[n].  O(n +
        partitions).
        """
        found = np.full(len(numbers), -1, np.int64)
        known = np.full(len(self._partition_names), -1, np.int64)
        codes = self._partition_codes
        for place, path in enumerate(partitions):
            if path in codes:
                known[codes[path]] = place
        old = np.flatnonzero((numbers >= 0) & (numbers < self.checkpoint_count))
        found[old] = known[self.checkpoint.numpy("group_partition")[numbers[old]]]
        new = np.flatnonzero(numbers >= self.checkpoint_count)
        if len(new):
            place_of = {path: place for place, path in enumerate(partitions)}
            found[new] = [
                place_of.get(self.partition(number), -1) for number in numbers[new].tolist()
            ]
        return found

    @property
    def _partition_codes(self) -> dict[str, int]:
        def make() -> dict[str, int]:
            return {name: code for code, name in enumerate(self._partition_names.tolist())}

        found: dict[str, int] = self.checkpoint.memo("partition codes", make)
        return found

    def has_partition(self, partition: str) -> bool:
        """Return whether a file group was ever in ``partition`` since the checkpoint."""
        return partition in self._partition_codes or partition in self.recent

    def of_files(self, numbers: Int64s) -> Int64s:
        """Return the group of each of the files ``numbers`` -> int64[n]."""
        found = np.empty(len(numbers), np.int64)
        old = numbers < self.checkpoint.rows
        found[old] = self.checkpoint.numpy("group")[numbers[old]]
        found[~old] = self.tail[numbers[~old] - self.checkpoint.rows]
        return found

    def members(self, number: int) -> Int64s:
        """Return the numbers of a group's files, oldest first, none if it is gone ->
        int64[files].
        """
        changed = self.changed.get(number)
        if changed is not None:
            return np.array(changed.members, np.int64)
        start = self.checkpoint.numpy("members_start")
        return self.checkpoint.numpy("members")[start[number] : start[number + 1]].astype(np.int64)

    def with_files(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of those of the groups ``names`` that have files."""
        numbers = self.number(names)
        return [number for number in numbers[numbers >= 0].tolist() if len(self.members(number))]

    def group(self, number: int) -> Group:
        """Return a group as it is now."""
        changed = self.changed.get(number)
        if changed is not None:
            return changed
        size, logs = (
            int(self.checkpoint.numpy(name)[number]) for name in ("group_bytes", "group_logs")
        )
        return Group(
            self.name(number),
            self.partition(number),
            tuple(self.members(number).tolist()),
            size,
            logs,
        )

    # Room for inserts

    def small(self, partition: str, bytes_max: int) -> Iterator[Small]:
        """Yield the groups of ``partition`` with fewer than ``bytes_max`` bytes, smallest first,
        one by one.

        Of the groups that were changed since the checkpoint, the SMALL_LOOKED_AT_MAX latest are
        looked at.
        """
        fresh = sorted(self._changed_small(partition, bytes_max), key=lambda s: (s.bytes, s.group))
        old = self._checkpoint_small(partition, bytes_max)
        ahead = next(old, None)
        for small in fresh:
            while ahead is not None and (ahead.bytes, ahead.group) < (small.bytes, small.group):
                yield ahead
                ahead = next(old, None)
            yield small
        if ahead is not None:
            yield ahead
            yield from old

    def _changed_small(self, partition: str, bytes_max: int) -> Iterator[Small]:
        seen: set[int] = set()
        at: Recent = self.recent.get(partition)
        while at is not None and len(seen) < SMALL_LOOKED_AT_MAX:
            numbers, at = at
            for number in islice(numbers, SMALL_LOOKED_AT_MAX - len(seen)):
                group = None if number in seen else self.changed.get(number)
                seen.add(number)
                if group is not None and group.members and group.bytes < bytes_max:
                    yield Small(number, group.bytes, group.logs)

    def _checkpoint_small(self, partition: str, bytes_max: int) -> Iterator[Small]:
        code = self._partition_codes.get(partition)
        if code is None:
            return
        start, end = self.checkpoint.numpy("partition_start")[code : code + 2].tolist()
        by_size, sizes = (
            self.checkpoint.numpy("group_by_size"),
            self.checkpoint.numpy("group_bytes"),
        )
        logs = self.checkpoint.numpy("group_logs")
        for at in range(start, end):
            number = int(by_size[at])
            if sizes[number] >= bytes_max:
                return
            if number not in self.changed:
                yield Small(number, int(sizes[number]), int(logs[number]))

    def weight(self, partition: str | None) -> tuple[int, int]:
        """Return (bytes, rows) of the base files of ``partition``, or of the table for None."""
        known = self.weights.get(_TABLE if partition is None else partition)
        if known is not None:
            return known
        size, rows = map(self.checkpoint.numpy, ("partition_bytes", "partition_rows"))
        if partition is not None:
            code = self._partition_codes.get(partition, len(size))
            size, rows = size[code : code + 1], rows[code : code + 1]
        return int(size.sum()), int(rows.sum())

    # Change

    def after(self, added: pa.Table, first: int, removed: pa.Table, gone: Int64s) -> Groups:
        """Return the groups after a commit.  O(files of the commit).

        ``added``: its files, which are numbered from ``first`` on; ``removed``: the files ``gone``;
        both with the columns GROUPED.
        """
        changed: dict[int, Group] = {}
        numbers = self._with_new(added["file_id"].to_pylist())
        count, weights = self.count, dict[str, list[int]]()

        def current(number: int, name: str, partition: str) -> Group:
            known = changed.get(number) or self.changed.get(number)
            if known is not None:
                return known
            if number < self.checkpoint_count:
                return self.group(number)
            return Group(name, partition, (), 0, 0)

        for files, which, of, sign in (
            (removed, gone.tolist(), self.of_files(gone), -1),
            (added, range(first, first + len(added)), numbers, 1),
        ):
            columns = (files[name].to_pylist() for name in GROUPED)
            for file, number, name, partition, size, rows, kind in zip(
                which, of.tolist(), *columns, strict=True
            ):
                group, is_checkpoint = current(number, name, partition), kind == BASE
                members = (
                    (*group.members, file)
                    if sign > 0
                    else tuple(n for n in group.members if n != file)
                )
                changed[number] = replace(
                    group,
                    members=members,
                    bytes=group.bytes + sign * size,
                    logs=group.logs + sign * (not is_checkpoint),
                )
                count = max(count, number + 1)
                if is_checkpoint:
                    for place in (group.partition, _TABLE):
                        total = weights.setdefault(
                            place, list(self.weight(None if place == _TABLE else place))
                        )
                        total[0] += sign * size
                        total[1] += sign * rows
        new = {changed[n].name: n for n in changed if n >= self.count}
        return replace(
            self,
            count=count,
            changed=self.changed.adding(changed),
            numbers=self.numbers.adding(new),
            recent=self.recent.adding(self._recent(changed)),
            weights=self.weights.adding(
                {name: (size, rows) for name, (size, rows) in weights.items()}
            ),
            tail=np.concatenate([self.tail, numbers]),
        )

    def _with_new(self, names: Sequence[str]) -> Int64s:
        """Return the number of each file id, new ones in the order in which they come."""
        numbers = self.number(names)
        fresh: dict[str, int] = {}
        for i in np.flatnonzero(numbers < 0).tolist():
            numbers[i] = fresh.setdefault(names[i], self.count + len(fresh))
        return numbers

    def _recent(self, changed: dict[int, Group]) -> dict[str, Any]:
        by_partition: dict[str, list[int]] = {}
        for number, group in changed.items():
            by_partition.setdefault(group.partition, []).append(number)
        return {name: (tuple(found), self.recent.get(name)) for name, found in by_partition.items()}
