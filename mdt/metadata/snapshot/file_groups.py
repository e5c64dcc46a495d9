"""The file groups of a snapshot by number: names, partitions, members and sizes.

Groups of the checkpoint keep its numbers, and new groups follow.  A number identifies the same
group until the next checkpoint.  A group without files keeps its number and has no members.
Changes of commits are layered over the checkpoint.  So a snapshot's groups cost no more than the
changes, however many files the table has.
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
"""Seed of the hashes for look-ups of file ids.  It may be constant, as ids are random."""

SMALL_LOOKED_AT_MAX = 4_096
"""Maximum number of changed file groups searched for room, newest first.

A small insert must not search a large table.
"""

GROUPED = ("file_id", "partition", "size", "rows", "kind")
"""Columns of files that file groups are made of."""

_FEW = 16
"""Up to this many names are read from single pages, more from the whole column."""

_TABLE = "\0"
"""Key of the whole table among partition paths, which cannot contain NUL."""

Int64s = npt.NDArray[np.int64]
Recent = tuple[tuple[int, ...], Any] | None


@dataclass(frozen=True, slots=True)
class Group:
    """A file group.

    ``members`` are the numbers of its files, oldest first.  ``bytes`` is their total size, and
    ``logs`` the number of log files.
    """

    name: str
    partition: str
    members: tuple[int, ...]
    bytes: int
    logs: int


@dataclass(frozen=True, slots=True)
class Small:
    """A file group with room: its number, its bytes and its number of log files."""

    group: int
    bytes: int
    logs: int


@dataclass(frozen=True)
class Groups:
    """The file groups of a snapshot.  See the module.

    - changed: Groups that differ from the checkpoint, by number.
    - numbers: Numbers of new groups, by name.
    - recent: Groups changed by each commit, newest first, by partition.
    - weights: (bytes, rows) of base files, by partition.
    - tail: Groups of the files after the checkpoint, int64[files].
    """

    checkpoint: Columns
    count: int
    changed: Layered[int, Group] = field(default_factory=Layered)
    numbers: Layered[str, int] = field(default_factory=Layered)
    recent: Layered[str, Any] = field(default_factory=Layered)
    weights: Layered[str, tuple[int, int]] = field(default_factory=Layered)
    tail: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def from_checkpoint(cls, checkpoint: Columns) -> Groups:
        """Return the groups of a checkpoint.  O(1)."""
        return cls(checkpoint, len(checkpoint.table("members_start")) - 1)

    @property
    def checkpoint_count(self) -> int:
        """Number of groups in the checkpoint."""
        return len(self.checkpoint.table("members_start")) - 1

    # Look-ups

    def number(self, names: Sequence[str]) -> Int64s:
        """Return the number of each file id, -1 if unknown -> int64[n].  O(n log groups)."""
        numbers = np.full(len(names), -1, np.int64)
        if not len(names):
            return numbers
        if self.numbers:
            for i, name in enumerate(names):
                number = self.numbers.get(name)
                if number is not None:
                    numbers[i] = number
        if self.checkpoint_count:
            missing = np.flatnonzero(numbers < 0)
            numbers[missing] = self._checkpoint_number([names[i] for i in missing.tolist()])
        return numbers

    def _checkpoint_number(self, names: Sequence[str]) -> Int64s:
        if len(names) > _FEW:
            return self._searched(names)
        cached: dict[str, int] = self.checkpoint.memo("groups that were asked for", dict)
        missing = [name for name in names if name not in cached]
        if missing:
            cached |= zip(missing, self._searched(missing).tolist(), strict=True)
        return np.array([cached[name] for name in names], np.int64)

    def _searched(self, names: Sequence[str]) -> Int64s:
        hashes, by_hash = (
            self.checkpoint.numpy("group_hash"),
            self.checkpoint.numpy("group_by_hash"),
        )
        wanted_names = pa.array(names, pa.string())
        words = hash_keys(wanted_names, NAME_SEED).hi
        at = np.minimum(np.searchsorted(hashes, words), len(hashes) - 1)
        numbers = np.full(len(names), -1, np.int64)
        remaining = np.flatnonzero(hashes[at] == words)
        # Equal hashes are adjacent.  A second round is very rare.
        while len(remaining):
            number = by_hash[at[remaining]].astype(np.int64)
            same = flags(
                pc.equal(self._checkpoint_names(number), wanted_names.take(pa.array(remaining)))
            )
            numbers[remaining[same]] = number[same]
            remaining = remaining[~same]
            at[remaining] += 1
            remaining = remaining[at[remaining] < len(hashes)]
            remaining = remaining[hashes[at[remaining]] == words[remaining]]
        return numbers

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
        checkpoint_names = self.checkpoint.table("group_name").column(0).to_pylist()
        return checkpoint_names + [
            self.name(number) for number in range(len(checkpoint_names), self.count)
        ]

    @property
    def _partition_names(self) -> npt.NDArray[np.object_]:
        def make() -> npt.NDArray[np.object_]:
            return np.array(
                self.checkpoint.table("partition_name").column(0).to_pylist(), dtype=object
            )

        paths: npt.NDArray[np.object_] = self.checkpoint.memo("partition names", make)
        return paths

    def partition(self, number: int) -> str:
        """Return the partition path of a group."""
        if number < self.checkpoint_count:
            return str(self._partition_names[self.checkpoint.numpy("group_partition")[number]])
        group = self.changed.get(number)
        assert group is not None, f"group {number} of {self.count}"
        return group.partition

    def partitions(self, numbers: Int64s) -> npt.NDArray[np.object_]:
        """Return the partition path of each group -> object[n], "" for -1.  O(n)."""
        partitions = np.full(len(numbers), "", dtype=object)
        in_checkpoint = (numbers >= 0) & (numbers < self.checkpoint_count)
        code = self.checkpoint.numpy("group_partition")[numbers[in_checkpoint]]
        partitions[in_checkpoint] = self._partition_names[code]
        added = np.flatnonzero(numbers >= self.checkpoint_count)
        if len(added):
            number = numbers[added] - self.checkpoint_count
            paths = np.full(int(number.max()) + 1, "", dtype=object)
            for index in np.flatnonzero(np.bincount(number)).tolist():
                paths[index] = self.partition(self.checkpoint_count + index)
            partitions[added] = paths[number]
        return partitions

    def places(self, numbers: Int64s, partitions: Sequence[str]) -> Int64s:
        """Return the index in ``partitions`` of each group's partition, or -1 -> int64[n].

        O(n + partitions).
        """
        places = np.full(len(numbers), -1, np.int64)
        place_of_code = np.full(len(self._partition_names), -1, np.int64)
        codes = self._partition_codes
        for place, path in enumerate(partitions):
            if path in codes:
                place_of_code[codes[path]] = place
        in_checkpoint = np.flatnonzero((numbers >= 0) & (numbers < self.checkpoint_count))
        places[in_checkpoint] = place_of_code[
            self.checkpoint.numpy("group_partition")[numbers[in_checkpoint]]
        ]
        added = np.flatnonzero(numbers >= self.checkpoint_count)
        if len(added):
            place_of = {path: place for place, path in enumerate(partitions)}
            places[added] = [
                place_of.get(self.partition(number), -1) for number in numbers[added].tolist()
            ]
        return places

    @property
    def _partition_codes(self) -> dict[str, int]:
        def make() -> dict[str, int]:
            return {name: code for code, name in enumerate(self._partition_names.tolist())}

        codes: dict[str, int] = self.checkpoint.memo("partition codes", make)
        return codes

    def has_partition(self, partition: str) -> bool:
        """Return True if ``partition`` has had a file group since the checkpoint."""
        return partition in self._partition_codes or partition in self.recent

    def of_files(self, numbers: Int64s) -> Int64s:
        """Return the group of each of the files ``numbers`` -> int64[n]."""
        groups = np.empty(len(numbers), np.int64)
        in_checkpoint = numbers < self.checkpoint.rows
        groups[in_checkpoint] = self.checkpoint.numpy("group")[numbers[in_checkpoint]]
        groups[~in_checkpoint] = self.tail[numbers[~in_checkpoint] - self.checkpoint.rows]
        return groups

    def members(self, number: int) -> Int64s:
        """Return the numbers of a group's files, oldest first -> int64[files]."""
        changed = self.changed.get(number)
        if changed is not None:
            return np.array(changed.members, np.int64)
        start = self.checkpoint.numpy("members_start")
        return self.checkpoint.numpy("members")[start[number] : start[number + 1]].astype(np.int64)

    def with_files(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the groups in ``names`` that have files."""
        numbers = self.number(names)
        return [number for number in numbers[numbers >= 0].tolist() if len(self.members(number))]

    def group(self, number: int) -> Group:
        """Return the current state of a group."""
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
        """Yield the groups of ``partition`` with fewer than ``bytes_max`` bytes, smallest first.

        Of the groups changed since the checkpoint, only the latest SMALL_LOOKED_AT_MAX are
        considered.
        """
        changed = sorted(
            self._changed_small(partition, bytes_max), key=lambda s: (s.bytes, s.group)
        )
        stored = self._checkpoint_small(partition, bytes_max)
        ahead = next(stored, None)
        for small in changed:
            while ahead is not None and (ahead.bytes, ahead.group) < (small.bytes, small.group):
                yield ahead
                ahead = next(stored, None)
            yield small
        if ahead is not None:
            yield ahead
            yield from stored

    def _changed_small(self, partition: str, bytes_max: int) -> Iterator[Small]:
        visited: set[int] = set()
        at: Recent = self.recent.get(partition)
        while at is not None and len(visited) < SMALL_LOOKED_AT_MAX:
            numbers, at = at
            for number in islice(numbers, SMALL_LOOKED_AT_MAX - len(visited)):
                group = None if number in visited else self.changed.get(number)
                visited.add(number)
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
        changed = self.weights.get(_TABLE if partition is None else partition)
        if changed is not None:
            return changed
        size, rows = map(self.checkpoint.numpy, ("partition_bytes", "partition_rows"))
        if partition is not None:
            code = self._partition_codes.get(partition, len(size))
            size, rows = size[code : code + 1], rows[code : code + 1]
        return int(size.sum()), int(rows.sum())

    # Change

    def after(
        self, added: pa.Table, first: int, removed: pa.Table, removed_numbers: Int64s
    ) -> Groups:
        """Return the groups after a commit.  O(files of the commit).

        ``added`` has the commit's files, numbered from ``first`` on.  ``removed`` has the files
        ``removed_numbers``.  Both have the columns GROUPED.
        """
        changed: dict[int, Group] = {}
        numbers = self._with_new(added["file_id"].to_pylist())
        count, weights = self.count, dict[str, list[int]]()

        def current(number: int, name: str, partition: str) -> Group:
            group = changed.get(number) or self.changed.get(number)
            if group is not None:
                return group
            if number < self.checkpoint_count:
                return self.group(number)
            return Group(name, partition, (), 0, 0)

        for files, file_numbers, group_numbers, sign in (
            (removed, removed_numbers.tolist(), self.of_files(removed_numbers), -1),
            (added, range(first, first + len(added)), numbers, 1),
        ):
            columns = (files[name].to_pylist() for name in GROUPED)
            for file, number, name, partition, size, rows, kind in zip(
                file_numbers, group_numbers.tolist(), *columns, strict=True
            ):
                group, is_base = current(number, name, partition), kind == BASE
                members = (
                    (*group.members, file)
                    if sign > 0
                    else tuple(n for n in group.members if n != file)
                )
                changed[number] = replace(
                    group,
                    members=members,
                    bytes=group.bytes + sign * size,
                    logs=group.logs + sign * (not is_base),
                )
                count = max(count, number + 1)
                if is_base:
                    for key in (group.partition, _TABLE):
                        total = weights.setdefault(
                            key, list(self.weight(None if key == _TABLE else key))
                        )
                        total[0] += sign * size
                        total[1] += sign * rows
        new_numbers = {changed[n].name: n for n in changed if n >= self.count}
        return replace(
            self,
            count=count,
            changed=self.changed.with_items(changed),
            numbers=self.numbers.with_items(new_numbers),
            recent=self.recent.with_items(self._recent(changed)),
            weights=self.weights.with_items(
                {name: (size, rows) for name, (size, rows) in weights.items()}
            ),
            tail=np.concatenate([self.tail, numbers]),
        )

    def _with_new(self, names: Sequence[str]) -> Int64s:
        """Return the number of each file id.  New ids get numbers in order of appearance."""
        numbers = self.number(names)
        new_numbers: dict[str, int] = {}
        for i in np.flatnonzero(numbers < 0).tolist():
            numbers[i] = new_numbers.setdefault(names[i], self.count + len(new_numbers))
        return numbers

    def _recent(self, changed: dict[int, Group]) -> dict[str, Any]:
        by_partition: dict[str, list[int]] = {}
        for number, group in changed.items():
            by_partition.setdefault(group.partition, []).append(number)
        return {
            name: (tuple(groups), self.recent.get(name)) for name, groups in by_partition.items()
        }
